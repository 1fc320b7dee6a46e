package operation

// Code is what a program acts on when a call is refused.
type Code string

// The codes of Agent Operations V1: a closed list. Every way in has one table from these to what its surface answers.
const (
	InvalidRequest       Code = "invalid_request"
	AuthenticationFailed Code = "authentication_failed" // given by the ways in, which know who is asking
	NotFound             Code = "not_found"             // unknown, or another client's
	RequestIDConflict    Code = "request_id_conflict"
	NotCancelable        Code = "operation_not_cancelable"
	NotRegistered        Code = "operation_not_registered"
	InputInvalid         Code = "operation_input_invalid"
	TargetRefused        Code = "operation_target_refused" // the provider knows no such thing to be done
	Unavailable          Code = "unavailable"              // nothing was stored or changed; the same call may be made again
)

// The bounds of an [Error].
const (
	maxMessage = 500
	maxFields  = 20
)

// Error is why a call was refused. Nothing was stored or changed.
type Error struct {
	Code Code
	// Message is safe to show to the client, says what to do next, and is at most 500 bytes.
	Message string
	// Fields says what is wrong with the input, for InputInvalid: at most 20, without any value of the input.
	Fields []Field
	cause  error
}

// Field is one fault of a submitted target or arguments.
type Field struct {
	Pointer string // RFC 6901, starting with /target or /arguments
	Problem string
}

// Error returns the code, the message and the cause, for the log.
func (e *Error) Error() string {
	text := string(e.Code) + ": " + e.Message
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }
