package poppy_test

import (
	"testing"

	"countersign/poppy"
)

const clientID = "https://agent.example/agent.json"

// P-4.1-03 P-4.1-08 P-3.3-04 O-2-04
func TestClientMetadataIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	m, err := poppy.ParseClientMetadata(load(t, "client.json"), clientID)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, m, load(t, "client.json"))
	if err := m.ValidateForPublishing(); err != nil {
		t.Error(err)
	}
	if !m.Extensions.Supports(poppy.ExtensionOperations, poppy.OperationsVersion) || m.Extensions.Supports(poppy.ExtensionOperations, "2") {
		t.Errorf("got extensions %s", m.Extensions)
	}
}

func TestClientMetadataFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		// P-4.1-04
		"of another URL":       {[]any{"client_id", clientID + "?"}, []string{"client_id"}},
		"host in another case": {[]any{"client_id", "https://AGENT.example/agent.json"}, []string{"client_id"}},
		// P-4.1-01 P-3-15
		"client_id by http": {
			[]any{"client_id", "http://agent.example/agent.json"},
			[]string{"client_id", "client_id", "jwks_uri", "redirect_uris[0]"},
		},
		// P-4.1-05
		"no keys":              {[]any{"jwks_uri", gone}, []string{"jwks_uri"}},
		"keys elsewhere":       {[]any{"jwks_uri", "https://keys.agent.example/jwks.json"}, []string{"jwks_uri"}},
		"keys by http":         {[]any{"jwks_uri", "http://agent.example/jwks.json"}, []string{"jwks_uri"}},
		"keys at another port": {[]any{"jwks_uri", "https://agent.example:8443/jwks.json"}, []string{"jwks_uri"}},
		// P-4.1-06
		"redirect elsewhere": {[]any{"redirect_uris/1", "https://evil.example/callback"}, []string{"redirect_uris[1]"}},
		"redirect by http":   {[]any{"redirect_uris/0", "http://agent.example/callback"}, []string{"redirect_uris[0]"}},
		"redirect loopback":  {[]any{"redirect_uris/0", "http://127.0.0.1/callback"}, []string{"redirect_uris[0]"}},
		// P-3-20
		"logo by http": {[]any{"logo_uri", "http://agent.example/logo.png"}, []string{"logo_uri"}},
		"logo as data": {[]any{"logo_uri", "data:image/png;base64,AA"}, []string{"logo_uri"}},
		// P-4.1-03
		"another method": {[]any{"token_endpoint_auth_method", "none"}, []string{"token_endpoint_auth_method"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := poppy.ParseClientMetadata(load(t, "client.json", test.edits...), clientID)
			wantFields(t, err, test.want...)
		})
	}
}

func TestClientMetadataLeniency(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]any{
		// P-4.1-08
		"nothing optional": {"client_name", gone, "logo_uri", gone, "redirect_uris", gone, "token_endpoint_auth_method", gone, "extensions", gone},
		"logo elsewhere":   {"logo_uri", "https://images.example/logo.png"},
		// P-3.3-08
		"unknown fields": {"x", 5, "grant_types", "any", "client_uri", "http://agent.example"},
		// P-3.3-06
		"unknown extensions": {"extensions/payments", 5, "extensions/operations", map[string]any{"version": "1", "x": 1}},
	} {
		if _, err := poppy.ParseClientMetadata(load(t, "client.json", edits...), clientID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClientMetadataForPublishing(t *testing.T) {
	t.Parallel()
	m, err := poppy.ParseClientMetadata(load(t, "client.json", "client_name", gone, "token_endpoint_auth_method", gone,
		"extensions/gift_wrap", map[string]any{"version": "1"}, "extensions/operations", map[string]any{}), clientID)
	if err != nil {
		t.Fatal(err)
	}
	// P-4.1-03 P-3.3-02 P-3.3-04
	wantFields(t, m.ValidateForPublishing(), "client_name", "token_endpoint_auth_method", "extensions.gift_wrap", "extensions.operations.version")
	m.JWKSURI = ""
	if err := m.ValidateForPublishing(); err == nil || fields(t, err)[0] != "jwks_uri" {
		t.Errorf("got %v", err)
	}
}

// P-4.5-08
func TestAllowsRedirectOnlyToTheCharacter(t *testing.T) {
	t.Parallel()
	m, err := poppy.ParseClientMetadata(load(t, "client.json"), clientID)
	if err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]bool{
		"https://agent.example/oauth/callback":   true,
		"https://agent.example/oauth/callback/":  false,
		"https://agent.example/oauth/callback?a": false,
		"https://agent.example/oauth/":           false,
		"https://AGENT.example/oauth/callback":   false,
		"":                                       false,
	} {
		if m.AllowsRedirect(uri) != want {
			t.Errorf("%s: got %t", uri, !want)
		}
	}
}
