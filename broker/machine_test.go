package broker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"countersign/broker/approval"
	"countersign/broker/operation"
)

// submission is what the model knows of one request ID.
type submission struct {
	client  string
	request operation.Request
	last    operation.Operation // as last seen
}

// machine drives one broker and compares what it sees with the rules of the lifecycle.
type machine struct {
	t    *rapid.T
	b    *bundle
	stop func()
	made map[string]*submission // by client and request ID
	keys []string               // of made, in order
}

var moves = map[operation.State][]operation.State{
	operation.Pending:   {operation.Approved, operation.Denied, operation.Canceled},
	operation.Approved:  {operation.Executing, operation.Canceled},
	operation.Executing: {operation.Executing, operation.Succeeded, operation.Failed},
}

func (m *machine) pick() *submission {
	if len(m.keys) == 0 {
		m.t.Skip("nothing was submitted yet")
	}
	return m.made[rapid.SampledFrom(m.keys).Draw(m.t, "operation")]
}

func (m *machine) submit(t *rapid.T) {
	client := rapid.SampledFrom([]string{"free", "asked", "nobody"}).Draw(t, "client")
	name := rapid.SampledFrom([]string{"demo.note.write", "demo.counter.set", "demo.vanish", "demo.vanish_for_good", "demo.fail", "demo.echo"}).Draw(t, "name")
	target, arguments := `{}`, `{}`
	switch name {
	case "demo.note.write":
		target, arguments = `{"notebook":"work"}`, fmt.Sprintf(`{"text":%q}`, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "text"))
	case "demo.counter.set":
		target, arguments = `{"notebook":"work"}`, `{"value":1}`
	case "demo.vanish", "demo.vanish_for_good":
		arguments = `{"milliseconds":0}`
	case "demo.fail":
		arguments = `{"code":"no","message":"No."}`
	case "demo.echo":
		arguments = `{"text":"x"}`
	}
	r := request(rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(t, "request ID"), name, target, arguments)
	key := client + " " + r.RequestID
	earlier, known := m.made[key]
	op, replayed, err := m.b.Operations.Submit(m.b.t.Context(), client, r)
	switch {
	case !known:
		if err != nil || replayed || op.Revision != 1 {
			t.Fatalf("a new request: %+v, replayed %v, %v", op, replayed, err)
		}
		want := operation.Approved
		if client != "free" && name != "demo.echo" {
			want = operation.Pending
		}
		if op.State != want {
			t.Fatalf("%s of %s is %s at first, want %s", name, client, op.State, want)
		}
		m.made[key] = &submission{client, r, op}
		m.keys = append(m.keys, key)
	case fmt.Sprint(earlier.request) != fmt.Sprint(r):
		if code(err) != operation.RequestIDConflict {
			t.Fatalf("another request: %+v, %v", op, err)
		}
	default:
		if err != nil || !replayed || op.ID != earlier.last.ID {
			t.Fatalf("a replay: %+v, replayed %v, %v", op, replayed, err)
		}
		m.see(earlier, op)
	}
}

func (m *machine) cancel(t *rapid.T) {
	s := m.pick()
	op, err := m.b.Operations.Cancel(m.b.t.Context(), s.client, s.last.ID)
	switch {
	case err == nil && !op.State.Terminal(), err != nil && code(err) != operation.NotCancelable:
		t.Fatalf("%+v, %v", op, err)
	case err == nil:
		m.see(s, op)
	}
}

func (m *machine) approve(t *rapid.T) { m.decide(t, m.b.Approvals.Approve, approval.Approved) }
func (m *machine) deny(t *rapid.T)    { m.decide(t, m.b.Approvals.Deny, approval.Denied) }

func (m *machine) decide(t *rapid.T, decide func(context.Context, approval.Decision) (approval.Approval, bool, error), state approval.State) {
	s := m.pick()
	if s.last.ApprovalID == "" {
		t.Skip("no approval")
	}
	d := decision(s.last)
	d.Key = rapid.SampledFrom([]string{"k1", "k2"}).Draw(t, "key")
	before, err := m.b.Approvals.Get(m.b.t.Context(), s.last.ApprovalID)
	if err != nil {
		t.Fatal(err)
	}
	a, replayed, err := decide(m.b.t.Context(), d)
	switch {
	case before.State == approval.Pending && (err != nil || replayed || a.State != state):
		t.Fatalf("the first decision: %+v, %v", a, err)
	case before.State != approval.Pending && err == nil && (!replayed || a.State != state):
		t.Fatalf("a later decision: %+v", a)
	}
}

func (m *machine) restart(*rapid.T) {
	m.stop()
	m.stop = m.b.again(nil)
}

// see checks that an operation has only moved on.
func (m *machine) see(s *submission, op operation.Operation) {
	if op.Revision < s.last.Revision || s.last.State.Terminal() && op.Revision != s.last.Revision {
		m.t.Fatalf("%s went from %s revision %d to %s revision %d", op.ID, s.last.State, s.last.Revision, op.State, op.Revision)
	}
	if op.RequestDigest != s.last.RequestDigest || op.PlanDigest != s.last.PlanDigest || op.ApprovalID != s.last.ApprovalID {
		m.t.Fatalf("%s: what is immutable has changed", op.ID)
	}
	s.last = op
}

// check holds at any moment.
func (m *machine) check(t *rapid.T) {
	m.t = t
	for _, key := range m.keys {
		s := m.made[key]
		effects := m.b.effects(s.last.ID) // before the state is read: that must be as far at least
		op, err := m.b.Operations.Get(m.b.t.Context(), s.client, s.last.ID)
		if err != nil {
			t.Fatal(err)
		}
		m.see(s, op)
		events, err := m.b.Operations.Events(m.b.t.Context(), s.client, op.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range events {
			if e.Revision != int64(i+1) || i > 0 && !slices.Contains(moves[events[i-1].State], e.State) {
				t.Fatalf("%s: %+v", op.ID, events)
			}
		}
		dispatched := slices.ContainsFunc(events, func(e operation.Event) bool { return e.Kind == operation.EventDispatched })
		if effects > 1 || effects == 1 && !dispatched {
			t.Fatalf("%s is %s with %d effects, dispatched %v", op.ID, op.State, effects, dispatched)
		}
	}
}

// finish brings everything that was authorised to its end and checks that the end is true.
func (m *machine) finish() {
	for _, key := range m.keys {
		s := m.made[key]
		op, err := m.b.Operations.Get(m.b.t.Context(), s.client, s.last.ID)
		if err != nil {
			m.t.Fatal(err)
		}
		if op.State == operation.Pending {
			continue
		}
		op = m.b.finish(s.client, op.ID)
		changes := s.request.Operation == "demo.note.write" || s.request.Operation == "demo.counter.set" || s.request.Operation == "demo.vanish"
		effects := m.b.effects(op.ID)
		if changes && (op.State == operation.Succeeded) != (effects == 1) {
			m.t.Fatalf("%s %s is %s with %d effects", s.request.Operation, op.ID, op.State, effects)
		}
		if s.request.Operation == "demo.vanish_for_good" && op.State == operation.Failed && op.Error.Code != operation.CodeOutcomeUnknown {
			m.t.Fatalf("%+v", op.Error)
		}
	}
}

// The lifecycle under any order of requests, decisions, cancellations and restarts.
func TestLifecycleMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := build(t, filepath.Join(t.TempDir(), "broker.db"), nil)
		m := &machine{t: rt, b: b, stop: b.start(), made: map[string]*submission{}}
		defer func() { m.stop() }()
		rt.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "cancel": m.cancel, "approve": m.approve, "deny": m.deny, "restart": m.restart, "": m.check,
		})
		m.t = rt
		m.finish()
	})
}
