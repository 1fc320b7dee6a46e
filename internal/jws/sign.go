package jws

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"

	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// PrivateKey is a P-256 key that signs with ES256. It prints as pointers only, never as its value.
type PrivateKey struct {
	key        *ecdsa.PrivateKey
	pkcs8      secret.Text
	public     jwk
	thumbprint string
}

// GenerateKey makes a new key.
func GenerateKey() (*PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return newPrivateKey(key, secret.New(string(der)))
}

// ParsePrivateKey reads what [PrivateKey.Marshal] returned.
func ParsePrivateKey(pkcs8 secret.Text) (*PrivateKey, error) {
	parsed, err := x509.ParsePKCS8PrivateKey([]byte(pkcs8.Reveal()))
	if err != nil {
		return nil, errors.New("not a PKCS #8 private key") // the cause could quote the key
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("not a P-256 private key")
	}
	return newPrivateKey(key, pkcs8)
}

func newPrivateKey(key *ecdsa.PrivateKey, pkcs8 secret.Text) (*PrivateKey, error) {
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	public := jwk{
		Type:  "EC",
		Curve: "P-256",
		X:     base64.RawURLEncoding.EncodeToString(point[1:33]),
		Y:     base64.RawURLEncoding.EncodeToString(point[33:]),
	}
	return &PrivateKey{key: key, pkcs8: pkcs8, public: public, thumbprint: public.thumbprint()}, nil
}

// Marshal returns the key as PKCS #8 DER bytes, for a vault to keep.
func (k *PrivateKey) Marshal() secret.Text { return k.pkcs8 }

// Thumbprint returns the RFC 7638 thumbprint of the public key.
func (k *PrivateKey) Thumbprint() string { return k.thumbprint }

// MarshalSet returns the public JSON Web Key Set of the keys: a document to publish. Each kid is the key's thumbprint.
func MarshalSet(keys ...*PrivateKey) ([]byte, error) {
	var document struct {
		Keys []jwk `json:"keys"`
	}
	for _, key := range keys {
		public := key.public
		public.KeyID, public.Use, public.Algorithm = key.thumbprint, "sig", ES256
		document.Keys = append(document.Keys, public)
	}
	return strictjson.Marshal(document)
}

// Sign returns the compact JWS of any header and payload. It looks at neither, so that the conformance suite can sign what
// breaks the rules; whatever must keep them goes through a [Signer].
func (k *PrivateKey) Sign(header, payload []byte) (string, error) {
	return k.sign(base64.RawURLEncoding.EncodeToString(header), payload)
}

func (k *PrivateKey) sign(encodedHeader string, payload []byte) (string, error) {
	signed := encodedHeader + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, k.key, digest[:])
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	var signature [64]byte // RFC 7518 3.4: R and S, 32 bytes each
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature[:]), nil
}

// Signer signs tokens that share one header, which is encoded once. Safe for concurrent use.
type Signer struct {
	key    *PrivateKey
	header string
}

// EmbeddingSigner returns a Signer whose tokens carry the public key itself in jwk, as a DPoP proof does.
func (k *PrivateKey) EmbeddingSigner(typ string) (*Signer, error) {
	return k.signer(header{Algorithm: ES256, Type: typ, Key: &k.public})
}

// NamingSigner returns a Signer whose tokens name the key in kid, for a key that was published by [MarshalSet].
func (k *PrivateKey) NamingSigner(typ string) (*Signer, error) {
	return k.signer(header{Algorithm: ES256, Type: typ, KeyID: k.thumbprint})
}

func (k *PrivateKey) signer(h header) (*Signer, error) {
	text, err := strictjson.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding the header: %w", err)
	}
	return &Signer{key: k, header: base64.RawURLEncoding.EncodeToString(text)}, nil
}

// Sign returns the compact JWS of the claims, which are written as JSON.
func (s *Signer) Sign(claims any) (string, error) {
	payload, err := strictjson.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encoding the claims: %w", err)
	}
	return s.key.sign(s.header, payload)
}
