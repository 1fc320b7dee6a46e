package poppy_test

import (
	"strings"
	"testing"

	"countersign/poppy"
)

// P-3-13 P-3-14 P-3-15 P-3-16 P-3-18 P-3-19 P-3-20: one rule for every URL that is exchanged.
func TestParseURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // "" for accepted, otherwise words of the rule
		"https://outdoor.example":                              "",
		"https://outdoor.example/":                             "",
		"https://outdoor.example:8443/a/b?c=d":                 "",
		"HTTPS://outdoor.example/a":                            "",
		"https://[2001:db8::1]/a":                              "",
		"":                                                     "required",
		"http://outdoor.example":                               "https",
		"ftp://outdoor.example":                                "https",
		"javascript:alert(1)":                                  "https",
		"//outdoor.example/a":                                  "https",
		"/a":                                                   "https",
		"outdoor.example":                                      "https",
		"https:outdoor.example":                                "host",
		"https:///a":                                           "host",
		"https://":                                             "host",
		"https://:443/a":                                       "host",
		"https://outdoor.example:/a":                           "host",
		"https://outdoor.example:port/a":                       "well-formed",
		"https://user@outdoor.example/a":                       "user name",
		"https://user:word@outdoor.example/a":                  "user name",
		"https://outdoor.example/a#b":                          "fragment",
		"https://outdoor.example/a#":                           "fragment",
		" https://outdoor.example":                             "ASCII",
		"https://outdoor.example/a b":                          "ASCII",
		"https://outdoor.example/\x7f":                         "ASCII",
		"https://outdoor.example/a\n":                          "ASCII",
		"https://öutdoor.example/":                             "ASCII",
		`https://outdoor.example\@evil.example/`:               "well-formed",
		"https://outdoor.example/%zz":                          "well-formed",
		"https://outdoor.example/" + strings.Repeat("a", 2024): "",
		"https://outdoor.example/" + strings.Repeat("a", 2025): "longer",
	} {
		u, err := poppy.ParseURL(text)
		switch {
		case want == "" && (err != nil || u == nil):
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || u != nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want a rule with %q", text, err, want)
		}
	}
}

func TestParseIssuerTakesNoQuery(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"https://auth.outdoor.example":        true,
		"https://auth.outdoor.example/shop-a": true,
		"https://auth.outdoor.example?":       false,
		"https://auth.outdoor.example/?a=b":   false,
		"https://auth.outdoor.example/#a":     false,
		"http://auth.outdoor.example":         false,
	} {
		if _, err := poppy.ParseIssuer(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// P-4.1-01
func TestParseClientID(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"https://agent.example/agent.json":      true,
		"https://agent.example/":                true,
		"https://agent.example:8443/a?b":        true,
		"https://agent.example":                 false,
		"http://agent.example/agent.json":       false,
		"https://agent.example/agent.json#a":    false,
		"https://me@agent.example/agent.json":   false,
		"https://agent.example/a/../agent.json": false,
		"https://agent.example/./agent.json":    false,
		"https://agent.example/%2e%2e/a.json":   false,
		"urn:example:agent":                     false,
	} {
		if _, err := poppy.ParseClientID(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// P-3.2-14 P-3.2-15
func TestMetadataURLPutsWellKnownBetweenHostAndPath(t *testing.T) {
	t.Parallel()
	for issuer, want := range map[string]string{
		"https://auth.outdoor.example":                "https://auth.outdoor.example/.well-known/oauth-authorization-server",
		"https://auth.outdoor.example/":               "https://auth.outdoor.example/.well-known/oauth-authorization-server",
		"https://auth.provider.example/shop-a":        "https://auth.provider.example/.well-known/oauth-authorization-server/shop-a",
		"https://auth.provider.example/shop-a/":       "https://auth.provider.example/.well-known/oauth-authorization-server/shop-a",
		"https://auth.provider.example:8443/eu/a%2Fb": "https://auth.provider.example:8443/.well-known/oauth-authorization-server/eu/a%2Fb",
	} {
		got, err := poppy.MetadataURL(issuer)
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", issuer, got, err, want)
		}
	}
	for _, issuer := range []string{"", "http://auth.outdoor.example", "https://auth.outdoor.example?a"} {
		if got, err := poppy.MetadataURL(issuer); err == nil || got != "" {
			t.Errorf("%s: got %s", issuer, got)
		}
	}
}

// Section 6, RFC 9728 section 3.1.
func TestResourceMetadataURL(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]string{
		"https://mcp.outdoor.example":           "https://mcp.outdoor.example/.well-known/oauth-protected-resource",
		"https://mcp.outdoor.example/":          "https://mcp.outdoor.example/.well-known/oauth-protected-resource",
		"https://mcp.outdoor.example/mcp":       "https://mcp.outdoor.example/.well-known/oauth-protected-resource/mcp",
		"https://mcp.outdoor.example/mcp/":      "https://mcp.outdoor.example/.well-known/oauth-protected-resource/mcp/",
		"https://mcp.outdoor.example?shop=a":    "https://mcp.outdoor.example/.well-known/oauth-protected-resource?shop=a",
		"https://mcp.outdoor.example/?shop=a":   "https://mcp.outdoor.example/.well-known/oauth-protected-resource?shop=a",
		"https://mcp.outdoor.example/mcp?a=b/c": "https://mcp.outdoor.example/.well-known/oauth-protected-resource/mcp?a=b/c",
	} {
		got, err := poppy.ResourceMetadataURL(resource)
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", resource, got, err, want)
		}
	}
	if _, err := poppy.ResourceMetadataURL("http://mcp.outdoor.example"); err == nil {
		t.Error("http accepted")
	}
}

func TestSubURLEscapesEverySegment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		endpoint string
		segments []string
		want     string
	}{
		{"https://api.outdoor.example/c", []string{"cnv_1", "messages"}, "https://api.outdoor.example/c/cnv_1/messages"},
		{"https://api.outdoor.example/c/", []string{"cnv_1"}, "https://api.outdoor.example/c/cnv_1"},
		{"https://api.outdoor.example", []string{"a"}, "https://api.outdoor.example/a"},
		{"https://api.outdoor.example/c?shop=a", []string{"cnv_1"}, "https://api.outdoor.example/c/cnv_1?shop=a"},
		{"https://api.outdoor.example/c", []string{"a/../b?c#d"}, "https://api.outdoor.example/c/a%2F..%2Fb%3Fc%23d"},
	} {
		if got := poppy.SubURL(test.endpoint, test.segments...); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func TestCheckDomain(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"outdoor.example":                    true,
		"OUTDOOR.example":                    true,
		"xn--bcher-kva.example":              true,
		"localhost":                          true,
		"":                                   false,
		"outdoor.example.":                   false,
		".outdoor.example":                   false,
		"outdoor..example":                   false,
		"https://outdoor.example":            false,
		"outdoor.example:443":                false,
		"outdoor.example/":                   false,
		"outdoor example":                    false,
		"-outdoor.example":                   false,
		"outdoor-.example":                   false,
		"bücher.example":                     false,
		"user@outdoor.example":               false,
		strings.Repeat("a", 64) + ".example": false,
		strings.Repeat("a.", 127) + "a":      false,
		strings.Repeat("a.", 126) + "a":      true,
	} {
		if err := poppy.CheckDomain(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// P-3-08 P-3-12 P-3.1-01
func TestSpeaksForHostIgnoresOnlyCase(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		domain, host string
		want         bool
	}{
		{"outdoor.example", "outdoor.example", true},
		{"Outdoor.Example", "outdoor.EXAMPLE", true},
		{"outdoor.example", "www.outdoor.example", false},
		{"www.outdoor.example", "outdoor.example", false},
		{"outdoor.example", "outdoor.example:8443", false},
		{"outdoor.example:8443", "outdoor.example:8443", false},
		{"outdoor.example.", "outdoor.example.", false},
		{"outdoor.example", "outdoor.example.", false},
		{"", "", false},
		{"\u212aayak.example", "kayak.example", false}, // a Kelvin sign folds to k in Unicode
	} {
		if got := poppy.SpeaksForHost(test.domain, test.host); got != test.want {
			t.Errorf("%q for %q: got %t", test.domain, test.host, got)
		}
	}
}

// P-3.2-18 P-3.2-19 P-3.2-20 P-3.2-21 P-3.2-12
func TestListsDomainComparesExactly(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]bool{
		"https://outdoor.example":              true,
		"https://OUTDOOR.example":              true,
		"https://outdoor.example/":             false,
		"https://outdoor.example/path":         false,
		"https://outdoor.example:443":          false,
		"https://outdoor.example?":             false,
		"https://outdoor.example#":             false,
		"https://outdoor.example.":             false,
		"https://user@outdoor.example":         false,
		"HTTPS://outdoor.example":              false,
		"http://outdoor.example":               false,
		"outdoor.example":                      false,
		"https://www.outdoor.example":          false,
		"https://outdoor.example.evil.example": false,
		" https://outdoor.example":             false,
	} {
		if got := poppy.ListsDomain([]string{"https://other.example", entry}, "outdoor.example"); got != want {
			t.Errorf("%q: got %t", entry, got)
		}
	}
	if poppy.ListsDomain(nil, "outdoor.example") {
		t.Error("an empty list lists it")
	}
	if !poppy.ListsDomain([]string{poppy.DomainResource("outdoor.example")}, "Outdoor.example") {
		t.Error("the domain's own resource does not list it")
	}
}

// P-4.1-05 P-4.1-06
func TestSameDomain(t *testing.T) {
	t.Parallel()
	const client = "https://agent.example/agent.json"
	for other, want := range map[string]bool{
		"https://agent.example/jwks.json":      true,
		"https://AGENT.example/jwks.json":      true,
		"https://agent.example:443/jwks":       true,
		"https://agent.example:8443/jwks":      false,
		"https://keys.agent.example/jwks":      false,
		"https://example/jwks":                 false,
		"https://agent.example.evil.example/j": false,
		"https://evilagent.example/jwks":       false,
		"http://agent.example/jwks.json":       false,
		"":                                     false,
	} {
		if got := poppy.SameDomain(client, other); got != want {
			t.Errorf("%q: got %t", other, got)
		}
		if got := poppy.SameDomain(other, client); got != want {
			t.Errorf("%q, the other way round: got %t", other, got)
		}
	}
}

// P-5-11 P-5-27
func TestOnDomain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"https://outdoor.example/orders":               true,
		"https://outdoor.example:443/orders":           true,
		"https://www.Outdoor.example/orders":           true,
		"https://a.b.outdoor.example":                  true,
		"http://outdoor.example/orders":                false,
		"https://outdoor.example:8443/orders":          false,
		"https://evil-outdoor.example":                 false,
		"https://evil.outdoor.example.evil.example":    false,
		"https://outdoor.example@evil.example/":        false,
		"https://evil.example/https://outdoor.example": false,
		"https://.outdoor.example/":                    false,
		"/orders":                                      false,
	} {
		if got := poppy.OnDomain(text, "outdoor.example"); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
	if poppy.OnDomain("https://outdoor.example/", "") || poppy.OnDomain("https://10.127.0.0.1/", "127.0.0.1") {
		t.Error("an empty domain or an address has subdomains")
	}
}
