package fetch

import "time"

// Kind is why fetching failed. Ask with errors.Is(err, fetch.ErrRedirected).
type Kind string

// Error returns the kind in words.
func (k Kind) Error() string { return string(k) }

// The kinds of an [Error].
const (
	ErrURL              Kind = "URL that may not be fetched"
	ErrAddress          Kind = "address that may not be connected to"
	ErrLookup           Kind = "name that has no address"
	ErrConnect          Kind = "no connection"
	ErrTLS              Kind = "no trusted TLS connection"
	ErrTimeout          Kind = "time limit"
	ErrTooLarge         Kind = "size limit"
	ErrBroken           Kind = "answer that cannot be read"
	ErrRedirected       Kind = "redirect that is not followed"
	ErrTooManyRedirects Kind = "redirect limit"
	ErrStatus           Kind = "unexpected status"
)

// Error is a failed fetch. Its text is for the person who runs this program and names the host only, never the URL.
type Error struct {
	Kind       Kind
	Host       string        // host (with port if it is not 443) that was to be reached, "" if the URL has none
	Problem    string        // what happened and, where there is something, what to do
	Status     int           // for ErrStatus
	RetryAfter time.Duration // for ErrStatus: how long the server asked to wait, 0 if it did not
	Location   string        // for redirects that were not followed: where to, absolute
	Err        error         // cause, may be nil
}

// Error returns the problem.
func (e *Error) Error() string { return e.Problem }

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}
