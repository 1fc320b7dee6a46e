package provider

import (
	"fmt"

	"countersign/internal/strictjson"
)

// Verdict is how an execution ended.
type Verdict int

// The verdicts. The zero value is VerdictUnknown, so that nothing is proven by accident.
const (
	VerdictUnknown   Verdict = iota // it may or may not have taken effect
	VerdictSucceeded                // it took effect
	VerdictRefused                  // it did not and will not take effect
	VerdictFailed                   // it ended without success, and may have changed what its message says
)

// Outcome is what the provider knows about an execution. Make one with [Succeeded], [Refused], [Failed] or [Unknown].
type Outcome struct {
	Verdict Verdict
	// Result is the provider's own result document of a success.
	Result strictjson.Raw
	// Code and Message are those of a refusal or a failure, not yet made safe.
	Code, Message string
	// Cause is why the outcome is unknown, for the log.
	Cause error
}

// Succeeded is the outcome of an execution that took effect; result is written as JSON and should be an object. A result
// that cannot be written is left out, since the effect did happen.
func Succeeded(result any) Outcome {
	data, err := strictjson.MarshalCanonical(result)
	if err != nil {
		return Outcome{Verdict: VerdictSucceeded, Cause: fmt.Errorf("writing the result: %w", err)}
	}
	return Outcome{Verdict: VerdictSucceeded, Result: data}
}

// Refused is the outcome of an execution that the provider definitely did not perform. code is a word for programs,
// a-z, 0-9 and _, at most 64 bytes; message tells a person why, in the provider's words.
func Refused(code, message string) Outcome {
	return Outcome{Verdict: VerdictRefused, Code: code, Message: message}
}

// Failed is the outcome of an execution that the provider began and that ended without success, for good. The message says
// what it has changed. See [Refused] for code and message.
func Failed(code, message string) Outcome {
	return Outcome{Verdict: VerdictFailed, Code: code, Message: message}
}

// Unknown is the outcome of an execution that may have taken effect, for example after a timeout.
func Unknown(cause error) Outcome { return Outcome{Verdict: VerdictUnknown, Cause: cause} }

// Error is why a request cannot become a plan. Code and Message are as in [Refused].
type Error struct{ Code, Message string }

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }
