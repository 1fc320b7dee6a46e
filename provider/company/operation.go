package company

import (
	"context"
	"errors"
	"fmt"
	"time"

	"countersign/agent/operation"
	"countersign/agent/session"
	"countersign/broker/provider"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

func (p *companies) show() provider.Operation {
	return simple{
		descriptor: provider.Descriptor{
			Name: "company.operation.show", Title: "Read an operation at a Company",
			Summary: "Returns what a Company proposes, performs or has performed: the terms, the state, and the Company's account of the outcome. Changes nothing.",
			Effect:  provider.Read, Hint: provider.Unattended,
			Target: closed(`"company","operation"`, companySchema, operationSchema), Arguments: provider.NewSchema(nothing),
		},
		summary: func(in input) string { return "Read operation " + in.Operation + " at " + in.Company + "." },
		execute: p.inSession(func(ctx context.Context, in *session.Session, _ provider.Dispatch, request input) provider.Outcome {
			o, err := p.agent.Operations.Get(ctx, in, request.Operation)
			if err != nil {
				return outcome(err)
			}
			return provider.Succeeded(view(in.Company, o))
		}),
	}
}

// cancel is keyed: cancelling what is cancelled changes nothing (Operations 7).
func (p *companies) cancel() provider.Operation {
	return simple{
		descriptor: provider.Descriptor{
			Name: "company.operation.cancel", Title: "Decline or stop an operation at a Company",
			Summary: "Declines what a Company proposes, or asks it to stop what it is performing. What was done already stays done.",
			Effect:  provider.Keyed, Hint: provider.Ask,
			Target: closed(`"company","operation"`, companySchema, operationSchema), Arguments: provider.NewSchema(nothing),
		},
		summary: func(in input) string { return "Decline or stop operation " + in.Operation + " at " + in.Company + "." },
		execute: p.inSession(func(ctx context.Context, in *session.Session, _ provider.Dispatch, request input) provider.Outcome {
			o, err := p.agent.Operations.Cancel(ctx, in, request.Operation)
			if err != nil {
				return outcome(err)
			}
			return provider.Succeeded(view(in.Company, o))
		}),
	}
}

// confirmation is the plan of a confirmation: one revision of one operation at one Company, to the digest.
type confirmation struct {
	Company   string         `json:"company"`
	Issuer    string         `json:"issuer"`
	Name      string         `json:"name"`
	Operation string         `json:"operation"`
	Revision  int64          `json:"revision"`
	Digest    string         `json:"digest"` // of the revision's terms, see [poppy.Operation.TermsDigest]
	Summary   string         `json:"summary"`
	Terms     strictjson.Raw `json:"terms,omitzero"`
	ExpiresAt poppy.Time     `json:"expires_at"`
}

// confirm confirms an operation at a Company. It is keyed: the Company performs an operation at most once however often the
// same revision is confirmed (Operations 6).
type confirm struct{ companies *companies }

var _ provider.Reconciler = confirm{}

func (p *companies) confirm() provider.Operation { return confirm{p} }

// Descriptor implements provider.Operation.
func (confirm) Descriptor() provider.Descriptor {
	return provider.Descriptor{
		Name: "company.operation.confirm", Title: "Confirm an operation at a Company",
		Summary: "Asks the user to approve the exact terms that a Company proposes now, and on yes confirms that revision, so that the Company performs it once. If the terms have changed by then, nothing is confirmed.",
		Effect:  provider.Keyed, Hint: provider.Ask,
		Target: closed(`"company","operation"`, companySchema, operationSchema), Arguments: provider.NewSchema(nothing),
	}
}

// Facts implements provider.Operation.
func (confirm) Facts(call provider.Call) provider.Facts { return facts(call) }

// Resolve reads what the Company proposes now. That is what a person is shown, and nothing else can be confirmed by the plan.
func (c confirm) Resolve(ctx context.Context, call provider.Call) (provider.Plan, error) {
	request, err := readInput(call)
	if err != nil {
		return provider.Plan{}, err
	}
	in, err := c.companies.session(ctx, request.Company)
	if err != nil {
		return provider.Plan{}, cannotResolve(err)
	}
	o, err := c.companies.agent.Operations.Get(ctx, in, request.Operation)
	if err != nil {
		return provider.Plan{}, cannotResolve(err)
	}
	if o.State != poppy.OperationProposed {
		return provider.Plan{}, &provider.Error{Code: codeNotProposed, Message: fmt.Sprintf("The operation is %s and cannot be confirmed. Read it with company.operation.show.", o.State)}
	}
	digest, err := o.TermsDigest()
	if err != nil {
		return provider.Plan{}, err
	}
	content, err := provider.NewContent(confirmation{
		Company: in.Company.Domain, Issuer: in.Company.Issuer, Name: in.Company.Name, Operation: o.OperationID, Revision: o.Revision,
		Digest: digest, Summary: o.Summary, Terms: strictjson.Raw(o.Terms), ExpiresAt: o.ExpiresAt,
	})
	if err != nil {
		return provider.Plan{}, err
	}
	return provider.Plan{
		Content: content, ExpiresAt: o.ExpiresAt.Time,
		Presentation: provider.Presentation{
			Title:   fmt.Sprintf("%s (%s) proposes", in.Company.Name, in.Company.Domain),
			Summary: o.Summary,
			Details: details(in, o, digest),
		},
		Facts: provider.Facts{"user_approval_required": provider.Flag(o.UserApprovalRequired)},
	}, nil
}

// details are the labelled values that a person sees. A summary too long for the presentation is shown in full in parts,
// since it is what they decide by (Operations 3).
func details(in *session.Session, o poppy.Operation, digest string) []provider.Detail {
	all := []provider.Detail{
		{Label: "Company", Value: in.Company.Name + " (" + in.Company.Domain + ")"},
		{Label: "Operation", Value: fmt.Sprintf("%s, revision %d", o.OperationID, o.Revision)},
		{Label: "Can be confirmed until", Value: o.ExpiresAt.UTC().Format(time.RFC3339)},
		{Label: "Digest of these terms", Value: digest},
	}
	all = append(all, parts("Summary", o.Summary)...)
	return append(all, parts("Terms", string(o.Terms))...)
}

// parts cuts a text into the values that a presentation can hold.
func parts(label, text string) []provider.Detail {
	const longest = 480
	var all []provider.Detail
	for n := 1; text != ""; n++ {
		end := min(longest, len(text))
		for end < len(text) && text[end]&0xC0 == 0x80 { // not inside a character
			end--
		}
		name := label
		if n > 1 || end < len(text) {
			name = fmt.Sprintf("%s, part %d", label, n)
		}
		all = append(all, provider.Detail{Label: name, Value: text[:end]})
		text = text[end:]
	}
	return all
}

// cannotResolve turns what the Company refused into a provider's error; anything else cannot be found out now.
func cannotResolve(err error) error {
	if refusal, ok := refusalOf(err); ok {
		return refusal
	}
	return err
}

// Execute confirms exactly the revision of the plan, if a person approved that plan.
func (c confirm) Execute(ctx context.Context, d provider.Dispatch) provider.Outcome {
	plan, in, o, err := c.read(ctx, d)
	if err != nil {
		return outcome(err)
	}
	if d.ApprovalID == "" {
		return provider.Refused(codeApprovalRequired, "Policy lets this run without asking, but only a person can approve a Company's terms. Change the policy so that company.operation.confirm asks.")
	}
	if confirmed(plan, o) { // by an execution before a crash
		return c.follow(ctx, in, o)
	}
	if o.State != poppy.OperationProposed {
		return provider.Refused(codeNotProposed, fmt.Sprintf("The operation is %s and can no longer be confirmed. Nothing was done by this.", o.State))
	}
	approval, err := operation.Ask(ctx, in.Company, o, approved{plan, o})
	if errors.Is(err, operation.ErrDeclined) {
		return changed(o)
	}
	if err != nil {
		return outcome(err)
	}
	o, err = c.companies.agent.Operations.Confirm(ctx, in, o, approval)
	if terms, ok := errors.AsType[*operation.TermsChangedError](err); ok {
		return changed(terms.Operation)
	}
	if err != nil {
		return outcome(err)
	}
	return c.follow(ctx, in, o)
}

// Reconcile reads whether the Company has the confirmation. One that it does not have may still be on its way.
func (c confirm) Reconcile(ctx context.Context, d provider.Dispatch) provider.Outcome {
	plan, in, o, err := c.read(ctx, d)
	switch {
	case err != nil:
		return provider.Unknown(err)
	case confirmed(plan, o):
		return settled(in.Company, o)
	case o.State == poppy.OperationProposed && o.Revision == plan.Revision:
		return provider.Unknown(errors.New("the Company has no confirmation yet"))
	default: // no request for the plan's revision can be accepted any more
		return provider.Refused(codeNotProposed, fmt.Sprintf("The operation is %s at revision %d, and revision %d was not confirmed.", o.State, o.Revision, plan.Revision))
	}
}

// read reads the plan and the operation as it is now.
func (c confirm) read(ctx context.Context, d provider.Dispatch) (confirmation, *session.Session, poppy.Operation, error) {
	var plan confirmation
	if err := strictjson.Unmarshal(d.Plan, &plan); err != nil {
		return confirmation{}, nil, poppy.Operation{}, &provider.Error{Code: codeInvalid, Message: "The stored plan cannot be read."}
	}
	in, err := c.companies.session(ctx, plan.Company)
	if err != nil {
		return confirmation{}, nil, poppy.Operation{}, err
	}
	if in.Company.Issuer != plan.Issuer {
		return confirmation{}, nil, poppy.Operation{}, &provider.Error{Code: codeBroken, Message: "The domain names another issuer now, so it is another Company than the one that was approved. Nothing was confirmed."}
	}
	o, err := c.companies.agent.Operations.Get(ctx, in, plan.Operation)
	return plan, in, o, err
}

// confirmed tells whether the plan's revision is the one that was confirmed.
func confirmed(plan confirmation, o poppy.Operation) bool {
	return o.Confirmation != nil && o.Confirmation.Revision == plan.Revision
}

// changed is the outcome when the terms are not the approved ones any more.
func changed(o poppy.Operation) provider.Outcome {
	return provider.Refused(codeTermsChanged, fmt.Sprintf("The Company has changed the terms since they were shown: they are at revision %d now. Nothing was confirmed. Submit a new confirmation to have the new terms approved.", o.Revision))
}

// follow waits for the Company to finish, as long as the call may take. The operation goes on at the Company after that.
func (c confirm) follow(ctx context.Context, in *session.Session, o poppy.Operation) provider.Outcome {
	if o.State == poppy.OperationInProgress {
		limit, cancel := context.WithTimeout(ctx, provider.DefaultTimeout-readMargin)
		defer cancel()
		if after, err := c.companies.agent.Operations.Wait(limit, in, o.OperationID); err == nil {
			o = after
		}
	}
	return settled(in.Company, o)
}

// approved answers for the person who approved the plan at the broker: yes to exactly what they were shown, and no to
// anything else (Operations 5.1).
type approved struct {
	plan      confirmation
	operation poppy.Operation
}

// Ask implements operation.Asker.
func (a approved) Ask(_ context.Context, q operation.Question) (bool, error) {
	digest, err := a.operation.TermsDigest()
	if err != nil {
		return false, err
	}
	return digest == a.plan.Digest && q.Revision == a.plan.Revision && q.OperationID == a.plan.Operation && q.Domain == a.plan.Company, nil
}
