// Package assertion makes and verifies the JWTs that a Personal Agent signs with its published keys: the client assertion
// (sections 4.1 of the Personal Agent Protocol, RFC 7523) and the Session assertion (4.2).
//
// A Personal Agent makes them with a [Signer]. A Company verifies them with [Verify], which is pure: it keeps nothing, so
// the caller records [Claims.ID] for the client_id until [Claims.ExpiresAt], in the transaction that acts on the assertion.
package assertion

import (
	"errors"
	"slices"
	"strings"
	"time"

	"countersign/internal/jws"
	"countersign/internal/strictjson"
)

const (
	maxIDLength     = 256 // bytes of jti, which is stored
	maxUserIDLength = 255 // OpenID Connect Core 2, whose subject identifiers User IDs are (protocol 4.2)
	leeway          = 30 * time.Second
	maxDate         = 253402300799 // the last second of the year 9999
)

// Kind is what an assertion is for. The zero Kind is none.
type Kind int

// The kinds of assertion for the token and revocation endpoints.
const (
	Client  Kind = iota + 1 // authenticates the Personal Agent: sub is its client_id
	Session                 // starts or renews a Session: sub is the User ID
)

// rule is how a kind differs from the others.
type rule struct {
	types       []string      // accepted in typ, besides none: lower case, without "application/"
	maxLifetime time.Duration // from iat to exp
}

// rules has an entry for each kind. draft-ietf-oauth-rfc7523bis gives each of the two a typ of its own, which a Personal
// Agent may use; the typ of anything else, such as the browser assertion of section 5, is refused.
var rules = map[Kind]rule{
	Client:  {types: []string{"jwt", "client-authentication+jwt"}, maxLifetime: 5 * time.Minute},
	Session: {types: []string{"jwt", "authorization-grant+jwt"}, maxLifetime: 5 * time.Minute},
}

// speaksOf reports whether an assertion of this kind may have the subject. A client assertion's is the client_id (RFC 7523
// 3), a Session assertion's is a User ID and never the client_id, so neither serves as the other.
func (k Kind) speaksOf(subject, clientID string) bool {
	switch k {
	case Client:
		return subject == clientID
	case Session:
		return subject != clientID && isUserID(subject)
	default:
		return false
	}
}

// Algorithms returns the accepted algorithms, for token_endpoint_auth_signing_alg_values_supported.
func Algorithms() []string { return jws.Algorithms() }

// Expected is what an assertion must be for.
type Expected struct {
	Kind     Kind
	ClientID string // the Personal Agent that is asking: whose keys verify it
	Audience string // this Company's auth.issuer
}

// Claims are those of a verified assertion.
type Claims struct {
	Issuer    string // the client_id
	Subject   string // the client_id or the User ID, as the kind says
	ID        string // the jti, 1 to 256 bytes
	IssuedAt  time.Time
	ExpiresAt time.Time // the first moment at which it is refused
}

// claims as they are written. Audience takes one JSON string and nothing else: a list could name a second Company.
type claims struct {
	Issuer    string `json:"iss"`
	Subject   string `json:"sub"`
	Audience  string `json:"aud"`
	IssuedAt  *int64 `json:"iat"`
	ExpiresAt *int64 `json:"exp"`
	NotBefore *int64 `json:"nbf,omitzero"`
	ID        string `json:"jti"`
}

// Verify checks an assertion against the keys that its client_id publishes. Every error is an [*Error].
func Verify(compact string, keys KeySet, want Expected, now time.Time) (Claims, error) {
	// It is a well-formed JWT with an asymmetric algorithm.
	token, err := jws.Parse(compact, jws.Algorithms())
	if errors.Is(err, jws.ErrAlgorithm) {
		return Claims{}, refuse(ReasonAlgorithm, err)
	}
	if err != nil {
		return Claims{}, refuse(ReasonMalformed, err)
	}

	// typ does not make it another kind of JWT (section 5; RFC 8725 3.11).
	rule := rules[want.Kind]
	if token.Type != "" && !slices.Contains(rule.types, mediaSubtype(token.Type)) {
		return Claims{}, refuse(ReasonType, nil)
	}

	// A key that the Personal Agent publishes made the signature (4.1, 4.2).
	candidates := keys.Find(token.KeyID, token.Algorithm)
	signed := slices.ContainsFunc(candidates, func(key *jws.PublicKey) bool { return token.Verify(key) == nil })
	if !signed && (len(candidates) == 0 || token.KeyID == "") {
		return Claims{}, refuse(ReasonUnknownKey, nil) // without a kid, a key that we have not read yet may have signed
	}
	if !signed {
		return Claims{}, refuse(ReasonSignature, nil)
	}

	var c claims
	if err := strictjson.Unmarshal(token.Payload, &c); err != nil {
		return Claims{}, refuse(ReasonClaims, err)
	}
	// iss is the Personal Agent that is asking (4.2).
	if c.Issuer != want.ClientID {
		return Claims{}, refuse(ReasonIssuer, nil)
	}
	// sub is whom the kind speaks of.
	if !want.Kind.speaksOf(c.Subject, want.ClientID) {
		return Claims{}, refuse(ReasonSubject, nil)
	}
	// aud is this Company's issuer, character for character (4.1, 4.2).
	if c.Audience != want.Audience {
		return Claims{}, refuse(ReasonAudience, nil)
	}
	// iat and exp are there, and not too far apart (4.2, 5).
	if !isDate(c.IssuedAt) || !isDate(c.ExpiresAt) || c.NotBefore != nil && !isDate(c.NotBefore) {
		return Claims{}, refuse(ReasonClaims, nil)
	}
	issuedAt, expiresAt := time.Unix(*c.IssuedAt, 0), time.Unix(*c.ExpiresAt, 0)
	if life := expiresAt.Sub(issuedAt); life <= 0 || life > rule.maxLifetime {
		return Claims{}, refuse(ReasonLifetime, nil)
	}
	// It has begun, by a clock that may be a little ahead of ours, and it has not ended by ours.
	if issuedAt.After(now.Add(leeway)) || c.NotBefore != nil && time.Unix(*c.NotBefore, 0).After(now.Add(leeway)) {
		return Claims{}, refuse(ReasonNotYet, nil)
	}
	if !now.Before(expiresAt) {
		return Claims{}, refuse(ReasonExpired, nil)
	}
	// jti is there, for the caller to record.
	if c.ID == "" || len(c.ID) > maxIDLength {
		return Claims{}, refuse(ReasonClaims, nil)
	}
	return Claims{Issuer: c.Issuer, Subject: c.Subject, ID: c.ID, IssuedAt: issuedAt, ExpiresAt: expiresAt}, nil
}

// UnverifiedIssuer returns iss as an assertion claims it, only for finding the Personal Agent whose keys then verify it.
// The error is an [*Error].
func UnverifiedIssuer(compact string) (string, error) {
	token, err := jws.Parse(compact, jws.Algorithms())
	if err != nil {
		return "", refuse(ReasonMalformed, err)
	}
	var c claims
	if err := strictjson.Unmarshal(token.Payload, &c); err != nil {
		return "", refuse(ReasonClaims, err)
	}
	return c.Issuer, nil
}

// mediaSubtype is what RFC 7515 4.1.9 compares: a media type in any case, of which "application/" may be left out.
func mediaSubtype(typ string) string { return strings.TrimPrefix(strings.ToLower(typ), "application/") }

func isDate(seconds *int64) bool { return seconds != nil && *seconds >= 0 && *seconds <= maxDate }

func isUserID(text string) bool {
	return text != "" && len(text) <= maxUserIDLength &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
