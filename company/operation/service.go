package operation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"countersign/company/guard"
	"countersign/internal/database"
	"countersign/internal/id"
	"countersign/internal/wake"
	"countersign/internal/web"
	"countersign/internal/work"
	"countersign/poppy"
)

// Options configures a [Service].
type Options struct {
	// Database keeps the operations; [Migrate] has run.
	Database *database.DB
	// Hub wakes requests that wait for an operation. Its topics here are operation IDs.
	Hub *wake.Hub
	// Performer performs what is confirmed. One that is a [Stopper] too can be asked to stop.
	Performer Performer
	// Log takes what went wrong while performing.
	Log *slog.Logger
	// Now is the clock.
	Now func() time.Time

	// Wait is how long confirm and cancel wait for the final state before they answer with in_progress; 3 s by default.
	Wait time.Duration
	// Timeout bounds one call of the Performer; 30 s by default. After it the outcome is unknown.
	Timeout time.Duration
	// Parallel is how many calls of the Performer run at a time; 16 by default.
	Parallel int
	// LookupAfter is when an unknown outcome is looked up for the first time; 1 s by default. The time doubles with each
	// look, up to LookupEvery; 5 min by default.
	LookupAfter, LookupEvery time.Duration
}

// Service is the operations of one Company. Make one with [New]; its methods may be called concurrently.
type Service struct {
	Options

	worker  string // names this run of the service in the attempts that it starts
	stopper Stopper
	actions *work.Pool // performs, and looks up
	stops   *work.Pool // asks to stop
}

// New returns a service. It panics if an option without a default is missing. What is confirmed waits until [Service.Run].
func New(o Options) *Service {
	if o.Database == nil || o.Hub == nil || o.Performer == nil || o.Log == nil || o.Now == nil {
		panic("operation: an option without a default is missing")
	}
	o.Wait = cmp.Or(o.Wait, 3*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Parallel = cmp.Or(o.Parallel, 16)
	o.LookupAfter = cmp.Or(o.LookupAfter, time.Second)
	o.LookupEvery = cmp.Or(o.LookupEvery, 5*time.Minute)
	s := &Service{Options: o, worker: id.New("run")}
	s.stopper, _ = o.Performer.(Stopper)
	s.actions = work.New(o.Parallel, s.perform)
	s.stops = work.New(o.Parallel, s.stop)
	return s
}

// Propose proposes an operation to whoever is asking, inside the channel's transaction. An operation that is open for the
// same action is returned instead of a second one (Operations 4): with a next revision if it is proposed with other terms
// (3.1), else as it is. The error is extension_required for a Personal Agent that does not list the extension (2), or says
// what is wrong with the proposal.
func (s *Service) Propose(tx *database.Tx, by guard.Principal, p Proposal) (Tracked, error) {
	if err := requireExtension(by); err != nil {
		return Tracked{}, err
	}
	if p.Key == "" || len(p.Key) > maxKey {
		return Tracked{}, fmt.Errorf("proposing an operation: key must have 1 to %d bytes", maxKey)
	}
	now := s.Now()
	open, found, err := readRecord(tx.QueryRow(selectOpen, by.ClientID, by.UserID, p.Key, by.Account, by.SessionID))
	if err != nil {
		return Tracked{}, fmt.Errorf("proposing an operation: %w", err)
	}
	if found {
		if open, err = expire(tx, open, now); err != nil {
			return Tracked{}, fmt.Errorf("proposing an operation: %w", err)
		}
		switch open.state {
		case poppy.OperationProposed:
			return revise(tx, open, p.Revision, now)
		case poppy.OperationInProgress:
			return open.tracked(now), nil
		default: // it has just expired
		}
	}
	first, err := p.issue(id.New("op"), 1, now)
	if err == nil {
		err = insertOperation(tx, first.operation.OperationID, by, p, now)
	}
	if err == nil {
		err = insertRevision(tx, first, now)
	}
	if err != nil {
		return Tracked{}, fmt.Errorf("proposing an operation: %w", err)
	}
	return Tracked{Operation: first.operation, Key: p.Key}, nil
}

// Revise changes the terms of an operation that is proposed, inside the channel's transaction: it gets its next revision
// (Operations 3.1), unless the terms are those that it has. The error is operation_not_found for who may not use it,
// [ErrNotProposed] if its terms cannot change any more, or says what is wrong with the revision.
func (s *Service) Revise(tx *database.Tx, by guard.Principal, operationID string, next Revision) (Tracked, error) {
	if err := requireExtension(by); err != nil {
		return Tracked{}, err
	}
	now := s.Now()
	r, err := usable(tx, by, operationID, now)
	if err != nil {
		return Tracked{}, err
	}
	if r.state != poppy.OperationProposed {
		return Tracked{}, ErrNotProposed
	}
	return revise(tx, r, next, now)
}

// revise gives an operation that is proposed its next revision.
func revise(tx *database.Tx, r record, revision Revision, now time.Time) (Tracked, error) {
	next, err := revision.issue(r.operation.OperationID, r.operation.Revision+1, now)
	if err != nil {
		return Tracked{}, fmt.Errorf("revising an operation: %w", err)
	}
	if next.says(r.issued) {
		return r.tracked(now), nil
	}
	if err := insertRevision(tx, next, now); err != nil {
		return Tracked{}, fmt.Errorf("revising an operation: %w", err)
	}
	if err := advanceRevision(tx, r.operation.OperationID, next.operation.Revision, now); err != nil {
		return Tracked{}, fmt.Errorf("revising an operation: %w", err)
	}
	r.issued = next
	return r.tracked(now), nil
}

// Conversation returns the newest operations that came up in a conversation, at most limit, final ones too: of those, the ones
// that by may use. A conversation goes on in other Sessions, an operation proposed to a signed-out one does not (3.2).
func (s *Service) Conversation(ctx context.Context, by guard.Principal, conversationID string, limit int) ([]Tracked, error) {
	now := s.Now()
	var list []Tracked
	err := s.Database.Query(ctx, func(scan func(...any) error) error {
		r, err := scanRecord(scan)
		if err == nil && r.allows(by, true) == nil {
			list = append(list, r.tracked(now))
		}
		return err
	}, selectConversation, conversationID, limit)
	if err != nil {
		return nil, fmt.Errorf("reading the operations of a conversation: %w", err)
	}
	return list, nil
}

// Get returns an operation to whoever may use it (Operations 6). The error is a [poppy.Error] of the endpoint's table.
func (s *Service) Get(ctx context.Context, by guard.Principal, operationID string) (Tracked, error) {
	if err := requireExtension(by); err != nil {
		return Tracked{}, err
	}
	now := s.Now()
	r, found, err := readRecord(s.Database.QueryRow(ctx, selectRecord, operationID))
	if err != nil {
		return Tracked{}, fmt.Errorf("reading an operation: %w", err)
	}
	if err := r.allows(by, found); err != nil {
		return Tracked{}, err
	}
	if !r.lapsed(now) {
		return r.tracked(now), nil
	}
	// The first to see that it has expired records that, so that it stays so.
	err = s.Database.Write(ctx, func(tx *database.Tx) error {
		r, err = usable(tx, by, operationID, now)
		return err
	})
	return r.tracked(now), err
}

// Confirm confirms a revision and returns the operation when it is final, or in progress after [Options.Wait] (Operations
// 5.2). The checks and the record are one transaction. The error is a [poppy.Error] of the endpoint's table.
func (s *Service) Confirm(ctx context.Context, by guard.Principal, operationID string, request poppy.Confirm) (Tracked, error) {
	if err := requireExtension(by); err != nil {
		return Tracked{}, err
	}
	changed, cancel := s.Hub.Subscribe(operationID)
	defer cancel()
	now := s.Now()
	var current Tracked
	confirmed := false
	err := s.Database.Write(ctx, func(tx *database.Tx) error {
		// The Session Token may use this operation.
		r, err := usable(tx, by, operationID, now)
		if err != nil {
			return err
		}
		// The token has the scopes that the action needs.
		if len(r.scopes) > 0 {
			if err := guard.RequireScopes(by, r.scopes...); err != nil {
				return err
			}
		}
		// In any state but proposed it is returned as it is, whatever revision is named: a repeated confirm is safe.
		current = r.tracked(now)
		if r.state != poppy.OperationProposed {
			return nil
		}
		// The revision is the latest.
		if request.Revision != r.operation.Revision {
			return &poppy.Error{Code: poppy.ErrTermsChanged, Operation: &current.Operation}
		}
		// The way of approving is allowed.
		if request.ApprovedBy != poppy.ApprovedByUser && r.operation.UserApprovalRequired {
			return &poppy.Error{Code: poppy.ErrUserApprovalRequired}
		}
		confirmed = true
		return insertConfirmation(tx, r, by, request.ApprovedBy, now)
	})
	if err != nil || !confirmed {
		return current, err
	}
	s.actions.Add(operationID)
	return s.await(ctx, by, operationID, changed)
}

// Cancel declines an operation that is proposed, and asks to stop one that is in progress (Operations 7). It returns the
// operation as it then is. The error is a [poppy.Error] of the endpoint's table.
func (s *Service) Cancel(ctx context.Context, by guard.Principal, operationID string) (Tracked, error) {
	if err := requireExtension(by); err != nil {
		return Tracked{}, err
	}
	changed, cancel := s.Hub.Subscribe(operationID)
	defer cancel()
	now := s.Now()
	var current Tracked
	stopping := false
	err := s.Database.Write(ctx, func(tx *database.Tx) error {
		r, err := usable(tx, by, operationID, now)
		if err != nil {
			return err
		}
		switch {
		case r.state == poppy.OperationProposed:
			r, err = end(tx, r, poppy.OperationCancelled, poppy.Result{Summary: textDeclined}, now)
		case r.state == poppy.OperationInProgress && r.outcome != outcomeStarted:
			r, err = end(tx, r, poppy.OperationCancelled, poppy.Result{Summary: textNotStarted}, now)
		case r.state == poppy.OperationInProgress:
			stopping = true
			err = requestStop(tx, operationID, now)
		default: // a final operation is returned as it is
		}
		current = r.tracked(now)
		return err
	})
	if err != nil {
		return Tracked{}, err
	}
	if !stopping {
		s.Hub.Wake(operationID)
		return current, nil
	}
	s.stops.Add(operationID)
	return s.await(ctx, by, operationID, changed)
}

// What is said of an operation that was never attempted.
const (
	textDeclined   = "Declined before it was confirmed. Nothing was done."
	textNotStarted = "Cancelled before it was started. Nothing was done."
	textExpired    = "Not confirmed in time. Nothing was done."
	textUnsound    = "Not started, because the terms that were kept are not those that were confirmed. Nothing was done."
)

// await waits for the final state, but not longer than [Options.Wait].
func (s *Service) await(ctx context.Context, by guard.Principal, operationID string, changed <-chan struct{}) (Tracked, error) {
	limit := time.NewTimer(s.Wait)
	defer limit.Stop()
	for {
		current, err := s.Get(ctx, by, operationID)
		if err != nil || current.State.Final() {
			return current, err
		}
		select {
		case <-changed:
		case <-limit.C:
			return current, nil
		case <-web.Stopping(ctx):
			return current, nil
		case <-ctx.Done():
			return current, nil
		}
	}
}

// usable returns an operation to whoever may use it (Operations 3.2), expired if its time has run out.
func usable(tx *database.Tx, by guard.Principal, operationID string, now time.Time) (record, error) {
	r, found, err := readRecord(tx.QueryRow(selectRecord, operationID))
	if err != nil {
		return record{}, fmt.Errorf("reading an operation: %w", err)
	}
	if err := r.allows(by, found); err != nil {
		return record{}, err
	}
	return expire(tx, r, now)
}

// allows tells whether this Principal may use the operation (Operations 3.2).
func (r record) allows(by guard.Principal, found bool) error {
	switch {
	case !found, by.ClientID != r.clientID, by.UserID != r.userID:
		return errNotFound()
	case r.account == "" && by.SessionID != r.sessionID: // proposed signed out: for that Session alone
		return errNotFound()
	case r.account == "" || by.Account == r.account:
		return nil
	case !by.SignedIn(): // the same User, signed out: signing in cures it (4.9)
		return guard.RequireAccount(by)
	default:
		return errNotFound()
	}
}

// lapsed tells whether an operation is kept as proposed although it can't be confirmed any more.
func (r record) lapsed(now time.Time) bool {
	return r.state == poppy.OperationProposed && now.After(r.operation.ExpiresAt.Time)
}

// expire records that nobody confirmed the operation in time, if that is so.
func expire(tx *database.Tx, r record, now time.Time) (record, error) {
	if !r.lapsed(now) {
		return r, nil
	}
	return end(tx, r, poppy.OperationExpired, poppy.Result{Summary: textExpired}, now)
}

// end moves an operation to a final state.
func end(tx *database.Tx, r record, state poppy.OperationState, result poppy.Result, now time.Time) (record, error) {
	if err := finish(tx, r.operation.OperationID, r.state, state, result, now); err != nil {
		return record{}, err
	}
	r.state, r.result = state, &result
	return r, nil
}

// tracked returns the operation as it is seen.
func (r record) tracked(now time.Time) Tracked {
	o := r.operation
	o.State, o.Result = r.state, r.result
	if r.lapsed(now) { // read before anyone recorded it
		o.State, o.Result = poppy.OperationExpired, &poppy.Result{Summary: textExpired}
	}
	if o.State != poppy.OperationProposed {
		o.ExpiresAt = poppy.Time{}
	}
	if c := r.confirmation; c != nil {
		o.Confirmation = &poppy.Confirmation{Revision: o.Revision, ApprovedBy: c.approvedBy, ConfirmedAt: poppy.At(c.at)}
	}
	t := Tracked{Operation: o, Key: r.key}
	if o.State == poppy.OperationInProgress {
		t.RetryAfter = min(max(r.due.Sub(now).Truncate(time.Second)+time.Second, shortestRetry), longestRetry)
	}
	return t
}

// How soon, and how late at most, a Personal Agent is told to look at an operation in progress again.
const (
	shortestRetry = 2 * time.Second
	longestRetry  = time.Minute
)

// requireExtension: a Personal Agent that does not list the extension gets no operation (Operations 2).
func requireExtension(by guard.Principal) error {
	return guard.RequireExtension(by, poppy.ExtensionOperations, poppy.OperationsVersion)
}

func errNotFound() error { return &poppy.Error{Code: poppy.ErrOperationNotFound} }
