package company_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/company"
	"countersign/company/registry"
	"countersign/internal/fetch"
	"countersign/internal/jws"
)

func TestACompanyFetchesTheAgentsDocumentThenItsKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.start(userID)
	s.start(userID)
	// P-4.1-02; both are cached as their headers say
	if document, keys := s.agent.Fetched("/agent.json"), s.agent.Fetched("/jwks.json"); document != 1 || keys != 1 {
		t.Errorf("document fetched %d times and keys %d times, want once each", document, keys)
	}
}

func TestAnAgentWithoutAUsableDocumentIsNotAuthenticated(t *testing.T) {
	t.Parallel()
	other := func(s *shop) { s.NewAgent("other-agent.example") }
	for name, change := range map[string]func(*shop){
		// P-4.1-02
		"its host does not answer": func(s *shop) { s.agent.Fail(http.StatusInternalServerError) },
		"its host redirects":       func(s *shop) { s.agent.Fail(http.StatusFound) },
		"client_id is another URL": func(s *shop) {
			s.agent.Describe(map[string]any{"client_id": "https://agent.example/other.json"})
		},
		"no client_id": func(s *shop) { s.agent.Describe(map[string]any{"client_id": nil}) },
		// P-3-20
		"jwks_uri is http":       func(s *shop) { s.agent.Describe(map[string]any{"jwks_uri": "http://agent.example/jwks.json"}) },
		"a redirect_uri is http": func(s *shop) { s.agent.Describe(map[string]any{"redirect_uris": []string{"http://agent.example/cb"}}) },
		"jwks_uri is elsewhere": func(s *shop) {
			other(s)
			s.agent.Describe(map[string]any{"jwks_uri": "https://other-agent.example/jwks.json"})
		},
		"a redirect is elsewhere": func(s *shop) {
			s.agent.Describe(map[string]any{"redirect_uris": []string{"https://other-agent.example/cb"}})
		},
		"another auth method": func(s *shop) { s.agent.Describe(map[string]any{"token_endpoint_auth_method": "client_secret_basic"}) },
		"no jwks_uri":         func(s *shop) { s.agent.Describe(map[string]any{"jwks_uri": nil}) },
		"the key set has a private key": func(s *shop) {
			s.agent.PublishKeySet([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",` +
				`"y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA","d":"870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE"}]}`))
		},
		"the key set is not JSON": func(s *shop) { s.agent.PublishKeySet([]byte(`{"keys":`)) },
		"the key set is too large": func(s *shop) {
			s.agent.PublishKeySet([]byte(`{"keys":[],"pad":"` + strings.Repeat("x", 300<<10) + `"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			change(s)
			wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, "")), http.StatusUnauthorized, "invalid_client")
		})
	}
}

func TestAClientIDThatIsNotAnHTTPSURLIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	// P-3-20
	for _, clientID := range []string{
		"http://agent.example/agent.json", "agent", "https://agent.example", "https://agent.example/a/../agent.json",
		"https://user:secret@agent.example/agent.json", "https://agent.example/agent.json#x", "file:///etc/passwd",
	} {
		form := s.agent.SessionForm(issuer, userID, "")
		form.Set("client_id", clientID)
		wantError(t, s.agent.Token(tokenURL, form), http.StatusUnauthorized, "invalid_client")
	}
}

func TestPrivateAddressesAreNotConnectedTo(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	private := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(private.Close)
	address := private.Listener.Addr().String()

	s := open(t)
	// P-3-28: a client_id of a loopback address, and P-3-29: the hosts of the test are private too, but named in the
	// configuration, so that the agent behind them is found.
	s.start(userID)
	for _, clientID := range []string{
		"https://" + address + "/agent.json", "https://[::1]/agent.json", "https://10.0.0.1/agent.json",
		"https://169.254.169.254/agent.json", "https://localhost/agent.json",
	} {
		form := s.agent.SessionForm(issuer, userID, "")
		form.Set("client_id", clientID)
		wantError(t, s.agent.Token(tokenURL, form), http.StatusUnauthorized, "invalid_client")
	}
	if hits.Load() != 0 {
		t.Errorf("%d connections to a loopback address", hits.Load())
	}

	// P-3-29: without that configuration the same agent is refused.
	fetcher := fetch.New(fetch.Options{})
	t.Cleanup(fetcher.Close)
	agents := registry.New(registry.Options{Database: s.db, Client: fetcher, Now: s.Clock.Now, Mode: registry.Open})
	if _, err := agents.Agent(t.Context(), s.agent.ClientID); err == nil {
		t.Error("a client without exceptions reached a private host")
	}
}

// clientForm is a request with this client assertion.
func (s *shop) clientForm(typ string, changes map[string]any) url.Values {
	form := s.agent.SessionForm(issuer, userID, "")
	form.Set("client_assertion", s.agent.Sign(typ, s.agent.Claims(s.agent.ClientID, issuer, changes)))
	return form
}

func TestClientAssertionsAreCheckedToTheLetter(t *testing.T) {
	t.Parallel()
	s := open(t)
	wantOK(t, s.agent.Token(tokenURL, s.clientForm("JWT", nil)))
	now := s.Clock.Now().Unix()
	for name, changes := range map[string]map[string]any{
		// P-4.1-13
		"aud is the token endpoint":     {"aud": tokenURL},
		"aud has a slash more":          {"aud": issuer + "/"},
		"aud in another case":           {"aud": "https://AUTH.outdoor.example"},
		"aud is another issuer":         {"aud": "https://auth.provider.example/shop-a"},
		"aud is a list with the issuer": {"aud": []string{issuer}},
		"no aud":                        {"aud": nil},
		// P-4.1-15
		"it lasts longer than five minutes": {"exp": now + 301},
		"it never expires":                  {"exp": nil},
		"it has expired":                    {"iat": now - 120, "exp": now - 60},
		"it is from the future":             {"iat": now + 120, "exp": now + 180},
		"no iat":                            {"iat": nil},
		"no jti":                            {"jti": nil}, // P-4.1-16
		"iss is another agent":              {"iss": "https://other-agent.example/agent.json"},
		"sub is a User":                     {"sub": userID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantError(t, s.agent.Token(tokenURL, s.clientForm("JWT", changes)), http.StatusUnauthorized, "invalid_client")
		})
	}
	t.Run("typ of another JWT", func(t *testing.T) {
		t.Parallel()
		wantError(t, s.agent.Token(tokenURL, s.clientForm("poppy-browser+jwt", nil)), http.StatusUnauthorized, "invalid_client")
	})
	t.Run("it is missing", func(t *testing.T) {
		t.Parallel()
		form := s.agent.SessionForm(issuer, userID, "")
		form.Del("client_assertion")
		wantError(t, s.agent.Token(tokenURL, form), http.StatusUnauthorized, "invalid_client")
	})
	t.Run("another way to authenticate", func(t *testing.T) {
		t.Parallel()
		form := s.agent.SessionForm(issuer, userID, "")
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer")
		wantError(t, s.agent.Token(tokenURL, form), http.StatusUnauthorized, "invalid_client")
	})
	t.Run("client_id may be left out", func(t *testing.T) { // RFC 7521 4.2
		t.Parallel()
		form := s.agent.SessionForm(issuer, userID, "")
		form.Del("client_id")
		wantOK(t, s.agent.Token(tokenURL, form))
	})
}

func TestAClientAssertionIsGoodOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.agent.SessionForm(issuer, userID, "")
	wantOK(t, s.agent.Token(tokenURL, first))
	// P-4.1-16
	again := s.agent.SessionForm(issuer, userID, "")
	again.Set("client_assertion", first.Get("client_assertion"))
	wantError(t, s.agent.Token(tokenURL, again), http.StatusUnauthorized, "invalid_client")
	// The same jti from another Personal Agent is another one.
	other := s.NewAgent("other-agent.example")
	form := other.SessionForm(issuer, userID, "")
	form.Set("client_assertion", other.Sign("JWT", other.Claims(other.ClientID, issuer, map[string]any{"jti": "chosen-by-both"})))
	wantOK(t, other.Token(tokenURL, form))
	wantOK(t, s.agent.Token(tokenURL, s.clientForm("JWT", map[string]any{"jti": "chosen-by-both"})))
}

func TestANewKeyIsFoundWithoutWaitingForTheCache(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.start(userID)
	s.Clock.Advance(2 * time.Minute) // a set is fetched anew at most once a minute
	s.agent.Rotate()
	s.start(userID)
	if fetched := s.agent.Fetched("/jwks.json"); fetched != 2 {
		t.Errorf("the key set was fetched %d times, want 2", fetched)
	}
	// Assertions with unknown keys do not make the Company fetch as often as they come.
	stranger, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	s.agent.Key = stranger
	for range 5 {
		wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, "")), http.StatusUnauthorized, "invalid_client")
	}
	if fetched := s.agent.Fetched("/jwks.json"); fetched > 3 {
		t.Errorf("the key set was fetched %d times, want at most 3", fetched)
	}
}

func TestACompanyThatRequiresRegistrationTakesNobodyElse(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Agents.Mode = registry.Allowlist })
	// P-4.1-17, P-4.1-18
	wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, "")), http.StatusUnauthorized, "invalid_client")
	if fetched := s.agent.Fetched("/agent.json"); fetched != 0 {
		t.Errorf("the document of an unregistered agent was fetched %d times", fetched)
	}
	if err := s.company.Agents.Allow(t.Context(), s.agent.ClientID); err != nil {
		t.Fatal(err)
	}
	token := s.token()
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
	// Who is forgotten is no longer registered.
	if removed, err := s.company.Agents.Forget(t.Context(), s.agent.ClientID); err != nil || !removed {
		t.Fatalf("forgetting: %v, %v", removed, err)
	}
	wantError(t, s.agent.Send(http.MethodGet, ordersURL, token, nil), http.StatusUnauthorized, "invalid_token")
}

func TestABlockHoldsAtOnceFromAnotherProcessToo(t *testing.T) {
	t.Parallel()
	s := open(t)
	token := s.token()
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
	elsewhere := registry.New(registry.Options{Database: s.db, Now: s.Clock.Now}) // as the command has it
	if err := elsewhere.Block(t.Context(), s.agent.ClientID); err != nil {
		t.Fatal(err)
	}
	// P-4.1-19, P-4.1-20: neither new tokens nor those it holds
	wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, "")), http.StatusUnauthorized, "invalid_client")
	wantError(t, s.agent.Send(http.MethodGet, ordersURL, token, nil), http.StatusUnauthorized, "invalid_token")
	other := s.NewAgent("other-agent.example")
	wantOK(t, other.Token(tokenURL, other.SessionForm(issuer, userID, "")))
	if err := elsewhere.Allow(t.Context(), s.agent.ClientID); err != nil {
		t.Fatal(err)
	}
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
}

func TestKnownAgentsAreListedWithWhenTheyCame(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.Clock.Now().Truncate(time.Millisecond)
	s.start(userID)
	s.Clock.Advance(time.Hour)
	s.start(userID)
	if err := s.company.Agents.Block(t.Context(), "https://blocked.example/agent.json"); err != nil {
		t.Fatal(err)
	}
	entries, err := s.company.Agents.List(t.Context(), "", 10)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	known, blocked := entries[0], entries[1]
	if known.ClientID != s.agent.ClientID || known.Name != "Agent at agent.example" || known.Status != registry.Known ||
		!known.FirstSeen.Equal(first) || !known.LastSeen.Equal(first.Add(time.Hour)) {
		t.Errorf("known agent %+v, first seen at %v", known, first)
	}
	if blocked.Status != registry.Blocked || !blocked.FirstSeen.IsZero() {
		t.Errorf("blocked agent %+v", blocked)
	}
	if rest, err := s.company.Agents.List(t.Context(), known.ClientID, 10); err != nil || len(rest) != 1 {
		t.Errorf("after the first: %d entries, %v", len(rest), err)
	}
}

func TestSessionStartsAreLimitedForEachAgent(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Limits.StartsPerMinute = 2 })
	started := s.start(userID)
	s.start(userID)
	// P-4.1-21, P-4.3-77, P-4.3-79
	response := s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, ""))
	wantError(t, response, http.StatusTooManyRequests, "rate_limited")
	if response.Header.Get("Retry-After") != "30" || string(response.Body) != `{"error":"rate_limited"}` {
		t.Errorf("Retry-After %q, body %s", response.Header.Get("Retry-After"), response.Body)
	}
	other := s.NewAgent("other-agent.example")
	wantOK(t, other.Token(tokenURL, other.SessionForm(issuer, userID, "")))
	// Renewing starts no Session.
	wantOK(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, started.Text("session_id"))))
	s.Clock.Advance(30 * time.Second)
	s.start(userID)
}

func TestNewAgentsAreLimitedAndKnownOnesAreNot(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Agents.NewPerHour = 2 })
	second, third := s.NewAgent("other-agent.example"), s.NewAgent("third-agent.example")
	wantOK(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, "")))
	s.Clock.Advance(20 * time.Minute)
	wantOK(t, second.Token(tokenURL, second.SessionForm(issuer, userID, "")))
	// P-4.1-22
	form := third.SessionForm(issuer, userID, "")
	response := third.Token(tokenURL, form)
	wantError(t, response, http.StatusTooManyRequests, "rate_limited")
	if retry := response.Header.Get("Retry-After"); retry != "2400" {
		t.Errorf("Retry-After %q, want 2400: until the first has been here for an hour", retry)
	}
	wantOK(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, "")))
	s.Clock.Advance(40 * time.Minute)
	wantOK(t, third.Token(tokenURL, third.SessionForm(issuer, userID, "")))
}

func TestUnknownAgentsCannotMakeTheCompanyFetchWithoutBound(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Limits.UnknownFetchesPerMinute = 3 })
	strange := s.NewAgent("other-agent.example")
	answers := make(map[int]int)
	for i := range 10 {
		form := strange.SessionForm(issuer, userID, "")
		form.Set("client_id", "https://other-agent.example/"+string(rune('a'+i))+".json")
		answers[strange.Token(tokenURL, form).Status]++
	}
	if answers[http.StatusUnauthorized] != 3 || answers[http.StatusTooManyRequests] != 7 {
		t.Errorf("answers by status %v, want 3 times 401 and 7 times 429", answers)
	}
}

func TestUnknownExtensionsAndFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	s := open(t)
	// P-3.3-06, P-3.3-08
	s.agent.Describe(map[string]any{
		"extensions": map[string]any{"agent.example/gift-wrap": map[string]any{"version": "7", "more": []int{1}}, "odd": "text"},
		"contacts":   []string{"someone"},
	})
	form := s.agent.SessionForm(issuer, userID, "")
	form.Set("colour", "green")
	wantOK(t, s.agent.Token(tokenURL, form))
}
