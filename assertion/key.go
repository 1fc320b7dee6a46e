package assertion

import (
	"fmt"

	"countersign/internal/jws"
	"countersign/internal/secret"
)

// Key is a key pair with which a Personal Agent signs assertions (ES256). Its public half is published at jwks_uri, unlike
// a DPoP key (protocol 4.1). Safe for concurrent use.
type Key struct{ private *jws.PrivateKey }

// GenerateKey makes a new key pair.
func GenerateKey() (*Key, error) {
	private, err := jws.GenerateKey()
	if err != nil {
		return nil, err
	}
	return &Key{private}, nil
}

// ParseKey reads what [Key.Marshal] returned.
func ParseKey(pkcs8 secret.Text) (*Key, error) {
	private, err := jws.ParsePrivateKey(pkcs8)
	if err != nil {
		return nil, fmt.Errorf("reading an assertion key: %w", err)
	}
	return &Key{private}, nil
}

// Marshal returns the private key as PKCS #8 DER bytes, for a vault to keep.
func (k *Key) Marshal() secret.Text { return k.private.Marshal() }

// ID returns the kid under which the key is published: its RFC 7638 thumbprint.
func (k *Key) ID() string { return k.private.Thumbprint() }

// MarshalKeySet returns the document to serve at jwks_uri: the public halves of the keys.
func MarshalKeySet(keys ...*Key) ([]byte, error) {
	private := make([]*jws.PrivateKey, len(keys))
	for i, key := range keys {
		private[i] = key.private
	}
	return jws.MarshalSet(private...)
}

// KeySet is a Personal Agent's published keys, as a Company read them.
type KeySet = jws.Set

// ParseKeySet reads the document at a jwks_uri. Keys that cannot verify an assertion are left out; a private or symmetric
// key refuses the whole document.
func ParseKeySet(document []byte) (KeySet, error) { return jws.ParseSet(document) }
