package discovery_test

import (
	"strings"
	"testing"

	"countersign/company/discovery"
	"countersign/poppy"
)

func documents() discovery.Documents {
	const issuer = "https://auth.outdoor.example"
	document := func(host string) discovery.Domain {
		return discovery.Domain{Document: poppy.Document{
			ProtocolVersion: poppy.Version,
			Organization:    poppy.Organization{Name: "Outdoor", Domain: host},
			Auth:            &poppy.Auth{Issuer: issuer},
		}}
	}
	return discovery.Documents{
		Domains: []discovery.Domain{document("outdoor.example"), document("outdoor-uk.example")},
		Issuer: poppy.PublishedIssuerMetadata{IssuerMetadata: poppy.IssuerMetadata{
			Issuer: issuer, TokenEndpoint: issuer + "/token", RevocationEndpoint: issuer + "/revoke",
			GrantTypesSupported: []string{poppy.GrantJWTBearer, poppy.GrantRefreshToken},
			ProtectedResources:  []string{"https://outdoor.example", "https://outdoor-uk.example"},
			ScopesSupported:     poppy.Scopes{"addresses"},
		}},
		Resources: []poppy.ResourceMetadata{{Resource: "https://mcp.outdoor.example/mcp", AuthorizationServers: []string{issuer}}},
	}
}

func TestEachDocumentIsServedAtItsURL(t *testing.T) {
	t.Parallel()
	handlers, err := discovery.Publish(documents())
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"https://outdoor.example/.well-known/poppy.json", "https://outdoor-uk.example/.well-known/poppy.json",
		"https://auth.outdoor.example/.well-known/oauth-authorization-server",
		"https://mcp.outdoor.example/.well-known/oauth-protected-resource/mcp",
	} {
		if handlers[url] == nil {
			t.Errorf("nothing is served at %s", url)
		}
	}
	if len(handlers) != 4 {
		t.Errorf("%d documents are served, want 4", len(handlers))
	}
}

func TestDocumentsThatAnAgentWouldRefuseAreNotPublished(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*discovery.Documents){
		// P-3.2-05
		"auth differs between domains": func(d *discovery.Documents) {
			d.Domains[1].Document.Auth = &poppy.Auth{Issuer: "https://auth.outdoor.example", Scopes: map[string]string{"addresses": "Addresses"}}
		},
		// P-3.2-11
		"the issuer does not list a domain": func(d *discovery.Documents) { d.Issuer.ProtectedResources = d.Issuer.ProtectedResources[:1] },
		// P-3.2-26
		"a grant type is missing": func(d *discovery.Documents) { d.Issuer.GrantTypesSupported = []string{poppy.GrantJWTBearer} },
		// P-4.3-60
		"an MCP server does DPoP without ES256": func(d *discovery.Documents) {
			d.Resources[0].DPoPSigningAlgValuesSupported = []string{"RS256"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := documents()
			change(&wrong)
			handlers, err := discovery.Publish(wrong)
			if handlers != nil || err == nil {
				t.Fatalf("%d documents are served, error %v", len(handlers), err)
			}
			if !strings.Contains(err.Error(), "section") {
				t.Errorf("the error does not name the rule: %v", err)
			}
		})
	}
}
