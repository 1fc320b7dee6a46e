package discovery_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/internal/fakecompany"
	"countersign/internal/fetch"
	"countersign/poppy"
)

const (
	documentURL = "https://outdoor.example/.well-known/poppy.json"
	metadataURL = "https://auth.outdoor.example/.well-known/oauth-authorization-server"
)

// object is a JSON object that a test writes.
type object = map[string]any

// world serves documents.
type world struct {
	*fakecompany.World
	resolver *discovery.Resolver
	clock    *fakecompany.Clock
	document object
	metadata object

	mutex sync.Mutex
}

// newWorld serves one Company with the smallest documents that work.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		World: fakecompany.NewWorld(t, fakecompany.Hosts...),
		clock: &fakecompany.Clock{},
		document: object{
			"protocol_version": "0.3",
			"organization":     object{"name": "Outdoor", "domain": "outdoor.example"},
			"auth":             object{"issuer": "https://auth.outdoor.example"},
		},
		metadata: object{
			"issuer":                "https://auth.outdoor.example",
			"token_endpoint":        "https://auth.outdoor.example/token",
			"revocation_endpoint":   "https://auth.outdoor.example/revoke",
			"grant_types_supported": []string{poppy.GrantJWTBearer, poppy.GrantRefreshToken},
			"protected_resources":   []string{"https://outdoor.example"},
		},
	}
	client := fetch.New(w.Fetch)
	t.Cleanup(client.Close)
	w.resolver = discovery.New(client, w.clock.Now)
	w.Handle("GET outdoor.example/.well-known/poppy.json", w.serve(&w.document, nil))
	w.Handle("GET auth.outdoor.example/.well-known/oauth-authorization-server", w.serve(&w.metadata, nil))
	return w
}

func (w *world) serve(document *object, header http.Header) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		maps.Copy(rw.Header(), header)
		fakecompany.WriteJSON(rw, 200, *document)
	}
}

func (w *world) count(url string) int { return len(w.Requests(url)) }

func (w *world) resolve(t *testing.T, domain string) (discovery.Company, error) {
	t.Helper()
	return w.resolver.Resolve(t.Context(), domain)
}

func TestACompanyIsResolvedWithATrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company, err := w.resolve(t, "outdoor.example")
	if err != nil {
		t.Fatal(err)
	}
	if company.Domain != "outdoor.example" || company.Name != "Outdoor" || company.Issuer != "https://auth.outdoor.example" || company.Version != "0.3" {
		t.Errorf("%+v", company)
	}
	var checks []string
	for _, step := range company.Steps {
		checks = append(checks, step.Check)
		if !step.OK || step.Text == "" {
			t.Errorf("step %+v", step)
		}
	}
	if got := strings.Join(checks, " "); got != "domain document host metadata issuer listed" {
		t.Errorf("steps %s", got)
	}
	// P-3.2-16: the metadata before anything else
	requests := w.Requests()
	if len(requests) != 2 || requests[0].URL.String() != documentURL || requests[1].URL.String() != metadataURL {
		t.Errorf("requests %v", requests)
	}
}

func TestRedirectsOfTheWellKnownURLAreFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Handle("GET www.outdoor.example/.well-known/poppy.json", func(rw http.ResponseWriter, r *http.Request) {
				http.Redirect(rw, r, documentURL, status)
			})
			// P-3-05, P-3-08: the document speaks for the host that served it in the end
			company, err := w.resolve(t, "www.outdoor.example")
			if err != nil || company.Domain != "outdoor.example" {
				t.Fatalf("%+v, %v", company, err)
			}
			if step := company.Steps[1]; !strings.Contains(step.Text, "https://www.outdoor.example/.well-known/poppy.json") || !strings.Contains(step.Text, documentURL) {
				t.Errorf("step %+v", step)
			}
		})
	}
}

// P-3-08: and not for the host that was asked first.
func TestADocumentDoesNotSpeakForTheHostThatRedirected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.document["organization"] = object{"name": "Outdoor", "domain": "www.outdoor.example"}
	w.metadata["protected_resources"] = []string{"https://outdoor.example", "https://www.outdoor.example"}
	w.Handle("GET www.outdoor.example/.well-known/poppy.json", func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, documentURL, http.StatusFound)
	})
	w.refused(t, "www.outdoor.example", discovery.CheckHost, `"www.outdoor.example"`, `"outdoor.example"`)
}

// refused resolves a domain that must be refused at a check, with these texts for a person, and with nothing used of what
// was not checked.
func (w *world) refused(t *testing.T, domain, check string, says ...string) {
	t.Helper()
	company, err := w.resolve(t, domain)
	refusal, ok := errors.AsType[*discovery.Refusal](err)
	if !ok || company.Domain != "" || company.Steps != nil {
		t.Fatalf("got %+v, %v", company, err)
	}
	if last := refusal.Steps[len(refusal.Steps)-1]; last.Check != check || last.OK {
		t.Errorf("refused at %+v, not at %s: %v", last, check, err)
	}
	for _, text := range append(says, domain) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the refusal does not say %s: %v", text, err)
		}
	}
	for _, r := range w.Requests() {
		if r.URL.Path != poppy.DocumentPath && !strings.HasPrefix(r.URL.Path, poppy.IssuerMetadataPath) {
			t.Errorf("%s was used", r.URL)
		}
	}
	if check == discovery.CheckHost && w.count("https://auth.") != 0 {
		t.Error("the issuer of a document that speaks for another host was asked")
	}
}

func TestDocumentsThatCannotBeTrustedAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world)
		check  string
		says   []string
	}{
		// P-3-12: copied from another domain
		"another host's document": {func(w *world) {
			w.document["organization"] = object{"name": "Other", "domain": "other.example"}
		}, discovery.CheckHost, []string{`"other.example"`, `"outdoor.example"`}},
		// P-3.2-17
		"issuer with a last slash": {
			func(w *world) { w.metadata["issuer"] = "https://auth.outdoor.example/" },
			discovery.CheckIssuer,
			[]string{`"https://auth.outdoor.example"`, `"https://auth.outdoor.example/"`},
		},
		"issuer in other case": {
			func(w *world) { w.metadata["issuer"] = "https://AUTH.outdoor.example" },
			discovery.CheckIssuer,
			[]string{`"https://AUTH.outdoor.example"`},
		},
		"issuer with its port": {
			func(w *world) { w.metadata["issuer"] = "https://auth.outdoor.example:443" },
			discovery.CheckIssuer,
			[]string{`"https://auth.outdoor.example:443"`},
		},
		// P-3.2-18, P-3-11
		"no protected_resources": {func(w *world) { delete(w.metadata, "protected_resources") }, discovery.CheckMetadata, []string{"protected_resources"}},
		"domain not listed": {
			func(w *world) { w.metadata["protected_resources"] = []string{"https://other.example"} },
			discovery.CheckListed,
			[]string{`"https://outdoor.example"`},
		},
		// P-3.2-19, P-3.2-20
		"listed with a slash": {
			func(w *world) { w.metadata["protected_resources"] = []string{"https://outdoor.example/"} },
			discovery.CheckListed,
			[]string{`"https://outdoor.example/"`, `"https://outdoor.example"`},
		},
		"listed with a path": {func(w *world) { w.metadata["protected_resources"] = []string{"https://outdoor.example/x"} }, discovery.CheckListed, nil},
		"listed with a port": {func(w *world) { w.metadata["protected_resources"] = []string{"https://outdoor.example:443"} }, discovery.CheckListed, nil},
		"listed as HTTPS://": {func(w *world) { w.metadata["protected_resources"] = []string{"HTTPS://outdoor.example"} }, discovery.CheckListed, nil},
		"a bare domain":      {func(w *world) { w.metadata["protected_resources"] = []string{"outdoor.example"} }, discovery.CheckListed, nil},
		// P-3-19: http is never used
		"http issuer": {func(w *world) { w.document["auth"] = object{"issuer": "http://auth.outdoor.example"} }, discovery.CheckDocument, []string{"auth.issuer"}},
		"http token endpoint": {
			func(w *world) { w.metadata["token_endpoint"] = "http://auth.outdoor.example/token" },
			discovery.CheckMetadata,
			[]string{"token_endpoint"},
		},
		"http API": {func(w *world) {
			w.document["apis"] = []any{object{"type": "openapi", "url": "http://api.outdoor.example/openapi.json"}}
		}, discovery.CheckDocument, []string{"apis[0].url"}},
		"http conversations": {func(w *world) {
			w.document["agent"] = object{"protocols": []any{object{"type": "poppy", "endpoint": "http://api.outdoor.example/c"}}}
		}, discovery.CheckDocument, []string{"agent.protocols[0].endpoint"}},
		"http mediated": {func(w *world) {
			w.document["auth"] = object{"issuer": "https://auth.outdoor.example", "mediated": object{
				"endpoint": "http://auth.outdoor.example/m", "scopes": []string{"poppy:read"},
				"fields": []any{object{"name": "email", "label": "Email"}},
			}}
		}, discovery.CheckDocument, []string{"auth.mediated.endpoint"}},
		// P-3-16
		"http operations": {func(w *world) {
			w.document["extensions"] = object{"operations": object{"version": "1", "endpoint": "http://api.outdoor.example/o"}}
		}, discovery.CheckDocument, []string{"extensions.operations.endpoint"}},
		"another version": {func(w *world) { w.document["protocol_version"] = "1.0" }, discovery.CheckDocument, []string{`"1.0"`, `"0.3"`}},
		"an older draft": {func(w *world) {
			w.document["protocol_version"] = "0.1"
			w.metadata["protected_resources"] = []string{"https://other.example"}
		}, discovery.CheckListed, []string{`"0.1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.change(w)
			w.refused(t, "outdoor.example", c.check, c.says...)
		})
	}
}

// P-3.2-16, P-3-11: without metadata the document is not used.
func TestWithoutMetadataTheDocumentIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"missing": http.NotFound,
		"broken":  func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(`{"issuer":`)) },
		"a redirect": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://capture.example/", http.StatusFound)
		},
		"server down": func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.document["auth"] = object{"issuer": "https://auth.outdoor.example/shop-a"}
			w.Handle("GET auth.outdoor.example/.well-known/oauth-authorization-server/shop-a", answer)
			w.refused(t, "outdoor.example", discovery.CheckMetadata)
			if w.count("https://capture.example") != 0 {
				t.Error("the metadata's redirect was followed")
			}
		})
	}
}

func TestWhatIsNotAPoppyDocumentIsExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"nothing there": {http.NotFound, "does not take part in the protocol"},
		"a web page": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(" <!doctype html><title>Home</title>"))
		}, "web page"},
		"too large": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`))
		}, "65536 bytes"},
		// P-3-06: no request is made there
		"a redirect to http": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://outdoor.example/.well-known/poppy.json", http.StatusFound)
		}, "https"},
		"redirects without end": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, r.URL.Path+"?again", http.StatusFound)
		}, "redirects"},
		// P-3-27: not even by a redirect
		"a redirect to a private address": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://127.0.0.1/.well-known/poppy.json", http.StatusFound)
		}, "refuses to connect to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Handle("GET other.example/.well-known/poppy.json", c.answer)
			w.refused(t, "other.example", discovery.CheckDocument, c.says)
		})
	}
}

func TestHostsAreComparedIgnoringCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.document["organization"] = object{"name": "Outdoor", "domain": "Outdoor.EXAMPLE"} // P-3.1-01
	w.metadata["protected_resources"] = []string{"https://OUTDOOR.example"}             // P-3.2-19
	company, err := w.resolve(t, "outdoor.example")
	if err != nil || company.Domain != "outdoor.example" {
		t.Errorf("%+v, %v", company, err)
	}
}

// P-3.2-15: the well-known part stands between host and path.
func TestTheMetadataOfAnIssuerWithAPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.document["auth"] = object{"issuer": "https://auth.outdoor.example/shop-a"}
	w.metadata["issuer"] = "https://auth.outdoor.example/shop-a"
	w.Handle("GET auth.outdoor.example/.well-known/oauth-authorization-server/shop-a", w.serve(&w.metadata, nil))
	company, err := w.resolve(t, "outdoor.example")
	if err != nil || company.Issuer != "https://auth.outdoor.example/shop-a" || w.count(metadataURL+"/shop-a") != 1 {
		t.Errorf("%+v, %v, %v", company, err, w.Requests())
	}
}

// P-3.2-38, P-3.2-39, P-3.3-05, P-3.3-07, P-6-02, P-7.1-03
func TestWhatIsNotKnownIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.document["later_field"] = object{"a": 1}
	w.document["extensions"] = object{"outdoor.example/gift-wrap": object{"version": "7", "endpoint": "http://x"}, "operations": object{"version": "2", "endpoint": 5}}
	w.document["apis"] = []any{object{"type": "graphql2", "url": 5}, object{"type": "openapi", "url": "https://api.outdoor.example/o.json"}}
	w.document["agent"] = object{"protocols": []any{object{"type": "x-new", "endpoint": 7}, object{"type": "poppy", "endpoint": "https://api.outdoor.example/c"}}}
	w.metadata["jwks_uri"] = 5
	w.metadata["response_types_supported"] = object{}
	company, err := w.resolve(t, "outdoor.example")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range company.Endpoints() {
		kinds = append(kinds, string(e.Kind))
	}
	if got := strings.Join(kinds, " "); got != "token revocation openapi conversations" {
		t.Errorf("endpoints %s", got)
	}
}

func TestEndpointsSayWhatTheDocumentsSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.document["auth"] = object{"issuer": "https://auth.outdoor.example", "mediated": object{
		"endpoint": "https://third.example/m", "scopes": []string{"poppy:read"}, "fields": []any{object{"name": "email", "label": "Email"}},
	}}
	w.document["web"] = object{"browser_session_endpoint": "https://outdoor.example/join"}
	w.document["feedback"] = object{"endpoint": "https://api.outdoor.example/f"}
	w.document["extensions"] = object{"operations": object{"version": "1", "endpoint": "https://api.outdoor.example/o", "resource": "https://api.outdoor.example"}}
	w.document["agent"] = object{"protocols": []any{object{"type": "poppy", "endpoint": "https://third.example/c"}}}
	w.document["apis"] = []any{
		object{"type": "openapi", "url": "https://api.outdoor.example/o.json", "description": "Orders", "resource": "https://api.outdoor.example"},
		object{"type": "mcp", "url": "https://mcp.outdoor.example/mcp", "resource": "https://ignored.example"},
	}
	w.metadata["authorization_endpoint"] = "https://auth.outdoor.example/authorize"
	w.metadata["device_authorization_endpoint"] = "https://auth.outdoor.example/device"
	company, err := w.resolve(t, "outdoor.example")
	if err != nil {
		t.Fatal(err)
	}
	// P-3.2-27, P-3.2-28: an endpoint alone offers nothing
	for _, kind := range []discovery.Kind{discovery.Authorization, discovery.DeviceAuthorization} {
		if e, ok := company.Endpoint(kind); ok {
			t.Errorf("offered: %+v", e)
		}
	}
	for _, want := range []discovery.Endpoint{
		{Kind: discovery.MediatedSignIn, URL: "https://third.example/m"},
		{Kind: discovery.BrowserSession, URL: "https://outdoor.example/join"},
		{Kind: discovery.OpenAPI, URL: "https://api.outdoor.example/o.json", Resource: "https://api.outdoor.example", Description: "Orders"},
		{Kind: discovery.MCP, URL: "https://mcp.outdoor.example/mcp", Resource: "https://mcp.outdoor.example/mcp"},
		{Kind: discovery.Conversations, URL: "https://third.example/c"}, // P-9.3-01, P-7.1-02, P-7.1-04: on any host
		{Kind: discovery.Feedback, URL: "https://api.outdoor.example/f"},
		{Kind: discovery.Operations, URL: "https://api.outdoor.example/o", Resource: "https://api.outdoor.example"},
	} {
		if got, ok := company.Endpoint(want.Kind); !ok || got != want {
			t.Errorf("%s: %+v", want.Kind, got)
		}
	}

	w.metadata["grant_types_supported"] = []string{poppy.GrantJWTBearer, poppy.GrantRefreshToken, poppy.GrantAuthorizationCode, poppy.GrantDeviceCode}
	if company, err = w.resolve(t, "outdoor.example"); err != nil {
		t.Fatal(err)
	}
	for kind, url := range map[discovery.Kind]string{
		discovery.Authorization: "https://auth.outdoor.example/authorize", discovery.DeviceAuthorization: "https://auth.outdoor.example/device",
	} {
		if e, ok := company.Endpoint(kind); !ok || e.URL != url {
			t.Errorf("%s: %+v", kind, e)
		}
	}
}

// P-3-21: a Company may have nothing but a website.
func TestAWebsiteNeedsNoIssuer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.document = object{"protocol_version": "0.3", "organization": object{"name": "Outdoor", "domain": "outdoor.example"}}
	company, err := w.resolve(t, "outdoor.example")
	if err != nil || company.Issuer != "" || len(company.Endpoints()) != 0 || w.count(metadataURL) != 0 {
		t.Errorf("%+v, %v", company, err)
	}
}

// P-3-07, P-3.2-40
func TestDocumentsAreCachedAsTheirHeadersSay(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]int{"max-age=600": 1, "no-store": 2, "": 2} {
		t.Run(header, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Before(func(rw http.ResponseWriter, _ *http.Request) bool {
				if header != "" {
					rw.Header().Set("Cache-Control", header)
				}
				return false
			})
			for range 2 {
				if _, err := w.resolve(t, "outdoor.example"); err != nil {
					t.Fatal(err)
				}
			}
			if d, m := w.count(documentURL), w.count(metadataURL); d != want || m != want {
				t.Errorf("document %d times, metadata %d times", d, m)
			}
			// After max-age, what is there now is used.
			w.mutex.Lock()
			w.document["organization"] = object{"name": "Renamed", "domain": "outdoor.example"}
			w.mutex.Unlock()
			w.clock.Advance(11 * time.Minute)
			company, err := w.resolve(t, "outdoor.example")
			if err != nil || company.Name != "Renamed" {
				t.Errorf("%q, %v", company.Name, err)
			}
		})
	}
}

func TestParseDomain(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"outdoor.example":           "outdoor.example",
		"  Outdoor.Example. ":       "outdoor.example",
		"xn--bcher-kva.example":     "xn--bcher-kva.example",
		"shop.deep.outdoor.example": "shop.deep.outdoor.example",
	} {
		if got, err := discovery.ParseDomain(input); err != nil || got != want {
			t.Errorf("%q: %q, %v", input, got, err)
		}
	}
	for input, says := range map[string]string{
		"":                                   "give the Company's domain",
		"https://outdoor.example/x":          `"outdoor.example"`,
		"http://outdoor.example":             `"outdoor.example"`,
		"outdoor.example/path":               `"outdoor.example"`,
		"outdoor.example:8443":               `"outdoor.example"`,
		"help@outdoor.example":               `"outdoor.example"`,
		"https://user@outdoor.example:1":     `"outdoor.example"`,
		"bücher.example":                     "xn--",
		"127.0.0.1":                          "address",
		"::1":                                "",
		"[::1]":                              "",
		"localhost":                          "not a domain",
		"a..example":                         "not a domain",
		"-a.example":                         "not a domain",
		"under_score.example":                "not a domain",
		"two words.example":                  "not a domain",
		strings.Repeat("a", 64) + ".example": "not a domain",
	} {
		got, err := discovery.ParseDomain(input)
		if err == nil || got != "" || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v", input, got, err)
		}
	}
}

func FuzzParseDomain(f *testing.F) {
	for _, seed := range []string{"outdoor.example", "https://outdoor.example/x?y#z", "a@b.example:1", "[::1]", "bücher.example", "//", "a.b."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		domain, err := discovery.ParseDomain(input)
		if err != nil {
			if domain != "" {
				t.Errorf("%q: a result with an error", input)
			}
			return
		}
		again, err := discovery.ParseDomain(domain)
		if err != nil || again != domain || poppy.CheckDomain(domain) != nil || strings.ToLower(domain) != domain {
			t.Errorf("%q gives %q, which gives %q, %v", input, domain, again, err)
		}
	})
}
