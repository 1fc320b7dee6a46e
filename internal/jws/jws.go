// Package jws reads and writes compact JSON Web Signatures (RFC 7515) and the keys that verify them (RFC 7517), strictly.
//
// What [Parse] accepts has exactly one spelling: bounded, three canonical base64url parts, a header without duplicate
// names or critical extensions, and an algorithm that the caller allowed. Libraries let several spellings of one token
// through, and then two readers can disagree about what was signed. ES256, which every party must have, is verified by
// the standard library alone, because a proof is verified on every request; the other algorithms go through go-jose.
package jws

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"countersign/internal/strictjson"
)

// The algorithms that can be verified (RFC 7518, RFC 8037), all asymmetric. Signing is ES256 only.
const (
	ES256 = "ES256"
	ES384 = "ES384"
	ES512 = "ES512"
	RS256 = "RS256"
	PS256 = "PS256"
	EdDSA = "EdDSA"
)

// Algorithms returns every algorithm that can be verified. There is no "none" and nothing symmetric among them.
func Algorithms() []string { return []string{ES256, ES384, ES512, RS256, PS256, EdDSA} }

// MaxLength is the longest compact form that is read, in bytes. A token with a 4096-bit RSA key in its header needs 3 KiB.
const MaxLength = 8 << 10

// What [Parse] and [Token.Verify] find wrong. Their texts never repeat anything of the token.
var (
	ErrMalformed = errors.New("not a well-formed compact JWS")
	ErrAlgorithm = errors.New("the algorithm is not an accepted one")
	ErrSignature = errors.New("the signature does not verify")
)

// Token is a well-formed compact JWS. Nothing in it may be believed before [Token.Verify] returned nil.
type Token struct {
	Algorithm string // alg, one of those allowed
	Type      string // typ as written, "" if absent
	KeyID     string // kid, "" if absent
	Payload   []byte // the decoded payload, any bytes

	jwk       *jwk
	compact   string
	signed    string // header and payload as the signature covers them
	signature []byte
}

type header struct {
	Algorithm string `json:"alg"`
	Type      string `json:"typ,omitempty"`
	KeyID     string `json:"kid,omitempty"`
	Key       *jwk   `json:"jwk,omitzero"`
	Critical  given  `json:"crit,omitzero"`
	Unencoded given  `json:"b64,omitzero"`
}

// given is whether a member is there, whatever its value.
type given bool

// UnmarshalJSON is called exactly when the member is there, for null too.
func (g *given) UnmarshalJSON([]byte) error {
	*g = true
	return nil
}

// Parse reads a compact JWS whose algorithm is among the given ones. Errors wrap [ErrMalformed] or [ErrAlgorithm].
func Parse(compact string, algorithms []string) (*Token, error) {
	if len(compact) > MaxLength {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, MaxLength)
	}
	headerPart, rest, _ := strings.Cut(compact, ".")
	payloadPart, signaturePart, found := strings.Cut(rest, ".")
	if !found {
		return nil, fmt.Errorf("%w: it has fewer than three parts", ErrMalformed)
	}
	headerText, err := decode(headerPart)
	if err != nil {
		return nil, fmt.Errorf("%w: the header %w", ErrMalformed, err)
	}
	payload, err := decode(payloadPart)
	if err != nil {
		return nil, fmt.Errorf("%w: the payload %w", ErrMalformed, err)
	}
	signature, err := decode(signaturePart) // a fourth part would bring a dot, which is not base64url
	if err != nil {
		return nil, fmt.Errorf("%w: the signature %w", ErrMalformed, err)
	}
	var h header
	if err := strictjson.Unmarshal(headerText, &h); err != nil {
		return nil, fmt.Errorf("%w: the header %w", ErrMalformed, err)
	}
	// RFC 7515 4.1.11: an extension marked critical must be understood, and none is. RFC 7797: b64 changes what is signed.
	if h.Critical || h.Unencoded {
		return nil, fmt.Errorf("%w: the header asks for an extension", ErrMalformed)
	}
	if !slices.Contains(algorithms, h.Algorithm) {
		return nil, ErrAlgorithm
	}
	return &Token{
		Algorithm: h.Algorithm,
		Type:      h.Type,
		KeyID:     h.KeyID,
		Payload:   payload,
		jwk:       h.Key,
		compact:   compact,
		signed:    compact[:len(headerPart)+1+len(payloadPart)],
		signature: signature,
	}, nil
}

// EmbeddedKey returns the key in the header's jwk. Errors are those of [ParsePublicKey].
func (t *Token) EmbeddedKey() (*PublicKey, error) {
	if t.jwk == nil {
		return nil, fmt.Errorf("%w: the header has none", ErrKey)
	}
	return t.jwk.publicKey()
}

// Verify reports whether the key made the signature; the error wraps [ErrSignature].
func (t *Token) Verify(key *PublicKey) error {
	if !key.fits(t.Algorithm) {
		return fmt.Errorf("%w: the key is not for this algorithm", ErrSignature)
	}
	if public, ok := key.key.(*ecdsa.PublicKey); ok && t.Algorithm == ES256 {
		if len(t.signature) != 64 { // RFC 7518 3.4: R and S, 32 bytes each
			return ErrSignature
		}
		digest := sha256.Sum256([]byte(t.signed))
		r, s := new(big.Int).SetBytes(t.signature[:32]), new(big.Int).SetBytes(t.signature[32:])
		if !ecdsa.Verify(public, digest[:], r, s) {
			return ErrSignature
		}
		return nil
	}
	parsed, err := jose.ParseSignedCompact(t.compact, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(t.Algorithm)})
	if err != nil {
		return ErrSignature
	}
	if _, err := parsed.Verify(key.key); err != nil {
		return ErrSignature
	}
	return nil
}

// canonical decodes base64url without padding and refuses bits set beyond the last byte.
var canonical = base64.RawURLEncoding.Strict()

// decode reads one part. Whatever it accepts, encoding the result gives the same part again.
func decode(part string) ([]byte, error) {
	data, err := canonical.DecodeString(part)
	if err != nil || canonical.EncodedLen(len(data)) != len(part) { // the decoder skips line ends
		return nil, errNotBase64
	}
	return data, nil
}

var errNotBase64 = errors.New("is not canonical base64url")
