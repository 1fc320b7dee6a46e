package web

import "net/http"

// Error is an answer that refuses a request.
type Error struct {
	Status int
	Code   string      // for {"error": code}
	Header http.Header // more headers, such as WWW-Authenticate; may be nil
	Body   any         // JSON body instead of {"error": code}; may be nil
	Cause  error       // logged, never sent; may be nil
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

// NotFound is 404 {"error":"not_found"}.
func NotFound() *Error { return &Error{Status: http.StatusNotFound, Code: "not_found"} }

// MethodNotAllowed is 405 {"error":"method_not_allowed"} with the Allow header.
func MethodNotAllowed(allow ...string) *Error { return nil }

// TooLarge is 413 {"error":"request_too_large"}.
func TooLarge() *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large"}
}

// UnsupportedMediaType is 415 {"error":"unsupported_media_type"}.
func UnsupportedMediaType() *Error {
	return &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type"}
}

// InvalidRequest is 400 {"error":"invalid_request"}.
func InvalidRequest(cause error) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "invalid_request", Cause: cause}
}
