// Package policy decides by rules, written in Cedar, whether a client's operation may be submitted and whether it may run
// unattended.
//
// Both questions go to one engine with one rule file: a rule that forbids wins, and what no rule mentions is denied. Every
// answer names the rules that decided. What a rule can look at is small and typed: the client, the operation's name and
// effect, and the facts that its provider states.
package policy

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/batch"

	"countersign/broker/provider"
)

//go:embed default.cedar
var defaultFile string

// Default is the commented policy file that a new broker starts with.
func Default() string { return defaultFile }

// The vocabulary of rules.
const (
	clientType    = cedar.EntityType("Client")    // principal
	operationType = cedar.EntityType("Operation") // resource
	familyType    = cedar.EntityType("Family")    // what an operation is in: each leading part of its name
	actionType    = cedar.EntityType("Action")

	submit        = "submit"
	runUnattended = "run_unattended"

	effectAttribute = "effect" // of a resource
)

// Request is what is asked about.
type Request struct {
	ClientID  string
	Operation string // its name
	Effect    provider.Effect
	Facts     provider.Facts
}

// Decision is the answer to one question.
type Decision struct {
	Allowed bool
	// Rules are the @id of the rules that decided, sorted: those that could not be evaluated, or else those that forbid, or
	// else those that permit. None means that no rule matched, which denies.
	Rules []string
	// Faults say why rules could not be evaluated. Any fault denies, since the rule might have been one that forbids.
	Faults []string
}

// Explanation is the answer to both questions.
type Explanation struct{ Submit, RunUnattended Decision }

// Engine answers from one set of rules. It never changes and may be used concurrently.
type Engine struct{ rules *cedar.PolicySet }

// MaySubmit answers whether the operation may be submitted at all.
func (e *Engine) MaySubmit(request Request) Decision { return e.ask(submit, request) }

// MayRunUnattended answers whether the operation may run without asking a person.
func (e *Engine) MayRunUnattended(request Request) Decision { return e.ask(runUnattended, request) }

// Explain answers both questions with their reasons.
func (e *Engine) Explain(request Request) Explanation {
	return Explanation{Submit: e.MaySubmit(request), RunUnattended: e.MayRunUnattended(request)}
}

// CouldSubmit answers whether there are facts with which a client may submit the operation. It can be wrong in one
// direction only: what it rules out is denied whatever the facts are.
func (e *Engine) CouldSubmit(ctx context.Context, clientID, operation string, effect provider.Effect) (bool, error) {
	resource, entities := entity(operation, effect)
	could := false
	err := batch.Authorize(ctx, e.rules, entities, batch.Request{
		Principal: cedar.NewEntityUID(clientType, cedar.String(clientID)),
		Action:    cedar.NewEntityUID(actionType, submit),
		Resource:  resource,
		Context:   batch.Ignore(),
	}, func(result batch.Result) error {
		could = could || bool(result.Decision)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("asking policy about %s: %w", operation, err)
	}
	return could, nil
}

// entity is an operation as rules see it.
func entity(operation string, effect provider.Effect) (cedar.EntityUID, cedar.EntityMap) {
	resource := cedar.NewEntityUID(operationType, cedar.String(operation))
	return resource, cedar.EntityMap{resource: {
		UID:     resource,
		Parents: cedar.NewEntityUIDSet(families(operation)...),
		Attributes: cedar.NewRecord(cedar.RecordMap{
			effectAttribute: cedar.String(effect),
		}),
	}}
}

func (e *Engine) ask(action cedar.String, request Request) Decision {
	resource, entities := entity(request.Operation, request.Effect)
	allowed, diagnostic := cedar.Authorize(e.rules, entities, cedar.Request{
		Principal: cedar.NewEntityUID(clientType, cedar.String(request.ClientID)),
		Action:    cedar.NewEntityUID(actionType, action),
		Resource:  resource,
		Context:   record(request.Facts),
	})
	var decision Decision
	for _, fault := range diagnostic.Errors {
		decision.Rules = append(decision.Rules, string(fault.PolicyID))
		decision.Faults = append(decision.Faults, fmt.Sprintf("rule %q: %s", fault.PolicyID, fault.Message))
	}
	if decision.Faults == nil {
		decision.Allowed = bool(allowed)
		for _, reason := range diagnostic.Reasons {
			decision.Rules = append(decision.Rules, string(reason.PolicyID))
		}
	}
	slices.Sort(decision.Rules)
	slices.Sort(decision.Faults)
	return decision
}

// families returns what the operation "a.b.c" is in: "a" and "a.b".
func families(operation string) []cedar.EntityUID {
	var list []cedar.EntityUID
	for i, c := range operation {
		if c == '.' {
			list = append(list, cedar.NewEntityUID(familyType, cedar.String(operation[:i])))
		}
	}
	return list
}

// record gives facts to rules as members of context.
func record(facts provider.Facts) cedar.Record {
	members := make(cedar.RecordMap, len(facts))
	for name, fact := range facts {
		var value cedar.Value
		switch v := fact.(type) {
		case provider.Text:
			value = cedar.String(v)
		case provider.Number:
			value = cedar.Long(v)
		case provider.Flag:
			value = cedar.Boolean(v)
		case provider.Texts:
			set := make([]cedar.Value, len(v))
			for i, text := range v {
				set[i] = cedar.String(text)
			}
			value = cedar.NewSet(set...)
		}
		members[cedar.String(name)] = value
	}
	return cedar.NewRecord(members)
}
