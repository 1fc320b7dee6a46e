package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"countersign/broker/approval"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/id"
	"countersign/internal/strictjson"
)

// The bounds of a request, in bytes.
const (
	MaxTarget    = 16 << 10
	MaxArguments = 1 << 20
	MaxReason    = 2000
)

// resolveTimeout bounds Resolve, the one thing that a submission waits for.
const resolveTimeout = 10 * time.Second

// Submit stores the request as an operation and returns it without waiting for an approval or for its execution. The same
// request again returns the operation as it is now, with replayed true, whether or not it could be submitted today.
//
// A request that policy denies is stored too, as a denied operation. One that the provider cannot resolve is not: its request
// ID stays free.
func (s *Service) Submit(ctx context.Context, clientID string, request Request) (op Operation, replayed bool, err error) {
	// What was submitted is fixed before anything is looked up.
	r, err := newRecord(clientID, request)
	if err != nil {
		return Operation{}, false, err
	}
	// A replay is answered from the store alone.
	if earlier, found, err := s.replay(s.row(ctx), r); found || err != nil {
		return earlier, found, err
	}
	offered, descriptor, ok := s.options.Registry.Find(r.Name)
	if !ok {
		return Operation{}, false, &Error{Code: NotRegistered, Message: "This broker offers no operation of that name. List the operations to see what there is."}
	}
	if err := validate(descriptor, r); err != nil {
		return Operation{}, false, err
	}
	r.Effect, r.Title = descriptor.Effect, descriptor.Title

	// Whether it may be submitted is said from the request alone: no provider hears of what is denied.
	call := provider.Call{ClientID: r.ClientID, Operation: r.Name, Target: r.Target, Arguments: r.Arguments}
	facts, err := requestFacts(offered, call)
	if err != nil {
		return Operation{}, false, fmt.Errorf("submitting %s: the facts of the request: %w", r.Name, err)
	}
	question := policy.Request{ClientID: r.ClientID, Operation: r.Name, Effect: r.Effect, Facts: facts}
	if !s.allowed(&r, QuestionSubmit, s.options.Policy.MaySubmit(question)) {
		r.State = Denied
		r.Error = &Problem{CodePolicyDenied, "The broker's policy does not allow this. Do not submit it again; ask whoever runs the broker if it is needed."}
		return s.store(ctx, r, actorPolicy, nil)
	}

	// Resolve may ask the provider. It may run twice for one request; the insertion below decides which run counts.
	resolved, err := s.resolve(ctx, offered, call)
	if err != nil {
		return Operation{}, false, err
	}
	maps.Copy(facts, resolved.Facts)
	presentation, err := setPlan(&r, facts, resolved)
	if err != nil {
		return Operation{}, false, fmt.Errorf("submitting %s: the plan: %w", r.Name, err)
	}

	// Whether a person is asked may depend on what was resolved.
	if s.allowed(&r, QuestionRunUnattended, s.options.Policy.MayRunUnattended(question)) {
		r.State = Approved
		return s.store(ctx, r, clientActor(clientID), nil)
	}
	r.State = Pending
	r.ApprovalID = id.New("apr")
	asked := s.newApproval(r, presentation, resolved.ExpiresAt)
	return s.store(ctx, r, clientActor(clientID), &asked)
}

var requestID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// newRecord checks the form of a request, makes it canonical and takes its digest.
func newRecord(clientID string, request Request) (record, error) {
	invalid := func(format string, args ...any) (record, error) {
		// A fault of JSON names its place, and with it members of the request.
		return record{}, &Error{Code: InvalidRequest, Message: provider.Sanitize(fmt.Sprintf(format, args...), maxMessage)}
	}
	switch {
	case clientID == "" || len(clientID) > 128 || strings.ContainsFunc(clientID, unicode.IsControl) || !utf8.ValidString(clientID):
		return invalid("The client's ID must have 1 to 128 bytes and no control characters.")
	case !requestID.MatchString(request.RequestID):
		return invalid("The request ID must be a letter or digit followed by up to 127 letters, digits or . _ : - characters.")
	case request.Operation == "" || len(request.Operation) > 128 || !utf8.ValidString(request.Operation):
		return invalid("The name of the operation must have 1 to 128 bytes.")
	case strings.TrimSpace(request.Reason) == "" || len(request.Reason) > MaxReason || !utf8.ValidString(request.Reason):
		return invalid("The reason must have 1 to %d bytes: say for a person why this is wanted.", MaxReason)
	}
	target, err := object("target", request.Target, MaxTarget)
	if err != nil {
		return invalid("%v", err)
	}
	arguments, err := object("arguments", request.Arguments, MaxArguments)
	if err != nil {
		return invalid("%v", err)
	}
	canonical, err := strictjson.MarshalCanonical(struct {
		Operation string         `json:"operation"`
		Target    strictjson.Raw `json:"target"`
		Arguments strictjson.Raw `json:"arguments"`
		Reason    string         `json:"reason"`
	}{request.Operation, target, arguments, request.Reason})
	if err != nil {
		return record{}, fmt.Errorf("writing the canonical request: %w", err)
	}
	return record{Operation: Operation{
		Item:   Item{ID: id.New("op"), ClientID: clientID, RequestID: request.RequestID, Name: request.Operation, Revision: 1},
		Target: target, Arguments: arguments, Reason: request.Reason, RequestDigest: strictjson.Digest(canonical),
	}}, nil
}

// object makes a member of the request canonical.
func object(name string, data strictjson.Raw, limit int) (strictjson.Raw, error) {
	if len(data) > limit {
		return nil, fmt.Errorf("%s must have at most %d bytes; move more by a stream", name, limit)
	}
	canonical, err := provider.Canonical(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(canonical) > limit { // numbers can become longer
		return nil, fmt.Errorf("%s must have at most %d bytes in canonical form", name, limit)
	}
	return canonical, nil
}

// replay returns the operation that was stored under the request ID of r, if there is one.
func (s *Service) replay(row rower, r record) (op Operation, found bool, err error) {
	earlier, err := findRequest(row, r.ClientID, r.RequestID)
	switch {
	case errors.Is(err, database.ErrNoRows):
		return Operation{}, false, nil
	case err != nil:
		return Operation{}, false, fmt.Errorf("looking for request %s: %w", r.RequestID, err)
	case earlier.RequestDigest != r.RequestDigest:
		return Operation{}, false, &Error{Code: RequestIDConflict, Message: "This request ID was used for another request. List with it to find that operation; use a new request ID for a new request."}
	}
	return earlier.Operation, true, nil
}

// validate checks target and arguments by the provider's schemas.
func validate(descriptor provider.Descriptor, r record) error {
	var fields []Field
	for _, part := range []struct {
		pointer string
		schema  *provider.Schema
		data    strictjson.Raw
	}{{"/target", descriptor.Target, r.Target}, {"/arguments", descriptor.Arguments, r.Arguments}} {
		faults, err := part.schema.Validate(part.data)
		if err != nil {
			return fmt.Errorf("validating a request for %s: %w", r.Name, err)
		}
		for _, fault := range faults {
			fields = append(fields, Field{part.pointer + fault.Pointer, fault.Problem})
		}
	}
	if fields == nil {
		return nil
	}
	return &Error{
		Code: InputInvalid, Fields: fields[:min(len(fields), maxFields)],
		Message: "The target or the arguments do not fit this operation. Mend the fields that are named, and submit again.",
	}
}

// requestFacts asks the provider what policy may know of a request.
func requestFacts(offered provider.Operation, call provider.Call) (facts provider.Facts, err error) {
	defer recovered(&err)
	facts = maps.Clone(offered.Facts(call))
	if facts == nil {
		facts = provider.Facts{}
	}
	return facts, facts.Check()
}

// allowed keeps an answer of policy in the record and returns it.
func (s *Service) allowed(r *record, question string, answer policy.Decision) bool {
	if answer.Faults != nil {
		s.options.Log.Warn("policy rules could not be evaluated and deny", "operation", r.Name, "client", r.ClientID, "faults", answer.Faults)
	}
	r.Rulings = append(r.Rulings, Ruling{question, answer.Allowed, answer.Rules})
	return answer.Allowed
}

// resolve asks the provider for a plan.
func (s *Service) resolve(ctx context.Context, offered provider.Operation, call provider.Call) (resolved provider.Plan, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	func() {
		defer recovered(&err)
		resolved, err = offered.Resolve(ctx, call)
	}()
	if refused, ok := errors.AsType[*provider.Error](err); ok {
		problem := safeProblem(refused.Code, refused.Message)
		return provider.Plan{}, &Error{Code: TargetRefused, Message: provider.Cut("The provider refused ("+problem.Code+"): "+problem.Message, maxMessage), cause: err}
	}
	if err != nil {
		s.options.Log.Warn("resolving a request", "operation", call.Operation, "client", call.ClientID, "error", err)
		return provider.Plan{}, &Error{Code: Unavailable, Message: "The provider could not be asked what this would do. Nothing was stored; submit it again with the same request ID.", cause: err}
	}
	return resolved, nil
}

// setPlan makes the document that is stored, approved and executed, and returns how it is shown.
func setPlan(r *record, facts provider.Facts, resolved provider.Plan) (provider.Presentation, error) {
	if err := facts.Check(); err != nil {
		return provider.Presentation{}, err
	}
	content, err := provider.Canonical(resolved.Content)
	if err != nil {
		return provider.Presentation{}, err
	}
	if len(content) > provider.MaxContent {
		return provider.Presentation{}, fmt.Errorf("it has more than %d bytes", provider.MaxContent)
	}
	presentation := resolved.Presentation.Bounded(r.Title)
	document, err := strictjson.MarshalCanonical(planDocument{r.ClientID, r.Name, r.RequestDigest, presentation, facts, content})
	if err != nil {
		return provider.Presentation{}, err
	}
	r.plan, r.PlanDigest = string(document), strictjson.Digest(document)
	r.Title, r.Summary = presentation.Title, presentation.Summary
	return presentation, nil
}

// newApproval asks a person about a plan, for as long as the plan makes sense.
func (s *Service) newApproval(r record, presentation provider.Presentation, planExpires time.Time) approval.Approval {
	expires := s.options.Now().Add(s.options.ApprovalTTL)
	if !planExpires.IsZero() && planExpires.Before(expires) {
		expires = planExpires
	}
	return approval.Approval{
		ID: r.ApprovalID, OperationID: r.ID, ClientID: r.ClientID, Operation: r.Name, Reason: provider.Sanitize(r.Reason, MaxReason),
		Presentation: presentation, PlanDigest: r.PlanDigest, ExpiresAt: expires,
	}
}

// store inserts a new operation with the approval that it waits for, and starts it if it waits for nothing. Another
// submission under the same request ID may have been quicker; then it is that one.
func (s *Service) store(ctx context.Context, r record, actor string, asked *approval.Approval) (op Operation, replayed bool, err error) {
	now := s.options.Now()
	r.CreatedAt, r.UpdatedAt = database.Time(database.Millis(now)), database.Time(database.Millis(now))
	if r.State.Terminal() {
		r.TerminalAt = r.CreatedAt
	}
	op = r.Operation
	err = s.options.DB.Write(ctx, func(tx *database.Tx) error {
		stored, err := insert(tx, r, actor)
		switch {
		case err != nil:
			return fmt.Errorf("storing operation %s: %w", r.ID, err)
		case !stored:
			op, replayed, err = s.replay(tx.QueryRow, r)
			return err
		case asked != nil:
			asked.CreatedAt = now
			return approval.Open(tx, *asked)
		}
		return nil
	})
	if err != nil {
		return Operation{}, false, err
	}
	if replayed {
		return op, true, nil
	}
	s.options.Faults("submit: stored")
	switch op.State { //nolint:exhaustive // a new operation has no other state
	case Approved:
		s.queue.add(job{id: op.ID})
	case Pending:
		s.options.Wake.Wake(approval.Topic)
	}
	return op, false, nil
}

// recovered turns a panic of a provider into an error.
func recovered(err *error) {
	if problem := recover(); problem != nil {
		*err = fmt.Errorf("the provider panicked: %v", problem)
	}
}
