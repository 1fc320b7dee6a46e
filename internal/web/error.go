package web

import (
	"net/http"
	"strings"
)

// Error is an answer that refuses a request.
type Error struct {
	Status int
	Code   string      // for {"error": code}
	Header http.Header // more headers, such as WWW-Authenticate, with canonical names; may be nil
	Body   any         // JSON body instead of the surface's own form; may be nil
	Cause  error       // logged, never sent; may be nil
}

// errorBody is the usual form of errors.
type errorBody struct {
	Error string `json:"error"`
}

// Error returns the code and the cause, for logs.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Code
	}
	return e.Code + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// InvalidRequest is 400 {"error":"invalid_request"}.
func InvalidRequest(cause error) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "invalid_request", Cause: cause}
}

// NotFound is 404 {"error":"not_found"}.
func NotFound() *Error { return &Error{Status: http.StatusNotFound, Code: "not_found"} }

// MethodNotAllowed is 405 {"error":"method_not_allowed"} with the Allow header.
func MethodNotAllowed(allow ...string) *Error {
	return &Error{
		Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Header: http.Header{"Allow": {strings.Join(allow, ", ")}},
	}
}

// RequestTimeout is 408 {"error":"request_timeout"}, for a body that does not come.
func RequestTimeout() *Error {
	return &Error{
		Status: http.StatusRequestTimeout, Code: "request_timeout",
		Header: http.Header{"Connection": {"close"}}, // what is left of the body would be read as the next request
	}
}

// TooLarge is 413 {"error":"request_too_large"}.
func TooLarge() *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large"}
}

// UnsupportedMediaType is 415 {"error":"unsupported_media_type"}.
func UnsupportedMediaType() *Error {
	return &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type"}
}

// serverError is 500 {"error":"server_error"}.
func serverError(cause error) *Error {
	return &Error{Status: http.StatusInternalServerError, Code: "server_error", Cause: cause}
}
