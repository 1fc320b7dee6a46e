package poppy_test

import (
	"testing"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

const (
	mcpURL = "https://mcp.outdoor.example/mcp"
	issuer = "https://auth.outdoor.example"
)

// P-4.3-46
func TestResourceMetadataIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	m, err := poppy.ParseResourceMetadata(load(t, "resource.json"), mcpURL, issuer)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, m, load(t, "resource.json"))
	if !m.SupportsDPoP() {
		t.Error("does not support DPoP")
	}
	if err := m.ValidateForPublishing(); err != nil {
		t.Error(err)
	}
	for name, algorithms := range map[string]any{"absent": gone, "none": []any{}} {
		m, err := poppy.ParseResourceMetadata(load(t, "resource.json", "dpop_signing_alg_values_supported", algorithms), mcpURL, issuer)
		if err != nil || m.SupportsDPoP() {
			t.Errorf("%s: %v, %t", name, err, m.SupportsDPoP())
		}
	}
}

func TestResourceMetadataFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		"none at all": {[]any{"resource", gone, "authorization_servers", gone}, []string{"resource", "authorization_servers", "resource", "authorization_servers"}},
		// P-3.2-21
		"another resource": {[]any{"resource", mcpURL + "/"}, []string{"resource"}},
		"resource's case":  {[]any{"resource", "https://MCP.outdoor.example/mcp"}, []string{"resource"}},
		"resource by http": {[]any{"resource", "http://mcp.outdoor.example/mcp"}, []string{"resource", "resource"}},
		// P-6-09
		"another issuer": {[]any{"authorization_servers/0", issuer + "/"}, []string{"authorization_servers"}},
		// P-3-14
		"a server by http": {[]any{"authorization_servers/1", "http://auth.example"}, []string{"authorization_servers[1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := poppy.ParseResourceMetadata(load(t, "resource.json", test.edits...), mcpURL, issuer)
			wantFields(t, err, test.want...)
		})
	}
	if _, err := poppy.ParseResourceMetadata(load(t, "resource.json", "authorization_servers/1", "https://other.example", "x", 1), mcpURL, issuer); err != nil {
		t.Errorf("with a second server: %v", err)
	}
}

// P-4.3-60
func TestResourceMetadataForPublishing(t *testing.T) {
	t.Parallel()
	for name, algorithms := range map[string]any{"no ES256": []any{"RS256"}, "none": []any{}} {
		var m poppy.ResourceMetadata
		if err := strictjson.Unmarshal(load(t, "resource.json", "dpop_signing_alg_values_supported", algorithms), &m); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		wantFields(t, m.ValidateForPublishing(), "dpop_signing_alg_values_supported")
	}
}
