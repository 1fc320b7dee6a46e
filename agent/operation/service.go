package operation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/session"
	"countersign/agent/vault"
	"countersign/internal/fetch"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

const (
	// pause is between two reads when the Company does not say.
	pause = 2 * time.Second
	// confirmTimeout leaves the Company the few seconds in which it may finish the action (Operations 5.2).
	confirmTimeout = 30 * time.Second
)

// Options are what the room rests on. Now is time.Now by default.
type Options struct {
	Vault *vault.Vault
	Now   func() time.Time
}

// Service follows the operations of all Users. Its methods may be called concurrently.
type Service struct {
	kept    book
	private book
	now     func() time.Time
}

// New opens the room.
func New(ctx context.Context, options Options) (*Service, error) {
	kept := &store{options.Vault}
	if err := kept.open(ctx); err != nil {
		return nil, err
	}
	s := &Service{kept: kept, private: &memory{}, now: options.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s, nil
}

// book returns where the operations of a Session are kept.
func (s *Service) book(in *session.Session) book {
	if in.Private() {
		return s.private
	}
	return s.kept
}

// Propose gets a proposal for an action by calling propose, unless an operation that the same origin led to is not final
// yet, or may not be: then it is that one (Operations 6). origin names the action, such as the method, URL and body of an API call. If
// propose finds that the Company performed the action without an operation, it returns false.
func (s *Service) Propose(ctx context.Context, in *session.Session, origin string, propose func(context.Context) (poppy.Operation, bool, error)) (o poppy.Operation, proposed bool, err error) {
	earlier, found, err := s.book(in).byOrigin(ctx, ownerOf(in), origin)
	if err != nil {
		return poppy.Operation{}, false, fmt.Errorf("looking for an earlier proposal: %w", err)
	}
	if found {
		current, err := s.Get(ctx, in, earlier.operation.OperationID)
		switch {
		case poppy.CodeOf(err) == poppy.ErrOperationNotFound && !earlier.confirmed:
			// It belonged to a Session that has ended, and nothing can confirm it any more (Operations 3.2).
		case err != nil:
			return poppy.Operation{}, false, fmt.Errorf("an earlier proposal may still take effect, so it is not proposed again: %w", err)
		case !current.State.Final():
			return current, true, nil
		}
	}
	o, proposed, err = propose(ctx)
	if err != nil || !proposed {
		return poppy.Operation{}, false, err
	}
	return o, true, s.remember(ctx, in, record{operation: o, origin: origin})
}

// Remember keeps an operation that came by a message of a conversation or in another way (Operations 4), unless more is
// known of it already.
func (s *Service) Remember(ctx context.Context, in *session.Session, o poppy.Operation) error {
	known, found, err := s.book(in).get(ctx, ownerOf(in), o.OperationID)
	if err != nil {
		return fmt.Errorf("remembering the operation: %w", err)
	}
	if found && (known.operation.Revision > o.Revision || o.State.MayBecome(known.operation.State)) {
		return nil
	}
	return s.remember(ctx, in, record{operation: o})
}

// Forget forgets an operation that can no longer be read, once the User knows in another way what became of it.
func (s *Service) Forget(ctx context.Context, in *session.Session, id string) error {
	if err := s.book(in).delete(ctx, ownerOf(in), id); err != nil {
		return fmt.Errorf("forgetting the operation: %w", err)
	}
	return nil
}

// Unsettled returns the User's operations at the Company that were not final when they were last read.
func (s *Service) Unsettled(ctx context.Context, in *session.Session) ([]poppy.Operation, error) {
	records, err := s.book(in).list(ctx, ownerOf(in))
	if err != nil {
		return nil, fmt.Errorf("listing operations: %w", err)
	}
	var operations []poppy.Operation
	for _, r := range records {
		operations = append(operations, r.operation)
	}
	return operations, nil
}

// Get reads an operation.
func (s *Service) Get(ctx context.Context, in *session.Session, id string) (poppy.Operation, error) {
	return s.ask(ctx, in, http.MethodGet, id, "", nil)
}

// Confirm confirms an operation, for which approval must be: the very revision and terms (Operations 5.2). If the answer
// is lost, it sends the same again and then reads the operation. The result is the operation as it is afterwards; while
// that is in progress, [Service.Wait] follows it. Errors that callers act on are [ErrNotApproved], [*TermsChangedError],
// [*UnknownError], [*DifferentTermsError] and [*poppy.Error].
func (s *Service) Confirm(ctx context.Context, in *session.Session, o poppy.Operation, approval Approval) (poppy.Operation, error) {
	needed, err := approvalOf(in.Company, o)
	if err != nil {
		return poppy.Operation{}, fmt.Errorf("confirming: %w", err)
	}
	if approval != needed {
		return poppy.Operation{}, ErrNotApproved
	}
	// From here on it may happen, which must be known after a crash too.
	if err := s.Remember(ctx, in, o); err != nil {
		return poppy.Operation{}, err
	}
	if err := s.mark(ctx, in, o.OperationID, true); err != nil {
		return poppy.Operation{}, err
	}
	body, err := strictjson.Marshal(poppy.Confirm{Revision: o.Revision, ApprovedBy: poppy.ApprovedByUser})
	if err != nil {
		return poppy.Operation{}, err
	}
	after, err := s.ask(ctx, in, http.MethodPost, o.OperationID, poppy.PathConfirm, body)
	if lost(err) {
		// Also a refusal of the second request says nothing about the first one, and still proposed may mean that it is still
		// on its way.
		if after, err = s.ask(ctx, in, http.MethodPost, o.OperationID, poppy.PathConfirm, body); err != nil {
			read, unread := s.Get(ctx, in, o.OperationID)
			if unread != nil || read.State == poppy.OperationProposed && read.Revision == o.Revision {
				return poppy.Operation{}, &UnknownError{OperationID: o.OperationID, Err: err}
			}
			after, err = read, nil
		}
	}
	if err != nil { // refused
		if err := s.mark(ctx, in, o.OperationID, false); err != nil {
			return poppy.Operation{}, err
		}
	}
	if problem, ok := errors.AsType[*poppy.Error](err); ok && problem.Code == poppy.ErrTermsChanged && problem.Operation != nil {
		if err := s.Remember(ctx, in, *problem.Operation); err != nil {
			return poppy.Operation{}, err
		}
		return poppy.Operation{}, &TermsChangedError{Operation: *problem.Operation}
	}
	if err != nil {
		return poppy.Operation{}, fmt.Errorf("confirming: %w", err)
	}
	if err := judge(o, after); err != nil {
		return poppy.Operation{}, err
	}
	return after, nil
}

func (s *Service) mark(ctx context.Context, in *session.Session, id string, confirmed bool) error {
	if err := s.book(in).mark(ctx, ownerOf(in), id, confirmed); err != nil {
		return fmt.Errorf("remembering the confirmation: %w", err)
	}
	return nil
}

// judge compares what the Company says after a confirmation with what was approved.
func judge(approved, after poppy.Operation) error {
	switch {
	case after.State == poppy.OperationProposed && after.Revision != approved.Revision:
		return &TermsChangedError{Operation: after}
	case after.State != poppy.OperationExpired && !sameTerms(approved, after):
		return &DifferentTermsError{Operation: after}
	default:
		return nil
	}
}

// lost tells whether a request may have arrived although it was not answered: anything but a refusal.
func lost(err error) bool {
	if err == nil {
		return false
	}
	if problem, ok := errors.AsType[*poppy.Error](err); ok {
		return problem.HTTPStatus >= http.StatusInternalServerError
	}
	if _, ok := errors.AsType[*session.RateLimitedError](err); ok {
		return false
	}
	_, changed := errors.AsType[*session.ChangedError](err)
	return !changed
}

// Cancel declines a proposal, or asks the Company to stop what is in progress, and returns the operation as it then is
// (Operations 7).
func (s *Service) Cancel(ctx context.Context, in *session.Session, id string) (poppy.Operation, error) {
	return s.ask(ctx, in, http.MethodPost, id, poppy.PathCancel, nil)
}

// Wait reads an operation until it is no longer in progress, as often as the Company wants it (Operations 6), or until ctx
// ends.
func (s *Service) Wait(ctx context.Context, in *session.Session, id string) (poppy.Operation, error) {
	for {
		if r, found, err := s.book(in).get(ctx, ownerOf(in), id); err != nil {
			return poppy.Operation{}, err
		} else if found {
			if err := sleepUntil(ctx, s.now, r.readAgain); err != nil {
				return poppy.Operation{}, err
			}
		}
		o, err := s.Get(ctx, in, id)
		if err != nil || o.State != poppy.OperationInProgress {
			return o, err
		}
	}
}

func sleepUntil(ctx context.Context, now func() time.Time, until time.Time) error {
	timer := time.NewTimer(until.Sub(now()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask sends a request about one operation and remembers the answer.
func (s *Service) ask(ctx context.Context, in *session.Session, method, id, action string, body []byte) (poppy.Operation, error) {
	endpoint, ok := in.Company.Endpoint(discovery.Operations)
	if !ok {
		return poppy.Operation{}, fmt.Errorf("%s does not offer operations", in.Company.Domain)
	}
	if !poppy.ValidOperationID(id) {
		return poppy.Operation{}, errors.New("that is not an operation ID")
	}
	path := []string{id}
	if action != "" {
		path = append(path, action)
	}
	request, err := http.NewRequestWithContext(ctx, method, poppy.SubURL(endpoint.URL, path...), bytes.NewReader(body))
	if err != nil {
		return poppy.Operation{}, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	bounds := session.Bounds{MaxBytes: poppy.MaxOperationBytes, Timeout: confirmTimeout}
	response, err := in.Do(request, endpoint, bounds)
	if _, changed := errors.AsType[*session.ChangedError](err); changed {
		// The operation says which Session or account it belongs to, so nothing can be meant that was not (3.2).
		response, err = in.Do(request, endpoint, bounds)
	}
	if err != nil {
		return poppy.Operation{}, err
	}
	o, err := poppy.ParseOperation(response.Body)
	if err != nil {
		return poppy.Operation{}, fmt.Errorf("the operation cannot be read: %w", err)
	}
	if o.OperationID != id {
		return poppy.Operation{}, errors.New("the Company answered with another operation than it was asked for")
	}
	wait, _ := fetch.RetryAfter(response.Header, s.now())
	return o, s.remember(ctx, in, record{operation: o, readAgain: s.now().Add(cmp.Or(wait, pause))})
}

// remember keeps an operation that is not final, and forgets one that is.
func (s *Service) remember(ctx context.Context, in *session.Session, r record) error {
	var err error
	if r.operation.State.Final() {
		err = s.book(in).delete(ctx, ownerOf(in), r.operation.OperationID)
	} else {
		err = s.book(in).put(ctx, ownerOf(in), r)
	}
	if err != nil {
		return fmt.Errorf("remembering the operation: %w", err)
	}
	return nil
}
