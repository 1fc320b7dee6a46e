package fakecompany

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent"
	"countersign/agent/discovery"
	"countersign/agent/session"
	"countersign/internal/strictjson"
)

// Clock is the time of both sides: the real one, plus what a test has advanced it by.
type Clock struct {
	mutex  sync.Mutex
	offset time.Duration
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return time.Now().Add(c.offset)
}

// Advance lets time pass.
func (c *Clock) Advance(d time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.offset += d
}

// Log is what an agent logged.
type Log struct {
	mutex sync.Mutex
	text  strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(p)
}

// String returns all of it.
func (l *Log) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

// Agent is an agent that works with a Company.
type Agent struct {
	*agent.Agent
	Options agent.Options
	Log     *Log
	company *Company
}

// NewAgent starts an agent that the Company trusts, until the test ends.
func NewAgent(t testing.TB, c *Company) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{Log: &Log{}, company: c, Options: agent.Options{
		VaultFile: filepath.Join(dir, "agent.db"), KeyFile: filepath.Join(dir, "agent.keys"),
		ClientID: AgentClientID, Name: "Agent", Network: agent.Network{Authorities: c.Fetch.Authorities}, Now: c.Clock.Now,
	}}
	a.Options.Log = slog.New(slog.NewJSONHandler(a.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, mapping := range c.Fetch.Resolve {
		a.Options.Network.Resolve = append(a.Options.Network.Resolve, mapping.String())
	}
	a.start(t)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func (a *Agent) start(t testing.TB) {
	t.Helper()
	var err error
	if a.Agent, err = agent.New(t.Context(), a.Options); err != nil {
		t.Fatal(err)
	}
	a.company.Trust(t, a.Identity)
}

// Restart stops the agent and starts it again with the same files.
func (a *Agent) Restart(t testing.TB) {
	t.Helper()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a.start(t)
}

// Twin is a second process of the same agent.
func (a *Agent) Twin(t testing.TB) *Agent {
	t.Helper()
	twin := &Agent{Log: a.Log, company: a.company, Options: a.Options}
	twin.start(t)
	t.Cleanup(func() { _ = twin.Close() })
	return twin
}

// Resolve finds the Company at a domain.
func (a *Agent) Resolve(t testing.TB, domain string) discovery.Company {
	t.Helper()
	company, err := a.Discovery.Resolve(t.Context(), domain)
	if err != nil {
		t.Fatal(err)
	}
	return company
}

// Open opens a Session at the Company.
func (a *Agent) Open(t testing.TB, which session.Which) *session.Session {
	t.Helper()
	s, err := a.Sessions.Open(t.Context(), a.Resolve(t, Domain), which)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// VaultBytes returns everything that is in the vault's files.
func (a *Agent) VaultBytes(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(a.Options.VaultFile + "*")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// Claims decodes the header and payload of a JWT without checking it.
func Claims(t testing.TB, jwt string) (header, payload map[string]any) {
	t.Helper()
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is not a JWT", jwt)
	}
	for i, into := range []*map[string]any{&header, &payload} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := strictjson.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	return header, payload
}

// exampleTB stands in for a test where there is none, in examples.
type exampleTB struct {
	testing.TB
	ctx      context.Context //nolint:containedctx // as in testing.T
	cleanups *[]func()
}

func (exampleTB) Helper()                    {}
func (e exampleTB) Cleanup(f func())         { *e.cleanups = append(*e.cleanups, f) }
func (e exampleTB) Context() context.Context { return e.ctx }
func (exampleTB) Fatal(args ...any)          { panic(fmt.Sprint(args...)) }

func (e exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "fakecompany")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// ForExample returns what takes the place of a test in an example, and how to clean up after it.
func ForExample() (tb testing.TB, cleanup func()) {
	e := exampleTB{ctx: context.Background(), cleanups: new([]func())}
	return e, func() {
		for _, f := range slices.Backward(*e.cleanups) {
			f()
		}
	}
}
