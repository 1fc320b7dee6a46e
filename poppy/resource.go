package poppy

import (
	"fmt"
	"slices"
)

// ResourceMetadata is what both sides use of an MCP server's protected resource metadata (6, RFC 9728).
type ResourceMetadata struct {
	Resource                      string   `json:"resource"` // the MCP server's url, to the character
	AuthorizationServers          []string `json:"authorization_servers"`
	ScopesSupported               Scopes   `json:"scopes_supported,omitempty"`
	BearerMethodsSupported        []string `json:"bearer_methods_supported,omitempty"`
	DPoPSigningAlgValuesSupported []string `json:"dpop_signing_alg_values_supported,omitempty"`
}

// ParseResourceMetadata reads the metadata of the MCP server at url and checks that it is that server's
// (RFC 9728 section 3.3) and that it names the Company's issuer (6). The error is [Problems].
func ParseResourceMetadata(data []byte, url, issuer string) (ResourceMetadata, error) {
	var m ResourceMetadata
	if err := decode(data, MaxMetadataBytes, &m); err != nil {
		return ResourceMetadata{}, err
	}
	var c checker
	m.check(&c)
	c.require(m.Resource == url, "6", "resource", "must be the MCP server's url in poppy.json, character for character")
	c.require(slices.Contains(m.AuthorizationServers, issuer), "6", "authorization_servers", "must include auth.issuer of poppy.json, character for character")
	if err := c.err(); err != nil {
		return ResourceMetadata{}, err
	}
	return m, nil
}

func (m ResourceMetadata) check(c *checker) {
	c.url(m.Resource, "6", "resource")
	c.require(len(m.AuthorizationServers) > 0, "6", "authorization_servers", "is required")
	for i, server := range m.AuthorizationServers {
		_, err := ParseIssuer(server)
		c.rule(err, "6", fmt.Sprintf("authorization_servers[%d]", i))
	}
}

// ValidateForPublishing checks what a Company must hold to in addition. The error is [Problems].
func (m ResourceMetadata) ValidateForPublishing() error {
	var c checker
	m.check(&c)
	c.require(m.DPoPSigningAlgValuesSupported == nil || slices.Contains(m.DPoPSigningAlgValuesSupported, AlgorithmES256),
		"4.3", "dpop_signing_alg_values_supported", "must include ES256, or be left out")
	return c.err()
}

// SupportsDPoP tells whether the MCP server takes DPoP Session Tokens; otherwise it takes Bearer ones (4.3).
func (m ResourceMetadata) SupportsDPoP() bool { return len(m.DPoPSigningAlgValuesSupported) > 0 }
