package conversation_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/company/conversation"
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

const path = "/poppy/conversations"

// Who asks in these tests. The account "ada" is the User's, "work" another one of theirs.
var (
	guest = guard.Principal{
		ClientID: "https://agent.example/agent.json", UserID: "u-1", SessionID: "ses_1",
		Extensions: map[string]string{poppy.ExtensionOperations: poppy.OperationsVersion},
	}
	signedIn     = with(guest, func(p *guard.Principal) { p.Account, p.Scopes = "ada", poppy.Scopes{"poppy:read", "poppy:write"} })
	otherSession = with(guest, func(p *guard.Principal) { p.SessionID = "ses_2" })
	otherAccount = with(otherSession, func(p *guard.Principal) { p.Account = "work" })
	otherUser    = with(signedIn, func(p *guard.Principal) { p.UserID = "u-2" })
	otherAgent   = with(signedIn, func(p *guard.Principal) { p.ClientID = "https://other.example/agent.json" })
	unlisted     = with(guest, func(p *guard.Principal) { p.Extensions = nil })
)

func with(p guard.Principal, change func(*guard.Principal)) guard.Principal {
	change(&p)
	return p
}

// clerk is a Company Agent that a test plays.
type clerk func(context.Context, conversation.Turn) (conversation.Reply, error)

func (c clerk) Reply(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
	return c(ctx, turn)
}

// echo repeats what was said.
func echo(_ context.Context, turn conversation.Turn) (conversation.Reply, error) {
	var said []string
	for _, m := range turn.Messages {
		if m.SaysSomething() {
			said = append(said, m.Text)
		}
	}
	return answers("You said: " + strings.Join(said, " / ")), nil
}

func answers(texts ...string) (r conversation.Reply) {
	for _, text := range texts {
		r.Messages = append(r.Messages, conversation.Message{Text: text})
	}
	return r
}

// idle is a Performer for Companies of which nothing is confirmed.
type idle struct{}

func (idle) Perform(context.Context, operation.Action) (operation.Outcome, error) {
	panic("nothing was confirmed")
}

func (idle) Lookup(context.Context, operation.Action) (operation.Outcome, error) {
	panic("nothing was confirmed")
}

// world is a Company's conversations, reached over HTTP.
type world struct {
	t          *testing.T
	db         *database.DB
	service    *conversation.Service
	operations *operation.Service
	url        string
	stopRun    func()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newWorld starts a Company whose Company Agent is c.
func newWorld(t *testing.T, c clerk, options ...func(*conversation.Options)) *world {
	t.Helper()
	db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "company.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := conversation.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := operation.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db}
	w.restart(c, options...)
	t.Cleanup(func() { w.stopRun() })
	w.serve()
	return w
}

// restart makes a new service on the same database, as after a crash.
func (w *world) restart(c clerk, options ...func(*conversation.Options)) {
	if w.stopRun != nil {
		w.stopRun()
	}
	hub := new(wake.Hub)
	w.operations = operation.New(operation.Options{Database: w.db, Hub: hub, Performer: idle{}, Log: quiet(), Now: time.Now})
	o := conversation.Options{Database: w.db, Hub: hub, Clerk: c, Operations: w.operations, Log: quiet(), Now: time.Now}
	for _, option := range options {
		option(&o)
	}
	w.service = conversation.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.service.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	w.stopRun = sync.OnceFunc(func() { cancel(); <-done })
}

// handler is the endpoint behind a guard that believes who the test says is asking.
func (w *world) handler() http.Handler {
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
	return mux
}

func (w *world) serve() {
	server := httptest.NewServer(w.handler())
	w.t.Cleanup(server.Close)
	w.url = server.URL + path
}

// response is an answer of the endpoint.
type response struct {
	status   int
	header   http.Header
	body     []byte
	accepted poppy.Accepted // of a success without wait
	page     poppy.Page     // of a read
	err      *poppy.Error   // of a refusal
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
	switch {
	case r.status >= 300:
		r.err = poppy.ParseError(r.status, r.header, r.body)
	case bytes.Contains(r.body, []byte(`"events":`)):
		r.page, err = poppy.ParsePage(r.body)
	default:
		r.accepted, err = poppy.ParseAccepted(r.body)
	}
	return r, err
}

// want fails the test unless the answer has the status, and the code if it is an error.
func (r response) want(t *testing.T, status int, code poppy.ErrorCode) response {
	t.Helper()
	var got poppy.ErrorCode
	if r.err != nil {
		got = r.err.Code
	}
	if r.status != status || got != code {
		t.Fatalf("got %d %s, want %d %s", r.status, r.body, status, code)
	}
	if !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") { // P-7.2-01, P-7.13-02
		t.Fatalf("content type %q", r.header.Get("Content-Type"))
	}
	return r
}

// text is the body that says something.
func text(id, text string) string {
	return fmt.Sprintf(`{"message":{"id":%q,"sender":"agent","text":%q}}`, id, text)
}

// start starts a conversation and waits for the reply.
func (w *world) start(by guard.Principal, id, said string) string {
	w.t.Helper()
	r := w.call(by, "POST", "?wait=10", text(id, said)).want(w.t, http.StatusCreated, "")
	return r.page.ConversationID
}

// events reads all events of a conversation.
func (w *world) events(by guard.Principal, conversationID string) []poppy.Event {
	w.t.Helper()
	page := w.call(by, "GET", "/"+conversationID+"/events", "").want(w.t, http.StatusOK, "").page
	if page.HasMore {
		w.t.Fatal("more than a page")
	}
	return page.Events
}

// outline writes events in short: who said what, and the states.
func outline(events []poppy.Event) string {
	var lines []string
	for _, e := range events {
		switch e.Type {
		case poppy.EventMessage:
			lines = append(lines, string(e.Message.Role)+": "+e.Message.Text)
		case poppy.EventState:
			lines = append(lines, string(e.Status)+"/"+string(e.Responder))
		default:
			lines = append(lines, string(e.Type))
		}
	}
	return strings.Join(lines, "\n")
}

// settles reads a conversation until the Company is done with it.
func (w *world) settles(by guard.Principal, conversationID string) []poppy.Event {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		page := w.call(by, "GET", "/"+conversationID+"/events", "").want(w.t, http.StatusOK, "").page
		if page.Status != poppy.StatusWorking {
			return page.Events
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("still working:\n%s", outline(page.Events))
		}
	}
}
