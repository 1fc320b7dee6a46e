package poppy_test

import (
	"testing"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

func metadata(t testing.TB, edits ...any) poppy.IssuerMetadata {
	t.Helper()
	m, err := poppy.ParseIssuerMetadata(load(t, "issuer.json", edits...))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// P-3.2-13 P-3.2-22 P-3.2-25
func TestIssuerMetadataIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	m := metadata(t)
	wantSame(t, m, load(t, "issuer.json"))
	if err := m.ValidateForPublishing(); err != nil {
		t.Error(err)
	}
	if !m.OffersDirectSignIn() || !m.OffersDeviceSignIn() || len(m.ScopesSupported) != 3 || len(m.ProtectedResources) != 3 {
		t.Errorf("got %+v", m)
	}
}

func TestIssuerMetadataFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		// P-3.2-22
		"no issuer":    {[]any{"issuer", gone}, []string{"issuer"}},
		"no resources": {[]any{"protected_resources", gone}, []string{"protected_resources"}},
		// P-3.2-23
		"no token endpoint": {[]any{"token_endpoint", gone}, []string{"token_endpoint"}},
		// P-3.2-24
		"no revocation endpoint": {[]any{"revocation_endpoint", gone}, []string{"revocation_endpoint"}},
		// P-3.2-25 P-3.2-26
		"no grants":        {[]any{"grant_types_supported", gone}, []string{"grant_types_supported", "grant_types_supported"}},
		"no jwt-bearer":    {[]any{"grant_types_supported", []any{"refresh_token"}}, []string{"grant_types_supported"}},
		"no refresh_token": {[]any{"grant_types_supported/1", "password"}, []string{"grant_types_supported"}},
		"grants as a text": {[]any{"grant_types_supported", "refresh_token"}, []string{"grant_types_supported"}},
		// P-3-14 P-3-19
		"issuer by http":        {[]any{"issuer", "http://auth.outdoor.example"}, []string{"issuer"}},
		"issuer with query":     {[]any{"issuer", "https://auth.outdoor.example?"}, []string{"issuer"}},
		"token by http":         {[]any{"token_endpoint", "http://auth.outdoor.example/t"}, []string{"token_endpoint"}},
		"revocation by http":    {[]any{"revocation_endpoint", "http://auth.outdoor.example/r"}, []string{"revocation_endpoint"}},
		"authorization by http": {[]any{"authorization_endpoint", "http://auth.outdoor.example/a"}, []string{"authorization_endpoint"}},
		"device by http":        {[]any{"device_authorization_endpoint", "http://auth.outdoor.example/d"}, []string{"device_authorization_endpoint"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := poppy.ParseIssuerMetadata(load(t, "issuer.json", test.edits...))
			wantFields(t, err, test.want...)
			if m.Issuer != "" || m.TokenEndpoint != "" {
				t.Errorf("metadata together with an error: %+v", m)
			}
		})
	}
}

// P-3.2-38 P-3.2-39 P-3.3-07: also fields that other OAuth clients know, whatever they hold.
func TestIssuerMetadataOtherFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	metadata(t, "x", map[string]any{"a": 1}, "response_types_supported", "code", "jwks_uri", 5,
		"code_challenge_methods_supported", false, "introspection_endpoint", "http://a")
}

// P-3.2-27 P-3.2-28: a grant and its endpoint make an offer; half of it none, but no reason to refuse the Company.
func TestSignInOffers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits          []any
		direct, device bool
	}{
		"both":             {nil, true, true},
		"no code grant":    {[]any{"grant_types_supported/2", "password"}, false, true},
		"no device grant":  {[]any{"grant_types_supported/3", "password"}, true, false},
		"no authorization": {[]any{"authorization_endpoint", gone}, false, true},
		"no device":        {[]any{"device_authorization_endpoint", gone}, true, false},
	} {
		m := metadata(t, test.edits...)
		if m.OffersDirectSignIn() != test.direct || m.OffersDeviceSignIn() != test.device {
			t.Errorf("%s: got %t, %t", name, m.OffersDirectSignIn(), m.OffersDeviceSignIn())
		}
	}
}

func TestIssuerMetadataForPublishing(t *testing.T) {
	t.Parallel()
	onlySessions := []any{"grant_types_supported/3", "a", "grant_types_supported/2", "b"}
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		// P-3.2-29
		"no authorization endpoint": {[]any{"authorization_endpoint", gone}, []string{"authorization_endpoint"}},
		"and no such grant":         {[]any{"authorization_endpoint", gone, "grant_types_supported/2", "a"}, nil},
		// P-3.2-30
		"no device endpoint": {[]any{"device_authorization_endpoint", gone}, []string{"device_authorization_endpoint"}},
		"and no such grant ": {[]any{"device_authorization_endpoint", gone, "grant_types_supported/3", "a"}, nil},
		// P-3.2-31
		"no scopes":                   {[]any{"scopes_supported", gone}, []string{"scopes_supported"}},
		"no scopes, only device":      {[]any{"scopes_supported", gone, "grant_types_supported/2", "a"}, []string{"scopes_supported"}},
		"no scopes, only direct":      {[]any{"scopes_supported", gone, "grant_types_supported/3", "a"}, []string{"scopes_supported"}},
		"no scopes and no sign-in":    {append(onlySessions, "scopes_supported", gone), nil},
		"two scopes in one":           {[]any{"scopes_supported/0", "a b"}, []string{"scopes_supported[0]"}},
		"a reserved scope (P-4.4-13)": {[]any{"scopes_supported/2", "poppy:pay"}, []string{"scopes_supported[2]"}},
		"no broad scopes (P-4.4-16)":  {[]any{"scopes_supported", []any{"addresses"}}, nil},
		// P-3.2-36 P-3.2-35
		"algorithms without ES256": {[]any{"dpop_signing_alg_values_supported", []any{"RS256"}}, []string{"dpop_signing_alg_values_supported"}},
		"algorithms, none":         {[]any{"dpop_signing_alg_values_supported", []any{}}, []string{"dpop_signing_alg_values_supported"}},
		"algorithms not listed":    {[]any{"dpop_signing_alg_values_supported", gone}, nil},
		// P-3.2-12
		"domain with a slash": {[]any{"protected_resources/1", "https://outdoor.co.example/"}, []string{"protected_resources[1]"}},
		"domain with a port":  {[]any{"protected_resources/1", "https://outdoor.co.example:443"}, []string{"protected_resources[1]"}},
		"domain in capitals":  {[]any{"protected_resources/1", "HTTPS://outdoor.co.example"}, []string{"protected_resources[1]"}},
		"domain alone":        {[]any{"protected_resources/1", "outdoor.co.example"}, []string{"protected_resources[1]"}},
		"domain by http":      {[]any{"protected_resources/1", "http://outdoor.co.example"}, []string{"protected_resources[1]"}},
		"no domain":           {[]any{"protected_resources", []any{"https://mcp.outdoor.example/mcp"}}, []string{"protected_resources"}},
		// P-3.2-11
		"no resources": {[]any{"protected_resources", []any{}}, []string{"protected_resources"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m poppy.IssuerMetadata
			if err := strictjson.Unmarshal(load(t, "issuer.json", test.edits...), &m); err != nil {
				t.Fatal(err)
			}
			wantFields(t, m.ValidateForPublishing(), test.want...)
		})
	}
}

// RFC 8414 wants response_types_supported, which the protocol's own list leaves out.
func TestPublishedIssuerMetadataIsOneObject(t *testing.T) {
	t.Parallel()
	m := poppy.PublishedIssuerMetadata{
		IssuerMetadata:                             metadata(t),
		ResponseTypesSupported:                     []string{"code"},
		CodeChallengeMethodsSupported:              []string{"S256"},
		ClientIDMetadataDocumentSupported:          true,
		AuthorizationResponseIssParameterSupported: true,
	}
	wantSame(t, m, load(t, "issuer.json", "response_types_supported", []any{"code"}, "code_challenge_methods_supported", []any{"S256"},
		"client_id_metadata_document_supported", true, "authorization_response_iss_parameter_supported", true))
}

// P-4.6-07
func TestVouchesFor(t *testing.T) {
	t.Parallel()
	m := metadata(t)
	for link, want := range map[string]bool{
		"https://auth.outdoor.example/device":            true, // the issuer's host
		"https://login.auth.outdoor.example/device":      true,
		"https://AUTH.outdoor.example/device":            true,
		"https://outdoor.example/device":                 true, // of protected_resources
		"https://www.outdoor.example/device":             true,
		"https://outdoor.co.example/device":              true,
		"https://mcp.outdoor.example/device?user_code=A": true,
		"https://evil.example/device":                    false,
		"https://eviloutdoor.example/device":             false,
		"https://outdoor.example.evil.example/device":    false,
		"https://outdoor.example@evil.example/device":    false,
		"https://example/device":                         false,
		"http://auth.outdoor.example/device":             false,
		"javascript:alert(1)//auth.outdoor.example":      false,
		"": false,
	} {
		if got := m.VouchesFor(link); got != want {
			t.Errorf("%s: got %t", link, got)
		}
	}
	if (poppy.IssuerMetadata{}).VouchesFor("https://evil.example/") {
		t.Error("nobody vouches for a link")
	}
}
