// Package brokertest starts a broker, and its ways in, for their tests.
package brokertest

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"countersign/broker"
	"countersign/broker/access"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/secret"
	"countersign/internal/web"
)

// rules let everyone submit what is called "free." or "asked.", and run the former unattended.
const rules = `
@id("free") permit (principal, action, resource in Family::"free");
@id("asked") permit (principal, action == Action::"submit", resource in Family::"asked");
`

// Start starts a broker that offers the operations, until the test ends.
func Start(t testing.TB, operations ...provider.Operation) *broker.Broker {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.cedar")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	engine, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "broker.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := broker.New(t.Context(), broker.Options{
		DB: db, Policy: engine, Operations: operations, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, func(ctx context.Context) error { return b.Run(ctx) })
	return b
}

// Serve serves a handler on a Unix socket, until the test ends.
func Serve(t testing.TB, handler http.Handler) access.Endpoint {
	t.Helper()
	// Not in t.TempDir, which holds the test's name: a socket's path is limited.
	directory, err := os.MkdirTemp("", "cs") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	endpoint, err := access.ParseEndpoint("unix://" + filepath.Join(directory, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ServeAt(t, endpoint, handler)
	return endpoint
}

// ServeAt serves a handler at an endpoint, until the test ends or stop is called.
func ServeAt(t testing.TB, endpoint access.Endpoint, handler http.Handler) (stop func()) {
	t.Helper()
	listener, err := endpoint.Listen(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	return runUntilEnd(t, func(ctx context.Context) error {
		return web.Serve(ctx, web.Options{Listener: listener, Handler: handler, Log: slog.New(slog.DiscardHandler)})
	})
}

func runUntilEnd(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// Secret returns the secret of a caller.
func Secret(id string) secret.Text {
	return secret.New("the-secret-of-" + id + "-0123456789abcdefghijklmnopqrstuvwxyz")
}

// Callers returns callers with their [Secret].
func Callers(t testing.TB, ids ...string) *access.Callers {
	t.Helper()
	var list []access.Caller
	for _, id := range ids {
		hash, err := access.Hash(Secret(id))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, access.Caller{ID: id, Hash: hash})
	}
	callers, err := access.NewCallers("test", list)
	if err != nil {
		t.Fatal(err)
	}
	return callers
}

// Operation is an operation of a provider that does what the test says.
type Operation struct {
	Name   string
	Effect provider.Effect // change by default
	// Do is what executing does; by default it succeeds with {"done": true}.
	Do func(ctx context.Context, dispatch provider.Dispatch) provider.Outcome
	// Check is asked before the plan is made; by default it agrees.
	Check func(call provider.Call) error
}

// The schemas of an [Operation]. They differ in what they point to, so that a test sees whether a pointer leads astray.
const (
	target    = `{"type":"object","additionalProperties":false,"required":["place"],"properties":{"place":{"$ref":"#/$defs/place"}},"$defs":{"place":{"type":"string","maxLength":100}}}`
	arguments = `{"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"$ref":"#/$defs/text"},"count":{"type":"integer","maximum":9007199254740993}},"$defs":{"text":{"type":"string","maxLength":100000}}}`
)

// Descriptor implements [provider.Operation].
func (o Operation) Descriptor() provider.Descriptor {
	if o.Effect == "" {
		o.Effect = provider.Change
	}
	return provider.Descriptor{
		Name: o.Name, Title: "Test " + o.Name, Summary: "Does what the test says.", Effect: o.Effect, Hint: provider.Ask,
		Target: provider.NewSchema(target), Arguments: provider.NewSchema(arguments),
	}
}

// Facts implements [provider.Operation].
func (Operation) Facts(provider.Call) provider.Facts { return nil }

// Resolve implements [provider.Operation].
func (o Operation) Resolve(_ context.Context, call provider.Call) (provider.Plan, error) {
	if o.Check != nil {
		if err := o.Check(call); err != nil {
			return provider.Plan{}, err
		}
	}
	return provider.Plan{Content: call.Arguments, Presentation: provider.Presentation{Title: "Test " + o.Name, Summary: "Do what the test says."}}, nil
}

// Execute implements [provider.Operation].
func (o Operation) Execute(ctx context.Context, dispatch provider.Dispatch) provider.Outcome {
	if o.Do == nil {
		return provider.Succeeded(map[string]bool{"done": true})
	}
	return o.Do(ctx, dispatch)
}
