// Package wire is what the broker's HTTP surfaces and their clients have in common: one form of error, strict queries, event
// streams, and calls that are repeated when their answer was lost.
package wire

import (
	"net/http"

	"countersign/broker/provider"
	"countersign/internal/strictjson"
	"countersign/internal/web"
)

// Fault is why a call was refused, as every surface writes it: {"error": Fault}.
type Fault struct {
	Code    string  `json:"code"`    // for programs
	Message string  `json:"message"` // for people: what is wrong and what to do
	Fields  []Field `json:"fields,omitempty"`
	// Current is the item as it is now, where the caller had seen an older revision.
	Current strictjson.Raw `json:"current,omitempty"`
}

// Field is one fault of a submitted document.
type Field struct {
	Pointer string `json:"pointer"` // RFC 6901
	Problem string `json:"problem"`
}

// envelope is the one form of an error.
type envelope struct {
	Error Fault `json:"error"`
}

// The codes that every surface gives, besides those of its own. Those of package web bear the same names.
const (
	codeInvalidRequest       = "invalid_request"
	codeAuthenticationFailed = "authentication_failed"
	codeTooManyWaiting       = "too_many_waiting"
)

// messages are for the codes that [web.Mux] and the readers of package web give without one.
var messages = map[string]string{
	codeInvalidRequest:       "The request could not be read to its end.",
	"not_found":              "There is nothing at this path.",
	"method_not_allowed":     "This path takes other methods, see the Allow header.",
	"request_timeout":        "The body did not come in time. The same call may be made again.",
	"request_too_large":      "The body is too large.",
	"unsupported_media_type": "The body must be of type application/json.",
	"server_error":           "Something went wrong in the broker; its log has the reason. The same call may be made again.",
}

// ErrorBody writes the errors of package web in the one form. It is for [web.MuxOptions].
func ErrorBody(e *web.Error) any {
	return envelope{Fault{Code: e.Code, Message: messages[e.Code]}}
}

// Refuse returns the answer that refuses a call.
func Refuse(status int, fault Fault) *web.Error {
	return &web.Error{Status: status, Code: fault.Code, Body: envelope{fault}}
}

// Invalid is 400 invalid_request with a message that tells what to change. It is cut to 500 bytes, since some name a
// place in what was sent.
func Invalid(message string) *web.Error {
	return Refuse(http.StatusBadRequest, Fault{Code: codeInvalidRequest, Message: provider.Sanitize(message, 500)})
}
