package access

import (
	"errors"
	"net/http"

	"countersign/internal/secret"
)

// MinSecret is the length of the shortest secret that is accepted, in bytes.
const MinSecret = 32

// NewSecret makes a random secret.
func NewSecret() secret.Text { return secret.Text{} }

// Hash returns what the broker keeps of a secret: "sha256:" and 64 hexadecimal digits. A secret shorter than [MinSecret] is
// an error.
func Hash(s secret.Text) (string, error) { return "", errors.ErrUnsupported }

// Caller is a client or an operator.
type Caller struct {
	ID   string // 1 to 128 letters, digits and . _ - starting with a letter or digit
	Hash string // of its secret, from [Hash]
}

// Callers are those whom one way in accepts. They never change and may be used concurrently.
type Callers struct{}

// NewCallers returns the callers. An ID or a secret that is there twice is an error. realm names the way in to whoever lacks a
// secret.
func NewCallers(realm string, callers []Caller) (*Callers, error) { return nil, errors.ErrUnsupported }

// Authenticate returns the ID of the caller whose secret the request carries, as a Bearer token or as a Basic password. The
// error is a [*web.Error] with status 401 and a challenge, the same for a missing and for a wrong secret but for its message.
func (c *Callers) Authenticate(r *http.Request) (id string, err error) {
	return "", errors.ErrUnsupported
}

// Shared returns the ID of a caller here whose secret is that of one among others too, "" if there is none.
func (c *Callers) Shared(others *Callers) string { return "" }
