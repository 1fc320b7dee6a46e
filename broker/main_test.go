package broker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/broker"
	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/provider/demo"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// rules let clients named "free" do everything, "asked" submit everything, and everyone else only what the default allows.
const rules = `
@id("free") permit (principal == Client::"free", action, resource);
@id("free-too") permit (principal == Client::"free-too", action, resource);
@id("asked") permit (principal == Client::"asked", action == Action::"submit", resource);
@id("no-secrets") forbid (principal, action, resource) when { context has notebook && context.notebook == "secret" };
@id("long-asks") forbid (principal, action == Action::"run_unattended", resource) when { context has length && context.length > 100 };
`

// bundle is a broker of one test, with the demo as its provider.
type bundle struct {
	*broker.Broker
	t       testing.TB
	notes   string // the demo's file
	db      *database.DB
	options broker.Options
}

// setup starts a broker with the demo and more operations, on a database of its own.
func setup(t testing.TB, change func(*broker.Options)) *bundle {
	t.Helper()
	b := build(t, filepath.Join(t.TempDir(), "broker.db"), change)
	b.start()
	return b
}

func build(t testing.TB, path string, change func(*broker.Options)) *bundle {
	t.Helper()
	b := &bundle{t: t, notes: path + ".effects"}
	file, err := demo.OpenFile(b.notes)
	if err != nil {
		t.Fatal(err)
	}
	if b.db, err = database.Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.db.Close(); err != nil {
			t.Error(err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	engine, err := policy.Parse("test.cedar", []byte(rules+policy.Default()))
	if err != nil {
		t.Fatal(err)
	}
	options := broker.Options{
		DB: b.db, Policy: engine, Operations: demo.Operations(file), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		ShutdownGrace: time.Millisecond,
	}
	if change != nil {
		change(&options)
	}
	b.options = options
	if b.Broker, err = broker.New(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	return b
}

// again starts a new broker on the database of a stopped one, as the next process would, and returns what stops it.
func (b *bundle) again(change func(*broker.Options)) (stop func()) {
	b.t.Helper()
	if change != nil {
		change(&b.options)
	}
	next, err := broker.New(b.t.Context(), b.options)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Broker = next
	return b.start()
}

// start runs the broker until the test ends or the returned function is called.
func (b *bundle) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	b.t.Cleanup(stop)
	return stop
}

func request(id, name, target, arguments string) operation.Request {
	return operation.Request{RequestID: id, Operation: name, Target: strictjson.Raw(target), Arguments: strictjson.Raw(arguments), Reason: "testing"}
}

func note(id, text string) operation.Request {
	return request(id, "demo.note.write", `{"notebook":"work"}`, `{"text":"`+text+`"}`)
}

func (b *bundle) submit(client string, r operation.Request) operation.Operation {
	b.t.Helper()
	op, _, err := b.Operations.Submit(b.t.Context(), client, r)
	if err != nil {
		b.t.Fatalf("submitting %s: %v", r.Operation, err)
	}
	return op
}

// finish waits until an operation is terminal.
func (b *bundle) finish(client, id string) operation.Operation {
	b.t.Helper()
	for after := int64(0); ; {
		op, err := b.Operations.Wait(b.t.Context(), client, id, after, operation.MaxWait)
		if err != nil {
			b.t.Fatal(err)
		}
		if op.State.Terminal() {
			return op
		}
		after = op.Revision
	}
}

// await waits until an operation has a state.
func (b *bundle) await(client, id string, state operation.State) operation.Operation {
	b.t.Helper()
	for after := int64(0); ; {
		op, err := b.Operations.Wait(b.t.Context(), client, id, after, operation.MaxWait)
		if err != nil {
			b.t.Fatal(err)
		}
		if op.State == state {
			return op
		}
		if op.State.Terminal() {
			b.t.Fatalf("%s is %s, want %s", id, op.State, state)
		}
		after = op.Revision
	}
}

func (b *bundle) approve(op operation.Operation) approval.Approval {
	b.t.Helper()
	a, _, err := b.Approvals.Approve(b.t.Context(), decision(op))
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func decision(op operation.Operation) approval.Decision {
	return approval.Decision{ApprovalID: op.ApprovalID, ExpectedRevision: 1, Key: "key", OperatorID: "alex"}
}

// effects counts how often an operation took effect.
func (b *bundle) effects(id string) (n int) {
	b.t.Helper()
	all, err := demo.ReadFile(b.notes)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, effect := range all {
		if effect.OperationID == id {
			n++
		}
	}
	return n
}

// custom is an operation that does what a test wants.
type custom struct {
	name      string
	effect    provider.Effect
	resolve   func(context.Context, provider.Call) (provider.Plan, error)
	execute   func(context.Context, provider.Dispatch) provider.Outcome
	reconcile func(context.Context, provider.Dispatch) provider.Outcome
}

const open = `{"type":"object","additionalProperties":false,"properties":{"text":{"type":"string"}}}`

func (c custom) Descriptor() provider.Descriptor {
	return provider.Descriptor{
		Name: c.name, Title: "A test", Summary: "Does what a test wants.", Effect: c.effect, Hint: provider.Ask,
		Target: provider.NewSchema(open), Arguments: provider.NewSchema(open),
	}
}

func (custom) Facts(provider.Call) provider.Facts { return nil }

func (c custom) Resolve(ctx context.Context, call provider.Call) (provider.Plan, error) {
	if c.resolve == nil {
		return provider.Plan{Content: strictjson.Raw(`{}`)}, nil
	}
	return c.resolve(ctx, call)
}

func (c custom) Execute(ctx context.Context, d provider.Dispatch) provider.Outcome {
	return c.execute(ctx, d)
}

// lookable is a custom that can be looked up.
type lookable struct{ custom }

func (l lookable) Reconcile(ctx context.Context, d provider.Dispatch) provider.Outcome {
	return l.reconcile(ctx, d)
}

// offer adds operations to a broker.
func offer(more ...provider.Operation) func(*broker.Options) {
	return func(options *broker.Options) { options.Operations = append(options.Operations, more...) }
}
