package session_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/internal/fakecompany"
	"countersign/agent/session"
	"countersign/assertion"
	"countersign/internal/fetch"
	"countersign/internal/secret"
	"countersign/poppy"
)

// person is who the tests are about. Like every other marker it must appear nowhere outside the agent.
var person = session.Which{Person: "person-marker"}

// The endpoints that tests send requests to.
var (
	api       = discovery.Endpoint{Kind: discovery.OpenAPI, URL: fakecompany.OpenAPIURL}
	mcp       = discovery.Endpoint{Kind: discovery.MCP, URL: fakecompany.MCPURL, Resource: fakecompany.MCPURL}
	bearerMCP = discovery.Endpoint{Kind: discovery.MCP, URL: fakecompany.BearerMCPURL, Resource: fakecompany.BearerMCPURL}
)

// world is a Company with an agent.
type world struct {
	*fakecompany.Company
	agent *fakecompany.Agent
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := fakecompany.New(t)
	show := func(w http.ResponseWriter, _ *http.Request, token *fakecompany.Token) {
		fakecompany.WriteJSON(w, 200, map[string]string{"session": token.Session.ID, "token": token.Value, "scope": token.Scope})
	}
	c.Handle("api.outdoor.example/orders", c.Guard("", show))
	c.Handle("mcp.outdoor.example/mcp", c.Guard(fakecompany.MCPURL, show))
	c.Handle("mcp.outdoor.example/mcp/old", c.Guard(fakecompany.BearerMCPURL, show))
	return &world{c, fakecompany.NewAgent(t, c)}
}

func call(t *testing.T, s *session.Session, to discovery.Endpoint, url string) (*session.Response, error) {
	t.Helper()
	return callWith(t, t.Context(), s, to, http.MethodGet, url, "")
}

func callWith(t *testing.T, ctx context.Context, s *session.Session, to discovery.Endpoint, method, url, body string) (*session.Response, error) { //nolint:revive // t first, as everywhere
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.Do(request, to, session.Bounds{})
}

// mustCall calls, and returns what the Company says of the token.
func mustCall(t *testing.T, s *session.Session, to discovery.Endpoint, url string) (seen struct{ Session, Token, Scope string }) {
	t.Helper()
	response, err := call(t, s, to, url)
	if err != nil || response.Status != 200 {
		t.Fatalf("%s: %+v, %v", url, response, err)
	}
	if err := json.Unmarshal(response.Body, &seen); err != nil {
		t.Fatal(err)
	}
	return seen
}

// tokenRequests returns what arrived at the token endpoint.
func (w *world) tokenRequests() []fakecompany.Request { return w.Requests(fakecompany.TokenURL) }

func TestASessionIsStartedAsTheProtocolSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)

	requests := w.tokenRequests()
	if len(requests) != 1 {
		t.Fatalf("%d token requests", len(requests))
	}
	r := requests[0]
	// P-4.2-14, P-4.1-09, P-4.2-12
	want := map[string]string{
		"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "client_id": fakecompany.AgentClientID,
		"client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
	}
	for name, value := range want {
		if got := r.Form[name]; len(got) != 1 || got[0] != value {
			t.Errorf("%s is %q", name, got)
		}
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.Form.Has("session_id") {
		t.Errorf("%s %s with %v", r.Method, r.Header.Get("Content-Type"), r.Form)
	}

	_, client := fakecompany.Claims(t, r.Form.Get("client_assertion"))
	_, claims := fakecompany.Claims(t, r.Form.Get("assertion"))
	// P-4.1-12, P-4.2-17: one string, not a list, and the issuer rather than the token endpoint
	if client["aud"] != any(fakecompany.Issuer) || claims["aud"] != any(fakecompany.Issuer) {
		t.Errorf("aud is %v and %v", client["aud"], claims["aud"])
	}
	// P-4.2-15, P-4.2-16
	if claims["iss"] != any(fakecompany.AgentClientID) || client["iss"] != any(fakecompany.AgentClientID) || client["sub"] != any(fakecompany.AgentClientID) {
		t.Errorf("iss %v and %v, sub %v", claims["iss"], client["iss"], client["sub"])
	}
	if sub, ok := claims["sub"].(string); !ok || !poppy.ValidUserID(sub) || sub == fakecompany.AgentClientID {
		t.Errorf("sub is %v", claims["sub"])
	}
	for kind, c := range map[string]map[string]any{"client": client, "session": claims} {
		// P-4.1-14, P-4.2-19: seconds since 1970, whole and now
		iat, exp := c["iat"].(float64), c["exp"].(float64)
		if iat != float64(int64(iat)) || exp != float64(int64(exp)) || time.Since(time.Unix(int64(iat), 0)).Abs() > 10*time.Second {
			t.Errorf("%s assertion: iat %v, exp %v", kind, iat, exp)
		}
		// P-4.1-15, P-4.2-20, P-4.2-11
		if exp-iat <= 0 || exp-iat > 300 {
			t.Errorf("%s assertion lives %v s", kind, exp-iat)
		}
		// P-4.1-16, P-4.2-21: 26 characters of 5 random bits
		if jti, ok := c["jti"].(string); !ok || len(jti) < 26 {
			t.Errorf("%s assertion: jti %v", kind, c["jti"])
		}
		// P-3-17
		for _, name := range []string{"iss", "aud"} {
			if !strings.HasPrefix(c[name].(string), "https://") {
				t.Errorf("%s assertion: %s %v", kind, name, c[name])
			}
		}
	}
	if client["jti"] == claims["jti"] {
		t.Error("both assertions have one jti")
	}

	// P-4.1-10, P-4.2-11: both verify with the published keys
	keys := w.publishedKeys(t)
	for kind, compact := range map[assertion.Kind]string{
		assertion.Client: r.Form.Get("client_assertion"), assertion.Session: r.Form.Get("assertion"),
	} {
		if _, err := assertion.Verify(compact, keys, assertion.Expected{
			Kind: kind, ClientID: fakecompany.AgentClientID, Audience: fakecompany.Issuer,
		}, time.Now()); err != nil {
			t.Error(err)
		}
	}

	header, proof := fakecompany.Claims(t, r.Header.Get("DPoP"))
	// P-4.2-13, P-4.3-15, P-3.2-37, P-4.3-12: nothing private in jwk
	jwk, _ := header["jwk"].(map[string]any)
	members := slices.Sorted(func(yield func(string) bool) {
		for name := range jwk {
			if !yield(name) {
				return
			}
		}
	})
	if header["typ"] != any("dpop+jwt") || header["alg"] != any("ES256") || !slices.Equal(members, []string{"crv", "kty", "x", "y"}) {
		t.Errorf("proof header %v", header)
	}
	// P-4.3-20
	if _, has := proof["ath"]; has || proof["htm"] != any("POST") || proof["htu"] != any(fakecompany.TokenURL) {
		t.Errorf("proof %v", proof)
	}
	if s.ID() != "ses_1" || s.SignedIn() || len(s.Scopes()) != 0 || s.Private() {
		t.Errorf("Session %q, signed in %v, %v", s.ID(), s.SignedIn(), s.Scopes())
	}
}

func (w *world) publishedKeys(t *testing.T) assertion.KeySet {
	t.Helper()
	files, err := w.agent.Identity.Export(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := assertion.ParseKeySet(readFile(t, files[1]))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestRequestsCarryTheTokenAndAFreshProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	for range 3 {
		mustCall(t, s, api, fakecompany.OrdersURL+"?cursor=c1&wait=10")
	}
	if _, err := callWith(t, t.Context(), s, api, http.MethodPost, fakecompany.OrdersURL, `{"a":1}`); err != nil {
		t.Fatal(err)
	}
	requests := w.Requests(fakecompany.OrdersURL)
	seen := map[any]bool{}
	for i, r := range requests {
		// P-4.3-01, P-4.3-02, P-4-01, P-6-13
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "DPoP ")
		if !ok || len(r.Header["Dpop"]) != 1 {
			t.Fatalf("headers %v", r.Header)
		}
		header, proof := fakecompany.Claims(t, r.Header.Get("DPoP"))
		// P-4.3-13, P-4.3-16
		if seen[proof["jti"]] || proof["jti"] == any("") {
			t.Errorf("request %d: jti %v again", i, proof["jti"])
		}
		seen[proof["jti"]] = true
		// P-4.3-17, P-3-17
		if proof["htm"] != any(r.Method) || proof["htu"] != any(fakecompany.OrdersURL) {
			t.Errorf("request %d: htm %v, htu %v", i, proof["htm"], proof["htu"])
		}
		// P-4.3-18
		if made := time.Unix(int64(proof["iat"].(float64)), 0); time.Since(made).Abs() > 10*time.Second {
			t.Errorf("request %d: made at %v", i, made)
		}
		// P-4.3-19
		sum := sha256.Sum256([]byte(token))
		if proof["ath"] != any(base64.RawURLEncoding.EncodeToString(sum[:])) {
			t.Errorf("request %d: ath %v", i, proof["ath"])
		}
		if header["alg"] != any("ES256") { // P-3.2-37
			t.Errorf("request %d: alg %v", i, header["alg"])
		}
	}
	if len(requests) != 4 || len(w.tokenRequests()) != 1 || string(requests[3].Body) != `{"a":1}` {
		t.Errorf("%d requests, %d token requests, body %s", len(requests), len(w.tokenRequests()), requests[len(requests)-1].Body)
	}
}

// serveOther adds a second Company, with another issuer, to the world.
func (w *world) serveOther() {
	w.Handle("GET other.example"+poppy.DocumentPath, func(rw http.ResponseWriter, _ *http.Request) {
		fakecompany.WriteJSON(rw, 200, map[string]any{
			"protocol_version": "0.3", "organization": map[string]any{"name": "Other", "domain": "other.example"},
			"auth": map[string]any{"issuer": "https://auth.other.example"},
		})
	})
	w.Handle("GET auth.other.example"+poppy.IssuerMetadataPath, func(rw http.ResponseWriter, _ *http.Request) {
		fakecompany.WriteJSON(rw, 200, map[string]any{
			"issuer": "https://auth.other.example", "token_endpoint": "https://auth.other.example/token",
			"revocation_endpoint":   "https://auth.other.example/revoke",
			"grant_types_supported": []string{poppy.GrantJWTBearer, poppy.GrantRefreshToken},
			"protected_resources":   []string{"https://other.example"},
		})
	})
	w.Handle("POST auth.other.example/token", func(rw http.ResponseWriter, _ *http.Request) {
		fakecompany.WriteJSON(rw, 200, map[string]any{
			"access_token": "other_token", "token_type": "DPoP", "expires_in": 60, "scope": "", "session_id": "other_session",
			"some_later_field": true, // P-3.3-07
		})
	})
}

// subjectAndKey returns the User ID and the proof key of a token request.
func subjectAndKey(t *testing.T, r fakecompany.Request) (subject, key string) {
	t.Helper()
	_, claims := fakecompany.Claims(t, r.Form.Get("assertion"))
	header, _ := fakecompany.Claims(t, r.Header.Get("DPoP"))
	jwk, err := json.Marshal(header["jwk"])
	if err != nil {
		t.Fatal(err)
	}
	return claims["sub"].(string), string(jwk)
}

// contents is all that a request says, with its JWTs decoded.
func contents(t *testing.T, r fakecompany.Request) string {
	t.Helper()
	said := fmt.Sprintln(r.URL, r.Header, string(r.Body))
	for _, jwt := range []string{r.Form.Get("assertion"), r.Form.Get("client_assertion"), r.Header.Get("DPoP")} {
		if jwt != "" {
			header, claims := fakecompany.Claims(t, jwt)
			said += fmt.Sprintln(header, claims)
		}
	}
	return said
}

func TestEachUserHasAnIDAndAKeyOfTheirOwnAtEachCompany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serveOther()
	other := w.agent.Resolve(t, "other.example")
	for _, which := range []session.Which{person, {Person: person.Person, Name: "task"}, {Person: "second-person-marker"}} {
		w.agent.Open(t, which)
	}
	if _, err := w.agent.Sessions.Open(t.Context(), other, person); err != nil {
		t.Fatal(err)
	}
	requests := w.tokenRequests()
	ada, adaKey := subjectAndKey(t, requests[0])
	again, againKey := subjectAndKey(t, requests[1])
	second, secondKey := subjectAndKey(t, requests[2])
	elsewhere, elsewhereKey := subjectAndKey(t, w.Requests("https://auth.other.example/token")[0])

	// P-4.2-02: the same User in another Session
	if ada != again || adaKey != againKey {
		t.Errorf("one User is %s and %s", ada, again)
	}
	// P-4.2-01, P-4.2-03: pairwise, and random to the last character
	if ada == second || ada == elsewhere || second == elsewhere {
		t.Errorf("User IDs %s, %s, %s", ada, second, elsewhere)
	}
	for _, id := range []string{ada, second, elsewhere} {
		if random, ok := strings.CutPrefix(id, "usr_"); !ok || len(random) != 26 {
			t.Errorf("User ID %q", id)
		}
	}
	// P-4.3-10
	if adaKey == secondKey || adaKey == elsewhereKey || secondKey == elsewhereKey {
		t.Error("two User IDs share a key")
	}
	// P-4.1-11: no proof key is published
	files, err := w.agent.Identity.Export(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	published := string(readFile(t, files[1]))
	for _, key := range []string{adaKey, secondKey, elsewhereKey} {
		var jwk struct{ X string }
		if err := json.Unmarshal([]byte(key), &jwk); err != nil || jwk.X == "" || strings.Contains(published, jwk.X) {
			t.Errorf("proof key %s is in the key set (%v)", key, err)
		}
	}
	// P-4.2-10: an ID for one issuer goes to no other, in a JWT or outside
	for _, r := range w.Requests("https://other.example", "https://auth.other.example") {
		if said := contents(t, r); strings.Contains(said, ada) || strings.Contains(said, second) {
			t.Errorf("a User ID for %s went to %s: %s", fakecompany.Issuer, r.URL, said)
		}
	}

	// P-4.2-04: the same person in another installation is somebody else
	fresh := fakecompany.NewAgent(t, w.Company)
	fresh.Open(t, person)
	requests = w.tokenRequests()
	if id, key := subjectAndKey(t, requests[len(requests)-1]); id == ada || key == adaKey {
		t.Errorf("two installations derive one User ID: %s", id)
	}
}

func TestOneIssuerIsOneCompanyWhateverItsDomains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Metadata["protected_resources"] = []string{"https://" + fakecompany.Domain, "https://outdoor-two.example"}
	w.Handle("GET outdoor-two.example"+poppy.DocumentPath, func(rw http.ResponseWriter, _ *http.Request) {
		document := map[string]any{}
		maps.Copy(document, w.Document)
		document["organization"] = map[string]any{"name": "Outdoor Two", "domain": "outdoor-two.example"}
		document["apis"] = []any{map[string]any{"type": "openapi", "url": "https://api.outdoor.example/two.json"}}
		fakecompany.WriteJSON(rw, 200, document)
	})
	one := w.agent.Open(t, person)
	two, err := w.agent.Sessions.Open(t.Context(), w.agent.Resolve(t, "outdoor-two.example"), person)
	if err != nil {
		t.Fatal(err)
	}
	// P-3.2-01, P-3.2-03, P-3.2-04: the same User ID, Session and token
	if one.ID() != two.ID() || len(w.tokenRequests()) != 1 {
		t.Errorf("Sessions %s and %s after %d token requests", one.ID(), two.ID(), len(w.tokenRequests()))
	}
	if a, b := mustCall(t, one, api, fakecompany.OrdersURL), mustCall(t, two, api, fakecompany.OrdersURL); a.Token != b.Token {
		t.Error("two tokens for one Session")
	}
	// P-3.2-07: each works with its own document
	first, _ := one.Company.Endpoint(discovery.OpenAPI)
	second, _ := two.Company.Endpoint(discovery.OpenAPI)
	if first.URL != fakecompany.OpenAPIURL || second.URL != "https://api.outdoor.example/two.json" || two.Company.Name != "Outdoor Two" {
		t.Errorf("APIs %s and %s", first.URL, second.URL)
	}
}

// P-4-04
func TestAUserHasSeveralSessionsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.agent.Open(t, person), w.agent.Open(t, session.Which{Person: person.Person, Name: "task"})
	if a, b := mustCall(t, one, api, fakecompany.OrdersURL), mustCall(t, two, api, fakecompany.OrdersURL); a.Session == b.Session {
		t.Errorf("both are %s", a.Session)
	}
	if again := w.agent.Open(t, session.Which{Person: person.Person, Name: "task"}); again.ID() != two.ID() {
		t.Errorf("opening it again gave %s", again.ID())
	}
	list, err := w.agent.Sessions.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, info := range list {
		if info.Issuer != fakecompany.Issuer || info.Person != person.Person || info.ID == "" || info.SignedIn {
			t.Errorf("%+v", info)
		}
	}
}

func TestAPrivateSessionLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.agent.Open(t, person)
	company := w.agent.Resolve(t, fakecompany.Domain)
	private, err := w.agent.Sessions.Private(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	mustCall(t, private, api, fakecompany.OrdersURL)
	requests := w.tokenRequests()
	ownID, ownKey := subjectAndKey(t, requests[0])
	privateID, privateKey := subjectAndKey(t, requests[1])
	// P-4.2-05
	if ownID == privateID || ownKey == privateKey || private.ID() == own.ID() || !private.Private() || private.Person() != "" {
		t.Errorf("a private Session is not separate: %s, %s", ownID, privateID)
	}
	// P-4.2-08: neither a grant nor tokens from elsewhere sign it in
	w.AddAccount("pat_private", "account")
	before := len(w.Requests())
	if err := private.SignIn(t.Context(), url.Values{"grant_type": {poppy.GrantDeviceCode}, "device_code": {"pat_private"}}); !errors.Is(err, session.ErrPrivate) {
		t.Errorf("signing in: %v", err)
	}
	tokens := poppy.TokenResponse{SessionID: private.ID(), AccessToken: secret.New("x"), RefreshToken: secret.New("pat_private"), Scope: poppy.Scopes{"poppy:read"}}
	if err := private.Adopt(t.Context(), tokens); !errors.Is(err, session.ErrPrivate) {
		t.Errorf("adopting: %v", err)
	}
	if sent := w.Requests()[before:]; len(sent) != 0 || private.SignedIn() {
		t.Errorf("sent %v", sent)
	}
	// P-4.2-07: after its end the ID is never used again, and nothing of it was kept
	if err := private.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, private, api, fakecompany.OrdersURL); !errors.Is(err, session.ErrEnded) {
		t.Errorf("after its end: %v", err)
	}
	w.agent.Restart(t)
	list, err := w.agent.Sessions.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != own.ID() {
		t.Errorf("kept: %+v, %v", list, err)
	}
	next, err := w.agent.Sessions.Private(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	requests = w.tokenRequests()
	if id, _ := subjectAndKey(t, requests[len(requests)-1]); id == privateID || next.ID() == private.ID() {
		t.Error("the next private Session is the same User")
	}
}

func TestEndingASessionStartsANewOneNextTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	old := s.ID()
	if err := s.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, s, api, fakecompany.OrdersURL); !errors.Is(err, session.ErrEnded) {
		t.Errorf("used after its end: %v", err)
	}
	if again := w.agent.Open(t, person); again.ID() == old {
		t.Error("the ended Session goes on")
	}
	requests := w.tokenRequests()
	if first, _ := subjectAndKey(t, requests[0]); len(requests) != 2 {
		t.Errorf("%d token requests", len(requests))
	} else if second, _ := subjectAndKey(t, requests[1]); first != second { // P-4.2-02
		t.Error("another User ID")
	}
}

func TestSessionsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	before := mustCall(t, s, api, fakecompany.OrdersURL)
	w.agent.Restart(t)
	s = w.agent.Open(t, person)
	after := mustCall(t, s, api, fakecompany.OrdersURL)
	// The same token with the same key: nothing was asked of the token endpoint.
	if before != after || len(w.tokenRequests()) != 1 {
		t.Errorf("%+v became %+v after %d token requests", before, after, len(w.tokenRequests()))
	}
	w.Clock.Advance(2 * time.Hour)
	w.agent.Restart(t)
	s = w.agent.Open(t, person)
	renewed := mustCall(t, s, api, fakecompany.OrdersURL)
	requests := w.tokenRequests()
	if renewed.Session != before.Session || requests[1].Form.Get("session_id") != before.Session {
		t.Errorf("renewed as %+v by %v", renewed, requests[1].Form)
	}
	first, firstKey := subjectAndKey(t, requests[0])
	if second, secondKey := subjectAndKey(t, requests[1]); first != second || firstKey != secondKey { // P-4.2-02
		t.Error("another User ID or key after a restart")
	}
}

// P-4-10
func TestEndpointsComeFromTheMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Metadata["token_endpoint"] = "https://api.outdoor.example/moved/token"
	w.Handle("POST api.outdoor.example/moved/token", func(rw http.ResponseWriter, _ *http.Request) {
		fakecompany.WriteJSON(rw, 200, map[string]any{
			"access_token": "t", "token_type": "DPoP", "expires_in": 60, "scope": "", "session_id": "ses_moved",
		})
	})
	if s := w.agent.Open(t, person); s.ID() != "ses_moved" || len(w.tokenRequests()) != 0 {
		t.Errorf("Session %s, %d requests at the old place", s.ID(), len(w.tokenRequests()))
	}
}

func TestACompanyWithOnlyAWebsiteHasNoSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.agent.Sessions.Open(t.Context(), discovery.Company{Domain: "website.example"}, person)
	_, errPrivate := w.agent.Sessions.Private(t.Context(), discovery.Company{Domain: "website.example"})
	_, errNobody := w.agent.Sessions.Open(t.Context(), w.agent.Resolve(t, fakecompany.Domain), session.Which{})
	if err == nil || errPrivate == nil || errNobody == nil {
		t.Errorf("%v, %v, %v", err, errPrivate, errNobody)
	}
}

// A token answer that breaks the protocol is refused, whatever else is in it.
func TestTokenAnswersThatBreakTheProtocolAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]any{
		"no scope":            {"scope": nil},
		"expires_in 0":        {"expires_in": 0},
		"unknown token_type":  {"token_type": "mac"},
		"no session_id":       {"session_id": ""},
		"a token with spaces": {"access_token": "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Before(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/oauth/token" {
					return false
				}
				answer := map[string]any{"access_token": "t", "token_type": "DPoP", "expires_in": 60, "scope": "", "session_id": "s"}
				maps.Copy(answer, change)
				fakecompany.WriteJSON(rw, 200, answer)
				return true
			})
			if s, err := w.agent.Sessions.Open(t.Context(), w.agent.Resolve(t, fakecompany.Domain), person); err == nil || s != nil {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
}

func TestRequestsThatMayNotBeSentWithATokenAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.agent.Open(t, person)
	before := len(w.Requests())
	// P-3-19: something listens at that port, so what is sent by http breaks off there
	for _, target := range []string{"http://api.outdoor.example:443/orders", "https://user@api.outdoor.example/orders", "/orders"} {
		if _, err := call(t, s, api, target); err == nil || errors.Is(err, fetch.ErrBroken) {
			t.Errorf("%s was sent", target)
		}
	}
	// A token is for its endpoint; only an API is wherever its description says.
	conversations, _ := s.Company.Endpoint(discovery.Conversations)
	for to, target := range map[*discovery.Endpoint]string{
		&conversations: "https://api.outdoor.example/poppy/conversations-of-others", &mcp: fakecompany.OrdersURL,
		&bearerMCP: fakecompany.MCPURL,
	} {
		if _, err := call(t, s, *to, target); err == nil {
			t.Errorf("%s got the token for %s", target, to.URL)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fakecompany.OrdersURL, onlyReader{strings.NewReader("x")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(request, api, session.Bounds{}); err == nil {
		t.Error("a body that cannot be repeated was sent")
	}
	if sent := w.Requests()[before:]; len(sent) != 0 {
		t.Errorf("sent %v", sent)
	}
}

type onlyReader struct{ *strings.Reader }

func (r onlyReader) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
