package web

import (
	"errors"
	"net/http"
	"net/url"
)

// ReadJSON reads a body of type application/json, at most maxBytes long. The error is an [*Error]. Decode the bytes with
// strictjson.
func ReadJSON(w http.ResponseWriter, r *http.Request, maxBytes int64) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// ReadForm reads a body of type application/x-www-form-urlencoded, at most maxBytes long; the query is not mixed in. A
// repeated parameter has more than one value. The error is an [*Error].
func ReadForm(w http.ResponseWriter, r *http.Request, maxBytes int64) (url.Values, error) {
	return nil, errors.ErrUnsupported
}

// WriteJSON writes v with a status. The error means that v cannot be written as JSON and nothing was sent; a client that has
// gone away is not an error. Return it from a handler.
func WriteJSON(w http.ResponseWriter, status int, v any) error { return errors.ErrUnsupported }
