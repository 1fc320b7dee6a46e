package dpop

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"countersign/internal/jws"
	"countersign/internal/secret"
)

// proofType is the typ of a proof (RFC 9449 4.2).
const proofType = "dpop+jwt"

// Key is the key pair behind a Session's tokens. A Personal Agent has a different one for each User ID (protocol 4.3)
// and never publishes it. It signs with ES256, which every Company accepts. Safe for concurrent use.
type Key struct {
	private *jws.PrivateKey
	signer  *jws.Signer
}

// GenerateKey makes a new key pair.
func GenerateKey() (*Key, error) {
	private, err := jws.GenerateKey()
	if err != nil {
		return nil, err
	}
	return newKey(private)
}

// ParseKey reads what [Key.Marshal] returned.
func ParseKey(pkcs8 secret.Text) (*Key, error) {
	private, err := jws.ParsePrivateKey(pkcs8)
	if err != nil {
		return nil, fmt.Errorf("reading a DPoP key: %w", err)
	}
	return newKey(private)
}

func newKey(private *jws.PrivateKey) (*Key, error) {
	signer, err := private.EmbeddingSigner(proofType)
	if err != nil {
		return nil, err
	}
	return &Key{private: private, signer: signer}, nil
}

// Marshal returns the private key as PKCS #8 DER bytes, for a vault to keep.
func (k *Key) Marshal() secret.Text { return k.private.Marshal() }

// Thumbprint returns the RFC 7638 thumbprint of the public key, to which tokens are bound.
func (k *Key) Thumbprint() string { return k.private.Thumbprint() }

// Request is the HTTP request that a proof is made for.
type Request struct {
	Method string      // as sent, such as POST
	URL    string      // an absolute https URL; its query and fragment do not go into the proof
	Token  secret.Text // the Session Token sent with the request; zero at the token endpoint
	Nonce  string      // the last DPoP-Nonce of that server; "" if it gave none
}

// Proof returns a new proof for one request, for the [Header] field. Every request needs its own, a repeated one too.
func (k *Key) Proof(r Request, now time.Time) (string, error) {
	target, err := url.Parse(r.URL)
	if err != nil || target.Scheme != "https" || target.Host == "" || target.User != nil {
		return "", errors.New("a DPoP proof needs an absolute https URL without credentials")
	}
	target.RawQuery, target.ForceQuery, target.Fragment, target.RawFragment = "", false, "", ""
	c := claims{
		ID:       rand.Text(), // 130 random bits
		Method:   r.Method,
		URL:      target.String(),
		IssuedAt: new(float64(now.Unix())),
		Nonce:    r.Nonce,
	}
	if !r.Token.IsZero() {
		c.TokenHash = tokenHash(r.Token)
	}
	return k.signer.Sign(c)
}

// claims are those of a proof (RFC 9449 4.2).
type claims struct {
	ID        string   `json:"jti"`
	Method    string   `json:"htm"`
	URL       string   `json:"htu"`
	IssuedAt  *float64 `json:"iat"` // a NumericDate (RFC 7519 2), which may have a fraction
	TokenHash string   `json:"ath,omitempty"`
	Nonce     string   `json:"nonce,omitempty"`
}

// tokenHash returns what ath holds for a token.
func tokenHash(token secret.Text) string {
	sum := sha256.Sum256([]byte(token.Reveal()))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
