package poppy

import (
	"fmt"
	"slices"
	"strings"
)

// Grant types (3.2).
const (
	GrantJWTBearer         = "urn:ietf:params:oauth:grant-type:jwt-bearer"  //nolint:gosec // a name; starts and renews a signed-out Session (4.2)
	GrantRefreshToken      = "refresh_token"                                // an Account Token (4.8)
	GrantAuthorizationCode = "authorization_code"                           // Direct Sign-In (4.5)
	GrantDeviceCode        = "urn:ietf:params:oauth:grant-type:device_code" // Device Sign-In (4.6)
)

// AlgorithmES256 is the proof algorithm that every Company accepts (3.2).
const AlgorithmES256 = "ES256"

// IssuerMetadata is what a Personal Agent uses of an issuer's OAuth Authorization Server Metadata (3.2, RFC 8414).
type IssuerMetadata struct {
	Issuer                        string   `json:"issuer"`
	TokenEndpoint                 string   `json:"token_endpoint"`
	RevocationEndpoint            string   `json:"revocation_endpoint"`
	AuthorizationEndpoint         string   `json:"authorization_endpoint,omitempty"`
	DeviceAuthorizationEndpoint   string   `json:"device_authorization_endpoint,omitempty"`
	GrantTypesSupported           []string `json:"grant_types_supported"`
	ScopesSupported               Scopes   `json:"scopes_supported,omitempty"`
	DPoPSigningAlgValuesSupported []string `json:"dpop_signing_alg_values_supported,omitempty"` // none: ES256 it is
	ProtectedResources            []string `json:"protected_resources"`
}

// PublishedIssuerMetadata adds what Personal Agents ignore and other OAuth and MCP clients look for. It is only written.
type PublishedIssuerMetadata struct {
	IssuerMetadata
	ResponseTypesSupported                     []string `json:"response_types_supported"` // RFC 8414 requires it
	TokenEndpointAuthMethodsSupported          []string `json:"token_endpoint_auth_methods_supported,omitempty"`
	TokenEndpointAuthSigningAlgValuesSupported []string `json:"token_endpoint_auth_signing_alg_values_supported,omitempty"`
	CodeChallengeMethodsSupported              []string `json:"code_challenge_methods_supported,omitempty"`              // RFC 7636
	AuthorizationResponseIssParameterSupported bool     `json:"authorization_response_iss_parameter_supported,omitzero"` // RFC 9207
	ClientIDMetadataDocumentSupported          bool     `json:"client_id_metadata_document_supported,omitzero"`
}

// ParseIssuerMetadata reads an issuer's metadata as a Personal Agent must. The error is [Problems]; give it to
// [Document.ExplainVersion]. [CheckLink] is still to be done.
func ParseIssuerMetadata(data []byte) (IssuerMetadata, error) {
	var m IssuerMetadata
	if err := decode(data, MaxMetadataBytes, &m); err != nil {
		return IssuerMetadata{}, err
	}
	if err := m.Validate(); err != nil {
		return IssuerMetadata{}, err
	}
	return m, nil
}

// Validate checks what a reader must: the fields that are always required, and that every URL it may use is one. The
// error is [Problems].
func (m IssuerMetadata) Validate() error {
	var c checker
	m.check(&c)
	return c.err()
}

func (m IssuerMetadata) check(c *checker) {
	_, err := ParseIssuer(m.Issuer)
	c.rule(err, "3.2", "issuer")
	c.url(m.TokenEndpoint, "3.2", "token_endpoint")
	c.url(m.RevocationEndpoint, "3.2", "revocation_endpoint")
	c.optionalURL(m.AuthorizationEndpoint, "3.2", "authorization_endpoint")
	c.optionalURL(m.DeviceAuthorizationEndpoint, "3.2", "device_authorization_endpoint")
	c.require(slices.Contains(m.GrantTypesSupported, GrantJWTBearer), "3.2", "grant_types_supported", "must include "+GrantJWTBearer)
	c.require(slices.Contains(m.GrantTypesSupported, GrantRefreshToken), "3.2", "grant_types_supported", "must include "+GrantRefreshToken)
	c.require(len(m.ProtectedResources) > 0, "3.2", "protected_resources", "is required: https://{domain} for every domain whose poppy.json names the issuer")
}

// ValidateForPublishing checks what a Company must hold to in addition. [CheckPublication] compares the metadata with a
// poppy.json. The error is [Problems].
func (m IssuerMetadata) ValidateForPublishing() error {
	var c checker
	m.check(&c)
	c.require(m.AuthorizationEndpoint != "" || !slices.Contains(m.GrantTypesSupported, GrantAuthorizationCode),
		"3.2", "authorization_endpoint", "is required when grant_types_supported includes authorization_code")
	c.require(m.DeviceAuthorizationEndpoint != "" || !slices.Contains(m.GrantTypesSupported, GrantDeviceCode),
		"3.2", "device_authorization_endpoint", "is required when grant_types_supported includes the device_code grant")
	offersSignIn := slices.Contains(m.GrantTypesSupported, GrantAuthorizationCode) || slices.Contains(m.GrantTypesSupported, GrantDeviceCode)
	c.require(len(m.ScopesSupported) > 0 || !offersSignIn, "3.2", "scopes_supported", "is required when any sign-in is offered")
	for i, scope := range m.ScopesSupported {
		place := fmt.Sprintf("scopes_supported[%d]", i)
		c.require(ValidScope(scope), "4.4", place, "must be one scope: no spaces, quotes and backslashes")
		c.require(!ReservedScope(scope), "4.4", place, "must not start with poppy: unless it is poppy:read or poppy:write")
	}
	c.require(m.DPoPSigningAlgValuesSupported == nil || slices.Contains(m.DPoPSigningAlgValuesSupported, AlgorithmES256),
		"3.2", "dpop_signing_alg_values_supported", "must include ES256, or be left out")
	domains := 0
	for i, resource := range m.ProtectedResources {
		place := fmt.Sprintf("protected_resources[%d]", i)
		c.url(resource, "3", place)
		c.require(!looksLikeDomain(resource), "3.2", place, "must be exactly https://{domain} for a domain: no port and no last slash")
		if host, ok := strings.CutPrefix(resource, scheme); ok && CheckDomain(host) == nil {
			domains++
		}
	}
	c.require(domains > 0 || len(m.ProtectedResources) == 0, "3.2", "protected_resources", "must list https://{domain} for every domain whose poppy.json names the issuer")
	return c.err()
}

// looksLikeDomain tells whether a resource is a domain's in all but its form: a host with a port, or with only a slash
// behind it. A Personal Agent would compare it as it stands, and skip the Company.
func looksLikeDomain(resource string) bool {
	u, err := ParseURL(resource)
	return err == nil && u.RawQuery == "" && (u.Path == "/" || u.Path == "" && (u.Port() != "" || !strings.HasPrefix(resource, scheme)))
}

// OffersDirectSignIn tells whether Users can sign in on the Company's page in a browser (4.5).
func (m IssuerMetadata) OffersDirectSignIn() bool {
	return m.AuthorizationEndpoint != "" && slices.Contains(m.GrantTypesSupported, GrantAuthorizationCode)
}

// OffersDeviceSignIn tells whether Users can sign in with a link and a short code (4.6).
func (m IssuerMetadata) OffersDeviceSignIn() bool {
	return m.DeviceAuthorizationEndpoint != "" && slices.Contains(m.GrantTypesSupported, GrantDeviceCode)
}

// VouchesFor tells whether a sign-in link may be shown to the User as this Company's: an https URL whose host is that
// of the issuer or of a URL in protected_resources, or a subdomain of either (4.6).
func (m IssuerMetadata) VouchesFor(link string) bool {
	u, err := ParseURL(link)
	if err != nil {
		return false
	}
	for _, own := range append([]string{m.Issuer}, m.ProtectedResources...) {
		if ownURL, err := ParseURL(own); err == nil && within(u.Hostname(), ownURL.Hostname()) {
			return true
		}
	}
	return false
}
