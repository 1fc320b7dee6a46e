package jws

import (
	"errors"
	"fmt"

	"countersign/internal/strictjson"
)

const (
	maxKeys  = 100 // in one set; Personal Agents need a handful
	maxFound = 8   // tried for one token, so that whoever publishes a set cannot make each token cost a hundred checks
)

// Set is a JSON Web Key Set (RFC 7517 5) of public keys. The zero value has no keys.
type Set struct{ keys []*PublicKey }

// ParseSet reads a key set of at most 100 keys. A key that cannot be used here (another type, curve, size or use) is
// left out, as RFC 7517 5 says; one private or symmetric key refuses the whole set, because its owner published a secret
// and nothing it signs proves who signed.
func ParseSet(document []byte) (Set, error) {
	var wire struct {
		Keys []strictjson.Raw `json:"keys"`
	}
	if err := strictjson.Unmarshal(document, &wire); err != nil {
		return Set{}, fmt.Errorf("the key set %w", err)
	}
	if wire.Keys == nil {
		return Set{}, errors.New("the key set has no keys member")
	}
	if len(wire.Keys) > maxKeys {
		return Set{}, fmt.Errorf("the key set has more than %d keys", maxKeys)
	}
	var set Set
	for i, text := range wire.Keys {
		key, err := ParsePublicKey(text)
		if errors.Is(err, ErrPrivateKey) {
			return Set{}, fmt.Errorf("key %d of the set: %w", i+1, err)
		}
		if err == nil {
			set.keys = append(set.keys, key)
		}
	}
	return set, nil
}

// Len returns how many usable keys the set has.
func (s Set) Len() int { return len(s.keys) }

// Find returns the keys that can have signed a token with this kid ("" for none given) and algorithm: at most 8, in the
// order of the set. There can be several with one kid, since RFC 7517 4.5 only recommends that they differ.
func (s Set) Find(keyID, algorithm string) []*PublicKey {
	var found []*PublicKey
	for _, key := range s.keys {
		if (keyID == "" || key.KeyID == keyID) && key.fits(algorithm) && len(found) < maxFound {
			found = append(found, key)
		}
	}
	return found
}
