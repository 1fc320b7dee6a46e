package company_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"testing"
	"time"

	"countersign/company"
	"countersign/company/companytest"
	"countersign/company/conversation"
	"countersign/company/guard"
	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/web"
	"countersign/poppy"
)

// The URLs of the Company in these tests.
const (
	issuer        = "https://auth.outdoor.example"
	tokenURL      = issuer + "/oauth/token"
	revokeURL     = issuer + "/oauth/revoke"
	conversations = "https://api.outdoor.example/poppy/conversations"
	operations    = "https://api.outdoor.example/poppy/operations"
	mcpURL        = "https://mcp.outdoor.example/mcp"    // does DPoP
	legacyURL     = "https://mcp.outdoor.example/legacy" // takes Bearer tokens only
	paymentsURL   = "https://api.outdoor.example/payments"
	ordersURL     = "https://api.outdoor.example/orders"
	userID        = "usr_Q7c1vK"
)

// outdoor is the configuration of outdoor.example, with everything on.
func outdoor() company.Config {
	return company.Config{
		Issuer: issuer,
		Domains: []company.Domain{
			{
				Host: "outdoor.example", Name: "Outdoor", Aliases: []string{"www.outdoor.example"},
				APIs: []company.API{
					{Type: "openapi", URL: "https://api.outdoor.example/openapi.json", Description: "Orders"},
					{Type: "openapi", URL: "https://api.outdoor.example/payments.json", Description: "Payments", Resource: paymentsURL},
					{Type: "mcp", URL: mcpURL, Description: "Product search"},
					{Type: "mcp", URL: legacyURL, Description: "Sizing", BearerOnly: true},
				},
			},
			{Host: "outdoor-uk.example", Name: "Outdoor UK"},
		},
		Conversations: company.Endpoint{URL: conversations},
		Operations:    company.Endpoint{URL: operations},
		Scopes: []company.Scope{
			{Name: "poppy:read"}, {Name: "poppy:write"}, {Name: "addresses", Description: "Manage saved shipping addresses"},
		},
	}
}

// shop is a running Company, with services of its own behind its guard, and a Personal Agent.
type shop struct {
	*companytest.World
	t       testing.TB
	company *company.Company
	db      *database.DB
	agent   *companytest.Agent
}

// open runs outdoor.example with changes to its configuration.
func open(t testing.TB, changes ...func(*company.Config)) *shop {
	t.Helper()
	world := companytest.NewWorld(t)
	s := &shop{World: world, t: t, db: world.Database(), agent: world.NewAgent("agent.example")}
	config := outdoor()
	for _, change := range changes {
		change(&config)
	}
	s.run(config)
	return s
}

// run builds the Company on the database and serves it.
func (s *shop) run(config company.Config) {
	s.t.Helper()
	s.company = build(s.t, s.World, config, s.db)
	handler, err := company.Handler(s.Log(), s.company)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Serve(handler)
	services := http.NewServeMux()
	services.Handle("api.outdoor.example/poppy/", handler)
	services.Handle("/", s.services())
	s.ServeHost("api.outdoor.example", services)
	mcp := http.NewServeMux()
	mcp.Handle("/.well-known/", handler)
	mcp.Handle("/", s.services())
	s.ServeHost("mcp.outdoor.example", mcp)
}

func build(t testing.TB, world *companytest.World, config company.Config, db *database.DB) *company.Company {
	t.Helper()
	c, err := company.New(t.Context(), config, company.Options{
		Database: db, Client: world.Client, Log: world.Log(), Now: world.Clock.Now, Secret: companytest.Secret(),
		Clerk: silent{}, Performer: silent{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// services are some that a Company may have behind its guard.
func (s *shop) services() http.Handler {
	const api, mcp = "https://api.outdoor.example", "https://mcp.outdoor.example"
	mux := web.NewMux(web.MuxOptions{Log: s.Log()})
	place := func(pattern string, endpoint guard.Endpoint, check func(guard.Principal) error) {
		mux.Handle(pattern, s.company.Guard.Protect(endpoint, func(w http.ResponseWriter, r *http.Request) error {
			p, ok := guard.PrincipalFrom(r.Context())
			if !ok {
				return errors.New("no Principal")
			}
			if err := check(p); err != nil {
				return err
			}
			return web.WriteJSON(w, http.StatusOK, map[string]any{
				"client_id": p.ClientID, "agent": p.AgentName, "user": p.UserID, "session": p.SessionID,
				"account": p.Account, "scope": p.Scopes.String(), "resource": p.Resource,
			})
		}))
	}
	anyone := func(guard.Principal) error { return nil }
	orders := guard.Endpoint{Surface: poppy.SurfaceAPI, Origin: api}
	place("/orders", orders, anyone)
	place("/orders/{id}", orders, anyone)
	place("/account", orders, guard.RequireAccount)
	place("/addresses", orders, func(p guard.Principal) error { return guard.RequireScopes(p, "poppy:write", "addresses") })
	place("/proposals", orders, func(p guard.Principal) error { return guard.RequireExtension(p, "operations", "1") })
	place("/payments", guard.Endpoint{Surface: poppy.SurfaceAPI, Origin: api, Resource: paymentsURL}, anyone)
	place("/mcp", guard.Endpoint{
		Surface: poppy.SurfaceAPI, Origin: mcp, Resource: mcpURL, Schemes: []poppy.TokenType{poppy.TokenDPoP, poppy.TokenBearer},
		ResourceMetadata: mcp + "/.well-known/oauth-protected-resource/mcp",
	}, anyone)
	legacy := guard.Endpoint{
		Surface: poppy.SurfaceAPI, Origin: mcp, Resource: legacyURL, Schemes: []poppy.TokenType{poppy.TokenBearer},
		ResourceMetadata: mcp + "/.well-known/oauth-protected-resource/legacy",
	}
	place("/legacy", legacy, anyone)
	place("/legacy/", legacy, anyone) // mounted too widely on purpose
	return mux
}

// start starts a Session and returns the answer.
func (s *shop) start(userID string) companytest.Response {
	s.t.Helper()
	response := s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, ""))
	if response.Status != http.StatusOK {
		s.t.Fatalf("starting a Session: %d %s", response.Status, response.Body)
	}
	return response
}

// token starts a Session and returns its token.
func (s *shop) token() string {
	s.t.Helper()
	return s.start(userID).Text("access_token")
}

// tokenFor starts a Session with a token for a resource.
func (s *shop) tokenFor(resource string) string {
	s.t.Helper()
	form := s.agent.SessionForm(issuer, userID, "")
	form.Set("resource", resource)
	response := s.agent.Token(tokenURL, form)
	if response.Status != http.StatusOK {
		s.t.Fatalf("a token for %s: %d %s", resource, response.Status, response.Body)
	}
	return response.Text("access_token")
}

// signIn signs the Session of a token in, as a sign-in room does at its end.
func (s *shop) signIn(token, account string, lifetime time.Duration, scopes ...string) (response poppy.TokenResponse, err error) {
	s.t.Helper()
	found, err := s.company.Sessions.Token(s.t.Context(), sha256.Sum256([]byte(token)))
	if err != nil {
		s.t.Fatal(err)
	}
	err = s.db.Write(s.t.Context(), func(tx *database.Tx) (err error) {
		response, err = s.company.Sessions.SignIn(tx, found.Principal, account, scopes, lifetime)
		return err
	})
	return response, err
}

// signedIn starts a Session that is signed in to the account, and returns the answer of the sign-in.
func (s *shop) signedIn(account string, scopes ...string) poppy.TokenResponse {
	s.t.Helper()
	response, err := s.signIn(s.token(), account, 0, scopes...)
	if err != nil {
		s.t.Fatal(err)
	}
	return response
}

// silent is a Company Agent that says nothing, and a performer that is never asked.
type silent struct{}

func (silent) Reply(context.Context, conversation.Turn) (conversation.Reply, error) {
	return conversation.Reply{}, nil
}

func (silent) Perform(context.Context, operation.Action) (operation.Outcome, error) {
	return operation.Outcome{}, errors.New("nothing is performed here")
}

func (silent) Lookup(context.Context, operation.Action) (operation.Outcome, error) {
	return operation.Outcome{}, errors.New("nothing is performed here")
}

// wantError fails the test unless the answer is this error.
func wantError(t testing.TB, response companytest.Response, status int, code string) {
	t.Helper()
	if response.Status != status || response.Text("error") != code {
		t.Errorf("answer %d %s, want %d %s", response.Status, response.Body, status, code)
	}
}

// wantOK fails the test unless the request was served.
func wantOK(t testing.TB, response companytest.Response) {
	t.Helper()
	if response.Status < 200 || response.Status > 299 {
		t.Errorf("answer %d %s, want success", response.Status, response.Body)
	}
}
