package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"countersign/internal/secret"
)

// MinSecret is the length of the shortest secret that is accepted, in bytes.
const MinSecret = 32

// hashPrefix names the function, so that another one can stand beside it one day.
const hashPrefix = "sha256:"

// NewSecret makes a random secret of 43 characters (256 bits) that need no escaping anywhere.
func NewSecret() secret.Text {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	return secret.New(base64.RawURLEncoding.EncodeToString(random[:]))
}

// Hash returns what the broker keeps of a secret: "sha256:" and 64 hexadecimal digits. A secret shorter than [MinSecret] is
// an error.
func Hash(s secret.Text) (string, error) {
	if len(s.Reveal()) < MinSecret {
		return "", fmt.Errorf("a secret needs at least %d bytes: make one with NewSecret", MinSecret)
	}
	sum := sha256.Sum256([]byte(s.Reveal()))
	return hashPrefix + hex.EncodeToString(sum[:]), nil
}

// Caller is a client or an operator.
type Caller struct {
	ID   string // 1 to 128 letters, digits and . _ - starting with a letter or digit
	Hash string // of its secret, from [Hash]
}

var callerID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Callers are those whom one way in accepts. They never change and may be used concurrently.
type Callers struct {
	realm string
	known []known
}

type known struct {
	id  string
	sum [sha256.Size]byte
}

// NewCallers returns the callers. An ID or a secret that is there twice is an error. realm names the way in to whoever lacks a
// secret.
func NewCallers(realm string, callers []Caller) (*Callers, error) {
	list := make([]known, 0, len(callers))
	for _, caller := range callers {
		if !callerID.MatchString(caller.ID) {
			return nil, fmt.Errorf("%q cannot be an ID: use 1 to 128 letters, digits and . _ -, starting with a letter or digit", caller.ID)
		}
		one := known{id: caller.ID}
		digits, prefixed := strings.CutPrefix(caller.Hash, hashPrefix)
		sum, err := hex.DecodeString(digits)
		if !prefixed || err != nil || copy(one.sum[:], sum) != sha256.Size || len(sum) != sha256.Size {
			return nil, fmt.Errorf("the hash of %s is not %s and 64 hexadecimal digits", caller.ID, hashPrefix)
		}
		for _, other := range list {
			if other.id == one.id {
				return nil, fmt.Errorf("%s is there twice", one.id)
			}
			if other.sum == one.sum {
				return nil, fmt.Errorf("%s and %s have the same secret: give each its own", other.id, one.id)
			}
		}
		list = append(list, one)
	}
	return &Callers{realm: realm, known: list}, nil
}

// IDs returns the IDs of the callers, in the order in which they were given.
func (c *Callers) IDs() []string {
	ids := make([]string, len(c.known))
	for i, one := range c.known {
		ids[i] = one.id
	}
	return ids
}

// Errors of [Callers.Authenticate].
var (
	ErrNoSecret    = errors.New("no secret was sent")
	ErrWrongSecret = errors.New("the secret is not known")
)

// Authenticate returns the ID of the caller whose secret the request carries, as a Bearer token or as a Basic password. The
// error is [ErrNoSecret] or [ErrWrongSecret].
func (c *Callers) Authenticate(r *http.Request) (id string, err error) {
	presented, ok := presentedSecret(r)
	if !ok {
		return "", ErrNoSecret
	}
	// Hashing first makes what is compared independent of what is kept, and every caller is compared, so that the time
	// tells nothing. A short secret cannot have been made by Hash.
	sum := sha256.Sum256([]byte(presented))
	for _, one := range c.known {
		if subtle.ConstantTimeCompare(one.sum[:], sum[:]) == 1 {
			id = one.id
		}
	}
	if id == "" || len(presented) < MinSecret {
		return "", ErrWrongSecret
	}
	return id, nil
}

// Challenge is the WWW-Authenticate header for a request that was not authenticated (RFC 6750, section 3).
func (c *Callers) Challenge(err error) string {
	challenge := `Bearer realm="` + c.realm + `"`
	if errors.Is(err, ErrWrongSecret) {
		challenge += `, error="invalid_token"`
	}
	return challenge
}

// presentedSecret reads the one Authorization header. More than one is none, since two readers may choose differently.
func presentedSecret(r *http.Request) (string, bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", false
	}
	if _, password, ok := r.BasicAuth(); ok {
		return password, password != ""
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// Shared returns the ID of a caller here whose secret is that of one among others too, "" if there is none.
func (c *Callers) Shared(others *Callers) string {
	for _, one := range c.known {
		for _, other := range others.known {
			if one.sum == other.sum {
				return one.id
			}
		}
	}
	return ""
}
