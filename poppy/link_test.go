package poppy_test

import (
	"errors"
	"strings"
	"testing"

	"countersign/poppy"
)

func TestCheckLink(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		servedBy           string
		document, metadata []any
		want               poppy.LinkFault // "" for a link that holds
		says               []string        // what the text must show
	}{
		"both directions": {servedBy: "outdoor.example"},
		// P-3.1-01
		"case of the host": {servedBy: "OUTDOOR.example", metadata: []any{"protected_resources/0", "https://Outdoor.example"}},
		// P-3-12 P-3-08
		"copied to another host": {servedBy: "evil.example", want: poppy.WrongHost, says: []string{`"outdoor.example"`, `"evil.example"`}},
		"served by www":          {servedBy: "www.outdoor.example", want: poppy.WrongHost, says: []string{`"www.outdoor.example"`}},
		// P-3.2-17
		"issuer with a slash": {
			servedBy: "outdoor.example", metadata: []any{"issuer", "https://auth.outdoor.example/"},
			want: poppy.IssuerDiffers, says: []string{`"https://auth.outdoor.example"`, `"https://auth.outdoor.example/"`},
		},
		"issuer in another case": {servedBy: "outdoor.example", metadata: []any{"issuer", "https://AUTH.outdoor.example"}, want: poppy.IssuerDiffers},
		"issuer with its port":   {servedBy: "outdoor.example", metadata: []any{"issuer", "https://auth.outdoor.example:443"}, want: poppy.IssuerDiffers},
		// P-3.2-18
		"domain not listed": {
			servedBy: "outdoor.example", metadata: []any{"protected_resources", []any{"https://other.example"}},
			want: poppy.DomainNotListed, says: []string{`"https://outdoor.example"`},
		},
		// P-3.2-20
		"listed with a slash": {
			servedBy: "outdoor.example", metadata: []any{"protected_resources/0", "https://outdoor.example/"},
			want: poppy.DomainNotListed, says: []string{`"https://outdoor.example"`, `"https://outdoor.example/"`},
		},
		"listed with a port": {
			servedBy: "outdoor.example", metadata: []any{"protected_resources/0", "https://Outdoor.example:443"},
			want: poppy.DomainNotListed, says: []string{`"https://Outdoor.example:443"`},
		},
		"listed without scheme": {
			servedBy: "outdoor.example", metadata: []any{"protected_resources/0", "outdoor.example"},
			want: poppy.DomainNotListed, says: []string{`lists "outdoor.example"`},
		},
		"only a page of it is listed": {servedBy: "outdoor.example", metadata: []any{"protected_resources/0", "https://outdoor.example/a"}, want: poppy.DomainNotListed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := poppy.CheckLink(document(t, test.document...), test.servedBy, metadata(t, test.metadata...))
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			link, ok := errors.AsType[*poppy.LinkError](err)
			if !ok || link.Fault != test.want {
				t.Fatalf("got %v, want %s", err, test.want)
			}
			for _, words := range test.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not show %s", err, words)
				}
			}
		})
	}
}

// Section 3: in this order.
func TestCheckLinkTakesTheFirstDirectionFirst(t *testing.T) {
	t.Parallel()
	err := poppy.CheckLink(document(t), "evil.example", poppy.IssuerMetadata{})
	if link, ok := errors.AsType[*poppy.LinkError](err); !ok || link.Fault != poppy.WrongHost {
		t.Errorf("got %v", err)
	}
}

// Q12: the likeliest reason why an earlier draft's documents do not fit.
func TestCheckLinkNamesTheVersion(t *testing.T) {
	t.Parallel()
	old := document(t, "protocol_version", "0.1")
	for name, m := range map[string]poppy.IssuerMetadata{
		"issuer":    metadata(t, "issuer", "https://auth.outdoor.example/"),
		"resources": metadata(t, "protected_resources", []any{"https://other.example"}),
	} {
		err := poppy.CheckLink(old, "outdoor.example", m)
		version, ok := errors.AsType[*poppy.VersionError](err)
		if _, isLink := errors.AsType[*poppy.LinkError](err); !ok || !isLink || version.Version != "0.1" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := poppy.CheckLink(old, "outdoor.example", metadata(t)); err != nil {
		t.Errorf("a link that holds: %v", err)
	}
}

func TestCheckLinkWithoutAuthHasOneDirection(t *testing.T) {
	t.Parallel()
	d := document(t, "auth", gone, "agent", gone, "web", gone, "feedback", gone, "apis", gone, "extensions", gone)
	if err := poppy.CheckLink(d, "outdoor.example", poppy.IssuerMetadata{}); err != nil {
		t.Error(err)
	}
	if err := poppy.CheckLink(d, "evil.example", poppy.IssuerMetadata{}); err == nil {
		t.Error("on another host")
	}
}

func TestCheckPublication(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		document, metadata []any
		want               []string
	}{
		"as it should be":  {},
		"another issuer":   {metadata: []any{"issuer", "https://auth.outdoor.example/"}, want: []string{"issuer"}},
		"P-3.2-11 unnamed": {document: []any{"organization/domain", "third.example"}, want: []string{"protected_resources"}},
		"P-3.2-32 a scope of its own not listed": {
			metadata: []any{"scopes_supported", []any{"poppy:read"}}, want: []string{"scopes_supported"},
		},
		"P-3.2-32 a mediated scope not listed": {
			metadata: []any{"scopes_supported", []any{"addresses"}}, want: []string{"scopes_supported"},
		},
		"P-3.2-31 mediated sign-in and no scopes": {
			metadata: []any{"scopes_supported", gone}, document: []any{"auth/scopes", gone}, want: []string{"scopes_supported"},
		},
		"no sign-in and no scopes": {
			metadata: []any{"scopes_supported", gone}, document: []any{"auth/scopes", gone, "auth/mediated", gone},
		},
		"more scopes than documents name": {metadata: []any{"scopes_supported/3", "internal"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFields(t, poppy.CheckPublication(document(t, test.document...), metadata(t, test.metadata...)), test.want...)
		})
	}
}
