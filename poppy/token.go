package poppy

import (
	"strings"

	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// Names of form parameters (4.2 to 4.9). Requests to the token, device authorization and revocation endpoints are
// application/x-www-form-urlencoded.
const (
	ParamGrantType           = "grant_type"
	ParamAssertion           = "assertion"
	ParamClientID            = "client_id"
	ParamClientAssertion     = "client_assertion"
	ParamClientAssertionType = "client_assertion_type"
	ParamSessionID           = "session_id"
	ParamScope               = "scope"
	ParamResource            = "resource"
	ParamRefreshToken        = "refresh_token"
	ParamCode                = "code"
	ParamRedirectURI         = "redirect_uri"
	ParamCodeVerifier        = "code_verifier"
	ParamDeviceCode          = "device_code"
	ParamToken               = "token"
	ParamTokenTypeHint       = "token_type_hint"
	ParamResponseType        = "response_type"
	ParamState               = "state"
	ParamCodeChallenge       = "code_challenge"
	ParamCodeChallengeMethod = "code_challenge_method"
	ParamError               = "error"
	ParamIssuer              = "iss"
)

// Fixed values of form parameters.
const (
	ClientAssertionType   = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	ResponseTypeCode      = "code"
	ChallengeMethodS256   = "S256"
	TokenHintRefreshToken = "refresh_token"
)

const (
	maxLifetime     = 100 * 365 * 24 * 3600 // seconds; a time.Duration can hold it
	maxTokenBytes   = 16 << 10
	defaultInterval = 5                       // seconds (RFC 8628 section 3.2)
	token68Alphabet = alphanumeric + "-._~+/" // RFC 9110 section 11.2, before any =
)

// TokenType says how a Session Token is sent: it is the scheme of the Authorization header (4.3).
type TokenType string

// The token types.
const (
	TokenDPoP   TokenType = "DPoP"
	TokenBearer TokenType = "Bearer" // only for an MCP server that does not support DPoP
)

// ParseTokenType reads a token_type or a scheme, whose case does not matter (RFC 6749 section 5.1).
func ParseTokenType(text string) (TokenType, bool) {
	for _, known := range []TokenType{TokenDPoP, TokenBearer} {
		if equalFold(text, string(known)) {
			return known, true
		}
	}
	return "", false
}

// TokenResponse is a successful answer of the token endpoint (4.2, 4.4), and part of that of Mediated Sign-In (4.7).
// Writing it as JSON by other means than [TokenResponse.Encode] does not show the tokens.
type TokenResponse struct {
	AccessToken           secret.Text // the Session Token
	TokenType             TokenType
	ExpiresIn             int64       // seconds, more than 0
	RefreshToken          secret.Text // the Account Token; zero if none was issued
	RefreshTokenExpiresIn int64       // seconds; 0 if the Company sets none
	Scope                 Scopes      // none: signed out
	SessionID             string
}

// tokenWire is a TokenResponse on the wire, where an absent scope is not an empty one.
type tokenWire struct {
	AccessToken           string  `json:"access_token"`
	TokenType             string  `json:"token_type"`
	ExpiresIn             int64   `json:"expires_in"`
	RefreshToken          string  `json:"refresh_token,omitempty"`
	RefreshTokenExpiresIn *int64  `json:"refresh_token_expires_in,omitzero"`
	Scope                 *string `json:"scope"`
	SessionID             string  `json:"session_id"`
}

// ParseTokenResponse reads an answer of the token endpoint as a Personal Agent must. The error is [Problems].
func ParseTokenResponse(data []byte) (TokenResponse, error) {
	var wire tokenWire
	if err := decode(data, MaxTokenBytes, &wire); err != nil {
		return TokenResponse{}, err
	}
	return wire.read()
}

// read checks the wire form and returns what it says.
func (w tokenWire) read() (TokenResponse, error) {
	var c checker
	r := TokenResponse{
		AccessToken:  secret.New(w.AccessToken),
		ExpiresIn:    w.ExpiresIn,
		RefreshToken: secret.New(w.RefreshToken),
		SessionID:    w.SessionID,
	}
	c.require(validToken(w.AccessToken), "4.2", "access_token", "is required: a token that fits into the Authorization header")
	var known bool
	r.TokenType, known = ParseTokenType(w.TokenType)
	c.require(known, "4.2", "token_type", "must be DPoP or Bearer")
	c.require(w.ExpiresIn > 0 && w.ExpiresIn <= maxLifetime, "4.2", "expires_in", "is required: seconds, greater than 0")
	c.require(len(w.RefreshToken) <= maxTokenBytes, "4.8", "refresh_token", "must not be longer than 16384 bytes")
	if w.RefreshTokenExpiresIn != nil {
		r.RefreshTokenExpiresIn = *w.RefreshTokenExpiresIn
		c.require(r.RefreshTokenExpiresIn > 0 && r.RefreshTokenExpiresIn <= maxLifetime, "4.4", "refresh_token_expires_in", "must be seconds, greater than 0")
	}
	if w.Scope == nil {
		c.require(false, "4.2", "scope", `is required, "" when signed out`)
	} else {
		var err error
		r.Scope, err = ParseScopes(*w.Scope)
		c.rule(err, "4.2", "scope")
	}
	c.require(ValidSessionID(w.SessionID), "4.2", "session_id", "is required: 1 to 256 printable ASCII characters")
	if err := c.err(); err != nil {
		return TokenResponse{}, err
	}
	return r, nil
}

// SignedIn tells whether the token is for a Session that is signed in to an account (4.2).
func (r TokenResponse) SignedIn() bool { return len(r.Scope) > 0 }

// CheckSignIn checks that the answer ends a sign-in: an Account Token and at least one scope (4.4). The error is
// [Problems].
func (r TokenResponse) CheckSignIn() error {
	var c checker
	c.require(!r.RefreshToken.IsZero(), "4.4", "refresh_token", "is required at the end of a sign-in")
	c.require(r.SignedIn(), "4.4", "scope", "must have at least one scope at the end of a sign-in")
	return c.err()
}

// Encode writes the answer for the wire, tokens included. It is the Company's last step, whose bytes go nowhere else.
func (r TokenResponse) Encode() ([]byte, error) { return strictjson.Marshal(r.wire()) }

func (r TokenResponse) wire() tokenWire {
	scope := r.Scope.String()
	w := tokenWire{
		AccessToken: r.AccessToken.Reveal(), TokenType: string(r.TokenType), ExpiresIn: r.ExpiresIn,
		RefreshToken: r.RefreshToken.Reveal(), Scope: &scope, SessionID: r.SessionID,
	}
	if r.RefreshTokenExpiresIn > 0 {
		w.RefreshTokenExpiresIn = &r.RefreshTokenExpiresIn
	}
	return w
}

// validToken tells whether text fits behind a scheme in the Authorization header: the token68 of RFC 9110.
func validToken(text string) bool {
	core := strings.TrimRight(text, "=")
	return core != "" && len(text) <= maxTokenBytes && strings.Trim(core, token68Alphabet) == ""
}

// DeviceAuthorization is a successful answer of the device authorization endpoint (4.6, RFC 8628). Writing it as JSON
// by other means than [DeviceAuthorization.Encode] does not show the device code.
type DeviceAuthorization struct {
	DeviceCode              secret.Text
	UserCode                string // shown to the User
	VerificationURI         string
	VerificationURIComplete string // "" if the Company gives none
	ExpiresIn               int64  // seconds, more than 0
	Interval                int64  // seconds between two polls
}

type deviceWire struct {
	DeviceCode              string `json:"device_code"`
	UserCode                string `json:"user_code"`
	VerificationURI         string `json:"verification_uri"`
	VerificationURIComplete string `json:"verification_uri_complete,omitempty"`
	ExpiresIn               int64  `json:"expires_in"`
	Interval                *int64 `json:"interval,omitzero"`
}

// ParseDeviceAuthorization reads an answer of the device authorization endpoint. The error is [Problems]. Before the
// User sees a link, ask [IssuerMetadata.VouchesFor].
func ParseDeviceAuthorization(data []byte) (DeviceAuthorization, error) {
	var w deviceWire
	if err := decode(data, MaxTokenBytes, &w); err != nil {
		return DeviceAuthorization{}, err
	}
	var c checker
	c.require(w.DeviceCode != "" && len(w.DeviceCode) <= maxTokenBytes, "4.6", "device_code", "is required")
	c.require(printable(w.UserCode, MaxIDLength), "4.6", "user_code", "is required: printable ASCII characters")
	c.url(w.VerificationURI, "4.6", "verification_uri")
	c.optionalURL(w.VerificationURIComplete, "4.6", "verification_uri_complete")
	c.require(w.ExpiresIn > 0 && w.ExpiresIn <= maxLifetime, "4.6", "expires_in", "is required: seconds, greater than 0")
	interval := int64(defaultInterval)
	if w.Interval != nil {
		interval = *w.Interval
		c.require(interval > 0 && interval <= maxLifetime, "4.6", "interval", "must be seconds, greater than 0")
	}
	if err := c.err(); err != nil {
		return DeviceAuthorization{}, err
	}
	return DeviceAuthorization{
		DeviceCode: secret.New(w.DeviceCode), UserCode: w.UserCode,
		VerificationURI: w.VerificationURI, VerificationURIComplete: w.VerificationURIComplete,
		ExpiresIn: w.ExpiresIn, Interval: interval,
	}, nil
}

// Encode writes the answer for the wire, device code included.
func (d DeviceAuthorization) Encode() ([]byte, error) {
	return strictjson.Marshal(deviceWire{
		DeviceCode: d.DeviceCode.Reveal(), UserCode: d.UserCode,
		VerificationURI: d.VerificationURI, VerificationURIComplete: d.VerificationURIComplete,
		ExpiresIn: d.ExpiresIn, Interval: &d.Interval,
	})
}
