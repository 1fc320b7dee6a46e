package jws

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"

	"countersign/internal/strictjson"
)

// What [ParsePublicKey] and [ParseSet] find wrong. Their texts never repeat anything of the key.
var (
	ErrKey        = errors.New("not a usable public key")
	ErrPrivateKey = errors.New("a private or symmetric key, which nobody may publish")
)

// RSA keys outside this range, in bits, are refused: below it they are weak, above it verifying is costly.
const (
	minRSABits = 2048
	maxRSABits = 4096
)

// PublicKey is a key that verifies signatures of one key type and curve.
type PublicKey struct {
	// KeyID is the kid member, "" if absent.
	KeyID string
	// Thumbprint is the RFC 7638 thumbprint with SHA-256: base64url, 43 characters. It names the key for ever.
	Thumbprint string

	key       crypto.PublicKey // *ecdsa.PublicKey, *rsa.PublicKey or ed25519.PublicKey
	algorithm string           // the alg member: the one algorithm the key is for; "" if absent
}

// jwk has the members that are read. Others (x5c, key_ops, …) carry nothing that a signature check needs.
type jwk struct {
	Type      string `json:"kty"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
	KeyID     string `json:"kid,omitempty"`
	Use       string `json:"use,omitempty"`
	Algorithm string `json:"alg,omitempty"`

	// The members that only a private or symmetric key has (RFC 7518 6.2.2, 6.3.2, 6.4.1).
	D   given `json:"d,omitzero"`
	P   given `json:"p,omitzero"`
	Q   given `json:"q,omitzero"`
	DP  given `json:"dp,omitzero"`
	DQ  given `json:"dq,omitzero"`
	QI  given `json:"qi,omitzero"`
	Oth given `json:"oth,omitzero"`
	K   given `json:"k,omitzero"`
}

func (j *jwk) private() bool {
	return j.Type == "oct" || bool(j.D || j.P || j.Q || j.DP || j.DQ || j.QI || j.Oth || j.K)
}

// ParsePublicKey reads a JSON Web Key. Errors wrap [ErrPrivateKey] for a private or symmetric key and [ErrKey] for
// anything else that cannot verify a signature.
func ParsePublicKey(text []byte) (*PublicKey, error) {
	var j jwk
	if err := strictjson.Unmarshal(text, &j); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return j.publicKey()
}

func (j *jwk) publicKey() (*PublicKey, error) {
	if j.private() {
		return nil, ErrPrivateKey
	}
	if j.Use != "" && j.Use != "sig" {
		return nil, fmt.Errorf("%w: it is not for signatures", ErrKey)
	}
	key, err := j.key()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return &PublicKey{KeyID: j.KeyID, Thumbprint: j.thumbprint(), key: key, algorithm: j.Algorithm}, nil
}

func (j *jwk) key() (crypto.PublicKey, error) {
	switch j.Type {
	case "EC":
		return j.ecdsa()
	case "RSA":
		return j.rsa()
	case "OKP":
		return j.ed25519()
	default:
		return nil, errors.New("its type is not known here")
	}
}

// thumbprint hashes the required members in RFC 7638's order (RFC 8037 2 for OKP). [jwk.key] found them to be base64url
// and known names, so they need no escaping.
func (j *jwk) thumbprint() string {
	var members string
	switch j.Type {
	case "EC":
		members = `{"crv":"` + j.Curve + `","kty":"EC","x":"` + j.X + `","y":"` + j.Y + `"}`
	case "RSA":
		members = `{"e":"` + j.E + `","kty":"RSA","n":"` + j.N + `"}`
	case "OKP":
		members = `{"crv":"` + j.Curve + `","kty":"OKP","x":"` + j.X + `"}`
	}
	sum := sha256.Sum256([]byte(members))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// ecdsa reads a point of full length (RFC 7518 6.2.1.2) that lies on its curve.
func (j *jwk) ecdsa() (*ecdsa.PublicKey, error) {
	var curve elliptic.Curve
	switch j.Curve {
	case "P-256":
		curve = elliptic.P256()
	case "P-384":
		curve = elliptic.P384()
	case "P-521":
		curve = elliptic.P521()
	default:
		return nil, errors.New("its curve is not known here")
	}
	size := (curve.Params().BitSize + 7) / 8
	x, err := decodeExactly(j.X, size)
	if err != nil {
		return nil, err
	}
	y, err := decodeExactly(j.Y, size)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, bytes.Join([][]byte{{4}, x, y}, nil))
	if err != nil {
		return nil, errors.New("its point is not on the curve")
	}
	return key, nil
}

// rsa reads a modulus and exponent in their shortest form (RFC 7518 6.3.1) and within bounds.
func (j *jwk) rsa() (*rsa.PublicKey, error) {
	n, err := decodeUint(j.N)
	if err != nil {
		return nil, err
	}
	if bits := n.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, fmt.Errorf("its size is not within %d and %d bits", minRSABits, maxRSABits)
	}
	e, err := decodeUint(j.E)
	if err != nil {
		return nil, err
	}
	if e.BitLen() > 31 || e.Cmp(big.NewInt(3)) < 0 || e.Bit(0) == 0 { // what crypto/rsa takes
		return nil, errors.New("its exponent is out of range")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

// ed25519 reads 32 bytes (RFC 8037 2). Whether they are a point shows when a signature is verified.
func (j *jwk) ed25519() (ed25519.PublicKey, error) {
	if j.Curve != "Ed25519" {
		return nil, errors.New("its curve is not known here")
	}
	return decodeExactly(j.X, ed25519.PublicKeySize)
}

// fits reports whether the key can have made a signature with the algorithm.
func (k *PublicKey) fits(algorithm string) bool {
	if k.algorithm != "" && k.algorithm != algorithm {
		return false
	}
	switch key := k.key.(type) {
	case *ecdsa.PublicKey:
		return algorithm == ES256 && key.Curve == elliptic.P256() ||
			algorithm == ES384 && key.Curve == elliptic.P384() ||
			algorithm == ES512 && key.Curve == elliptic.P521()
	case *rsa.PublicKey:
		return algorithm == RS256 || algorithm == PS256
	case ed25519.PublicKey:
		return algorithm == EdDSA
	default:
		return false
	}
}

func decodeExactly(text string, size int) ([]byte, error) {
	data, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("a member %w", err)
	}
	if len(data) != size {
		return nil, errors.New("a member has the wrong length")
	}
	return data, nil
}

func decodeUint(text string) (*big.Int, error) {
	data, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("a member %w", err)
	}
	if len(data) == 0 || data[0] == 0 {
		return nil, errors.New("a member is not in its shortest form")
	}
	return new(big.Int).SetBytes(data), nil
}
