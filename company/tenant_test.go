package company_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/company"
	"countersign/company/companytest"
	"countersign/dpop"
	"countersign/poppy"
)

// hosted is a Company on a provider's shared host.
func hosted(name string) company.Config {
	base := "https://auth.provider.example/" + name
	return company.Config{
		Issuer:        base,
		Domains:       []company.Domain{{Host: name + ".example", Name: name}},
		Conversations: company.Endpoint{URL: base + "/conversations"},
	}
}

func TestTwoCompaniesOnOneProcessShareNothing(t *testing.T) {
	t.Parallel()
	world := companytest.NewWorld(t)
	companies := make(map[string]*company.Company)
	var all []*company.Company
	for _, name := range []string{"shop-a", "shop-b"} {
		companies[name] = build(t, world, hosted(name), world.Database())
		all = append(all, companies[name])
	}
	handler, err := company.Handler(world.Log(), all...)
	if err != nil {
		t.Fatal(err)
	}
	world.Serve(handler)
	agent := world.NewAgent("agent.example")
	const a, b = "https://auth.provider.example/shop-a", "https://auth.provider.example/shop-b"

	// P-3.2-09, P-3.2-14: each issuer's metadata lies between host and path
	for _, name := range []string{"shop-a", "shop-b"} {
		document, err := poppy.ParseDocument(world.Get("https://" + name + ".example" + poppy.DocumentPath).Body)
		if err != nil {
			t.Fatal(err)
		}
		metadata, err := poppy.ParseIssuerMetadata(world.Get("https://auth.provider.example/.well-known/oauth-authorization-server/" + name).Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := poppy.CheckLink(document, name+".example", metadata); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// P-3.2-08, P-3.2-09: nothing of one is good at the other
	started := agent.Token(a+"/oauth/token", agent.SessionForm(a, userID, ""))
	wantOK(t, started)
	token, id := started.Text("access_token"), started.Text("session_id")
	wantError(t, agent.Token(b+"/oauth/token", agent.SessionForm(a, userID, "")), http.StatusUnauthorized, "invalid_client")
	form := agent.Form(b, poppy.GrantJWTBearer)
	form.Set("assertion", agent.Sign("JWT", agent.Claims(userID, a, nil)))
	wantError(t, agent.Token(b+"/oauth/token", form), http.StatusBadRequest, "invalid_grant")
	wantError(t, agent.Token(b+"/oauth/token", agent.SessionForm(b, userID, id)), http.StatusBadRequest, "invalid_session")
	start := []byte(`{"message":{"id":"msg_1","sender":"agent","text":"Hello"}}`)
	wantOK(t, agent.Send(http.MethodPost, a+"/conversations", token, start))
	wantError(t, agent.Send(http.MethodPost, b+"/conversations", token, start), http.StatusUnauthorized, "invalid_token")
	// Revoking at one does nothing at the other, and a block of one holds there alone.
	form = agent.Form(b, "")
	form.Set("token", token)
	wantOK(t, world.PostForm(b+"/oauth/revoke", form.Encode()))
	wantOK(t, agent.Send(http.MethodPost, a+"/conversations", token, start))
	if err := companies["shop-b"].Agents.Block(t.Context(), agent.ClientID); err != nil {
		t.Fatal(err)
	}
	wantOK(t, agent.Send(http.MethodPost, a+"/conversations", token, start))
	// One jti may be used once at each.
	for _, issuer := range []string{a, b} {
		form := agent.SessionForm(issuer, userID, "")
		form.Set("assertion", agent.Sign("JWT", agent.Claims(userID, issuer, map[string]any{"jti": "the-same"})))
		if response := agent.Token(issuer+"/oauth/token", form); (issuer == a) != (response.Status == http.StatusOK) {
			t.Errorf("%s: %d %s", issuer, response.Status, response.Body)
		}
	}
}

// P-3.2-08: an issuer is one Company, whose database is no other's
func TestADatabaseBelongsToOneIssuer(t *testing.T) {
	t.Parallel()
	world := companytest.NewWorld(t)
	path := filepath.Join(t.TempDir(), "company.db")
	db := world.OpenDatabase(path)
	build(t, world, hosted("shop-a"), db)
	build(t, world, hosted("shop-a"), db)
	_, err := company.New(t.Context(), hosted("shop-b"), company.Options{
		Database: db, Client: world.Client, Log: world.Log(), Now: world.Clock.Now, Secret: companytest.Secret(), Clerk: silent{},
	})
	if err == nil || !strings.Contains(err.Error(), "shop-a") || !strings.Contains(err.Error(), "shop-b") {
		t.Errorf("a second Company on one database: %v, want an error that names both", err)
	}
}

func TestCompaniesThatClaimOneURLAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*company.Config){
		"one domain":   func(c *company.Config) { c.Domains[0].Host = "shop-a.example" },
		"an alias":     func(c *company.Config) { c.Domains[0].Aliases = []string{"Shop-A.example"} },
		"one endpoint": func(c *company.Config) { c.Conversations.URL = "https://auth.provider.example/shop-a/conversations" },
		"below an endpoint": func(c *company.Config) {
			c.TokenEndpoint = "https://auth.provider.example/shop-a/conversations/cnv_1/token"
		},
		"above an endpoint":     func(c *company.Config) { c.Conversations.URL = "https://auth.provider.example/shop-a" },
		"in another case":       func(c *company.Config) { c.TokenEndpoint = "https://AUTH.provider.example/shop-a/oauth/token" },
		"on another port alone": func(c *company.Config) { c.TokenEndpoint = "https://auth.provider.example:8443/shop-a/oauth/token" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := companytest.NewWorld(t)
			other := hosted("shop-b")
			change(&other)
			_, err := company.Handler(world.Log(), build(t, world, hosted("shop-a"), world.Database()), build(t, world, other, world.Database()))
			if err == nil || !strings.Contains(err.Error(), "/shop-a") || !strings.Contains(err.Error(), "/shop-b") {
				t.Errorf("error %v, want one that names both", err)
			}
		})
	}
	t.Run("two endpoints of one Company", func(t *testing.T) {
		t.Parallel()
		world := companytest.NewWorld(t)
		config := hosted("shop-a")
		config.RevocationEndpoint = config.Issuer + "/oauth/token"
		if _, err := company.Handler(world.Log(), build(t, world, config, world.Database())); err == nil {
			t.Error("one URL for two endpoints is accepted")
		}
	})
}

// P-3.2-08: though both were given one secret
func TestCompaniesDoNotTakeEachOthersNonces(t *testing.T) {
	t.Parallel()
	world := companytest.NewWorld(t)
	var all []*company.Company
	for _, name := range []string{"shop-a", "shop-b"} {
		config := hosted(name)
		config.Proof.Nonces = company.NoncesToken
		all = append(all, build(t, world, config, world.Database()))
	}
	handler, err := company.Handler(world.Log(), all...)
	if err != nil {
		t.Fatal(err)
	}
	world.Serve(handler)
	agent := world.NewAgent("agent.example")
	ask := func(name, nonce string) companytest.Response {
		issuer := "https://auth.provider.example/" + name
		proof := agent.ProofBy(agent.Proofs, dpop.Request{Method: http.MethodPost, URL: issuer + "/oauth/token", Nonce: nonce})
		return world.PostForm(issuer+"/oauth/token", agent.SessionForm(issuer, userID, "").Encode(), proof)
	}
	nonce := ask("shop-a", "").Header.Get("DPoP-Nonce")
	wantError(t, ask("shop-b", nonce), http.StatusBadRequest, "use_dpop_nonce")
	wantOK(t, ask("shop-a", nonce))
}

func TestRunningACompanyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	world := companytest.NewWorld(t)
	for name, config := range map[string]company.Config{"with rooms that work": outdoor(), "without": {
		Issuer: issuer, Domains: []company.Domain{{Host: "outdoor.example", Name: "Outdoor"}},
	}} {
		t.Run(name, func(t *testing.T) {
			c := build(t, world, config, world.Database())
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			select {
			case err := <-done:
				t.Fatalf("it ended by itself: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
