package poppy_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"countersign/poppy"
)

func document(t testing.TB, edits ...any) poppy.Document {
	t.Helper()
	d, err := poppy.ParseDocument(load(t, "poppy.json", edits...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// P-3-10 P-3-30 P-3-31 P-3-32 P-3-33 P-3.3-01 P-7.1-01 P-8-02 O-2-01
func TestDocumentIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	d := document(t)
	wantSame(t, d, load(t, "poppy.json"))
	if err := d.ValidateForPublishing(); err != nil {
		t.Error(err)
	}
	conversations, offered := d.Conversations()
	operations, listed := d.Extensions.Operations()
	if d.Issuer() != "https://auth.outdoor.example" ||
		!offered || conversations.Endpoint != "https://api.outdoor.example/poppy/conversations" ||
		!listed || operations.Endpoint != "https://api.outdoor.example/poppy/operations" ||
		d.Web.BrowserSessionEndpoint != "https://outdoor.example/poppy/browser-session" ||
		d.Feedback.Endpoint != "https://api.outdoor.example/poppy/feedback" ||
		d.Auth.Scopes["addresses"] != "Manage saved shipping addresses" ||
		len(d.KnownAPIs()) != 2 {
		t.Errorf("got %+v", d)
	}
	fields := d.Auth.Mediated.Fields
	if len(fields) != 2 || fields[0] != (poppy.CredentialField{Name: "email", Label: "Email"}) ||
		fields[1] != (poppy.CredentialField{Name: "password", Label: "Password", Secret: true}) {
		t.Errorf("got fields %+v", fields)
	}
	// O-2-03 P-4.3-69: a service may want tokens of its own.
	separate := document(t, "extensions/operations/resource", "https://api.outdoor.example/poppy/operations",
		"apis/0/resource", "https://api.outdoor.example", "agent/protocols/0/resource", "https://api.outdoor.example/poppy/conversations")
	operations, _ = separate.Extensions.Operations()
	conversations, _ = separate.Conversations()
	if operations.Resource != operations.Endpoint || conversations.Resource != conversations.Endpoint || separate.APIs[0].TokenResource() != "https://api.outdoor.example" {
		t.Errorf("got %+v, %+v, %+v", operations, conversations, separate.APIs[0])
	}
	// P-4.3-47: a token for an MCP server is for its url; for others any will do.
	if apis := d.KnownAPIs(); apis[0].TokenResource() != "" || apis[1].TokenResource() != "https://mcp.outdoor.example/mcp" {
		t.Errorf("got resources of %+v", apis)
	}
}

func TestDocumentFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		// P-3-30
		"no version":          {[]any{"protocol_version", gone}, []string{"protocol_version"}},
		"version is a number": {[]any{"protocol_version", 0.3}, []string{"protocol_version"}},
		"version malformed":   {[]any{"protocol_version", "v0.3"}, []string{"protocol_version"}},
		"version incomplete":  {[]any{"protocol_version", "0."}, []string{"protocol_version"}},
		// P-3-31
		"no organization": {[]any{"organization", gone}, []string{"organization.name", "organization.domain"}},
		"blank name":      {[]any{"organization/name", " "}, []string{"organization.name"}},
		"domain as a URL": {[]any{"organization/domain", "https://outdoor.example"}, []string{"organization.domain"}},
		"domain and port": {[]any{"organization/domain", "outdoor.example:443"}, []string{"organization.domain"}},
		// P-3-10
		"no auth":         {[]any{"auth", gone}, []string{"auth"}},
		"no issuer":       {[]any{"auth/issuer", gone}, []string{"auth.issuer"}},
		"issuer by http":  {[]any{"auth/issuer", "http://auth.outdoor.example"}, []string{"auth.issuer"}},
		"issuer queries":  {[]any{"auth/issuer", "https://auth.outdoor.example?a"}, []string{"auth.issuer"}},
		"auth is a text":  {[]any{"auth", "https://auth.outdoor.example"}, []string{"auth"}},
		"scope with gap":  {[]any{"auth/scopes", map[string]any{"a b": "c"}}, []string{"auth.scopes"}},
		"null for issuer": {[]any{"auth/issuer", nil}, []string{"auth.issuer"}},
		// P-3-32
		"mediated by http":    {[]any{"auth/mediated/endpoint", "http://auth.outdoor.example"}, []string{"auth.mediated.endpoint"}},
		"mediated asks none":  {[]any{"auth/mediated/fields", []any{}}, []string{"auth.mediated.fields"}},
		"mediated no scopes":  {[]any{"auth/mediated/scopes", gone}, []string{"auth.mediated.scopes"}},
		"mediated bad scope":  {[]any{"auth/mediated/scopes", []any{"a b"}}, []string{"auth.mediated.scopes[0]"}},
		"field without name":  {[]any{"auth/mediated/fields/0/name", gone}, []string{"auth.mediated.fields[0].name"}},
		"field without label": {[]any{"auth/mediated/fields/1/label", ""}, []string{"auth.mediated.fields[1].label"}},
		"two fields, a name":  {[]any{"auth/mediated/fields/1/name", "email"}, []string{"auth.mediated.fields[1].name"}},
		"secret is a text":    {[]any{"auth/mediated/fields/1/secret", "yes"}, []string{"auth.mediated.fields[1].secret"}},
		// P-7.1-01
		"no protocols":      {[]any{"agent/protocols", gone}, []string{"agent.protocols"}},
		"protocol by http":  {[]any{"agent/protocols/0/endpoint", "http://api.outdoor.example"}, []string{"agent.protocols[0].endpoint"}},
		"protocol resource": {[]any{"agent/protocols/0/resource", "urn:a"}, []string{"agent.protocols[0].resource"}},
		"protocol no type":  {[]any{"agent/protocols/0/type", gone}, []string{"agent.protocols[0].type"}},
		// P-3-13 P-3-19
		"browser by http":     {[]any{"web/browser_session_endpoint", "http://outdoor.example/b"}, []string{"web.browser_session_endpoint"}},
		"feedback by http":    {[]any{"feedback/endpoint", "http://outdoor.example/f"}, []string{"feedback.endpoint"}},
		"feedback no URL":     {[]any{"feedback/endpoint", gone}, []string{"feedback.endpoint"}},
		"API by http":         {[]any{"apis/1/url", "http://mcp.outdoor.example"}, []string{"apis[1].url"}},
		"feedback's resource": {[]any{"feedback/resource", "http://outdoor.example"}, []string{"feedback.resource"}},
		"API's resource":      {[]any{"apis/0/resource", "orders"}, []string{"apis[0].resource"}},
		"API without URL":     {[]any{"apis/0/url", gone}, []string{"apis[0].url"}},
		"API without type":    {[]any{"apis/0/type", gone}, []string{"apis[0].type"}},
		// P-3-16
		"operations by http":     {[]any{"extensions/operations/endpoint", "http://api.outdoor.example"}, []string{"extensions.operations.endpoint"}},
		"operations' resource":   {[]any{"extensions/operations/resource", "http://api.outdoor.example"}, []string{"extensions.operations.resource"}},
		"operations no endpoint": {[]any{"extensions/operations/endpoint", gone}, []string{"extensions.operations.endpoint"}},
		"operations URL a list":  {[]any{"extensions/operations/endpoint", []any{}}, []string{"extensions.operations.endpoint"}},
		"all of them, in order": {
			[]any{"apis/0/url", "", "organization/name", "", "auth/issuer", "x", "web/browser_session_endpoint", "x"},
			[]string{"organization.name", "auth.issuer", "web.browser_session_endpoint", "apis[0].url"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := poppy.ParseDocument(load(t, "poppy.json", test.edits...))
			wantFields(t, err, test.want...)
			if d.Organization != (poppy.Organization{}) || d.Auth != nil || d.APIs != nil {
				t.Errorf("a document together with an error: %+v", d)
			}
		})
	}
}

func TestDocumentLeniency(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]any{
		// P-3.3-07
		"unknown fields anywhere": {"x", 1, "organization/x", []any{}, "auth/x", map[string]any{}, "apis/0/x", "y", "web/x", true, "agent/x", nil},
		// P-6-02: whatever an entry of an unknown type holds
		"API of an unknown type": {"apis/2", map[string]any{"type": "graphql", "url": map[string]any{"a": 1}, "description": 5}},
		// P-7.1-03
		"protocol of an unknown type": {"agent/protocols/1", map[string]any{"type": "other", "endpoint": 5}},
		// P-3.3-05
		"unknown extensions":           {"extensions/gift-wrap", map[string]any{"endpoint": "http://a"}, "extensions/x", 5},
		"operations in a next version": {"extensions/operations", map[string]any{"version": "2", "endpoint": 5}},
		"operations malformed":         {"extensions/operations", "yes"},
		"next draft":                   {"protocol_version", "0.4"},
		"no description":               {"apis/0/description", gone},
		"everything optional left out": {"agent", gone, "web", gone, "feedback", gone, "apis", gone, "extensions", gone, "auth/mediated", gone, "auth/scopes", gone},
		"nulls for what is optional":   {"agent", nil, "web", nil, "feedback", nil, "apis", nil, "extensions", nil, "auth/mediated", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := poppy.ParseDocument(load(t, "poppy.json", edits...)); err != nil {
				t.Error(err)
			}
		})
	}
}

// P-3.3-05
func TestOperationsInAnotherVersionAreNotOffered(t *testing.T) {
	t.Parallel()
	for name, entry := range map[string]any{
		"version 2":        map[string]any{"version": "2", "endpoint": "https://api.outdoor.example/o"},
		"version a number": map[string]any{"version": 1, "endpoint": "https://api.outdoor.example/o"},
		"not an object":    "1",
	} {
		d := document(t, "extensions/operations", entry)
		if _, ok := d.Extensions.Operations(); ok || d.Extensions.Supports(poppy.ExtensionOperations, poppy.OperationsVersion) {
			t.Errorf("%s: offered", name)
		}
	}
	var none poppy.Extensions
	if _, ok := none.Operations(); ok || none.Supports("operations", "") {
		t.Error("offered by nobody")
	}
}

// P-6-02 P-7.1-02 P-7.1-03
func TestUnknownTypesAreSkippedNotUsed(t *testing.T) {
	t.Parallel()
	d := document(t,
		"apis/0/type", "graphql",
		"agent/protocols/1", map[string]any{"type": "poppy", "endpoint": "https://api.outdoor.example/second"},
		"agent/protocols/0", map[string]any{"type": "later", "endpoint": "https://api.outdoor.example/first"})
	if apis := d.KnownAPIs(); len(apis) != 1 || apis[0].Type != poppy.APITypeMCP {
		t.Errorf("got %+v", apis)
	}
	if d.APIs[0].URL != "" {
		t.Error("the URL of an unknown type was kept unchecked")
	}
	if protocol, ok := d.Conversations(); !ok || protocol.Endpoint != "https://api.outdoor.example/second" {
		t.Errorf("got %+v", protocol)
	}
	for name, d := range map[string]poppy.Document{
		"no agent":              document(t, "agent", gone),
		"only another protocol": document(t, "agent/protocols/0", map[string]any{"type": "later"}),
	} {
		if protocol, ok := d.Conversations(); ok || protocol != (poppy.Protocol{}) {
			t.Errorf("%s: got %+v", name, protocol)
		}
	}
}

// Q1: a document without auth is of use only for a website.
func TestDocumentWithoutAuth(t *testing.T) {
	t.Parallel()
	bare := []any{"auth", gone, "agent", gone, "web", gone, "feedback", gone, "apis", gone, "extensions", gone}
	d := document(t, bare...)
	if d.Issuer() != "" {
		t.Errorf("issuer %q", d.Issuer())
	}
	document(t, append(slices.Clip(bare), "web", map[string]any{})...)
	document(t, append(slices.Clip(bare), "extensions", map[string]any{"gift-wrap": map[string]any{"version": "1"}})...)
	for name, more := range map[string][]any{
		"conversations": {"agent", map[string]any{"protocols": []any{map[string]any{"type": "later"}}}},
		"browsing":      {"web", map[string]any{"browser_session_endpoint": "https://outdoor.example/b"}},
		"feedback":      {"feedback", map[string]any{"endpoint": "https://outdoor.example/f"}},
		"APIs":          {"apis", []any{map[string]any{"type": "later"}}},
		"extension":     {"extensions", map[string]any{"gift-wrap": map[string]any{"endpoint": "https://outdoor.example/g"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := poppy.ParseDocument(load(t, "poppy.json", append(slices.Clip(bare), more...)...))
			wantFields(t, err, "auth")
		})
	}
	wantFields(t, d.ValidateForPublishing(), "auth")
}

// Q12
func TestDocumentOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits   []any
		version string
		cause   bool
	}{
		"another major":                      {[]any{"protocol_version", "1.0"}, "1.0", false},
		"another major, other fields":        {[]any{"protocol_version", "1.0", "organization", 5}, "1.0", false},
		"a draft that cannot be used":        {[]any{"protocol_version", "0.1", "organization/domain", gone}, "0.1", true},
		"a draft with a field of other type": {[]any{"protocol_version", "0.9", "auth", 5}, "0.9", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := poppy.ParseDocument(load(t, "poppy.json", test.edits...))
			version, ok := errors.AsType[*poppy.VersionError](err)
			if !ok || version.Version != test.version || (version.Cause != nil) != test.cause ||
				!strings.Contains(err.Error(), `"`+test.version+`"`) || !strings.Contains(err.Error(), `"0.3"`) {
				t.Errorf("got %v", err)
			}
			if _, ok := errors.AsType[poppy.Problems](err); ok != test.cause {
				t.Error("the problems behind it are lost")
			}
		})
	}
	for _, version := range []string{"0.3", "x", ""} {
		fault := errors.New("fault")
		if got := (poppy.Document{ProtocolVersion: version}).ExplainVersion(fault); got != fault { //nolint:errorlint // the very one
			t.Errorf("%q explains %v", version, got)
		}
	}
	if (poppy.Document{ProtocolVersion: "0.1"}).ExplainVersion(nil) != nil {
		t.Error("an error out of none")
	}
}

// A credential is secret unless the document says that it is not.
func TestCredentialFieldIsSecretByDefault(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{"absent": gone, "null": nil, "true": true} {
		d := document(t, "auth/mediated/fields/0/secret", value)
		if !d.Auth.Mediated.Fields[0].Secret {
			t.Errorf("%s: not secret", name)
		}
	}
}

func TestDocumentForPublishing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*poppy.Document)
		want   []string
	}{
		"another draft": {func(d *poppy.Document) { d.ProtocolVersion = "0.2" }, []string{"protocol_version"}},
		"no auth":       {func(d *poppy.Document) { d.Auth = nil }, []string{"auth"}},
		// P-4.4-13
		"a scope of the protocol's": {func(d *poppy.Document) { d.Auth.Scopes = map[string]string{"poppy:pay": "Pay"} }, []string{"auth.scopes"}},
		// P-4.4-14
		"a scope not described": {func(d *poppy.Document) { d.Auth.Scopes = map[string]string{"addresses": " "} }, []string{"auth.scopes"}},
		// P-6-01
		"an API of an unknown type": {func(d *poppy.Document) { d.APIs[0].Type = "graphql" }, []string{"apis[0].type"}},
		"an API not described":      {func(d *poppy.Document) { d.APIs[0].Description = "" }, []string{"apis[0].description"}},
		"MCP and another resource":  {func(d *poppy.Document) { d.APIs[1].Resource = "https://mcp.outdoor.example" }, []string{"apis[1].resource"}},
		// P-3-13
		"another protocol by http": {
			func(d *poppy.Document) {
				d.Agent.Protocols = append(d.Agent.Protocols, poppy.Protocol{Type: "later", Endpoint: "http://a"})
			}, []string{"agent.protocols[1].endpoint"},
		},
		// P-3-16
		"an extension by http": {
			func(d *poppy.Document) {
				_ = d.Extensions.Set("outdoor.example/wrap", poppy.OperationsEntry{Version: "1", Endpoint: "http://a"})
			}, []string{`extensions["outdoor.example/wrap"].endpoint`},
		},
		// P-3.3-02
		"a plain extension name": {
			func(d *poppy.Document) { _ = d.Extensions.Set("gift_wrap", map[string]string{"version": "1"}) },
			[]string{"extensions.gift_wrap"},
		},
		// P-3.3-03
		"an extension without version": {
			func(d *poppy.Document) { _ = d.Extensions.Set("outdoor.example/wrap", struct{}{}) },
			[]string{`extensions["outdoor.example/wrap"].version`},
		},
		"an extension's full version": {
			func(d *poppy.Document) {
				_ = d.Extensions.Set("outdoor.example/wrap", map[string]string{"version": "1.2"})
			}, []string{`extensions["outdoor.example/wrap"].version`},
		},
		"an extension that is no object": {
			func(d *poppy.Document) { _ = d.Extensions.Set("outdoor.example/wrap", 1) },
			[]string{`extensions["outdoor.example/wrap"]`},
		},
		"what a reader refuses too": {func(d *poppy.Document) { d.Organization.Domain = "" }, []string{"organization.domain"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := document(t)
			test.change(&d)
			wantFields(t, d.ValidateForPublishing(), test.want...)
		})
	}
}

// P-3.3-02
func TestCheckExtensionName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"operations":                   true,
		"outdoor.example/gift-wrap":    true,
		"outdoor.example":              true,
		"gift-wrap":                    false,
		"payments":                     false,
		"localhost/gift-wrap":          false,
		"/gift-wrap":                   false,
		"":                             false,
		"outdoor_example.x/gift":       false,
		"https://outdoor.example/gift": false,
	} {
		if err := poppy.CheckExtensionName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// P-3.2-05
func TestAuthEqual(t *testing.T) {
	t.Parallel()
	base := document(t).Auth
	for name, edits := range map[string][]any{
		"issuer":   {"auth/issuer", "https://auth.outdoor.example/"},
		"scopes":   {"auth/scopes", map[string]any{"addresses": "Other words"}},
		"mediated": {"auth/mediated", gone},
		"endpoint": {"auth/mediated/endpoint", "https://auth.outdoor.example/other"},
		"fields":   {"auth/mediated/fields/0/secret", true},
		"grants":   {"auth/mediated/scopes", []any{"poppy:write"}},
	} {
		other := document(t, edits...).Auth
		if base.Equal(*other) || other.Equal(*base) {
			t.Errorf("%s: equal", name)
		}
	}
	// P-3.2-06
	if same := document(t, "apis", gone, "organization/domain", "outdoor.co.example").Auth; !base.Equal(*same) {
		t.Error("another domain of the same Company differs")
	}
}
