package session_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/internal/fakecompany"
	"countersign/agent/session"
	"countersign/dpop"
	"countersign/internal/fetch"
	"countersign/poppy"
)

// kinds are all ways in which a request with a secret goes out, by the kind of endpoint. Rooms that are not here yet send
// theirs through the same two functions.
func (w *world) kinds(t *testing.T, s *session.Session) map[string]struct {
	url  string
	send func() error
} {
	t.Helper()
	do := func(kind discovery.Kind, method, target, body string) func() error {
		return func() error {
			to, ok := s.Company.Endpoint(kind)
			if !ok {
				return fmt.Errorf("no %s", kind)
			}
			if kind == discovery.MCP && target == fakecompany.BearerMCPURL {
				to = bearerMCP
			}
			_, err := callWith(t, t.Context(), s, to, method, target, body)
			return err
		}
	}
	post := func(kind discovery.Kind, form url.Values) func() error {
		return func() error {
			_, err := w.agent.Sessions.PostForm(t.Context(), s.Company, kind, form)
			return err
		}
	}
	return map[string]struct {
		url  string
		send func() error
	}{
		"token, sign-in": {fakecompany.TokenURL, func() error {
			return s.SignIn(t.Context(), url.Values{"grant_type": {poppy.GrantDeviceCode}, "device_code": {"secret-marker"}})
		}},
		"token, start": {fakecompany.TokenURL, func() error {
			_, err := w.agent.Sessions.Open(t.Context(), s.Company, session.Which{Person: "somebody"})
			return err
		}},
		"revocation":           {fakecompany.RevocationURL, post(discovery.Revocation, url.Values{"token": {"secret-marker"}})},
		"device authorization": {fakecompany.DeviceURL, post(discovery.DeviceAuthorization, url.Values{"scope": {"poppy:read"}})},
		"mediated sign-in":     {fakecompany.MediatedURL, do(discovery.MediatedSignIn, "POST", fakecompany.MediatedURL, `{"credentials":{"password":"secret-marker"}}`)},
		"API, reading":         {fakecompany.OrdersURL, do(discovery.OpenAPI, "GET", fakecompany.OrdersURL, "")},
		"API, writing":         {fakecompany.OrdersURL, do(discovery.OpenAPI, "POST", fakecompany.OrdersURL, "secret-marker")},
		"MCP":                  {fakecompany.MCPURL, do(discovery.MCP, "POST", fakecompany.MCPURL, "{}")},
		"MCP, Bearer":          {fakecompany.BearerMCPURL, do(discovery.MCP, "POST", fakecompany.BearerMCPURL, "{}")},
		"conversation":         {fakecompany.ConversationsURL, do(discovery.Conversations, "POST", fakecompany.ConversationsURL, "secret-marker")},
		"feedback":             {fakecompany.FeedbackURL, do(discovery.Feedback, "POST", fakecompany.FeedbackURL, "secret-marker")},
		"operations extension": {fakecompany.OperationsURL, do(discovery.Operations, "POST", fakecompany.OperationsURL, "secret-marker")},
	}
}

// P-3-22, P-3-23 (token, revocation, device authorization), P-3-24 (mediated), P-3-25 (APIs), P-3-26 (conversation,
// feedback, extension): whatever the endpoint, nothing goes where a redirect points, to another host or to the same.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, sameHost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, same host %v", status, sameHost), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				s := w.agent.Open(t, person)
				mustCall(t, s, mcp, fakecompany.MCPURL) // tokens are there before the redirects begin
				mustCall(t, s, bearerMCP, fakecompany.BearerMCPURL)
				w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
					target := fakecompany.CaptureURL
					if sameHost {
						target = "https://" + r.Host + "/stolen"
					}
					if r.URL.Path == "/stolen" {
						return false
					}
					http.Redirect(rw, r, target, status)
					return true
				})
				for name, kind := range w.kinds(t, s) {
					before := len(w.Requests(kind.url))
					err := kind.send()
					if !errors.Is(err, fetch.ErrRedirected) {
						t.Errorf("%s: got %v", name, err)
					}
					if sent := len(w.Requests(kind.url)) - before; sent != 1 {
						t.Errorf("%s: sent %d times", name, sent)
					}
				}
				for _, r := range w.Requests() {
					if r.URL.Path == "/stolen" {
						t.Errorf("%s %s arrived with %v and %q", r.Method, r.URL, r.Header, r.Body)
					}
				}
			})
		}
	}
}

func TestNoncesAreUsedWhereverTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AskNonce()
	s := w.agent.Open(t, person)
	// P-4.3-05, P-4.3-21: at the token endpoint, 400: once more with the nonce, with fresh proof and assertions
	requests := w.tokenRequests()
	if len(requests) != 2 {
		t.Fatalf("%d token requests", len(requests))
	}
	_, first := fakecompany.Claims(t, requests[0].Header.Get("DPoP"))
	_, second := fakecompany.Claims(t, requests[1].Header.Get("DPoP"))
	if first["nonce"] != nil || second["nonce"] == nil || first["jti"] == second["jti"] {
		t.Errorf("proofs %v and %v", first, second)
	}
	for _, name := range []string{"assertion", "client_assertion"} {
		if requests[0].Form.Get(name) == requests[1].Form.Get(name) {
			t.Errorf("%s was sent twice", name)
		}
	}
	// at an API, 401
	mustCall(t, s, api, fakecompany.OrdersURL)
	calls := w.Requests(fakecompany.OrdersURL)
	_, first = fakecompany.Claims(t, calls[0].Header.Get("DPoP"))
	_, second = fakecompany.Claims(t, calls[1].Header.Get("DPoP"))
	if len(calls) != 2 || first["nonce"] != nil || second["nonce"] == nil || first["jti"] == second["jti"] {
		t.Errorf("%d calls with proofs %v and %v", len(calls), first, second)
	}
	// P-4.3-42: a nonce that came with a success is the next one
	mustCall(t, s, api, fakecompany.OrdersURL)
	mustCall(t, s, api, fakecompany.OrdersURL)
	calls = w.Requests(fakecompany.OrdersURL)
	_, third := fakecompany.Claims(t, calls[2].Header.Get("DPoP"))
	_, fourth := fakecompany.Claims(t, calls[3].Header.Get("DPoP"))
	if len(calls) != 4 || third["nonce"] == second["nonce"] || fourth["nonce"] == third["nonce"] {
		t.Errorf("%d calls with nonces %v, %v and %v", len(calls), second["nonce"], third["nonce"], fourth["nonce"])
	}
	// and one origin's nonce is not another's
	mustCall(t, s, mcp, fakecompany.MCPURL)
	if _, proof := fakecompany.Claims(t, w.Requests(fakecompany.MCPURL)[0].Header.Get("DPoP")); proof["nonce"] != nil {
		t.Errorf("another host's nonce was sent: %v", proof["nonce"])
	}
}

func TestACompanyThatNeverLikesANonceIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	nonces := 0
	w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/orders" {
			return false
		}
		nonces++
		fakecompany.Refuse(rw, poppy.SurfaceAPI, &poppy.Error{Code: poppy.ErrUseDPoPNonce, Nonce: fmt.Sprint("nonce", nonces)})
		return true
	})
	_, err := call(t, s, api, fakecompany.OrdersURL)
	if poppy.CodeOf(err) != poppy.ErrUseDPoPNonce || nonces != 2 {
		t.Errorf("%v after %d requests", err, nonces)
	}
}

// limit makes the Company answer 429 to a path, once or for ever.
func (w *world) limit(path, retryAfter string, once bool) {
	var mutex sync.Mutex
	done := false
	w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
		mutex.Lock()
		defer mutex.Unlock()
		if r.URL.Path != path || done {
			return false
		}
		done = once
		if retryAfter != "" {
			rw.Header().Set("Retry-After", retryAfter)
		}
		fakecompany.WriteJSON(rw, 429, map[string]string{"error": "rate_limited"})
		return true
	})
}

// P-4.3-78, in both forms: the request is repeated by itself, and not before.
func TestALimitIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, retryAfter := range map[string]func() string{
		"seconds": func() string { return "1" },
		"a date":  func() string { return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.agent.Open(t, person)
			header := retryAfter()
			w.limit("/orders", header, true)
			mustCall(t, s, api, fakecompany.OrdersURL)
			requests := w.Requests(fakecompany.OrdersURL)
			until := requests[0].Time.Add(time.Second)
			if date, err := http.ParseTime(header); err == nil {
				until = date
			}
			if again := requests[1].Time; len(requests) != 2 || again.Before(until.Add(-10*time.Millisecond)) || again.After(until.Add(5*time.Second)) {
				t.Errorf("%d requests, the second %v after the time", len(requests), again.Sub(until))
			}
			// A new proof for the repetition, as for every request.
			if requests[0].Header.Get("DPoP") == requests[1].Header.Get("DPoP") { // P-4.3-13
				t.Error("the same proof twice")
			}
		})
	}
}

// P-4.3-78: whoever asks, however long it takes, and also after a restart.
func TestALongLimitIsReportedAndHoldsForEverybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	other := w.agent.Open(t, session.Which{Person: "second-person-marker"})
	w.limit("/orders", "3600", true)
	_, err := call(t, s, api, fakecompany.OrdersURL)
	limited, ok := errors.AsType[*session.RateLimitedError](err)
	if !ok || time.Until(limited.Until) < 3590*time.Second || limited.Host != "api.outdoor.example" {
		t.Fatalf("got %v", err)
	}
	expect := func(when string, s *session.Session, requests int) {
		t.Helper()
		_, err := call(t, s, api, fakecompany.OrdersURL+"?another=query")
		if _, ok := errors.AsType[*session.RateLimitedError](err); !ok {
			t.Errorf("%s: %v", when, err)
		}
		if n := len(w.Requests(fakecompany.OrdersURL)); n != requests {
			t.Errorf("%s: %d requests", when, n)
		}
	}
	expect("again", s, 1)
	expect("another User", other, 1)
	mustCall(t, s, mcp, fakecompany.MCPURL) // another endpoint is free
	w.agent.Restart(t)
	s = w.agent.Open(t, person)
	expect("after a restart", s, 1)
	w.Clock.Advance(time.Hour)
	mustCall(t, s, api, fakecompany.OrdersURL)
}

func TestALimitIsNotWaitedForBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	w.limit("/orders", "20", false)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	start := time.Now()
	_, err := callWith(t, ctx, s, api, http.MethodGet, fakecompany.OrdersURL, "")
	if _, ok := errors.AsType[*session.RateLimitedError](err); !ok || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	if _, err := callWith(t, ctx, s, api, http.MethodGet, fakecompany.OrdersURL, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who gave up got %v", err)
	}
	if n := len(w.Requests(fakecompany.OrdersURL)); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestALimitAtTheTokenEndpointHoldsToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	w.Clock.Advance(2 * time.Hour)
	w.limit("/oauth/token", "", false) // without Retry-After: a few seconds
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := callWith(t, ctx, s, api, http.MethodGet, fakecompany.OrdersURL, "")
	if _, ok := errors.AsType[*session.RateLimitedError](err); !ok || len(w.tokenRequests()) != 2 {
		t.Errorf("%v after %d token requests", err, len(w.tokenRequests()))
	}
	if len(w.Requests(fakecompany.OrdersURL)) != 0 {
		t.Error("the call was sent with an expired token")
	}
}

// P-3-27: no TCP connection to an address that is not public, for any way to write it; P-3-29: unless it was configured.
func TestOnlyPublicAddressesAreConnectedTo(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections := make(chan struct{}, 100)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections <- struct{}{}
			conn.Close()
		}
	})
	defer accepting.Wait()
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	w := newWorld(t)
	s := w.agent.Open(t, person)
	for _, host := range []string{
		"127.0.0.1", "[::1]", "localhost", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "[fe80::1]", "[::ffff:127.0.0.1]",
	} {
		target := "https://" + host + ":" + port + "/orders"
		_, err := call(t, s, api, target)
		if !errors.Is(err, fetch.ErrAddress) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if len(connections) != 0 {
		t.Errorf("%d connections were made", len(connections))
	}

	w.agent.Options.Network.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	w.agent.Restart(t)
	s = w.agent.Open(t, person)
	if _, err := call(t, s, api, "https://127.0.0.1:"+port+"/orders"); err == nil || errors.Is(err, fetch.ErrAddress) {
		t.Errorf("configured on purpose: %v", err)
	}
	<-connections
}

// P-4.3-75, P-4.2-09 and the agent's own promise: no secret and no User in a URL, a log line or an error; nothing of either
// in the clear in the vault.
func TestSecretsStayIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	w.signIn(t, s, "pat_marker")
	mustCall(t, s, api, fakecompany.OrdersURL+"?page=2")
	mustCall(t, s, bearerMCP, fakecompany.BearerMCPURL)
	var failures []string
	fail := func(err error) {
		if err == nil {
			t.Error("that was to fail")
			return
		}
		failures = append(failures, err.Error(), fmt.Sprintf("%+v %#v", err, err))
	}
	_, err := call(t, s, api, "https://unknown.invalid/orders")
	fail(err)
	w.RevokeAccount("pat_marker")
	w.EndSession(s.ID())
	_, err = call(t, s, api, fakecompany.OrdersURL)
	fail(err)
	fail(s.SignIn(t.Context(), url.Values{"grant_type": {poppy.GrantDeviceCode}, "device_code": {"device-marker"}}))
	w.Before(func(rw http.ResponseWriter, _ *http.Request) bool {
		rw.WriteHeader(500)
		return true
	})
	w.Clock.Advance(2 * time.Hour)
	_, err = call(t, s, api, fakecompany.OrdersURL)
	fail(err)

	secrets := []string{"pat_marker", "sto_marker", "device-marker"}
	for _, r := range w.Requests() {
		for _, name := range []string{"assertion", "client_assertion"} {
			if value := r.Form.Get(name); value != "" {
				secrets = append(secrets, value)
			}
		}
		if proof := r.Header.Get(dpop.Header); proof != "" {
			secrets = append(secrets, proof)
		}
	}
	users := []string{person.Person, "usr_"}
	for _, marker := range append(secrets, users...) {
		for _, r := range w.Requests() {
			if strings.Contains(r.URL.String(), marker) {
				t.Errorf("%q is in the URL %s", marker, r.URL)
			}
		}
		if strings.Contains(w.agent.Log.String(), marker) {
			t.Errorf("%q is in the log: %s", marker, w.agent.Log)
		}
		for _, text := range failures {
			if strings.Contains(text, marker) {
				t.Errorf("%q is in the error %s", marker, text)
			}
		}
		if strings.Contains(w.agent.VaultBytes(t), marker) {
			t.Errorf("%q is in the clear in the vault", marker)
		}
	}
	for _, marker := range []string{fakecompany.Issuer, "outdoor.example", "ses_", "poppy:read"} {
		if strings.Contains(w.agent.VaultBytes(t), marker) {
			t.Errorf("%q is in the clear in the vault", marker)
		}
	}
	// The person is never sent to anybody either.
	for _, r := range w.Requests() {
		if strings.Contains(fmt.Sprint(r), person.Person) {
			t.Errorf("the person was sent to %s", r.URL)
		}
	}
	if w.agent.Log.String() == "" {
		t.Error("nothing was logged, so nothing was tested")
	}
}
