package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"countersign/broker/approval"
	"countersign/broker/page"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/wake"
)

// MaxWait bounds how long [Service.Wait] waits, and is what it should wait by default.
const MaxWait = 25 * time.Second

// Policy answers whether an operation may be submitted and whether it may run without asking a person.
type Policy interface {
	MaySubmit(request policy.Request) policy.Decision
	MayRunUnattended(request policy.Request) policy.Decision
}

// Options are what a [Service] needs. All must be given, except Faults.
type Options struct {
	DB       *database.DB
	Wake     *wake.Hub // an operation's ID is its topic
	Registry *provider.Registry
	Policy   Policy
	Now      func() time.Time
	Log      *slog.Logger
	// ApprovalTTL is how long a person has to decide.
	ApprovalTTL time.Duration
	// MaxExecuting bounds the calls to providers that are under way at once.
	MaxExecuting int
	// ShutdownGrace is how long the calls under way may go on when [Service.Run] is to end.
	ShutdownGrace time.Duration
	// Faults is called after each durable step and around each call with the step's name. It is for tests that stop the
	// process there.
	Faults func(step string)
}

// Service is the lifecycle of operations. Its methods may be called concurrently; clientID is the authenticated client's,
// and except for Lookup no method shows or changes an operation of another one. Refusals are [*Error]; any other error is
// ours.
type Service struct {
	options Options
	queue   queue
}

var _ approval.Operations = (*Service)(nil)

// New returns a service. It executes nothing before [Service.Run].
func New(options Options) *Service {
	if options.Faults == nil {
		options.Faults = func(string) {}
	}
	return &Service{options: options, queue: queue{limit: options.MaxExecuting}}
}

// Get returns an operation.
func (s *Service) Get(ctx context.Context, clientID, id string) (Operation, error) {
	r, err := findOwn(s.row(ctx), clientID, id)
	return r.Operation, notFound(err)
}

// Lookup returns an operation of whichever client, for operators.
func (s *Service) Lookup(ctx context.Context, id string) (Operation, error) {
	r, err := find(s.row(ctx), id)
	return r.Operation, notFound(err)
}

// List returns up to limit operations, newest first; see [page.Limit]. cursor is empty or the Next of a page with the same
// client and filter.
func (s *Service) List(ctx context.Context, clientID string, filter Filter, limit int, cursor string) (Page, error) {
	if filter.State != "" && !slices.Contains(states, filter.State) {
		return Page{}, &Error{Code: InvalidRequest, Message: fmt.Sprintf("There is no such state. The states are %v.", states)}
	}
	scope := []string{clientID, filter.RequestID, string(filter.State)}
	before := int64(math.MaxInt64)
	if cursor != "" {
		last, ok := page.Last(cursor, scope...)
		if !ok {
			return Page{}, &Error{Code: InvalidRequest, Message: "The cursor is not one of this list. Start again without it."}
		}
		var err error
		if before, err = findSeq(ctx, s.options.DB, clientID, last); err != nil {
			return Page{}, notFound(err)
		}
	}
	limit = page.Limit(limit)
	found, err := list(ctx, s.options.DB, clientID, filter, before, limit+1)
	if err != nil {
		return Page{}, fmt.Errorf("listing operations: %w", err)
	}
	result := Page{Operations: found[:min(len(found), limit)]}
	if len(found) > limit {
		result.Next = page.Cursor(found[limit-1].ID, scope...)
	}
	return result, nil
}

// Events returns the durable changes after a revision, oldest first: the first ones if after is 0, at most
// [page.MaxLimit].
func (s *Service) Events(ctx context.Context, clientID, id string, after int64) ([]Event, error) {
	seq, err := findSeq(ctx, s.options.DB, clientID, id)
	if err != nil {
		return nil, notFound(err)
	}
	list, err := events(ctx, s.options.DB, seq, after, page.MaxLimit)
	if err != nil {
		return nil, fmt.Errorf("reading the events of operation %s: %w", id, err)
	}
	return list, nil
}

// Wait returns the operation as soon as its revision is greater than after or its state is terminal, and otherwise as it is
// when timeout, [MaxWait] at most, is over. With 0 for after it returns at once; with the revision last seen, at the next
// change. When ctx ends first it returns the error of ctx.
func (s *Service) Wait(ctx context.Context, clientID, id string, after int64, timeout time.Duration) (Operation, error) {
	changed, cancel := s.options.Wake.Subscribe(id)
	defer cancel()
	timer := time.NewTimer(min(timeout, MaxWait))
	defer timer.Stop()
	for late := false; ; {
		op, err := s.Get(ctx, clientID, id)
		if err != nil || late || op.Revision > after || op.State.Terminal() {
			return op, err
		}
		select {
		case <-changed:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return Operation{}, ctx.Err()
		}
	}
}

// Cancel ends an operation that has not been dispatched, and returns a terminal one as it is. It never waits for a
// provider: an executing operation is [NotCancelable].
func (s *Service) Cancel(ctx context.Context, clientID, id string) (Operation, error) {
	now := s.options.Now()
	var op Operation
	err := s.options.DB.Write(ctx, func(tx *database.Tx) error {
		r, err := findOwn(tx.QueryRow, clientID, id)
		if err != nil {
			return notFound(err)
		}
		switch {
		case r.State.Terminal():
			op = r.Operation
			return nil
		case r.State == Executing:
			return &Error{Code: NotCancelable, Message: "The operation was handed to its provider and can no longer be canceled. Wait for its outcome."}
		}
		if err := advance(tx, r, change{kind: EventCanceled, state: Canceled, actor: clientActor(clientID)}, now); err != nil {
			return err
		}
		if r.State == Pending {
			if err := approval.Cancel(tx, r.ApprovalID, now); err != nil {
				return err
			}
		}
		r, err = findOwn(tx.QueryRow, clientID, id)
		op = r.Operation
		return err
	})
	if err != nil {
		return Operation{}, err
	}
	s.options.Faults("cancel: recorded")
	s.options.Wake.Wake(id)
	s.options.Wake.Wake(approval.Topic)
	return op, nil
}

// Decided moves the operation of an approval that was approved, denied or expired in tx.
func (s *Service) Decided(tx *database.Tx, a approval.Approval) (committed func(), err error) {
	r, err := find(tx.QueryRow, a.OperationID)
	if err != nil {
		return nil, err
	}
	if r.PlanDigest != a.PlanDigest {
		return nil, fmt.Errorf("approval %s is about another plan than operation %s has", a.ID, r.ID)
	}
	var c change
	now := a.ClosedAt
	switch a.State {
	case approval.Approved:
		c = change{kind: EventApproved, state: Approved, actor: "operator:" + a.DecidedBy}
	case approval.Denied:
		c = change{kind: EventDenied, state: Denied, actor: "operator:" + a.DecidedBy, problem: Problem{
			CodeApprovalDenied, "The person who was asked denied this operation. Do not submit it again unless something has changed.",
		}}
	case approval.Expired:
		c = change{kind: EventExpired, state: Expired, actor: actorBroker, problem: Problem{
			CodeApprovalExpired, "Nobody decided in time. Submit the operation again, with a new request ID, if it is still wanted.",
		}}
	case approval.Pending, approval.Canceled:
		return nil, fmt.Errorf("approval %s is %s and decides nothing", a.ID, a.State)
	}
	if err := advance(tx, r, c, now); err != nil {
		return nil, err
	}
	return func() {
		s.options.Wake.Wake(r.ID)
		if c.state == Approved {
			s.queue.add(job{id: r.ID})
		}
	}, nil
}

// The actors that are no one's name.
const (
	actorPolicy = "policy"
	actorBroker = "broker"
)

func clientActor(clientID string) string { return "client:" + clientID }

func (s *Service) row(ctx context.Context) rower {
	return func(statement string, args ...any) database.Row {
		return s.options.DB.QueryRow(ctx, statement, args...)
	}
}

// notFound gives a missing row its public name, and keeps nil nil.
func notFound(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, database.ErrNoRows):
		return &Error{Code: NotFound, Message: "There is no such operation of this client. Check the operation ID; list with the request ID finds one that was lost."}
	default:
		return fmt.Errorf("reading an operation: %w", err)
	}
}
