package poppy

import (
	"fmt"
	"slices"
	"strings"
)

// AuthMethodPrivateKeyJWT is the only way a Personal Agent authenticates (4.1).
const AuthMethodPrivateKeyJWT = "private_key_jwt"

// ClientMetadata is the document that a Personal Agent publishes at its client_id (4.1).
type ClientMetadata struct {
	ClientID                string     `json:"client_id"`
	ClientName              string     `json:"client_name,omitempty"`
	LogoURI                 string     `json:"logo_uri,omitempty"`
	JWKSURI                 string     `json:"jwks_uri"`
	RedirectURIs            []string   `json:"redirect_uris,omitempty"` // none: no Direct Sign-In
	TokenEndpointAuthMethod string     `json:"token_endpoint_auth_method,omitempty"`
	Extensions              Extensions `json:"extensions,omitempty"`
}

// ParseClientMetadata reads the document that was fetched from the URL clientID, as a Company must. The error is
// [Problems].
func ParseClientMetadata(data []byte, clientID string) (ClientMetadata, error) {
	var m ClientMetadata
	if err := decode(data, MaxMetadataBytes, &m); err != nil {
		return ClientMetadata{}, err
	}
	var c checker
	c.require(m.ClientID == clientID, "4.1", "client_id", "must be the URL that the document was fetched from, character for character")
	m.check(&c)
	if err := c.err(); err != nil {
		return ClientMetadata{}, err
	}
	return m, nil
}

func (m ClientMetadata) check(c *checker) {
	_, err := ParseClientID(m.ClientID)
	c.rule(err, "4.1", "client_id")
	c.optionalURL(m.LogoURI, "3", "logo_uri")
	c.sameDomain(m.JWKSURI, m.ClientID, "jwks_uri")
	for i, uri := range m.RedirectURIs {
		c.sameDomain(uri, m.ClientID, fmt.Sprintf("redirect_uris[%d]", i))
	}
	c.require(m.TokenEndpointAuthMethod == "" || m.TokenEndpointAuthMethod == AuthMethodPrivateKeyJWT,
		"4.1", "token_endpoint_auth_method", "must be private_key_jwt")
}

// sameDomain requires an https URL on the domain of the client_id (4.1).
func (c *checker) sameDomain(text, clientID, field string) {
	if _, err := ParseURL(text); err != nil {
		c.rule(err, "4.1", field)
		return
	}
	c.require(SameDomain(text, clientID), "4.1", field, "must have the host and port of client_id")
}

// ValidateForPublishing checks what a Personal Agent must hold to in addition, so that every Company can use the
// document. The error is [Problems].
func (m ClientMetadata) ValidateForPublishing() error {
	var c checker
	m.check(&c)
	c.require(strings.TrimSpace(m.ClientName) != "", "4.1", "client_name", "is required: Companies show it to Users")
	c.require(m.TokenEndpointAuthMethod != "", "4.1", "token_endpoint_auth_method", "is required: private_key_jwt")
	m.Extensions.checkForPublishing(&c)
	return c.err()
}

// AllowsRedirect tells whether Direct Sign-In may send the User back to uri: one of redirect_uris, character for
// character (4.5).
func (m ClientMetadata) AllowsRedirect(uri string) bool { return slices.Contains(m.RedirectURIs, uri) }
