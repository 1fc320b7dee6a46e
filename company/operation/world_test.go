package operation_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/company/guard"
	"countersign/company/internal/answer"
	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/internal/wake"
	"countersign/internal/web"
	"countersign/poppy"
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

const path = "/poppy/operations"

// lists is what a Personal Agent has in its metadata document that supports operations.
var lists = map[string]string{poppy.ExtensionOperations: poppy.OperationsVersion}

// Who asks in these tests. The account "ada" is the User's, "work" another one of theirs.
var (
	guest = guard.Principal{
		ClientID: "https://agent.example/agent.json", UserID: "u-1", SessionID: "ses_1", Extensions: lists, KeyThumbprint: "thumb-1",
	}
	signedIn     = with(guest, func(p *guard.Principal) { p.Account, p.Scopes = "ada", poppy.Scopes{"poppy:read", "poppy:write"} })
	otherSession = with(signedIn, func(p *guard.Principal) { p.SessionID = "ses_2" })
	otherGuest   = with(guest, func(p *guard.Principal) { p.SessionID = "ses_2" })
	readOnly     = with(signedIn, func(p *guard.Principal) { p.Scopes = poppy.Scopes{"poppy:read"} })
	otherAccount = with(otherSession, func(p *guard.Principal) { p.Account = "work" })
	otherUser    = with(signedIn, func(p *guard.Principal) { p.UserID = "u-2" })
	otherAgent   = with(signedIn, func(p *guard.Principal) { p.ClientID = "https://other.example/agent.json" })
	unlisted     = with(signedIn, func(p *guard.Principal) { p.Extensions = nil })
)

func with(p guard.Principal, change func(*guard.Principal)) guard.Principal {
	change(&p)
	return p
}

// performer is a Company's system that a test plays.
type performer struct {
	mutex   sync.Mutex
	calls   []string // "perform 1", "lookup 1", "stop 1": what was called for which attempt
	actions []operation.Action

	perform, lookup func(context.Context, operation.Action) (operation.Outcome, error)
	stop            func(context.Context, operation.Action) error
}

func (p *performer) called(what string, a operation.Action) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.calls = append(p.calls, what)
	p.actions = append(p.actions, a)
}

func (p *performer) count(what string) (n int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, call := range p.calls {
		if call == what {
			n++
		}
	}
	return n
}

func (p *performer) Perform(ctx context.Context, a operation.Action) (operation.Outcome, error) {
	p.called("perform", a)
	if p.perform == nil {
		return succeeded(), nil
	}
	return p.perform(ctx, a)
}

func (p *performer) Lookup(ctx context.Context, a operation.Action) (operation.Outcome, error) {
	p.called("lookup", a)
	if p.lookup == nil {
		return operation.Outcome{}, errors.New("no answer")
	}
	return p.lookup(ctx, a)
}

func (p *performer) Stop(ctx context.Context, a operation.Action) error {
	p.called("stop", a)
	if p.stop == nil {
		return nil
	}
	return p.stop(ctx, a)
}

func succeeded() operation.Outcome {
	return operation.Outcome{Verdict: operation.Succeeded, Result: poppy.Result{Summary: "Held.", Data: poppy.Object(`{"hold":"h-1"}`)}}
}

// world is a Company's operations, reached over HTTP.
type world struct {
	t        *testing.T
	db       *database.DB
	service  *operation.Service
	hub      *wake.Hub
	at       *clock
	url      string
	stopRun  func()
	restarts func(*performer) // a new service on the same database, as after a crash
}

// clock is the Company's clock; it goes on from now unless a test moves it.
type clock struct {
	mutex  sync.Mutex
	offset time.Duration
}

func (c *clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return time.Now().Add(c.offset)
}

func (c *clock) Move(by time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.offset += by
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newWorld starts a Company whose operations are performed by p.
func newWorld(t *testing.T, p *performer, options ...func(*operation.Options)) *world {
	t.Helper()
	db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "company.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := operation.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db, at: new(clock)}
	w.restarts = func(p *performer) {
		if w.stopRun != nil {
			w.stopRun()
		}
		w.hub = new(wake.Hub)
		o := operation.Options{
			Database: db, Hub: w.hub, Performer: p, Log: quiet(), Now: w.at.Now,
			Wait: 2 * time.Second, LookupAfter: 10 * time.Millisecond, LookupEvery: 50 * time.Millisecond,
		}
		for _, option := range options {
			option(&o)
		}
		w.service = operation.New(o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := w.service.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		w.stopRun = func() { cancel(); <-done; w.stopRun = nil }
		w.serve()
	}
	w.restarts(p)
	t.Cleanup(func() {
		if w.stopRun != nil {
			w.stopRun()
		}
	})
	return w
}

// serve puts the endpoint on a real server, behind a guard that believes who the test says is asking.
func (w *world) serve() {
	mux := web.NewMux(web.MuxOptions{Log: quiet()})
	w.service.Mount(mux, path, func(next guard.Handler) guard.Handler {
		return func(rw http.ResponseWriter, r *http.Request) error {
			var p guard.Principal
			if err := strictjson.Unmarshal([]byte(r.Header.Get("Asking")), &p); err != nil {
				return err
			}
			return answer.Error(next(rw, r.WithContext(guard.WithPrincipal(r.Context(), p))), poppy.SurfaceProtocol)
		}
	})
	server := httptest.NewServer(mux)
	w.t.Cleanup(server.Close)
	w.url = server.URL + path
}

// response is an answer of the endpoint.
type response struct {
	status    int
	header    http.Header
	body      []byte
	operation poppy.Operation // of a success
	err       *poppy.Error    // of a refusal
}

// call sends a request for who is asking.
func (w *world) call(by guard.Principal, method, place, body string) response {
	w.t.Helper()
	r, err := w.try(by, method, place, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) try(by guard.Principal, method, place, body string) (response, error) {
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.url+place, bytes.NewReader([]byte(body)))
	if err != nil {
		return response{}, err
	}
	asking, err := strictjson.Marshal(by)
	if err != nil {
		return response{}, err
	}
	request.Header.Set("Asking", string(asking))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	r := response{status: answer.StatusCode, header: answer.Header}
	if r.body, err = io.ReadAll(answer.Body); err != nil {
		return response{}, err
	}
	if r.status == http.StatusOK {
		r.operation, err = poppy.ParseOperation(r.body)
	} else {
		r.err = poppy.ParseError(r.status, r.header, r.body)
	}
	return r, err
}

// want fails the test unless the answer has the status, and the code if it is an error.
func (r response) want(t *testing.T, status int, code poppy.ErrorCode) response {
	t.Helper()
	if r.status != status || poppy.CodeOf(asError(r.err)) != code {
		t.Fatalf("got %d %s, want %d %s", r.status, r.body, status, code)
	}
	return r
}

func asError(err *poppy.Error) error {
	if err == nil {
		return nil
	}
	return err
}

// state fails the test unless the operation is in the state.
func (r response) state(t *testing.T, want poppy.OperationState) poppy.Operation {
	t.Helper()
	r.want(t, http.StatusOK, "")
	if r.operation.State != want {
		t.Fatalf("got %s, want state %s", r.body, want)
	}
	if err := r.operation.ValidateForPublishing(); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return r.operation
}

const confirmFirst = `{"revision":1,"approved_by":"user"}`

// hold is the story's proposal: hold a jacket at the store.
func hold() operation.Proposal {
	return operation.Proposal{Key: "hold jacket", Revision: operation.Revision{
		Summary:   "Hold the Stormline Insulated Jacket (M) at the store in Riverside until 9 October 2026, 18:00. No cost.",
		Terms:     poppy.Object(`{"sku":"stormline-insulated-m","until":"2026-10-09T18:00:00-07:00"}`),
		ExpiresIn: 20 * time.Minute,
	}}
}

func (w *world) propose(by guard.Principal, p operation.Proposal) operation.Tracked {
	w.t.Helper()
	t, err := w.tryPropose(by, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

func (w *world) tryPropose(by guard.Principal, p operation.Proposal) (t operation.Tracked, err error) {
	err = w.db.Write(w.t.Context(), func(tx *database.Tx) error {
		t, err = w.service.Propose(tx, by, p)
		return err
	})
	return t, err
}

func (w *world) revise(by guard.Principal, operationID string, r operation.Revision) (t operation.Tracked, err error) {
	err = w.db.Write(w.t.Context(), func(tx *database.Tx) error {
		t, err = w.service.Revise(tx, by, operationID, r)
		return err
	})
	return t, err
}

// becomes reads an operation until it is in the state.
func (w *world) becomes(by guard.Principal, operationID string, want poppy.OperationState) poppy.Operation {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		r := w.call(by, "GET", "/"+operationID, "").want(w.t, http.StatusOK, "")
		if r.operation.State == want {
			return r.operation
		}
		if r.operation.State.Final() || time.Now().After(deadline) {
			w.t.Fatalf("got %s, want state %s", r.body, want)
		}
	}
}
