package fakecompany

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/assertion"
	"countersign/dpop"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Where the fake Company is.
//
//nolint:gosec // these are URLs
const (
	Domain = "outdoor.example"
	Name   = "Outdoor"
	Issuer = "https://auth.outdoor.example"

	TokenURL         = "https://auth.outdoor.example/oauth/token"
	RevocationURL    = "https://auth.outdoor.example/oauth/revoke"
	DeviceURL        = "https://auth.outdoor.example/oauth/device"
	MediatedURL      = "https://auth.outdoor.example/poppy/sign-in"
	ConversationsURL = "https://api.outdoor.example/poppy/conversations"
	OperationsURL    = "https://api.outdoor.example/poppy/operations"
	FeedbackURL      = "https://api.outdoor.example/poppy/feedback"
	OpenAPIURL       = "https://api.outdoor.example/openapi.json"
	OrdersURL        = "https://api.outdoor.example/orders"
	MCPURL           = "https://mcp.outdoor.example/mcp"     // supports DPoP
	BearerMCPURL     = "https://mcp.outdoor.example/mcp/old" // does not
	CaptureURL       = "https://capture.example/stolen"      // where redirects point
	AgentClientID    = "https://agent.example/agent.json"    // who the Company trusts
	AgentJWKSURI     = "https://agent.example/jwks.json"
)

// Hosts are all hosts of the story.
var Hosts = []string{
	Domain, "www.outdoor.example", "outdoor-two.example", "auth.outdoor.example", "api.outdoor.example",
	"mcp.outdoor.example", "capture.example", "other.example", "auth.other.example",
}

// Session is what the Company knows about one.
type Session struct {
	ID, ClientID, UserID string
	Account              string // "" if never signed in
}

// Token is one that the Company issued.
type Token struct {
	Value      string
	Type       poppy.TokenType
	Resource   string
	Scope      string
	Thumbprint string
	Session    *Session
	ExpiresAt  time.Time
}

// Company is a Company that follows the protocol, except where a test changes it.
type Company struct {
	*World
	Clock    *Clock
	Document map[string]any // poppy.json, to be changed before it is asked for
	Metadata map[string]any // the issuer's metadata, likewise

	verifier, nonceVerifier *dpop.Verifier
	nonces                  *dpop.Nonces

	mutex     sync.Mutex
	keys      assertion.KeySet
	expiresIn time.Duration
	askNonce  bool
	rotate    bool
	count     int // Session Tokens issued
	started   int // Sessions
	sessions  map[string]*Session
	tokens    map[string]*Token
	accounts  map[string]string // Account Token -> account
	seen      map[string]bool   // jti
}

// New starts a Company, until the test ends.
func New(t testing.TB) *Company {
	t.Helper()
	nonces, err := dpop.NewNonces(secret.New(strings.Repeat("n", 32)), 0)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := dpop.NewVerifier(dpop.Options{Nonces: nonces})
	if err != nil {
		t.Fatal(err)
	}
	nonceVerifier, err := dpop.NewVerifier(dpop.Options{Nonces: nonces, RequireNonce: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &Company{
		World: NewWorld(t, Hosts...), verifier: verifier, nonceVerifier: nonceVerifier, nonces: nonces, Clock: &Clock{}, expiresIn: time.Hour,
		sessions: map[string]*Session{}, tokens: map[string]*Token{}, accounts: map[string]string{}, seen: map[string]bool{},
		Document: map[string]any{
			"protocol_version": "0.3",
			"organization":     map[string]any{"name": Name, "domain": Domain},
			"auth": map[string]any{
				"issuer": Issuer,
				"mediated": map[string]any{
					"endpoint": MediatedURL, "scopes": []string{"poppy:read"},
					"fields": []any{map[string]any{"name": "email", "label": "Email", "secret": false}},
				},
			},
			"agent":    map[string]any{"protocols": []any{map[string]any{"type": "poppy", "endpoint": ConversationsURL}}},
			"feedback": map[string]any{"endpoint": FeedbackURL},
			"apis": []any{
				map[string]any{"type": "openapi", "url": OpenAPIURL, "description": "Orders"},
				map[string]any{"type": "mcp", "url": MCPURL, "description": "Search"},
				map[string]any{"type": "mcp", "url": BearerMCPURL, "description": "Old search"},
			},
			"extensions": map[string]any{"operations": map[string]any{"version": "1", "endpoint": OperationsURL}},
		},
		Metadata: map[string]any{
			"issuer": Issuer, "token_endpoint": TokenURL, "revocation_endpoint": RevocationURL,
			"device_authorization_endpoint": DeviceURL,
			"grant_types_supported":         []string{poppy.GrantJWTBearer, poppy.GrantRefreshToken, poppy.GrantDeviceCode},
			"scopes_supported":              []string{"poppy:read", "poppy:write"},
			"protected_resources":           []string{"https://" + Domain, MCPURL, BearerMCPURL},
		},
	}
	c.Handle("GET "+Domain+poppy.DocumentPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, c.Document) })
	c.Handle("GET auth.outdoor.example"+poppy.IssuerMetadataPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, c.Metadata) })
	c.Handle("POST auth.outdoor.example/oauth/token", c.token)
	return c
}

// Exporter is the agent's identity, as far as the Company needs it.
type Exporter interface {
	Export(ctx context.Context, dir string) ([]string, error)
}

// Trust lets the Company read the agent's keys.
func (c *Company) Trust(t testing.TB, identity Exporter) {
	t.Helper()
	files, err := identity.Export(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	set, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	keys, err := assertion.ParseKeySet(set)
	if err != nil {
		t.Fatal(err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.keys = keys
}

// IssueFor sets how long Session Tokens live.
func (c *Company) IssueFor(lifetime time.Duration) { c.set(func() { c.expiresIn = lifetime }) }

// AskNonce makes every endpoint require nonces.
func (c *Company) AskNonce() { c.set(func() { c.askNonce = true }) }

// Rotate makes every refresh return a new Account Token.
func (c *Company) Rotate() { c.set(func() { c.rotate = true }) }

// AddAccount makes an Account Token for an account.
func (c *Company) AddAccount(token, account string) { c.set(func() { c.accounts[token] = account }) }

// RevokeAccount makes an Account Token invalid.
func (c *Company) RevokeAccount(token string) { c.set(func() { delete(c.accounts, token) }) }

// EndSession forgets a Session and its tokens.
func (c *Company) EndSession(id string) {
	c.set(func() {
		delete(c.sessions, id)
		for value, t := range c.tokens {
			if t.Session.ID == id {
				delete(c.tokens, value)
			}
		}
	})
}

// RevokeTokens makes every Session Token invalid, and leaves the Sessions.
func (c *Company) RevokeTokens() { c.set(func() { c.tokens = map[string]*Token{} }) }

// Issued returns how many Session Tokens were issued.
func (c *Company) Issued() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.count
}

func (c *Company) set(change func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	change()
}

// Refuse writes an error of the protocol.
func Refuse(w http.ResponseWriter, surface poppy.Surface, e *poppy.Error) {
	status, header, body, err := e.Response(surface)
	if err != nil {
		panic(err)
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON for tests
}

// token is the token endpoint: client, proof, grant, in this order.
func (c *Company) token(w http.ResponseWriter, r *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.grant(w, r); err != nil {
		Refuse(w, poppy.SurfaceToken, err)
	}
}

func (c *Company) grant(w http.ResponseWriter, r *http.Request) *poppy.Error {
	if r.URL.RawQuery != "" {
		return &poppy.Error{Code: poppy.ErrInvalidRequest}
	}
	if err := r.ParseForm(); err != nil {
		return &poppy.Error{Code: poppy.ErrInvalidRequest}
	}
	form := r.PostForm
	if problem := c.client(form); problem != nil {
		return problem
	}
	resource := form.Get("resource")
	kind := poppy.TokenDPoP
	if resource == BearerMCPURL {
		kind = poppy.TokenBearer
	}
	proof, problem := c.proof(r, secret.Text{}, "")
	if problem != nil && kind == poppy.TokenDPoP {
		return problem
	}
	if !slices.Contains([]string{"", MCPURL, BearerMCPURL}, resource) {
		return &poppy.Error{Code: poppy.ErrInvalidTarget}
	}

	var userID, account, refresh string
	switch form.Get("grant_type") {
	case poppy.GrantJWTBearer:
		claims, err := assertion.Verify(form.Get("assertion"), c.keys, assertion.Expected{
			Kind: assertion.Session, ClientID: AgentClientID, Audience: Issuer,
		}, c.Clock.Now())
		if err != nil || c.used(claims.ID) {
			return &poppy.Error{Code: poppy.ErrInvalidGrant}
		}
		userID = claims.Subject
	case poppy.GrantRefreshToken:
		var known bool
		if account, known = c.accounts[form.Get("refresh_token")]; !known {
			return &poppy.Error{Code: poppy.ErrInvalidGrant}
		}
		if c.rotate {
			delete(c.accounts, form.Get("refresh_token"))
			refresh = fmt.Sprintf("pat_rotated%d", c.count)
			c.accounts[refresh] = account
		}
	case poppy.GrantDeviceCode:
		refresh = form.Get("device_code") // a test's shortcut: the device code becomes the Account Token
		account = c.accounts[refresh]
		if account == "" {
			return &poppy.Error{Code: poppy.ErrAuthorizationPending}
		}
	default:
		return &poppy.Error{Code: poppy.ErrUnsupportedGrantType}
	}

	session := &Session{ID: fmt.Sprintf("ses_%d", c.started+1), ClientID: AgentClientID, UserID: userID}
	if id := form.Get("session_id"); id != "" {
		known, ok := c.sessions[id]
		if !ok || userID != "" && known.UserID != userID {
			return &poppy.Error{Code: poppy.ErrInvalidSession}
		}
		if account != "" && known.Account != "" && known.Account != account {
			return &poppy.Error{Code: poppy.ErrAccountMismatch}
		}
		session = known
	} else {
		c.started++
	}
	if account != "" {
		session.Account = account
	}
	c.sessions[session.ID] = session
	c.count++
	t := &Token{
		Value: fmt.Sprintf("sto_marker%d", c.count), Type: kind, Resource: resource, Session: session,
		ExpiresAt: c.Clock.Now().Add(c.expiresIn), Thumbprint: proof.Thumbprint,
	}
	if account != "" {
		t.Scope = "poppy:read poppy:write"
	}
	c.tokens[t.Value] = t
	answer := map[string]any{
		"access_token": t.Value, "token_type": string(kind), "expires_in": int(c.expiresIn.Seconds()), "scope": t.Scope, "session_id": session.ID,
	}
	if refresh != "" {
		answer["refresh_token"] = refresh
	}
	c.newNonce(w)
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, 200, answer)
	return nil
}

// client checks the client assertion (4.1).
func (c *Company) client(form url.Values) *poppy.Error {
	claims, err := assertion.Verify(form.Get("client_assertion"), c.keys, assertion.Expected{
		Kind: assertion.Client, ClientID: form.Get("client_id"), Audience: Issuer,
	}, c.Clock.Now())
	if err != nil || c.used(claims.ID) || form.Get("client_id") != AgentClientID || form.Get("client_assertion_type") != poppy.ClientAssertionType {
		return &poppy.Error{Code: poppy.ErrInvalidClient, Cause: err}
	}
	return nil
}

func (c *Company) used(jti string) bool {
	used := c.seen[jti]
	c.seen[jti] = true
	return used
}

// proof checks the DPoP proof; at the token endpoint, where there is no token, its jti too (4.3).
func (c *Company) proof(r *http.Request, token secret.Text, thumbprint string) (dpop.Proof, *poppy.Error) {
	verifier := c.verifier
	if c.askNonce {
		verifier = c.nonceVerifier
	}
	proof, err := verifier.Verify(r.Header, dpop.Expected{
		Method: r.Method, URL: absolute(r).String(), Token: token, Thumbprint: thumbprint,
	}, c.Clock.Now())
	if refused, ok := errors.AsType[*dpop.Error](err); ok && refused.Code() == dpop.CodeUseNonce {
		return dpop.Proof{}, &poppy.Error{Code: poppy.ErrUseDPoPNonce, Nonce: c.nonces.Issue(c.Clock.Now())}
	}
	if err != nil || c.used(proof.ID) {
		return dpop.Proof{}, &poppy.Error{Code: poppy.ErrInvalidDPoPProof, Cause: err}
	}
	return proof, nil
}

func (c *Company) newNonce(w http.ResponseWriter) {
	if c.askNonce {
		w.Header().Set(dpop.NonceHeader, c.nonces.Issue(c.Clock.Now()))
	}
}

// Guard admits requests with a valid token and proof, and gives the token to the handler (4.3).
func (c *Company) Guard(resource string, handler func(http.ResponseWriter, *http.Request, *Token)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, problem := c.admit(w, r, resource)
		if problem != nil {
			Refuse(w, poppy.SurfaceProtocol, problem)
			return
		}
		handler(w, r, token)
	}
}

func (c *Company) admit(w http.ResponseWriter, r *http.Request, resource string) (*Token, *poppy.Error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	t, ok := c.tokens[value]
	if !ok || scheme != string(t.Type) || t.Resource != resource || !c.Clock.Now().Before(t.ExpiresAt) {
		return nil, &poppy.Error{Code: poppy.ErrInvalidToken}
	}
	if t.Type == poppy.TokenDPoP {
		if _, problem := c.proof(r, secret.New(value), t.Thumbprint); problem != nil {
			return nil, problem
		}
		c.newNonce(w)
	}
	return t, nil
}

// WriteJSON answers with a value.
func WriteJSON(w http.ResponseWriter, status int, v any) { writeJSON(w, status, v) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := strictjson.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}
