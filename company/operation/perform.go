package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"countersign/internal/database"
	"countersign/poppy"
)

// storeRetry is when work is tried again that failed because of our own database.
const storeRetry = 5 * time.Second

// Run performs what is confirmed until ctx ends, and returns when no call of the Performer runs any more. It begins with
// what an earlier run left unfinished: what was not started is performed, what was started is looked up.
func (s *Service) Run(ctx context.Context) error {
	unfinished, err := inProgress(ctx, s.Database)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("looking for unfinished operations: %w", err)
	}
	for _, operationID := range unfinished {
		s.actions.Add(operationID)
		s.stops.Add(operationID)
	}
	var group sync.WaitGroup
	group.Go(func() { s.actions.Run(ctx) })
	group.Go(func() { s.stops.Run(ctx) })
	group.Wait()
	return nil
}

// perform is the job of [Service.actions]: it takes an operation in progress one step on.
func (s *Service) perform(ctx context.Context, operationID string) {
	if err := s.step(ctx, operationID); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "performing an operation", "operation_id", operationID, "error", err)
		s.actions.AddAfter(operationID, storeRetry)
	}
}

// step begins the next attempt, or looks up the latest one if that was started before: by a run that crashed or was
// stopped, or by a call whose outcome stayed unknown.
func (s *Service) step(ctx context.Context, operationID string) error {
	r, found, err := readRecord(s.Database.QueryRow(ctx, selectRecord, operationID))
	if err != nil || !found || r.state != poppy.OperationInProgress {
		return err
	}
	if wait := r.due.Sub(s.Now()); wait > 0 {
		s.actions.AddAfter(operationID, wait)
		return nil
	}
	call := s.Performer.Lookup
	if r.outcome != outcomeStarted {
		call = s.Performer.Perform
		if r, err = s.begin(ctx, operationID); err != nil || r.state != poppy.OperationInProgress {
			return err
		}
	}
	outcome := s.call(ctx, r.action(), call)
	if outcome.Verdict == Unknown && ctx.Err() != nil {
		return ctx.Err() // it stays started, and is looked up by the next run
	}
	// What came of it is kept even when this run is being stopped.
	return s.settle(context.WithoutCancel(ctx), r, outcome)
}

// begin commits that the next attempt starts. It returns the operation as it then is, which is a final state when there is
// nothing to perform.
func (s *Service) begin(ctx context.Context, operationID string) (r record, err error) {
	now := s.Now()
	err = s.Database.Write(ctx, func(tx *database.Tx) error {
		var found bool
		if r, found, err = readRecord(tx.QueryRow(selectRecord, operationID)); err != nil {
			return err
		}
		if !found || r.state != poppy.OperationInProgress || r.outcome == outcomeStarted {
			return errChanged // cancelled meanwhile, or started by somebody else
		}
		if digest, err := r.operation.TermsDigest(); err != nil || digest != r.confirmation.digest {
			r, err = end(tx, r, poppy.OperationFailed, poppy.Result{Summary: textUnsound}, now)
			return err
		}
		r.attempt, r.outcome = r.attempt+1, outcomeStarted
		return insertAttempt(tx, operationID, r.attempt, s.worker, now)
	})
	switch {
	case errors.Is(err, errChanged):
		return record{}, nil
	case err != nil:
		return record{}, err
	case r.state.Final():
		s.Log.ErrorContext(ctx, "the terms of a confirmed operation are not those that were confirmed", "operation_id", operationID)
		s.Hub.Wake(operationID)
	}
	return r, nil
}

// action is what the Performer is told.
func (r record) action() Action {
	c := r.confirmation
	return Action{
		OperationID: r.operation.OperationID, Attempt: r.attempt, Key: r.key,
		Revision: r.operation.Revision, Digest: c.digest, Summary: r.operation.Summary, Terms: r.operation.Terms,
		ClientID: c.by.ClientID, UserID: c.by.UserID, SessionID: c.by.SessionID, Account: c.by.Account,
		ApprovedBy: c.approvedBy, ConfirmedAt: c.at,
	}
}

// call asks the Performer. Whatever goes wrong there, the outcome is unknown.
func (s *Service) call(ctx context.Context, a Action, ask func(context.Context, Action) (Outcome, error)) (outcome Outcome) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	log := s.Log.With("operation_id", a.OperationID, "attempt", a.Attempt)
	defer func() {
		if cause := recover(); cause != nil {
			log.ErrorContext(ctx, "the performer panicked", "cause", cause, "stack", string(debug.Stack()))
			outcome = Outcome{}
		}
	}()
	outcome, err := ask(ctx, a)
	if err != nil {
		log.WarnContext(ctx, "the outcome of an operation is unknown", "error", err)
		return Outcome{}
	}
	if _, final := outcomes[outcome.Verdict]; final && strings.TrimSpace(outcome.Result.Summary) == "" {
		log.ErrorContext(ctx, "the performer gave an outcome without a summary, which is no outcome")
		return Outcome{}
	}
	return outcome
}

// settle records what came of an attempt. An answer that comes after another one was recorded changes nothing.
func (s *Service) settle(ctx context.Context, r record, outcome Outcome) error {
	operationID, now := r.operation.OperationID, s.Now()
	var again time.Duration // when the next step is due; 0 if there is none
	err := s.Database.Write(ctx, func(tx *database.Tx) error {
		kept, final := outcomes[outcome.Verdict]
		switch {
		case final:
			if err := endAttempt(tx, operationID, r.attempt, kept, now, now); err != nil {
				return err
			}
			_, err := end(tx, r, outcome.state(), outcome.Result, now)
			return err
		case outcome.Verdict == NotStarted:
			again = s.backoff(r.attempt - 1)
			if err := endAttempt(tx, operationID, r.attempt, outcomeNotStarted, now.Add(again), now); err != nil {
				return err
			}
			if stopped, err := stopRequested(tx, operationID); err != nil || !stopped {
				return err
			}
			again = 0
			_, err := end(tx, r, poppy.OperationCancelled, poppy.Result{Summary: textNotStarted}, now)
			return err
		default:
			again = s.backoff(r.lookups)
			return postponeAttempt(tx, operationID, r.attempt, now.Add(again))
		}
	})
	switch {
	case errors.Is(err, errChanged):
		return nil
	case err != nil:
		return err
	case again > 0:
		s.actions.AddAfter(operationID, again)
	default:
		s.Hub.Wake(operationID)
	}
	return nil
}

// backoff is how long to wait after so many looks without an answer.
func (s *Service) backoff(looks int) time.Duration {
	wait := s.LookupAfter
	for range looks {
		if wait *= 2; wait >= s.LookupEvery {
			return s.LookupEvery
		}
	}
	return wait
}

// stop is the job of [Service.stops]: it asks the Performer to stop an attempt of a cancelled operation.
func (s *Service) stop(ctx context.Context, operationID string) {
	r, found, err := readRecord(s.Database.QueryRow(ctx, selectRecord, operationID))
	if err == nil {
		if !found || s.stopper == nil || r.state != poppy.OperationInProgress || !r.stopRequested || r.outcome != outcomeStarted {
			return
		}
		_ = s.call(ctx, r.action(), func(ctx context.Context, a Action) (Outcome, error) {
			err = s.stopper.Stop(ctx, a)
			return Outcome{}, nil
		})
	}
	if err != nil && ctx.Err() == nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "stopping an operation", slog.String("operation_id", operationID), slog.Any("error", err))
		s.stops.AddAfter(operationID, storeRetry)
	}
}
