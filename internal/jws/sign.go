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
	key    *ecdsa.PrivateKey
	pkcs8  secret.Text
	public jwk
	name   string
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
	return &PrivateKey{key: key, pkcs8: pkcs8, public: public, name: public.thumbprint()}, nil
}

// Marshal returns the key as PKCS #8 DER bytes, for a vault to keep.
func (k *PrivateKey) Marshal() secret.Text { return k.pkcs8 }

// Thumbprint returns the RFC 7638 thumbprint of the public key.
func (k *PrivateKey) Thumbprint() string { return k.name }

// MarshalSet returns the public JSON Web Key Set of the keys: a document to publish. Each kid is the key's thumbprint.
func MarshalSet(keys ...*PrivateKey) ([]byte, error) {
	var document struct {
		Keys []jwk `json:"keys"`
	}
	for _, key := range keys {
		public := key.public
		public.KeyID, public.Use, public.Algorithm = key.name, "sig", ES256
		document.Keys = append(document.Keys, public)
	}
	return strictjson.Marshal(document)
}

// Signer signs tokens that share one header, which is encoded once.
type Signer struct {
	key    *ecdsa.PrivateKey
	header string
}

// EmbeddingSigner returns a Signer whose tokens carry the public key itself in jwk, as a DPoP proof does.
func (k *PrivateKey) EmbeddingSigner(typ string) (*Signer, error) {
	public, err := strictjson.Marshal(k.public)
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	return k.signer(header{Algorithm: ES256, Type: typ, Key: public})
}

// NamingSigner returns a Signer whose tokens name the key in kid, for a key that was published by [MarshalSet].
func (k *PrivateKey) NamingSigner(typ string) (*Signer, error) {
	return k.signer(header{Algorithm: ES256, Type: typ, KeyID: k.name})
}

func (k *PrivateKey) signer(h header) (*Signer, error) {
	text, err := strictjson.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding the header: %w", err)
	}
	return &Signer{key: k.key, header: base64.RawURLEncoding.EncodeToString(text) + "."}, nil
}

// Sign returns the compact JWS of the claims, which are written as JSON.
func (signer *Signer) Sign(claims any) (string, error) {
	payload, err := strictjson.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encoding the claims: %w", err)
	}
	signed := signer.header + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, signer.key, digest[:])
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	var signature [64]byte // RFC 7518 3.4: R and S, 32 bytes each
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature[:]), nil
}
