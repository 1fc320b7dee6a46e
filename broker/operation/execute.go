package operation

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/strictjson"
)

// Run executes what is approved, first what an earlier process left, until ctx ends. Then it starts nothing more, lets the
// calls under way go on for the grace period, cancels them, and returns when all have ended. Call it once.
//
// One process at a time may run a database: whatever is executing at the start is taken for interrupted.
func (s *Service) Run(ctx context.Context) error {
	left, err := unfinished(ctx, s.options.DB)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("taking up unfinished operations: %w", err)
	}
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.queue.start(left, func(j job) { s.execute(calls, j) })
	<-ctx.Done()
	s.queue.stop()
	grace := time.AfterFunc(s.options.ShutdownGrace, cancel)
	defer grace.Stop()
	s.queue.wait()
	return nil
}

const (
	// reconcileTimeout bounds one look-up.
	reconcileTimeout = 30 * time.Second
	// maxRevision ends what is dispatched again and again because the process does not survive it.
	maxRevision = 20
	// databaseRetry is how long a change waits after the database has failed.
	databaseRetry = time.Second
)

// reconcileDelays are how long to wait before each look-up of one unknown outcome: a provider that just failed may be back.
var reconcileDelays = []time.Duration{0, time.Second, 5 * time.Second}

// task is an operation to be executed, with all that this takes.
type task struct {
	record
	offered    provider.Operation // nil if the stored plan cannot be used
	descriptor provider.Descriptor
	dispatch   provider.Dispatch
}

// execute takes an operation from where its row says it is to its end.
func (s *Service) execute(ctx context.Context, j job) {
	r, ok := s.read(ctx, j.id)
	if !ok {
		return
	}
	t := s.newTask(r)
	switch {
	case t.State == Approved && t.offered == nil:
		s.fail(ctx, t, Problem{CodePlanInvalid, "The stored plan cannot be executed by this broker any more. Nothing was done; submit a new request if it is still wanted."})
	case t.State == Approved:
		s.call(ctx, t, "")
	case t.State != Executing || !j.recovering:
		// Canceled while it was queued, or handed over twice: then the other one has it.
	case t.offered != nil && repeatable(t):
		s.call(ctx, t, "again, since the broker was interrupted")
	default:
		s.lookUp(ctx, t)
	}
}

// newTask joins a stored operation with the provider's, if that is still offered and the plan is what was approved.
func (s *Service) newTask(r record) task {
	t := task{record: r}
	content, err := usablePlan(r)
	if err != nil {
		s.options.Log.Error("a stored plan cannot be used", "operation", r.ID, "error", err)
		return t
	}
	offered, descriptor, known := s.options.Registry.Find(r.Name)
	if !known {
		s.options.Log.Error("a stored operation is offered no more", "operation", r.ID, "name", r.Name)
		return t
	}
	t.offered, t.descriptor = offered, descriptor
	t.dispatch = provider.Dispatch{OperationID: r.ID, ClientID: r.ClientID, Operation: r.Name, Plan: content, ApprovalID: r.ApprovalID}
	return t
}

// repeatable reports whether an interrupted operation may be called again: if it was safe to repeat when it was dispatched
// and still is.
func repeatable(t task) bool {
	return t.Effect != provider.Change && t.descriptor.Effect != provider.Change && t.Revision < maxRevision
}

// usablePlan returns what the provider gets of a stored plan, if that is what was approved.
func usablePlan(r record) (strictjson.Raw, error) {
	if strictjson.Digest([]byte(r.plan)) != r.PlanDigest {
		return nil, errors.New("the plan does not have the digest that was approved")
	}
	var document struct {
		ClientID      string         `json:"client_id"`
		Operation     string         `json:"operation"`
		RequestDigest string         `json:"request_digest"`
		Content       strictjson.Raw `json:"content"`
	}
	if err := strictjson.Unmarshal([]byte(r.plan), &document); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	if document.ClientID != r.ClientID || document.Operation != r.Name || document.RequestDigest != r.RequestDigest {
		return nil, errors.New("the plan is of another request")
	}
	return document.Content, nil
}

// call commits that the operation is dispatched, makes the one call, and records what came of it.
func (s *Service) call(ctx context.Context, t task, detail string) {
	s.options.Faults("execute: taken")
	again := t.State == Executing
	var ok bool
	t.record, ok = s.change(ctx, t.record, change{kind: EventDispatched, state: Executing, actor: actorBroker, detail: detail})
	if !ok {
		return // canceled just before
	}
	s.options.Faults("execute: dispatched")
	outcome := protected(ctx, t.descriptor.Timeout, func(ctx context.Context) provider.Outcome { return t.offered.Execute(ctx, t.dispatch) })
	s.options.Faults("execute: called")
	switch {
	case outcome.Verdict == provider.VerdictSucceeded:
		s.succeed(ctx, t, outcome, "")
	case outcome.Verdict == provider.VerdictRefused && again && t.descriptor.Effect != provider.Read:
		// It is this call that was refused. The one that was interrupted may have taken effect.
		s.options.Log.Warn("an execution was refused when it was called again", "operation", t.ID, "code", outcome.Code)
		s.lookUp(ctx, t)
	case outcome.Verdict == provider.VerdictRefused, outcome.Verdict == provider.VerdictFailed:
		s.fail(ctx, t, safeProblem(outcome.Code, outcome.Message))
	case ctx.Err() != nil:
		// Interrupted by the end of the process; the next one takes it up.
	case t.descriptor.Effect == provider.Read:
		s.options.Log.Warn("a read had no answer", "operation", t.ID, "error", outcome.Cause)
		s.fail(ctx, t, Problem{CodeProviderUnavailable, "The provider did not answer. Nothing was changed; submit it again, with a new request ID."})
	default:
		s.options.Log.Warn("the outcome of an execution is unknown", "operation", t.ID, "error", outcome.Cause)
		s.lookUp(ctx, t)
	}
}

// lookUp finds out what became of an execution without calling it again.
func (s *Service) lookUp(ctx context.Context, t task) {
	if reconciler, ok := t.offered.(provider.Reconciler); ok {
		for _, delay := range reconcileDelays {
			if !sleep(ctx, delay) {
				return // the next process looks again
			}
			outcome := protected(ctx, reconcileTimeout, func(ctx context.Context) provider.Outcome { return reconciler.Reconcile(ctx, t.dispatch) })
			s.options.Faults("execute: looked up")
			switch outcome.Verdict {
			case provider.VerdictSucceeded:
				s.succeed(ctx, t, outcome, "found by looking it up")
				return
			case provider.VerdictRefused:
				problem := safeProblem(outcome.Code, outcome.Message)
				s.fail(ctx, t, Problem{CodeNotPerformed, provider.Cut("It did not take effect ("+problem.Code+"): "+problem.Message, maxMessage)})
				return
			case provider.VerdictFailed:
				s.fail(ctx, t, safeProblem(outcome.Code, outcome.Message))
				return
			case provider.VerdictUnknown:
				s.options.Log.Warn("looking up an unknown outcome", "operation", t.ID, "error", outcome.Cause)
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
	s.fail(ctx, t, Problem{CodeOutcomeUnknown, "It is not known whether this took effect. Look it up at the provider, and do not submit it again under a new request ID before that."})
}

// succeed records a proven success.
func (s *Service) succeed(ctx context.Context, t task, outcome provider.Outcome, detail string) {
	if outcome.Cause != nil {
		s.options.Log.Warn("a result was lost", "operation", t.ID, "error", outcome.Cause)
	}
	result, cut := provider.Project(outcome.Result, t.descriptor.PublicNames)
	s.change(ctx, t.record, change{kind: EventSucceeded, state: Succeeded, actor: actorBroker, detail: detail, result: result, cut: cut})
	s.options.Faults("execute: recorded")
}

// fail records any other end.
func (s *Service) fail(ctx context.Context, t task, problem Problem) {
	s.change(ctx, t.record, change{kind: EventFailed, state: Failed, actor: actorBroker, detail: problem.Code, problem: problem})
	s.options.Faults("execute: recorded")
}

// change makes a change durable and tells the waiting. It returns false if the operation was changed by someone else
// meanwhile. It tries again while the database fails, since an outcome that is not recorded is lost.
func (s *Service) change(ctx context.Context, r record, c change) (record, bool) {
	for {
		now := s.options.Now()
		err := s.options.DB.Write(context.WithoutCancel(ctx), func(tx *database.Tx) error { return advance(tx, r, c, now) })
		switch {
		case err == nil:
			r.State, r.Revision = c.state, r.Revision+1
			s.options.Wake.Wake(r.ID)
			return r, true
		case errors.Is(err, errStale):
			s.options.Log.Info("an operation was changed by someone else meanwhile", "operation", r.ID, "change", c.kind)
			return r, false
		}
		s.options.Log.Error("recording a change of an operation", "operation", r.ID, "change", c.kind, "error", err)
		if errors.Is(err, database.ErrClosed) || !sleep(ctx, databaseRetry) {
			return r, false
		}
	}
}

// read returns an operation, trying again while the database fails.
func (s *Service) read(ctx context.Context, id string) (record, bool) {
	for {
		r, err := find(s.row(ctx), id)
		if err == nil {
			return r, true
		}
		s.options.Log.Error("reading an operation to be executed", "operation", id, "error", err)
		if !sleep(ctx, databaseRetry) {
			return record{}, false
		}
	}
}

// protected bounds a call of a provider in time and survives its panic.
func protected(ctx context.Context, timeout time.Duration, call func(context.Context) provider.Outcome) (outcome provider.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	func() {
		defer recovered(&err)
		outcome = call(ctx)
	}()
	if err != nil {
		return provider.Unknown(err)
	}
	return outcome
}

// sleep waits and returns false when ctx ends first.
func sleep(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

var problemCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// safeProblem makes a provider's refusal safe to store and show. A code that is none, or one of the broker's own, becomes
// [CodeProviderError].
func safeProblem(code, message string) Problem {
	if !problemCode.MatchString(code) || slices.Contains(ownCodes, code) {
		code = CodeProviderError
	}
	message = provider.Sanitize(message, maxMessage)
	if message == "" {
		message = "The provider gave no reason."
	}
	return Problem{code, message}
}
