// Package dpop makes and verifies DPoP proofs as RFC 9449 and section 4.3 of the Personal Agent Protocol define them.
//
// A Personal Agent makes one with [Key.Proof] for each request. A Company verifies it with [Verifier.Verify], which is
// pure: it keeps nothing, so where a proof may be used only once (the token endpoint), the caller records [Proof.ID] in
// the transaction that issues the token.
package dpop

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"countersign/internal/jws"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// The HTTP fields of RFC 9449.
const (
	Header      = "DPoP"       // of a request: the proof
	NonceHeader = "DPoP-Nonce" // of a response: the nonce for the next proof
)

const (
	defaultWindow = time.Minute
	defaultLeeway = 30 * time.Second
	maxIDLength   = 256          // bytes of jti, which may be stored
	maxDate       = 253402300799 // the last second of the year 9999
)

// Options says which proofs a server accepts.
type Options struct {
	// Algorithms are the accepted values of alg, for dpop_signing_alg_values_supported. Nil means ES256 alone; a list has
	// ES256 in it (protocol 3.2) and otherwise only values of [Algorithms].
	Algorithms []string
	// Window is how long after it was made a proof is accepted. Zero means one minute.
	Window time.Duration
	// Leeway is how far ahead of ours the clock that made a proof may be. Zero means 30 seconds.
	Leeway time.Duration
	// Nonces issued and recognises the nonces. Nil means that the nonce claim is not looked at.
	Nonces *Nonces
	// RequireNonce refuses a proof without a nonce. It needs Nonces.
	RequireNonce bool
}

// Algorithms returns every algorithm that a [Verifier] can be told to accept.
func Algorithms() []string { return jws.Algorithms() }

// Verifier verifies proofs. Safe for concurrent use.
type Verifier struct {
	algorithms   []string
	window       time.Duration
	leeway       time.Duration
	nonces       *Nonces
	requireNonce bool
}

// NewVerifier returns a Verifier, or an error that says which option cannot be.
func NewVerifier(o Options) (*Verifier, error) {
	algorithms := slices.Clone(o.Algorithms)
	if algorithms == nil {
		algorithms = []string{jws.ES256}
	}
	for _, algorithm := range algorithms {
		if !slices.Contains(jws.Algorithms(), algorithm) {
			return nil, fmt.Errorf("DPoP algorithm %q is not supported; choose from %v", algorithm, jws.Algorithms())
		}
	}
	if !slices.Contains(algorithms, jws.ES256) {
		return nil, errors.New("the DPoP algorithms must include ES256")
	}
	if o.Window < 0 || o.Leeway < 0 {
		return nil, errors.New("the DPoP window and leeway cannot be negative")
	}
	if o.RequireNonce && o.Nonces == nil {
		return nil, errors.New("requiring DPoP nonces needs a source of them")
	}
	return &Verifier{
		algorithms:   algorithms,
		window:       cmp.Or(o.Window, defaultWindow),
		leeway:       cmp.Or(o.Leeway, defaultLeeway),
		nonces:       o.Nonces,
		requireNonce: o.RequireNonce,
	}, nil
}

// Algorithms returns what this Verifier accepts, for metadata and challenges.
func (v *Verifier) Algorithms() []string { return slices.Clone(v.algorithms) }

// Expected is what a proof must be for: the request it came with and, if that carries a Session Token, the token.
type Expected struct {
	Method string
	URL    string // absolute https URL of the request as the client sees it; query and fragment are ignored
	// Token is the Session Token of the request and Thumbprint the key it is bound to. Both are set at a resource and
	// neither at the token endpoint.
	Token      secret.Text
	Thumbprint string
}

// Proof is what a verified proof said.
type Proof struct {
	// ID is the jti, 1 to 256 bytes. It is unique for the key, so replays are looked for by Thumbprint and ID together.
	ID string
	// Thumbprint is the RFC 7638 thumbprint of the key that signed, to which an issued token is bound.
	Thumbprint string
	// Until is the first moment at which this proof would be refused for its age, so that its ID may be forgotten.
	Until time.Time
	// NonceDue says that the response should carry a fresh [NonceHeader], because this proof's nonce is past half its life.
	NonceDue bool
}

// Verify checks the proof in a request's header. An error that is an [*Error] means the proof was refused.
func (v *Verifier) Verify(header http.Header, want Expected, now time.Time) (Proof, error) {
	wantURL, err := normalizeURL(want.URL)
	if err != nil {
		return Proof{}, fmt.Errorf("the URL to verify a DPoP proof for: %w", err)
	}

	// There is exactly one DPoP header (RFC 9449 4.3, check 1). Two that a proxy joined have a comma, which no JWT has.
	values := header.Values(Header)
	if len(values) != 1 {
		return Proof{}, refuse(ReasonHeader, nil)
	}

	// It is a well-formed JWT with the required claims (2, 3), and alg is one of those accepted (5).
	token, err := jws.Parse(values[0], v.algorithms)
	if errors.Is(err, jws.ErrAlgorithm) {
		return Proof{}, refuse(ReasonAlgorithm, err)
	}
	if err != nil {
		return Proof{}, refuse(ReasonMalformed, err)
	}
	var c claims
	if err := strictjson.Unmarshal(token.Payload, &c); err != nil {
		return Proof{}, refuse(ReasonClaims, err)
	}
	issuedAt, ok := c.issuedAt()
	if !ok || c.ID == "" || len(c.ID) > maxIDLength || c.Method == "" || c.URL == "" {
		return Proof{}, refuse(ReasonClaims, nil)
	}

	// typ is dpop+jwt (4).
	if token.Type != proofType {
		return Proof{}, refuse(ReasonType, nil)
	}

	// jwk is a public key without any private member (7), and the signature verifies with it (6).
	key, err := token.EmbeddedKey()
	if err != nil {
		return Proof{}, refuse(ReasonKey, err)
	}
	if err := token.Verify(key); err != nil {
		return Proof{}, refuse(ReasonSignature, err)
	}

	// htm and htu are those of the request (8, 9).
	if c.Method != want.Method {
		return Proof{}, refuse(ReasonMethod, nil)
	}
	if proofURL, err := normalizeURL(c.URL); err != nil || proofURL != wantURL {
		return Proof{}, refuse(ReasonURL, err)
	}

	// nonce, if one is needed or given, is one that we issued (10).
	proof := Proof{ID: c.ID, Thumbprint: key.Thumbprint, Until: issuedAt.Add(v.window)}
	fresh := v.inWindow(issuedAt, now)
	stale := ReasonStale
	if v.nonces != nil && c.Nonce != "" {
		nonceIssuedAt, err := v.nonces.Check(c.Nonce, now)
		if err != nil {
			return Proof{}, refuse(ReasonNonce, err)
		}
		fresh = fresh || v.inWindow(nonceIssuedAt, now)
		stale = ReasonNonceStale // a fresh nonce cures it
		proof.Until = v.nonces.expiry(nonceIssuedAt)
		proof.NonceDue = v.nonces.Due(nonceIssuedAt, now)
	} else if v.requireNonce {
		return Proof{}, refuse(ReasonNonceMissing, nil)
	}

	// It was made within the window, judged by iat or by when its nonce was issued (11; protocol 4.3).
	if !fresh {
		return Proof{}, refuse(stale, nil)
	}

	// With a token: it is bound to this key, and ath is its hash (12). Without one, an ath says nothing.
	if want.Thumbprint != "" || !want.Token.IsZero() {
		if subtle.ConstantTimeCompare([]byte(key.Thumbprint), []byte(want.Thumbprint)) != 1 {
			return Proof{}, refuse(ReasonBinding, nil)
		}
		if subtle.ConstantTimeCompare([]byte(c.TokenHash), []byte(tokenHash(want.Token))) != 1 {
			return Proof{}, refuse(ReasonToken, nil)
		}
	}
	return proof, nil
}

// inWindow reports whether something made at that time is still, and already, acceptable.
func (v *Verifier) inWindow(made, now time.Time) bool {
	return now.Before(made.Add(v.window)) && !made.After(now.Add(v.leeway))
}

// issuedAt returns iat, if it is there and a year that Go and a database can hold.
func (c *claims) issuedAt() (time.Time, bool) {
	if c.IssuedAt == nil || *c.IssuedAt < 0 || *c.IssuedAt > maxDate {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(*c.IssuedAt * 1000)), true
}
