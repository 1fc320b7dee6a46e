package identity

import (
	"time"

	"countersign/assertion"
)

const (
	// maxAge is how long Companies may keep the documents.
	maxAge = 5 * time.Minute
	// notice is how long a new key is published before it signs, and an old one after it signed last. It outlasts maxAge, the
	// life of an assertion, and the upload of an exported document.
	notice = time.Hour
)

// signingKey is a key and when it takes over from the one before it.
type signingKey struct {
	key       *assertion.Key
	signsFrom time.Time
}

// signing returns the key that signs at a time: the last one that has taken over. keys are in the order of signsFrom.
func signing(keys []signingKey, now time.Time) signingKey {
	current := keys[0]
	for _, k := range keys[1:] {
		if !now.Before(k.signsFrom) {
			current = k
		}
	}
	return current
}

// published returns the keys that Companies must find at a time: the one that signs, those that will, and those whose last
// assertions may still be under way.
func published(keys []signingKey, now time.Time) []signingKey {
	first := 0
	for i, k := range keys[1:] {
		if !now.Before(k.signsFrom.Add(notice)) {
			first = i + 1
		}
	}
	return keys[first:]
}
