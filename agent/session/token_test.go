package session_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/internal/fakecompany"
	"countersign/agent/session"
	"countersign/internal/secret"
	"countersign/poppy"
)

// signIn signs a Session in with an Account Token that the Company knows.
func (w *world) signIn(t *testing.T, s *session.Session, token string) {
	t.Helper()
	w.AddAccount(token, "account of "+token)
	if err := s.SignIn(t.Context(), url.Values{"grant_type": {poppy.GrantDeviceCode}, "device_code": {token}}); err != nil {
		t.Fatal(err)
	}
}

func last(requests []fakecompany.Request) fakecompany.Request { return requests[len(requests)-1] }

func TestASignedOutSessionIsRenewedWithAFreshAssertion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	before := mustCall(t, s, api, fakecompany.OrdersURL)
	w.Clock.Advance(2 * time.Hour)
	after := mustCall(t, s, api, fakecompany.OrdersURL)
	requests := w.tokenRequests()
	if len(requests) != 2 {
		t.Fatalf("%d token requests", len(requests))
	}
	// P-4.2-38, P-4-12
	if requests[1].Form.Get("session_id") != before.Session || requests[1].Form.Get("grant_type") != poppy.GrantJWTBearer {
		t.Errorf("renewed by %v", requests[1].Form)
	}
	for _, name := range []string{"assertion", "client_assertion"} {
		_, first := fakecompany.Claims(t, requests[0].Form.Get(name))
		_, second := fakecompany.Claims(t, requests[1].Form.Get(name))
		if first["jti"] == second["jti"] {
			t.Errorf("%s has the same jti", name)
		}
	}
	if after.Session != before.Session || after.Token == before.Token {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestATokenIsRenewedALittleBeforeItExpires(t *testing.T) {
	t.Parallel()
	for lifetime, early := range map[time.Duration]time.Duration{time.Hour: 30 * time.Second, 100 * time.Second: 10 * time.Second} {
		t.Run(lifetime.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.IssueFor(lifetime)
			s := w.agent.Open(t, person)
			w.Clock.Advance(lifetime - early - 5*time.Second)
			mustCall(t, s, api, fakecompany.OrdersURL)
			if n := len(w.tokenRequests()); n != 1 {
				t.Errorf("renewed too early: %d token requests", n)
			}
			w.Clock.Advance(6 * time.Second)
			mustCall(t, s, api, fakecompany.OrdersURL)
			if n := len(w.tokenRequests()); n != 2 {
				t.Errorf("not renewed in time: %d token requests", n)
			}
		})
	}
}

func TestASignedInSessionIsRenewedWithTheAccountToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	id := s.ID()
	w.signIn(t, s, "pat_marker")
	// P-4.3-74: the token of the sign-in is used from then on
	if seen := mustCall(t, s, api, fakecompany.OrdersURL); seen.Scope != "poppy:read poppy:write" || !s.SignedIn() || seen.Session != id {
		t.Errorf("after signing in: %+v", seen)
	}
	w.Clock.Advance(2 * time.Hour)
	mustCall(t, s, api, fakecompany.OrdersURL)
	// P-4.2-41
	form := last(w.tokenRequests()).Form
	if form.Get("grant_type") != "refresh_token" || form.Get("refresh_token") != "pat_marker" || form.Get("session_id") != id || form.Has("assertion") {
		t.Errorf("renewed by %v", form)
	}
	// P-4-08: a later Session starts signed in, without the User
	task := w.agent.Open(t, session.Which{Person: person.Person, Name: "task"})
	form = last(w.tokenRequests()).Form
	if form.Get("grant_type") != "refresh_token" || form.Has("session_id") || !task.SignedIn() || task.ID() == id {
		t.Errorf("started by %v", form)
	}
	// and after a restart too
	w.agent.Restart(t)
	if s := w.agent.Open(t, person); !s.SignedIn() || s.ID() != id {
		t.Errorf("after a restart: %s, signed in %v", s.ID(), s.SignedIn())
	}
	accounts, err := w.agent.Sessions.Accounts(t.Context(), fakecompany.Issuer, person.Person)
	if err != nil || len(accounts) != 1 || accounts[0].Scopes.String() != "poppy:read poppy:write" {
		t.Errorf("accounts %+v, %v", accounts, err)
	}
}

func TestWithTwoAccountsTheCallerChooses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	which := func(name, account string) session.Which {
		return session.Which{Person: person.Person, Name: name, Account: account}
	}
	own, business := w.agent.Open(t, which("own", "")), w.agent.Open(t, which("business", ""))
	w.signIn(t, own, "pat_own")
	w.signIn(t, business, "pat_business")
	if s := w.agent.Open(t, which("undecided", "")); s.SignedIn() {
		t.Error("one of two accounts was chosen without asking")
	}
	accounts, err := w.agent.Sessions.Accounts(t.Context(), fakecompany.Issuer, person.Person)
	if err != nil || len(accounts) != 2 {
		t.Fatalf("accounts %+v, %v", accounts, err)
	}
	used := map[string]bool{}
	for _, account := range accounts {
		if s := w.agent.Open(t, which("with "+account.ID, account.ID)); !s.SignedIn() {
			t.Error("signed out")
		}
		used[last(w.tokenRequests()).Form.Get("refresh_token")] = true
	}
	if !used["pat_own"] || !used["pat_business"] {
		t.Errorf("used %v", used)
	}
	if _, err := w.agent.Sessions.Open(t.Context(), own.Company, which("none", "nobody's")); err == nil {
		t.Error("an account that is not there was used")
	}
}

// P-4.2-37
func TestAnEmptyScopeMeansSignedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	w.signIn(t, s, "pat_marker")
	id := s.ID()
	w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/oauth/token" || r.FormValue("grant_type") != "refresh_token" {
			return false
		}
		fakecompany.WriteJSON(rw, 200, map[string]any{
			"access_token": "whatever", "token_type": "DPoP", "expires_in": 60, "scope": "", "session_id": id,
		})
		return true
	})
	w.Clock.Advance(2 * time.Hour)
	mustCall(t, s, api, fakecompany.OrdersURL)
	if form := last(w.tokenRequests()).Form; form.Get("grant_type") != poppy.GrantJWTBearer {
		t.Errorf("renewed a signed-out Session by %v", form)
	}
	if s.SignedIn() || len(s.Scopes()) != 0 {
		t.Errorf("signed in with %v", s.Scopes())
	}
}

func TestASessionThatTheCompanyEndedIsStartedAnewAndTheCallerIsTold(t *testing.T) {
	t.Parallel()
	for _, signedIn := range []bool{false, true} {
		t.Run(fmt.Sprintf("signed in %v", signedIn), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.agent.Open(t, person)
			if signedIn {
				w.signIn(t, s, "pat_marker")
			}
			old := s.ID()
			w.EndSession(old)
			before := len(w.Requests(fakecompany.OrdersURL))
			_, err := call(t, s, api, fakecompany.OrdersURL)
			changed, ok := errors.AsType[*session.ChangedError](err)
			if !ok || changed.Old != old || changed.New == old || changed.New != s.ID() {
				t.Fatalf("got %v", err)
			}
			// P-4.2-43: invalid_session, then a request without session_id
			requests := w.tokenRequests()
			renewal, start := requests[len(requests)-2].Form, requests[len(requests)-1].Form
			if renewal.Get("session_id") != old || start.Has("session_id") || (start.Get("grant_type") == "refresh_token") != signedIn {
				t.Errorf("renewed by %v, then %v", renewal, start)
			}
			// The request with the dead token was refused; it was not repeated in a Session that knows nothing of it.
			if sent := len(w.Requests(fakecompany.OrdersURL)) - before; sent != 1 {
				t.Errorf("the request was sent %d times", sent)
			}
			if seen := mustCall(t, s, api, fakecompany.OrdersURL); seen.Session != changed.New || s.SignedIn() != signedIn {
				t.Errorf("then %+v", seen)
			}
			w.agent.Restart(t)
			if again := w.agent.Open(t, person); again.ID() != changed.New {
				t.Errorf("after a restart it is %s", again.ID())
			}
		})
	}
}

func TestARevokedAccountTokenLeavesTheSessionSignedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	w.signIn(t, s, "pat_marker")
	id := s.ID()
	w.RevokeAccount("pat_marker")
	w.Clock.Advance(2 * time.Hour)
	seen := mustCall(t, s, api, fakecompany.OrdersURL)
	if seen.Session != id || seen.Scope != "" || s.SignedIn() {
		t.Errorf("%+v, signed in %v", seen, s.SignedIn())
	}
	accounts, err := w.agent.Sessions.Accounts(t.Context(), fakecompany.Issuer, person.Person)
	if err != nil || len(accounts) != 0 {
		t.Errorf("accounts %v, %v", accounts, err)
	}
}

func TestARotatedAccountTokenReplacesTheOldOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Rotate()
	s := w.agent.Open(t, person)
	w.signIn(t, s, "pat_marker")
	for i := range 3 {
		w.Clock.Advance(2 * time.Hour)
		if i == 1 {
			w.agent.Restart(t)
			s = w.agent.Open(t, person)
		}
		if seen := mustCall(t, s, api, fakecompany.OrdersURL); seen.Scope == "" {
			t.Fatalf("renewal %d: signed out", i)
		}
	}
	used := map[string]bool{}
	for _, r := range w.tokenRequests() {
		if token := r.Form.Get("refresh_token"); token != "" && used[token] {
			t.Errorf("%s was used twice", token)
		} else {
			used[token] = true
		}
	}
}

func TestRefusedSignInsLeaveEverythingAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	before := mustCall(t, s, api, fakecompany.OrdersURL)
	err := s.SignIn(t.Context(), url.Values{"grant_type": {poppy.GrantDeviceCode}, "device_code": {"unknown"}})
	if poppy.CodeOf(err) != poppy.ErrAuthorizationPending {
		t.Errorf("got %v", err)
	}
	foreign := poppy.TokenResponse{
		AccessToken: secret.New("a"), TokenType: poppy.TokenDPoP, ExpiresIn: 60, RefreshToken: secret.New("b"),
		Scope: poppy.Scopes{"poppy:read"}, SessionID: "another Session",
	}
	if err := s.Adopt(t.Context(), foreign); err == nil {
		t.Error("tokens of another Session were adopted")
	}
	foreign.SessionID, foreign.Scope = s.ID(), nil
	if err := s.Adopt(t.Context(), foreign); err == nil {
		t.Error("a sign-in without scopes was adopted")
	}
	if after := mustCall(t, s, api, fakecompany.OrdersURL); after != before || s.SignedIn() {
		t.Errorf("%+v became %+v", before, after)
	}
}

// P-4.2-44: a token that looks like a JWT, and lies.
func TestTokensAreOpaque(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1,"scope":"poppy:read poppy:write","sub":"other"}`))
	lie := "eyJhbGciOiJub25lIn0." + payload + ".c2ln"
	starts := 0
	w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/oauth/token":
			starts++
			fakecompany.WriteJSON(rw, 200, map[string]any{
				"access_token": lie, "token_type": "dpop", "expires_in": 3600, "scope": "", "session_id": "ses_lie",
			})
		case "/orders":
			fakecompany.WriteJSON(rw, 200, map[string]any{})
		default:
			return false
		}
		return true
	})
	s := w.agent.Open(t, person)
	for range 2 {
		mustCall(t, s, api, fakecompany.OrdersURL)
	}
	if s.SignedIn() || starts != 1 {
		t.Errorf("signed in %v after %d token requests", s.SignedIn(), starts)
	}
	if got := last(w.Requests(fakecompany.OrdersURL)).Header.Get("Authorization"); got != "DPoP "+lie { // the scheme as the RFC spells it
		t.Errorf("Authorization: %s", got)
	}
}

func TestATokenThatIsRefusedIsRenewedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	mustCall(t, s, api, fakecompany.OrdersURL)
	w.RevokeTokens()
	if response, err := callWith(t, t.Context(), s, api, http.MethodPost, fakecompany.OrdersURL, "body"); err != nil || response.Status != 200 {
		t.Fatalf("%+v, %v", response, err)
	}
	if requests := w.Requests(fakecompany.OrdersURL); len(requests) != 3 || len(w.tokenRequests()) != 2 ||
		string(requests[1].Body) != "body" || string(requests[2].Body) != "body" {
		t.Errorf("%d requests, %d token requests", len(requests), len(w.tokenRequests()))
	}
}

// P-4.3-73: an agent that the Company does not want asks no more, and never without its token.
func TestACompanyThatRefusesTheAgentIsNotAskedWithoutAToken(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(http.ResponseWriter){
		"invalid_token": func(rw http.ResponseWriter) {
			fakecompany.Refuse(rw, poppy.SurfaceAPI, &poppy.Error{Code: poppy.ErrInvalidToken})
		},
		"a bare 401": func(rw http.ResponseWriter) { rw.WriteHeader(401) },
		"403":        func(rw http.ResponseWriter) { rw.WriteHeader(403) },
		"sign_in_required": func(rw http.ResponseWriter) {
			fakecompany.Refuse(rw, poppy.SurfaceAPI, &poppy.Error{Code: poppy.ErrSignInRequired})
		},
		"invalid_dpop_proof": func(rw http.ResponseWriter) {
			fakecompany.Refuse(rw, poppy.SurfaceAPI, &poppy.Error{Code: poppy.ErrInvalidDPoPProof})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.agent.Open(t, person)
			w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/orders" {
					refuse(rw)
				}
				return r.URL.Path == "/orders"
			})
			response, err := call(t, s, api, fakecompany.OrdersURL)
			switch name {
			case "403": // the API's own answer
				if err != nil || response.Status != 403 {
					t.Errorf("%+v, %v", response, err)
				}
			case "a bare 401":
				if poppy.CodeOf(err) != poppy.ErrInvalidToken {
					t.Errorf("got %v", err)
				}
			default:
				if poppy.CodeOf(err) != poppy.ErrorCode(name) || response != nil {
					t.Errorf("got %+v, %v", response, err)
				}
			}
			requests := w.Requests(fakecompany.OrdersURL)
			if len(requests) > 2 {
				t.Errorf("asked %d times", len(requests))
			}
			for _, r := range requests { // P-4.3-72
				if !strings.HasPrefix(r.Header.Get("Authorization"), "DPoP ") || r.Header.Get("DPoP") == "" {
					t.Errorf("headers %v", r.Header)
				}
			}
		})
	}
}

// P-4.3-74 and one renewal for all who share the Session.
func TestManyWhoShareASessionRenewItOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	mustCall(t, s, api, fakecompany.OrdersURL)
	for round := range 3 {
		w.Clock.Advance(2 * time.Hour)
		before := len(w.tokenRequests())
		var group sync.WaitGroup
		tokens := make([]string, 50)
		for i := range tokens {
			group.Go(func() {
				shared, err := w.agent.Sessions.Open(t.Context(), s.Company, person) // another value for the same Session
				if err != nil {
					t.Error(err)
					return
				}
				response, err := call(t, shared, api, fakecompany.OrdersURL)
				if err != nil {
					t.Error(err)
					return
				}
				var seen struct{ Token string }
				if err := json.Unmarshal(response.Body, &seen); err != nil {
					t.Error(err)
				}
				tokens[i] = seen.Token
			})
		}
		group.Wait()
		if n := len(w.tokenRequests()) - before; n != 1 {
			t.Fatalf("round %d: %d renewals", round, n)
		}
		for _, token := range tokens {
			if token != tokens[0] {
				t.Fatalf("round %d: tokens %v", round, tokens)
			}
		}
	}
}

// P-4.3-74: tokens expire all the time, some are revoked, and whoever sends after a new one was received sends the new one.
func TestAnOldTokenIsNeverSentAfterANewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	stop := make(chan struct{})
	var revoking sync.WaitGroup
	revoking.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				w.RevokeTokens()
			}
		}
	})
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			newest := 0
			for range 4 {
				// A token can be revoked twice in a row here, which is then a refusal.
				response, err := call(t, s, api, fakecompany.OrdersURL)
				if poppy.CodeOf(err) == poppy.ErrInvalidToken {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				var seen struct{ Token string }
				if err := json.Unmarshal(response.Body, &seen); err != nil {
					t.Error(err)
				}
				var number int
				if _, err := fmt.Sscanf(seen.Token, "sto_marker%d", &number); err != nil || number < newest {
					t.Errorf("token %d after %d (%v)", number, newest, err)
				}
				newest = number
			}
		})
	}
	group.Wait()
	close(stop)
	revoking.Wait()
	if requests, issued := len(w.tokenRequests()), w.Issued(); requests != issued {
		t.Errorf("%d token requests, %d tokens", requests, issued)
	}
}

func TestACallerWhoGivesUpLeavesTheRenewalToTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	w.signIn(t, s, "pat_marker")
	w.Rotate()
	w.Clock.Advance(2 * time.Hour)
	arrived := make(chan struct{})
	var once sync.Once
	w.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/oauth/token" {
			once.Do(func() { close(arrived) })
			time.Sleep(50 * time.Millisecond)
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		_, err := callWith(t, ctx, s, api, http.MethodGet, fakecompany.OrdersURL, "")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the caller who gave up got %v", err)
		}
	})
	<-arrived
	cancel()
	group.Wait()
	// The answer to the abandoned renewal held the only copy of the new Account Token.
	if seen := mustCall(t, s, api, fakecompany.OrdersURL); seen.Scope == "" {
		t.Error("the rotated Account Token was lost")
	}
}

func TestTwoProcessesOfOneAgentShareASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Rotate()
	s := w.agent.Open(t, person)
	w.signIn(t, s, "pat_marker")
	twin := w.agent.Twin(t).Open(t, person)
	if twin.ID() != s.ID() {
		t.Fatalf("Sessions %s and %s", s.ID(), twin.ID())
	}
	for range 3 {
		w.Clock.Advance(2 * time.Hour)
		before := len(w.tokenRequests())
		a, b := mustCall(t, s, api, fakecompany.OrdersURL), mustCall(t, twin, api, fakecompany.OrdersURL)
		if a != b || a.Scope == "" || len(w.tokenRequests()) != before+1 {
			t.Errorf("%+v and %+v after %d renewals", a, b, len(w.tokenRequests())-before)
		}
	}
}

// Two processes renew at the same time, and the Company takes an Account Token once: the slower one finds the new one.
func TestAnAccountTokenThatAnotherProcessReplacedIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Rotate()
	s := w.agent.Open(t, person)
	w.signIn(t, s, "pat_marker")
	twin := w.agent.Twin(t).Open(t, person)
	w.Clock.Advance(2 * time.Hour)
	var overtaken atomic.Bool
	w.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/oauth/token" && overtaken.CompareAndSwap(false, true) {
			mustCall(t, twin, api, fakecompany.OrdersURL)
		}
		return false
	})
	if seen := mustCall(t, s, api, fakecompany.OrdersURL); seen.Scope == "" || !s.SignedIn() || !twin.SignedIn() {
		t.Errorf("%+v", seen)
	}
}

func TestASessionThatManyOpenAtOnceIsStartedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	company := w.agent.Resolve(t, fakecompany.Domain)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if _, err := w.agent.Sessions.Open(t.Context(), company, person); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := len(w.tokenRequests()); n != 1 {
		t.Errorf("%d token requests", n)
	}
}

func TestEachMCPServerHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	general := mustCall(t, s, api, fakecompany.OrdersURL)
	withDPoP := mustCall(t, s, mcp, fakecompany.MCPURL)
	bearer := mustCall(t, s, bearerMCP, fakecompany.BearerMCPURL)
	// P-4.3-53: three tokens of one Session work at once
	if general.Session != withDPoP.Session || general.Session != bearer.Session || general.Token == withDPoP.Token || withDPoP.Token == bearer.Token {
		t.Errorf("%+v, %+v, %+v", general, withDPoP, bearer)
	}
	for to, url := range map[*discovery.Endpoint]string{&api: fakecompany.OrdersURL, &mcp: fakecompany.MCPURL, &bearerMCP: fakecompany.BearerMCPURL} {
		mustCall(t, s, *to, url)
	}
	requests := w.tokenRequests()
	if len(requests) != 3 {
		t.Fatalf("%d token requests", len(requests))
	}
	// P-4.3-47, P-4.3-67, P-3.2-21: the url of the entry to the character, on the Session
	for i, want := range []string{"", fakecompany.MCPURL, fakecompany.BearerMCPURL} {
		form := requests[i].Form
		if form.Get("resource") != want || form.Has("resource") != (want != "") || i > 0 && form.Get("session_id") != general.Session {
			t.Errorf("token request %d: %v", i, form)
		}
	}
	// P-4.3-52, P-4.3-61: the scheme that token_type named, and a proof only under DPoP
	for _, r := range w.Requests(fakecompany.MCPURL) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		old := r.URL.String() == fakecompany.BearerMCPURL
		if old != (scheme == "Bearer") || old == (r.Header.Get("DPoP") != "") || token == general.Token {
			t.Errorf("%s: %s, proof %v", r.URL, scheme, r.Header["Dpop"])
		}
		if !old {
			if header, _ := fakecompany.Claims(t, r.Header.Get("DPoP")); header["alg"] != any("ES256") {
				t.Errorf("alg %v", header["alg"])
			}
		}
	}
	// P-4.3-65: signed in, with the Account Token and the resource
	w.signIn(t, s, "pat_marker")
	if seen := mustCall(t, s, bearerMCP, fakecompany.BearerMCPURL); seen.Scope == "" || seen.Token == bearer.Token {
		t.Errorf("after signing in: %+v", seen)
	}
	form := last(w.tokenRequests()).Form
	if form.Get("grant_type") != "refresh_token" || form.Get("resource") != fakecompany.BearerMCPURL || form.Get("session_id") != general.Session {
		t.Errorf("token request %v", form)
	}
}

func TestABearerTokenIsUsedNowhereButAtMCPServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/oauth/token" {
			fakecompany.WriteJSON(rw, 200, map[string]any{
				"access_token": "stealable", "token_type": "Bearer", "expires_in": 60, "scope": "", "session_id": "s",
			})
		}
		return r.URL.Path == "/oauth/token"
	})
	s := w.agent.Open(t, person)
	if _, err := call(t, s, api, fakecompany.OrdersURL); err == nil || !strings.Contains(err.Error(), "DPoP") {
		t.Errorf("got %v", err)
	}
	if sent := w.Requests(fakecompany.OrdersURL); len(sent) != 0 {
		t.Errorf("sent %v", sent)
	}
}
