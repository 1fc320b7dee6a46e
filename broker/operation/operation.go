package operation

import (
	"time"

	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

// State is where an operation is. There are no other states.
type State string

// The states. The last five are terminal: nothing leaves them.
const (
	Pending   State = "pending"   // waits for a person's decision
	Approved  State = "approved"  // authorised, not yet dispatched
	Executing State = "executing" // dispatched to the provider: it may have taken effect
	Succeeded State = "succeeded"
	Failed    State = "failed" // see the error's code; CodeOutcomeUnknown means that it may have taken effect
	Denied    State = "denied" // by policy or by an operator
	Expired   State = "expired"
	Canceled  State = "canceled" // by its requester
)

var states = []State{Pending, Approved, Executing, Succeeded, Failed, Denied, Expired, Canceled}

// Terminal reports whether nothing more will happen.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Failed, Denied, Expired, Canceled:
		return true
	case Pending, Approved, Executing:
	}
	return false
}

// Request is what a client submits. It is immutable: under one RequestID there is one request of a client, for ever.
type Request struct {
	// RequestID is the client's own handle, idempotency_key on the wire and request_id over MCP: a letter or digit, then up
	// to 127 letters, digits and . _ : -
	RequestID string
	// Operation is the name of a registered operation, 1 to 128 bytes.
	Operation string
	// Target is a JSON object of at most 16 KiB.
	Target strictjson.Raw
	// Arguments is a JSON object of at most 1 MiB.
	Arguments strictjson.Raw
	// Reason tells the person who approves why this is wanted, 1 to 2000 bytes. It belongs to the request: another reason
	// is another request.
	Reason string
}

// Item is an operation without what may be large or private: what lists show.
type Item struct {
	ID        string // the operation ID, made by the broker
	ClientID  string
	RequestID string
	Name      string // of the operation, such as "demo.echo"
	Title     string // at most 160 bytes, safe to show
	Summary   string // at most 500 bytes, safe to show
	State     State
	// Revision is 1 when the operation is stored and grows by one with each durable change.
	Revision   int64
	CreatedAt  time.Time
	UpdatedAt  time.Time
	TerminalAt time.Time // zero until the state is terminal
}

// Operation is everything that its client may see, and Rulings besides.
type Operation struct {
	Item
	Effect    provider.Effect
	Target    strictjson.Raw // as submitted, in canonical form
	Arguments strictjson.Raw // as submitted, in canonical form
	Reason    string
	// RequestDigest is the SHA-256 of the canonical request, PlanDigest that of the stored plan; empty if there is none,
	// since policy denied the request before it was resolved.
	RequestDigest string
	PlanDigest    string
	ApprovalID    string // empty if no approval was asked for
	// Rulings are what policy answered at submission. They are for operators, not for clients.
	Rulings []Ruling
	// Result is the safe projection of the provider's result, an object, and nil unless the state is succeeded.
	Result strictjson.Raw
	// ResultCut reports that Result lacks something that the provider returned.
	ResultCut bool
	// Error is why the operation ended without success; nil for succeeded and canceled.
	Error *Problem
}

// Ruling is an answer of policy.
type Ruling struct {
	Question string   `json:"question"` // QuestionSubmit or QuestionRunUnattended
	Allowed  bool     `json:"allowed"`
	Rules    []string `json:"rules"` // the @id of the rules that decided; none if no rule matched
}

// The questions of a [Ruling].
const (
	QuestionSubmit        = "submit"
	QuestionRunUnattended = "run_unattended"
)

// Problem is why an operation ended without success: a code for programs and a bounded text for people that is safe to show.
type Problem struct {
	Code    string // one of the Code constants for stored operations, or the provider's own; at most 64 bytes
	Message string // at most 500 bytes
}

// Codes of a [Problem] that the broker itself gives. A provider's code never equals one of them.
const (
	CodePolicyDenied        = "policy_denied"
	CodeApprovalDenied      = "approval_denied"
	CodeApprovalExpired     = "approval_expired"
	CodeOutcomeUnknown      = "outcome_unknown"      // it may have taken effect; must not be submitted again under a new ID
	CodeNotPerformed        = "not_performed"        // it was dispatched and is proven not to have taken effect
	CodeProviderUnavailable = "provider_unavailable" // a read had no answer; nothing has changed, it may be submitted again
	CodePlanInvalid         = "plan_invalid"         // the stored plan is not what was approved; nothing was dispatched
	CodeProviderError       = "provider_error"       // the provider refused with a code that is none
)

// ownCodes are those that no provider may give.
var ownCodes = []string{
	CodePolicyDenied, CodeApprovalDenied, CodeApprovalExpired, CodeOutcomeUnknown, CodeNotPerformed, CodeProviderUnavailable, CodePlanInvalid,
}

// Kind is what a durable change was.
type Kind string

// The kinds of event.
const (
	EventSubmitted  Kind = "submitted"
	EventApproved   Kind = "approved"
	EventDenied     Kind = "denied"
	EventExpired    Kind = "expired"
	EventCanceled   Kind = "canceled"
	EventDispatched Kind = "dispatched" // committed before the call leaves
	EventSucceeded  Kind = "succeeded"
	EventFailed     Kind = "failed"
)

// Event is one durable change of an operation.
type Event struct {
	Revision int64 // the operation's revision after the change
	Kind     Kind
	State    State // the operation's state after the change
	// Actor is who caused the change: "client:ID", "operator:ID", "policy" or "broker".
	Actor string
	At    time.Time
	// Detail says more in at most 500 bytes and is safe to show; it may be empty.
	Detail string
}

// Filter selects operations of one client. Empty fields select all.
type Filter struct {
	RequestID string // exactly this one
	State     State
}

// Page is a part of a list, newest first.
type Page struct {
	Operations []Item
	// Next continues the list after this page; empty on the last one.
	Next string
}
