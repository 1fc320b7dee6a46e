// Package fakecompany is a Company for the agent's tests: real HTTPS for several hosts, a token endpoint that checks what
// the protocol says, and a record of every request that arrived.
package fakecompany

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/internal/fetch"
	"countersign/internal/localca"
)

// Request is one that arrived.
type Request struct {
	Time   time.Time
	Method string
	URL    *url.URL // absolute
	Header http.Header
	Body   []byte
	Form   url.Values // of a form body, without the query
}

// World serves hosts over HTTPS on this machine.
type World struct {
	// Fetch are the options of a client that reaches the hosts and trusts their certificates.
	Fetch fetch.Options

	mux *http.ServeMux

	mutex    sync.Mutex
	requests []Request
	before   []func(http.ResponseWriter, *http.Request) bool
}

// NewWorld starts serving the hosts, until the test ends.
func NewWorld(t testing.TB, hosts ...string) *World {
	t.Helper()
	ca, err := localca.Create(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Issue(hosts...)
	if err != nil {
		t.Fatal(err)
	}
	w := &World{mux: http.NewServeMux()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that go away are part of the tests
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	w.Fetch.Authorities = ca.Pool()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	for _, host := range hosts {
		w.Fetch.Resolve = append(w.Fetch.Resolve, fetch.Mapping{Host: host, Port: 443, Address: address})
	}
	return w
}

// Handle serves a pattern of [http.ServeMux] with a host in it, such as "POST auth.outdoor.example/oauth/token".
func (w *World) Handle(pattern string, handler http.HandlerFunc) { w.mux.HandleFunc(pattern, handler) }

// Before adds a function that sees every request first, and answers it if it returns true.
func (w *World) Before(intercept func(http.ResponseWriter, *http.Request) bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.before = append(w.before, intercept)
}

func (w *World) serve(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	seen := Request{Time: time.Now(), Method: r.Method, URL: absolute(r), Header: r.Header.Clone(), Body: body}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		seen.Form, _ = url.ParseQuery(string(body))
	}
	w.mutex.Lock()
	w.requests = append(w.requests, seen)
	before := w.before
	w.mutex.Unlock()
	for _, intercept := range before {
		if intercept(rw, r) {
			return
		}
	}
	w.Serve(rw, r)
}

// Serve answers a request as its handler does, for functions given to [World.Before].
func (w *World) Serve(rw http.ResponseWriter, r *http.Request) { w.mux.ServeHTTP(rw, r) }

// absolute returns the URL that the client asked for.
func absolute(r *http.Request) *url.URL {
	u := *r.URL
	u.Scheme, u.Host = "https", r.Host
	return &u
}

// Requests returns those that arrived so far at URLs that begin with one of the prefixes; all without prefixes.
func (w *World) Requests(prefixes ...string) []Request {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var found []Request
	for _, r := range w.requests {
		matches := len(prefixes) == 0
		for _, prefix := range prefixes {
			matches = matches || strings.HasPrefix(r.URL.String(), prefix)
		}
		if matches {
			found = append(found, r)
		}
	}
	return found
}
