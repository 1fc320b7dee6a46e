// Package approval keeps the requests for a person's decision: one for each operation that needs one, decided once, about one
// digest.
//
// An approval is opened and canceled in the transaction of the operation that it belongs to ([Open], [Cancel]), and a
// decision moves that operation in the transaction that records it ([Operations]). So neither is ever without the other.
// What a person sees is a bounded copy made when the plan was stored; what is approved is the plan's digest.
package approval

import (
	"time"

	"countersign/broker/provider"
)

// State is where an approval is.
type State string

// The states. All but pending are terminal.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
	Expired  State = "expired"
	Canceled State = "canceled" // its operation was canceled by the requester
)

// Approval is a request for a person's decision about an operation's plan.
type Approval struct {
	ID          string
	OperationID string
	ClientID    string // who asks
	Operation   string // the operation's name
	Reason      string // in the client's words
	// Presentation is what the person sees. It was made from the plan when that was stored; the digest decides.
	Presentation provider.Presentation
	PlanDigest   string // SHA-256, what is decided about
	State        State
	Revision     int64 // 1, and 2 when it is closed
	CreatedAt    time.Time
	ExpiresAt    time.Time
	ClosedAt     time.Time // zero while it is pending
	// DecidedBy and Note are the operator's, and empty unless the approval was approved or denied.
	DecidedBy string
	Note      string
}

// Decision is an operator's command about one approval.
type Decision struct {
	ApprovalID string
	// ExpectedRevision is the revision that the operator has seen.
	ExpectedRevision int64
	// Key makes the command safe to repeat, 1 to 200 bytes: the same key with the same command returns what it did.
	Key string
	// OperatorID is the authenticated operator.
	OperatorID string
	// Note is the operator's own remark, up to 500 bytes.
	Note string
}

// Filter selects approvals. Empty fields select all.
type Filter struct{ State State }

// Page is a part of a list, newest first.
type Page struct {
	Approvals []Approval
	Next      string // continues the list after this page; empty on the last one
}

// Code is what a program acts on when a call is refused.
type Code string

// The codes: a closed list.
const (
	InvalidRequest   Code = "invalid_request"
	NotFound         Code = "not_found"
	RevisionConflict Code = "revision_conflict" // decided or closed since the operator looked
	KeyConflict      Code = "idempotency_conflict"
)

// Error is why a call was refused. Nothing was changed.
type Error struct {
	Code    Code
	Message string // safe to show, says what to do next
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }
