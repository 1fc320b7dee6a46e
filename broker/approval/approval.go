// Package approval keeps the requests for a person's decision: one for each subject, decided once, on a digest.
package approval

import (
	"context"
	"errors"
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
	Canceled State = "canceled" // its subject was canceled by the requester
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
	// DecidedAt, DecidedBy and Note tell of an approval or denial.
	DecidedAt time.Time
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

// Service decides approvals. Its methods may be called concurrently. Refusals are [*Error]; any other error is ours.
type Service struct{}

var errSkeleton = errors.New("not there yet")

// List returns up to limit approvals of all clients, newest first; 0 means 20, and more than 50 means 50. cursor is empty
// or the Next of a page with the same filter.
func (s *Service) List(ctx context.Context, filter Filter, limit int, cursor string) (Page, error) {
	return Page{}, errSkeleton
}

// Get returns an approval.
func (s *Service) Get(ctx context.Context, id string) (Approval, error) {
	return Approval{}, errSkeleton
}

// Approve approves a pending approval and moves its operation to approved in the same transaction. replayed reports that
// this very command was carried out before.
func (s *Service) Approve(ctx context.Context, decision Decision) (a Approval, replayed bool, err error) {
	return Approval{}, false, errSkeleton
}

// Deny denies a pending approval and moves its operation to denied in the same transaction. See [Service.Approve].
func (s *Service) Deny(ctx context.Context, decision Decision) (a Approval, replayed bool, err error) {
	return Approval{}, false, errSkeleton
}

// Watch returns a channel that holds a signal after any approval was opened or closed, and a function that ends the watch
// and must be called. A signal carries no truth: watch first, then read, then wait.
func (s *Service) Watch() (signal <-chan struct{}, cancel func()) { return nil, func() {} }
