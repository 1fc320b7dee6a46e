package approval

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"countersign/broker/page"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/internal/wake"
)

// Operations is what decisions move.
type Operations interface {
	// Decided moves the operation of an approval that was approved, denied or expired in tx. committed, if not nil, is called
	// after the commit.
	Decided(tx *database.Tx, a Approval) (committed func(), err error)
}

// Options are what a [Service] needs. All must be given, except Faults.
type Options struct {
	DB         *database.DB
	Wake       *wake.Hub // shared with the operations, which wake [Topic] when they open or cancel an approval
	Operations Operations
	Now        func() time.Time
	Log        *slog.Logger
	Faults     func(step string) // called after each durable step; for tests
}

// Service decides approvals. Its methods may be called concurrently. Refusals are [*Error]; any other error is ours.
type Service struct{ options Options }

// Topic is woken after the commit of every opened and closed approval.
const Topic = "approval"

// New returns a service. [Service.Run] lets approvals expire.
func New(options Options) *Service {
	if options.Faults == nil {
		options.Faults = func(string) {}
	}
	return &Service{options}
}

// Approve approves a pending approval and moves its operation to approved in the same transaction. replayed reports that
// this very command was carried out before.
func (s *Service) Approve(ctx context.Context, d Decision) (a Approval, replayed bool, err error) {
	return s.decide(ctx, d, Approved)
}

// Deny denies a pending approval and moves its operation to denied in the same transaction. See [Service.Approve].
func (s *Service) Deny(ctx context.Context, d Decision) (a Approval, replayed bool, err error) {
	return s.decide(ctx, d, Denied)
}

func (s *Service) decide(ctx context.Context, d Decision, state State) (a Approval, replayed bool, err error) {
	digest, err := d.digest(state)
	if err != nil {
		return Approval{}, false, err
	}
	now := s.options.Now()
	var committed func()
	err = s.options.DB.Write(ctx, func(tx *database.Tx) error {
		found, err := find(tx.QueryRow, d.ApprovalID)
		if err != nil {
			return notFound(err)
		}
		// The same command again answers what it did.
		if found.key == d.Key {
			if found.digest != digest {
				return &Error{KeyConflict, "This idempotency key was used for another decision. Use a new key for a new decision."}
			}
			a, replayed = found.Approval, true
			return nil
		}
		if found.State != Pending || found.Revision != d.ExpectedRevision {
			return &Error{RevisionConflict, fmt.Sprintf("The approval is %s with revision %d by now. Read it again before you decide.", found.State, found.Revision)}
		}
		if !now.Before(found.ExpiresAt) {
			return &Error{RevisionConflict, "The time for this decision is over; the approval expires."}
		}
		if err := closeAs(tx, found.ID, found.Revision, state, now, decision{d.OperatorID, d.Note, d.Key, digest}); err != nil {
			return fmt.Errorf("closing approval %s: %w", found.ID, err)
		}
		if found, err = find(tx.QueryRow, d.ApprovalID); err != nil {
			return err
		}
		a = found.Approval
		committed, err = s.options.Operations.Decided(tx, a)
		return err
	})
	if err != nil {
		return Approval{}, false, err
	}
	if !replayed {
		s.options.Faults("decide: recorded")
		s.closed(committed)
	}
	return a, replayed, nil
}

// digest checks a command and returns what makes it this one.
func (d Decision) digest(state State) (string, error) {
	switch {
	case d.Key == "" || len(d.Key) > 200:
		return "", &Error{InvalidRequest, "The idempotency key must have 1 to 200 bytes."}
	case d.OperatorID == "" || len(d.OperatorID) > 200:
		return "", &Error{InvalidRequest, "The operator's name must have 1 to 200 bytes."}
	case len(d.Note) > 500:
		return "", &Error{InvalidRequest, "The note must have at most 500 bytes."}
	}
	command, err := strictjson.MarshalCanonical([]any{d.ApprovalID, string(state), d.ExpectedRevision, d.OperatorID, d.Note})
	if err != nil {
		return "", &Error{InvalidRequest, "The decision must be UTF-8 text."}
	}
	return strictjson.Digest(command), nil
}

// closed tells everyone about a committed change.
func (s *Service) closed(committed func()) {
	if committed != nil {
		committed()
	}
	s.options.Wake.Wake(Topic)
}

// Watch returns a channel that holds a signal after any approval was opened or closed, and a function that ends the watch
// and must be called. A signal carries no truth: watch first, then read, then wait.
func (s *Service) Watch() (signal <-chan struct{}, cancel func()) {
	return s.options.Wake.Subscribe(Topic)
}

// Get returns an approval.
func (s *Service) Get(ctx context.Context, id string) (Approval, error) {
	found, err := find(func(statement string, args ...any) database.Row {
		return s.options.DB.QueryRow(ctx, statement, args...)
	}, id)
	if err != nil {
		return Approval{}, notFound(err)
	}
	return found.Approval, nil
}

// List returns up to limit approvals of all clients, newest first; see [page.Limit]. cursor is empty or the Next of a page
// with the same filter.
func (s *Service) List(ctx context.Context, filter Filter, limit int, cursor string) (Page, error) {
	if filter.State != "" && !slices.Contains([]State{Pending, Approved, Denied, Expired, Canceled}, filter.State) {
		return Page{}, &Error{InvalidRequest, "There is no such state. Use pending, approved, denied, expired or canceled."}
	}
	before := int64(math.MaxInt64)
	if cursor != "" {
		last, ok := page.Last(cursor, Topic, string(filter.State))
		if !ok {
			return Page{}, &Error{InvalidRequest, "The cursor is not one of this list. Start again without it."}
		}
		var err error
		if before, err = findSeq(ctx, s.options.DB, last); err != nil {
			return Page{}, notFound(err)
		}
	}
	limit = page.Limit(limit)
	found, err := list(ctx, s.options.DB, filter.State, before, limit+1)
	if err != nil {
		return Page{}, fmt.Errorf("listing approvals: %w", err)
	}
	var result Page
	for _, each := range found[:min(len(found), limit)] {
		result.Approvals = append(result.Approvals, each.Approval)
	}
	if len(found) > limit {
		result.Next = page.Cursor(found[limit-1].ID, Topic, string(filter.State))
	}
	return result, nil
}

func notFound(err error) error {
	if errors.Is(err, database.ErrNoRows) {
		return &Error{NotFound, "There is no such approval."}
	}
	return fmt.Errorf("reading an approval: %w", err)
}

// Run lets approvals expire when their time is over, until ctx ends. It sleeps until the nearest deadline.
func (s *Service) Run(ctx context.Context) {
	changed, cancel := s.Watch()
	defer cancel()
	for {
		wait := s.expire(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

const (
	// idle is how long Run sleeps when nothing is pending: whatever comes wakes it.
	idle = time.Hour
	// retry is how long Run waits after the database has failed.
	retry = time.Second
)

// expire closes what is due and returns how long there is nothing to do.
func (s *Service) expire(ctx context.Context) time.Duration {
	for {
		deadline, found, err := nearest(ctx, s.options.DB)
		now := s.options.Now()
		switch {
		case err != nil:
		case !found:
			return idle
		case now.Before(deadline):
			return min(deadline.Sub(now), idle)
		default:
			err = s.expireDue(ctx, now)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.options.Log.Error("expiring approvals", "error", err)
			}
			return retry
		}
	}
}

// expireDue closes one batch.
func (s *Service) expireDue(ctx context.Context, now time.Time) error {
	var committed []func()
	err := s.options.DB.Write(ctx, func(tx *database.Tx) error {
		found, err := due(tx, now, page.MaxLimit)
		if err != nil {
			return err
		}
		for _, each := range found {
			if err := closeAs(tx, each.ID, each.Revision, Expired, now, decision{}); err != nil {
				return err
			}
			each.State, each.Revision, each.ClosedAt = Expired, each.Revision+1, now
			after, err := s.options.Operations.Decided(tx, each.Approval)
			if err != nil {
				return err
			}
			committed = append(committed, after)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.options.Faults("expire: recorded")
	for _, after := range committed {
		s.closed(after)
	}
	return nil
}
