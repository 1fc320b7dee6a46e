package session_test

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/identity"
	"countersign/agent/internal/fakecompany"
	"countersign/agent/session"
	"countersign/agent/vault"
	"countersign/internal/fetch"
)

// world is one agent and one Company.
type world struct {
	company   *fakecompany.Company
	client    *fetch.Client
	files     struct{ vault, keys string }
	vault     *vault.Vault
	sessions  *session.Service
	discovery *discovery.Resolver
	log       *syncBuffer
	now       func() time.Time
}

// syncBuffer is what the agent logged.
type syncBuffer struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{company: fakecompany.New(t), log: &syncBuffer{}, now: time.Now}
	w.client = fetch.New(w.company.Fetch)
	t.Cleanup(w.client.Close)
	dir := t.TempDir()
	w.files.vault, w.files.keys = filepath.Join(dir, "agent.db"), filepath.Join(dir, "agent.keys")
	w.discovery = discovery.New(w.client, func() time.Time { return w.now() })
	w.start(t)
	return w
}

// start starts the agent, also again.
func (w *world) start(t *testing.T) {
	t.Helper()
	var err error
	if w.vault, err = vault.Open(t.Context(), w.files.vault, w.files.keys); err != nil {
		t.Fatal(err)
	}
	v := w.vault
	t.Cleanup(func() { _ = v.Close() })
	now := func() time.Time { return w.now() }
	own, err := identity.Open(t.Context(), identity.Options{
		Vault: w.vault, ClientID: fakecompany.AgentClientID, Name: "Agent", Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.company.Trust(t, own)
	w.sessions, err = session.New(t.Context(), session.Options{
		Vault: w.vault, Identity: own, Client: w.client, Now: now,
		Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// restart stops the agent and starts it again on the same files.
func (w *world) restart(t *testing.T) {
	t.Helper()
	if err := w.vault.Close(); err != nil {
		t.Fatal(err)
	}
	w.start(t)
}

func (w *world) resolve(t *testing.T, domain string) discovery.Company {
	t.Helper()
	company, err := w.discovery.Resolve(t.Context(), domain)
	if err != nil {
		t.Fatal(err)
	}
	return company
}

func (w *world) open(t *testing.T, which session.Which) *session.Session {
	t.Helper()
	s, err := w.sessions.Open(t.Context(), w.resolve(t, fakecompany.Domain), which)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ada is the person of the tests.
var ada = session.Which{Person: "person-marker"}

// api is an API without a resource of its own.
var api = discovery.Endpoint{Kind: discovery.OpenAPI, URL: fakecompany.OpenAPIURL}

func (w *world) serveOrders() {
	w.company.Handle("GET api.outdoor.example/orders", w.company.Guard("", func(rw http.ResponseWriter, _ *http.Request, t *fakecompany.Token) {
		fakecompany.WriteJSON(rw, 200, map[string]string{"session": t.Session.ID, "scope": t.Scope})
	}))
}

func get(t *testing.T, s *session.Session, to discovery.Endpoint, url string) (*session.Response, error) {
	t.Helper()
	return getWith(t.Context(), t, s, to, url)
}

func getWith(ctx context.Context, t *testing.T, s *session.Session, to discovery.Endpoint, url string) (*session.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.Do(request, to, session.Bounds{})
}

func TestASessionStartsAndCarriesItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveOrders()
	s := w.open(t, ada)
	response, err := get(t, s, api, fakecompany.OrdersURL+"?page=2")
	if err != nil || response.Status != 200 {
		t.Fatalf("%+v, %v", response, err)
	}
}
