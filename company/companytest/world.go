// Package companytest plays the other side of a Company under test: hosts with certificates, a clock, and Personal Agents that
// sign whatever a test wants, right or wrong. Everything goes over real HTTPS.
package companytest

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"countersign/internal/database"
	"countersign/internal/fetch"
	"countersign/internal/localca"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// Hosts are those that a [World] has.
var Hosts = []string{
	"outdoor.example", "www.outdoor.example", "auth.outdoor.example", "api.outdoor.example", "mcp.outdoor.example",
	"outdoor-uk.example", "auth.provider.example", "shop-a.example", "shop-b.example",
	"agent.example", "other-agent.example", "third-agent.example",
}

// Clock is a clock that a test sets.
type Clock struct {
	mutex sync.Mutex
	now   time.Time
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.now
}

// Advance moves the time on.
func (c *Clock) Advance(d time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now = c.now.Add(d)
}

// World is a network of [Hosts] on one real TLS server.
type World struct {
	t      testing.TB
	Clock  *Clock
	Client *fetch.Client // as a Company uses it: it reaches the hosts, and no other private address
	http   *http.Client

	mutex    sync.RWMutex
	handlers map[string]http.Handler // by host
	company  http.Handler            // for every other host
}

// NewWorld returns a World whose hosts answer 404 until they are given a handler. It is gone after the test.
func NewWorld(t testing.TB) *World {
	t.Helper()
	w := &World{t: t, Clock: &Clock{now: time.Now().Truncate(time.Second)}, handlers: make(map[string]http.Handler), company: http.NotFoundHandler()}
	ca, err := localca.Create(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Issue(Hosts...)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(w)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	address := server.Listener.Addr().String()
	resolve := make([]fetch.Mapping, len(Hosts))
	for i, host := range Hosts {
		resolve[i] = fetch.Mapping{Host: host, Port: 443, Address: netip.MustParseAddrPort(address)}
	}
	w.Client = fetch.New(fetch.Options{Resolve: resolve, Authorities: ca.Pool(), Now: w.Clock.Now})
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		TLSClientConfig:     &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS13},
		MaxIdleConnsPerHost: 64,
	}
	w.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		w.Client.Close()
		server.Close()
	})
	return w
}

// ServeHTTP answers for the host that a request is for.
func (w *World) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mutex.RLock()
	handler, ok := w.handlers[r.Host]
	if !ok {
		handler = w.company
	}
	w.mutex.RUnlock()
	handler.ServeHTTP(rw, r)
}

// Serve gives every host that has no handler of its own to the Company.
func (w *World) Serve(company http.Handler) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.company = company
}

// ServeHost gives a host a handler of its own.
func (w *World) ServeHost(host string, handler http.Handler) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.handlers[host] = handler
}

// Database opens a database in a file of its own, which is closed after the test.
func (w *World) Database() *database.DB {
	return w.OpenDatabase(filepath.Join(w.t.TempDir(), "company.db"))
}

// OpenDatabase opens the database at path and closes it after the test.
func (w *World) OpenDatabase(path string) *database.DB {
	w.t.Helper()
	db, err := database.Open(w.t.Context(), path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = db.Close() })
	return db
}

// Log returns a logger that shows what a failed test logged.
func (w *World) Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.t.Output(), nil))
}

// Secret is 32 bytes, the same for every Company of every test.
func Secret() secret.Text { return secret.New("0123456789abcdef0123456789abcdef") }

// Response is an answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON returns a member of the body, nil if there is none.
func (r Response) JSON(name string) any {
	var members map[string]any
	if strictjson.Unmarshal(r.Body, &members) != nil {
		return nil
	}
	return members[name]
}

// Text returns a member of the body that is a string, "" if there is none.
func (r Response) Text(name string) string {
	text, _ := r.JSON(name).(string)
	return text
}

// Do sends a request and follows no redirect.
func (w *World) Do(method, url string, header http.Header, body []byte) Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for name, values := range header {
		r.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	answer, err := w.http.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return Response{Status: answer.StatusCode, Header: answer.Header, Body: text}
}

// Get sends a GET request without headers.
func (w *World) Get(url string) Response {
	w.t.Helper()
	return w.Do(http.MethodGet, url, nil, nil)
}

// PostForm sends a form, with these proofs.
func (w *World) PostForm(url, form string, proofs ...string) Response {
	w.t.Helper()
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	if len(proofs) > 0 {
		header["Dpop"] = proofs
	}
	return w.Do(http.MethodPost, url, header, []byte(form))
}
