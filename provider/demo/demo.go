// Package demo is a provider without a system behind it: operations that succeed, fail, hang, vanish and leak, for trying out
// a broker and for testing one.
//
// What its changing operations change is one append-only file, a line of JSON for each effect ([Effect]). So whoever wants
// to know how often an operation took effect can count lines, whatever became of the processes that wrote them.
package demo

import (
	"context"
	"fmt"
	"time"

	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

// Operations returns the operations of the demo. Their effects go to file.
//
// demo.echo, demo.note.write, demo.note.list and demo.counter.set do what they say; demo.fail, demo.hang, demo.vanish,
// demo.vanish_for_good and demo.leak misbehave as they are told.
func Operations(file *File) []provider.Operation {
	return []provider.Operation{
		echo(),
		noteWrite(file), noteList(file), counterSet(file),
		fail(), hang(file), vanish(file), vanishForGood(file), leak(),
	}
}

const (
	nothing  = `{"type":"object","additionalProperties":false}`
	notebook = `{"type":"object","additionalProperties":false,"required":["notebook"],
		"properties":{"notebook":{"type":"string","pattern":"^[a-z0-9-]{1,40}$","description":"The name of a notebook; it need not exist."}}}`
	text = `{"type":"object","additionalProperties":false,"required":["text"],
		"properties":{"text":{"type":"string","minLength":1,"maxLength":2000}}}`
	duration = `{"type":"object","additionalProperties":false,"required":["milliseconds"],
		"properties":{"milliseconds":{"type":"integer","minimum":0,"maximum":600000,"description":"How long it takes to answer."}}}`
)

// input is all that a target or arguments of the demo may hold, and the content of its plans.
type input struct {
	Notebook     string `json:"notebook,omitzero"`
	Text         string `json:"text,omitzero"`
	Value        int64  `json:"value,omitzero"`
	Code         string `json:"code,omitzero"`
	Message      string `json:"message,omitzero"`
	Milliseconds int64  `json:"milliseconds,omitzero"`
	Fail         bool   `json:"fail,omitzero"`
}

// operation is one of the demo's, put together from what differs between them.
type operation struct {
	descriptor provider.Descriptor
	summary    func(input) string // for a person who decides
	execute    func(ctx context.Context, id string, in input) provider.Outcome
}

func (o operation) Descriptor() provider.Descriptor { return o.descriptor }

// Facts tells policy the notebook.
func (o operation) Facts(call provider.Call) provider.Facts {
	in, err := read(call.Target, call.Arguments)
	if err != nil || in.Notebook == "" {
		return nil
	}
	return provider.Facts{"notebook": provider.Text(in.Notebook)}
}

// Resolve has nothing to look up: the plan is the request.
func (o operation) Resolve(_ context.Context, call provider.Call) (provider.Plan, error) {
	in, err := read(call.Target, call.Arguments)
	if err != nil {
		return provider.Plan{}, err
	}
	content, err := provider.NewContent(in)
	if err != nil {
		return provider.Plan{}, err
	}
	plan := provider.Plan{Content: content, Presentation: provider.Presentation{Title: o.descriptor.Title, Summary: o.summary(in)}}
	if in.Notebook != "" {
		plan.Presentation.Details = append(plan.Presentation.Details, provider.Detail{Label: "Notebook", Value: in.Notebook})
	}
	if in.Text != "" {
		plan.Presentation.Details = append(plan.Presentation.Details, provider.Detail{Label: "Text", Value: in.Text})
		plan.Facts = provider.Facts{"length": provider.Number(len(in.Text))}
	}
	return plan, nil
}

func (o operation) Execute(ctx context.Context, dispatch provider.Dispatch) provider.Outcome {
	in, err := read(dispatch.Plan)
	if err != nil {
		return provider.Refused("plan_unreadable", "The demo cannot read its own plan.")
	}
	return o.execute(ctx, dispatch.OperationID, in)
}

// reconcilable is an operation whose effects can be looked up.
type reconcilable struct {
	operation
	file *File
}

var _ provider.Reconciler = reconcilable{}

// Reconcile finds the effect in the file. Nothing of the demo is ever under way outside of Execute.
func (r reconcilable) Reconcile(_ context.Context, dispatch provider.Dispatch) provider.Outcome {
	effect, found, err := r.file.Find(dispatch.OperationID)
	switch {
	case err != nil:
		return provider.Unknown(err)
	case !found:
		return provider.Refused("no_effect", "There is no line of this operation in the demo's file.")
	}
	return provider.Succeeded(effect)
}

func read(documents ...strictjson.Raw) (in input, err error) {
	for _, document := range documents {
		if err := strictjson.UnmarshalClosed(document, &in); err != nil {
			return input{}, fmt.Errorf("reading a request of the demo: %w", err)
		}
	}
	return in, nil
}

// wait returns false when ctx ends first.
func wait(ctx context.Context, milliseconds int64) bool {
	timer := time.NewTimer(time.Duration(milliseconds) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
