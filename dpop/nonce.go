package dpop

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"countersign/internal/secret"
)

const (
	// DefaultNonceLifetime is how long a nonce is accepted when the configuration does not say.
	DefaultNonceLifetime = 5 * time.Minute

	minNonceSecret = 32 // bytes
	nonceLength    = 48 // characters: base64url of a 12-byte GCM nonce, 8 bytes of time and a 16-byte tag
	clockSkew      = 5 * time.Second
)

// Nonces issues and recognises nonces (RFC 9449 8) without keeping any: a nonce is its own issue time, encrypted and
// authenticated with AES-256-GCM. All servers that share the secret recognise each other's. Safe for concurrent use.
type Nonces struct {
	sealer   cipher.AEAD
	lifetime time.Duration
}

// NewNonces derives the key from at least 32 random bytes. The secret may serve other purposes too, since the key is
// derived under a label of its own. A zero lifetime means [DefaultNonceLifetime].
func NewNonces(master secret.Text, lifetime time.Duration) (*Nonces, error) {
	if len(master.Reveal()) < minNonceSecret {
		return nil, fmt.Errorf("the secret for DPoP nonces has fewer than %d bytes", minNonceSecret)
	}
	if lifetime < 0 {
		return nil, errors.New("the lifetime of DPoP nonces cannot be negative")
	}
	if lifetime == 0 {
		lifetime = DefaultNonceLifetime
	}
	key, err := hkdf.Key(sha256.New, []byte(master.Reveal()), nil, "countersign dpop nonce 1", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for DPoP nonces: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making the cipher for DPoP nonces: %w", err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("making the cipher for DPoP nonces: %w", err)
	}
	return &Nonces{sealer: sealer, lifetime: lifetime}, nil
}

// Issue returns a new nonce for the [NonceHeader] field.
func (n *Nonces) Issue(now time.Time) string {
	var issuedAt [8]byte
	binary.BigEndian.PutUint64(issuedAt[:], uint64(now.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(n.sealer.Seal(nil, nil, issuedAt[:], nil)) //nolint:gosec // G407: the AEAD makes its own random nonce
}

// Check returns when the nonce was issued, or an error if it was not issued with this secret or has expired.
func (n *Nonces) Check(nonce string, now time.Time) (time.Time, error) {
	if len(nonce) != nonceLength {
		return time.Time{}, errNonce
	}
	sealed, err := base64.RawURLEncoding.DecodeString(nonce)
	if err != nil {
		return time.Time{}, errNonce
	}
	opened, err := n.sealer.Open(nil, nil, sealed, nil)
	if err != nil || len(opened) != 8 {
		return time.Time{}, errNonce
	}
	issuedAt := time.UnixMilli(int64(binary.BigEndian.Uint64(opened))) //nolint:gosec // G115: what Issue wrote
	if issuedAt.After(now.Add(clockSkew)) {
		return time.Time{}, errors.New("the nonce is from the future")
	}
	if !now.Before(n.expiry(issuedAt)) {
		return time.Time{}, errors.New("the nonce has expired")
	}
	return issuedAt, nil
}

// Due reports whether a nonce issued at that time is past half its life, so that the next response should bring a new
// one. Clients then never meet an expired nonce while they keep sending requests.
func (n *Nonces) Due(issuedAt, now time.Time) bool { return now.Sub(issuedAt) >= n.lifetime/2 }

// expiry is the first moment at which the nonce is refused.
func (n *Nonces) expiry(issuedAt time.Time) time.Time { return issuedAt.Add(n.lifetime) }

var errNonce = errors.New("the nonce was not issued here")
