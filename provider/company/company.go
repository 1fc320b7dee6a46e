// Package company is the broker's provider for Companies of the Personal Agent Protocol: it lets a model find a Company,
// talk with it, and submit the confirmation of what it proposes, through the Agent library and without a credential.
//
// It is the one place where the broker's world meets the Agent's. A confirmation is made only from a plan that a person
// approved, for that very revision: the broker's approval is the User's approval (Operations 5.1). Whatever a Company wrote
// reaches the model as a quotation with its author, see [countersign/agent/quote].
package company

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"countersign/agent"
	"countersign/agent/conversation"
	"countersign/agent/discovery"
	"countersign/agent/operation"
	"countersign/agent/quote"
	"countersign/agent/session"
	"countersign/broker/provider"
	"countersign/internal/fetch"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Options is what the provider acts with.
type Options struct {
	// Agent acts at Companies. It is the caller's to close.
	Agent *agent.Agent
	// Person is whom it acts for, as the agent names them; never sent to anyone.
	Person string
}

// Operations returns the operations on Companies.
func Operations(options Options) []provider.Operation {
	p := &companies{options.Agent, options.Person}
	return []provider.Operation{
		p.discover(), p.start(), p.send(), p.read(), p.show(), p.confirm(), p.cancel(),
	}
}

// companies reaches Companies for one person.
type companies struct {
	agent  *agent.Agent
	person string
}

// The codes of refusals, beside those of the protocol, which are passed on as they are.
const (
	codeUnusable         = "company_unusable"  // the Company's documents cannot be used
	codeSilent           = "company_silent"    // it could not be reached, so nothing was sent
	codeRefused          = "company_refused"   // it refused with a code that the protocol does not know
	codeTermsChanged     = "terms_changed"     // the terms are not those that were approved
	codeNotProposed      = "not_proposed"      // it can no longer be confirmed
	codeNotShown         = "terms_not_shown"   // a person cannot be shown all of the terms
	codeApprovalRequired = "approval_required" // policy let it run without a person
	codeNotCompleted     = "company_not_done"  // the Company says that it did not complete it
	codeBroken           = "company_broken"    // the Company broke the protocol
	codeLimited          = "rate_limited"      // the Company asked to wait
	codeUnsupported      = "not_offered"       // the Company does not offer this
	codeInvalid          = "invalid_message"   // it cannot be sent
	companySchema        = `"company":{"type":"string","minLength":1,"maxLength":253,"description":"the Company's domain, such as outdoor.example"}`
	conversationSchema   = `"conversation":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,256}$","description":"the conversation's ID"}`
	operationSchema      = `"operation":{"type":"string","minLength":1,"maxLength":256,"description":"the ID of the operation at the Company"}`
	textSchema           = `"text":{"type":"string","minLength":1,"maxLength":32000,"description":"what to say, in plain sentences"}`
	humanSchema          = `"users_own_words":{"type":"boolean","description":"true only if the text is what the user wrote, word for word"}`
	waitSchema           = `"wait_seconds":{"type":"integer","minimum":0,"maximum":25,"description":"how long to wait for the Company's reply; 10 when left out"}`
	nothing              = `{"type":"object","additionalProperties":false}`
	defaultWait          = 10 * time.Second
)

// closed is the schema of an object with these members, all but the optional ones required.
func closed(required string, members ...string) *provider.Schema {
	return provider.NewSchema(`{"type":"object","additionalProperties":false,"required":[` + required + `],"properties":{` + strings.Join(members, ",") + "}}")
}

// target names what an operation is about.
type target struct {
	Company      string `json:"company"`
	Conversation string `json:"conversation,omitempty"`
	Operation    string `json:"operation,omitempty"`
}

// input is target and arguments of a request together: the content of most plans.
type input struct {
	target
	Text          string `json:"text,omitempty"`
	UsersOwnWords bool   `json:"users_own_words,omitzero"`
	Cursor        string `json:"cursor,omitempty"`
	WaitSeconds   *int   `json:"wait_seconds,omitzero"`
}

// wait is how long the caller wants to wait for a reply.
func (in input) wait() time.Duration {
	if in.WaitSeconds == nil {
		return defaultWait
	}
	return time.Duration(*in.WaitSeconds) * time.Second
}

// readInput reads a request. The domain is put into its one form, which policy compares.
func readInput(call provider.Call) (input, error) {
	var in input
	if err := strictjson.Unmarshal(call.Arguments, &in); err != nil {
		return input{}, &provider.Error{Code: codeInvalid, Message: "The arguments cannot be read."}
	}
	in.target = target{}
	if err := strictjson.Unmarshal(call.Target, &in.target); err != nil {
		return input{}, &provider.Error{Code: codeInvalid, Message: "The target cannot be read."}
	}
	domain, err := discovery.ParseDomain(in.Company)
	if err != nil {
		return input{}, &provider.Error{Code: codeInvalid, Message: "The target's company is not a domain: " + err.Error()}
	}
	in.Company = domain
	if in.Operation != "" && !poppy.ValidOperationID(in.Operation) {
		return input{}, &provider.Error{Code: codeInvalid, Message: "The target's operation is not an operation ID."}
	}
	return in, nil
}

// simple is an operation whose plan is its request.
type simple struct {
	descriptor provider.Descriptor
	summary    func(input) string
	execute    func(ctx context.Context, d provider.Dispatch, request input) provider.Outcome
}

// Descriptor implements provider.Operation.
func (s simple) Descriptor() provider.Descriptor { return s.descriptor }

// Facts implements provider.Operation.
func (s simple) Facts(call provider.Call) provider.Facts { return facts(call) }

// facts are what policy can compare: the Company's domain.
func facts(call provider.Call) provider.Facts {
	in, err := readInput(call)
	if err != nil {
		return nil // without the fact no rule about a Company matches, and Resolve says what is wrong
	}
	return provider.Facts{"company": provider.Text(in.Company)}
}

// Resolve implements provider.Operation.
func (s simple) Resolve(_ context.Context, call provider.Call) (provider.Plan, error) {
	in, err := readInput(call)
	if err != nil {
		return provider.Plan{}, err
	}
	content, err := provider.NewContent(in)
	if err != nil {
		return provider.Plan{}, err
	}
	presentation := provider.Presentation{
		Title: s.descriptor.Title + ": " + shortDomain(in.Company), Summary: s.summary(in), Details: []provider.Detail{{Label: "Company", Value: in.Company}},
	}
	if in.Text != "" {
		presentation.Details = append(presentation.Details, provider.Detail{Label: "Text", Value: in.Text})
	}
	return provider.Plan{Content: content, Presentation: presentation}, nil
}

// Execute implements provider.Operation.
func (s simple) Execute(ctx context.Context, d provider.Dispatch) provider.Outcome {
	var request input
	if err := strictjson.Unmarshal(d.Plan, &request); err != nil {
		return provider.Refused(codeInvalid, "The stored plan cannot be read.")
	}
	return s.execute(ctx, d, request)
}

// inSession gives an execution the person's Session at the Company, if that offers kind.
func (p *companies) inSession(kind discovery.Kind, execute func(context.Context, *session.Session, provider.Dispatch, input) provider.Outcome) func(context.Context, provider.Dispatch, input) provider.Outcome {
	return func(ctx context.Context, d provider.Dispatch, request input) provider.Outcome {
		in, err := p.session(ctx, request.Company, kind)
		if err != nil {
			return unsent(ctx, err)
		}
		return execute(ctx, in, d, request)
	}
}

// session opens the person's Session at a Company that offers kind. A domain that leads to another one is refused: policy
// has decided about the domain that was asked for.
func (p *companies) session(ctx context.Context, domain string, kind discovery.Kind) (*session.Session, error) {
	company, err := p.agent.Discovery.Resolve(ctx, domain)
	if err != nil {
		return nil, err
	}
	if company.Domain != domain {
		return nil, &provider.Error{Code: codeUnusable, Message: domain + " leads to " + company.Domain + ". Name that domain instead."}
	}
	if _, offered := company.Endpoint(kind); !offered {
		return nil, &provider.Error{Code: codeUnsupported, Message: fmt.Sprintf("%s offers no %s.", domain, kind)}
	}
	return p.agent.Sessions.Open(ctx, company, session.Which{Person: p.person})
}

// unsent says what an error means that came before anything was sent which could have an effect.
func unsent(ctx context.Context, err error) provider.Outcome {
	o := outcome(err)
	if o.Verdict == provider.VerdictUnknown && ctx.Err() == nil {
		return provider.Refused(codeSilent, "The Company could not be reached, so nothing was done. Submit it again, with a new request ID, if it is still wanted.")
	}
	return o
}

// outcome says what an error of the agent means for the operation. Only what the Company or the agent itself refused is
// a refusal; anything that may have arrived is unknown.
func outcome(err error) provider.Outcome {
	if refusal, ok := errors.AsType[*provider.Error](err); ok {
		return provider.Refused(refusal.Code, refusal.Message)
	}
	if refusal, ok := refusalOf(err); ok {
		return provider.Refused(refusal.Code, refusal.Message)
	}
	return provider.Unknown(err)
}

// refusalOf tells whether an error says that nothing was done.
func refusalOf(err error) (*provider.Error, bool) {
	if undelivered, ok := errors.AsType[*conversation.UndeliveredError](err); ok && undelivered.MayHaveArrived {
		return nil, false
	}
	if _, ok := errors.AsType[*operation.UnknownError](err); ok {
		return nil, false
	}
	if refusal, ok := errors.AsType[*discovery.Refusal](err); ok && !passes(err) {
		return &provider.Error{Code: codeUnusable, Message: refusal.Error()}, true
	}
	if limited, ok := errors.AsType[*session.RateLimitedError](err); ok {
		return &provider.Error{Code: codeLimited, Message: limited.Error()}, true
	}
	if refused, ok := errors.AsType[*poppy.Error](err); ok && refused.HTTPStatus < 500 {
		// Only fixed texts, since everything else in it is the Company's.
		meaning := (&poppy.Error{Code: refused.Code}).Meaning()
		if meaning == "" {
			return &provider.Error{Code: codeRefused, Message: fmt.Sprintf("The Company refused with HTTP status %d.", refused.HTTPStatus)}, true
		}
		return &provider.Error{Code: string(refused.Code), Message: "The Company refused. " + meaning}, true
	}
	return nil, false
}

// passes tells whether a Company could not be reached, which may be different in a moment.
func passes(err error) bool {
	for _, kind := range []fetch.Kind{fetch.ErrLookup, fetch.ErrConnect, fetch.ErrTimeout, fetch.ErrBroken} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (p *companies) discover() provider.Operation {
	return simple{
		descriptor: provider.Descriptor{
			Name: "company.discover", Title: "Find a Company",
			Summary: "Finds a Company by its domain, checks that the domain and its issuer belong together, and tells what it offers. Changes nothing.",
			Effect:  provider.Read, Hint: provider.Unattended,
			Target: closed(`"company"`, companySchema), Arguments: provider.NewSchema(nothing),
		},
		summary: func(in input) string { return "Find " + in.Company + " and tell what it offers." },
		execute: func(ctx context.Context, _ provider.Dispatch, request input) provider.Outcome {
			company, err := p.agent.Discovery.Resolve(ctx, request.Company)
			if err != nil {
				return outcome(err)
			}
			type offer struct {
				Kind        discovery.Kind `json:"kind"`
				URL         string         `json:"url"`
				Description quote.Text     `json:"description,omitzero"`
			}
			offers := []offer{}
			for _, e := range company.Endpoints() {
				offers = append(offers, offer{e.Kind, e.URL, quote.New(company.Domain, e.Description)})
			}
			return provider.Succeeded(map[string]any{
				"company": company.Domain, "name": quote.New(company.Domain, company.Name), "issuer": company.Issuer, "offers": offers,
			})
		},
	}
}

// operationView is an operation of a Company as a model sees it. What the Company wrote is a quotation.
type operationView struct {
	Company              string               `json:"company"`
	Operation            string               `json:"operation"`
	Revision             int64                `json:"revision"`
	State                poppy.OperationState `json:"state"`
	Summary              quote.Text           `json:"summary"`
	Terms                quote.Text           `json:"terms,omitzero"` // JSON
	ExpiresAt            poppy.Time           `json:"expires_at,omitzero"`
	UserApprovalRequired bool                 `json:"user_approval_required"`
	Outcome              quote.Text           `json:"outcome,omitzero"`
	OutcomeData          quote.Text           `json:"outcome_data,omitzero"` // JSON
}

func view(company discovery.Company, o poppy.Operation) operationView {
	v := operationView{
		Company: company.Domain, Operation: o.OperationID, Revision: o.Revision, State: o.State,
		Summary: quote.New(company.Domain, o.Summary), Terms: quoted(company.Domain, o.Terms), UserApprovalRequired: o.UserApprovalRequired,
		Outcome: operation.Outcome(company, o),
	}
	if o.State == poppy.OperationProposed {
		v.ExpiresAt = o.ExpiresAt
	}
	if o.Result != nil {
		v.OutcomeData = quoted(company.Domain, o.Result.Data)
	}
	return v
}

// quoted is an object that a Company wrote, as a quotation of its JSON: names and values can say anything.
func quoted(author string, object poppy.Object) quote.Text { return quote.New(author, string(object)) }

// shortDomain is a domain for a title. Its end tells whose it is, so a long one loses its beginning.
func shortDomain(domain string) string {
	const longest = 80
	if len(domain) <= longest {
		return domain
	}
	return "…" + domain[len(domain)-longest:]
}

// settled is the outcome that a confirmed operation's state at the Company stands for. One that failed or was stopped may have
// changed something, which the Company's account says (Operations 6).
func settled(company discovery.Company, o poppy.Operation) provider.Outcome {
	switch o.State {
	case poppy.OperationFailed, poppy.OperationCancelled, poppy.OperationExpired:
		return provider.Failed(codeNotCompleted, fmt.Sprintf("%s says that the operation is %s, in its own words: %q", company.Domain, o.State, operation.Outcome(company, o).Verbatim()))
	default:
		return provider.Succeeded(view(company, o))
	}
}
