package company_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"countersign/company"
	"countersign/company/companytest"
	"countersign/dpop"
	"countersign/internal/jws"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// proofPlace is a place that takes proofs, each with its own way of refusing one.
type proofPlace struct {
	method, url string
	token       string // "" at the token endpoint
	status      int    // of a refusal
	send        func(proofs ...string) companytest.Response
}

// proofPlaces are one of each kind (4.3): the token endpoint, an API, a conversation endpoint, an MCP server.
func (s *shop) proofPlaces(t *testing.T) map[string]proofPlace {
	t.Helper()
	places := map[string]proofPlace{
		"the token endpoint": {http.MethodPost, tokenURL, "", http.StatusBadRequest, func(proofs ...string) companytest.Response {
			return s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode(), proofs...)
		}},
	}
	token := s.token()
	for name, resource := range map[string]struct{ url, token string }{
		"an API":                  {ordersURL, token},
		"a conversation endpoint": {conversations, token},
		"an MCP server":           {mcpURL, s.tokenFor(mcpURL)},
	} {
		places[name] = proofPlace{http.MethodPost, resource.url, resource.token, http.StatusUnauthorized, func(proofs ...string) companytest.Response {
			return s.Do(http.MethodPost, resource.url+"?wait=0", http.Header{
				"Authorization": {"DPoP " + resource.token}, "Dpop": proofs, "Content-Type": {"application/json"},
			}, []byte(`{"message":{"id":"msg_1","sender":"agent","text":"Hello"}}`))
		}}
	}
	return places
}

// claims are those of a correct proof for the place.
func (p proofPlace) claims(now time.Time) map[string]any {
	claims := map[string]any{"jti": "jti-" + time.Now().Format(time.RFC3339Nano), "htm": p.method, "htu": p.url, "iat": now.Unix()}
	if p.token != "" {
		sum := sha256.Sum256([]byte(p.token))
		claims["ath"] = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return claims
}

// signed is a proof with these claims by the agent's key for proofs, changed.
func (s *shop) signed(t *testing.T, typ string, claims map[string]any, changes map[string]any) string {
	t.Helper()
	for name, value := range changes {
		if value == nil {
			delete(claims, name)
		} else {
			claims[name] = value
		}
	}
	key, err := jws.ParsePrivateKey(s.agent.Proofs.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := key.EmbeddingSigner(typ)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// withPrivateKey is a proof that shows a private key and is right otherwise, its signature too.
func (s *shop) withPrivateKey(t *testing.T, proof string) string {
	t.Helper()
	parts := strings.Split(proof, ".")
	var texts [2][]byte
	for i := range texts {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = text
	}
	key, err := jws.ParsePrivateKey(s.agent.Proofs.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Replace(string(texts[0]), `"jwk":{`, `"jwk":{"d":"870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE",`, 1)
	proof, err = key.Sign([]byte(shown), texts[1])
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// es384 is a proof with these claims by a new key of another algorithm, and right otherwise.
func es384(t *testing.T, claims map[string]any) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES384, Key: key}, (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := strictjson.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// header is a proof with another header, whose signature cannot be right any more.
func header(proof, text string) string {
	_, rest, _ := strings.Cut(proof, ".")
	return base64.RawURLEncoding.EncodeToString([]byte(text)) + "." + rest
}

// P-4.3-23: the checks of RFC 9449 4.3, at every kind of place; P-6-03, P-4.3-62
func TestProofsAreCheckedEverywhere(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, place := range s.proofPlaces(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := s.Clock.Now()
			good := func(changes map[string]any) string { return s.signed(t, "dpop+jwt", place.claims(now), changes) }
			const jwk = `"jwk":{"kty":"EC","crv":"P-256","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs","y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA"`
			refused := map[string][]string{
				// P-4.3-24
				"no proof":   nil,
				"two proofs": {good(nil), good(nil)},
				// P-4.3-25
				"not a JWT": {"abc"},
				"no jti":    {good(map[string]any{"jti": nil})},
				"no htm":    {good(map[string]any{"htm": nil})},
				"no htu":    {good(map[string]any{"htu": nil})},
				"no iat":    {good(map[string]any{"iat": nil})},
				// P-4.3-26
				"typ JWT": {s.signed(t, "JWT", place.claims(now), nil)},
				"no typ":  {s.signed(t, "", place.claims(now), nil)},
				// P-4.3-27
				"alg none":            {header(good(nil), `{"typ":"dpop+jwt","alg":"none",`+jwk+`}}`)},
				"alg HS256":           {header(good(nil), `{"typ":"dpop+jwt","alg":"HS256","jwk":{"kty":"oct","k":"c2VjcmV0"}}`)},
				"alg not in the list": {es384(t, place.claims(now))},
				// P-4.3-28
				"a private key": {s.withPrivateKey(t, good(nil))},
				// P-4.3-29
				"another key": {header(good(nil), `{"typ":"dpop+jwt","alg":"ES256",`+jwk+`}}`)},
				// P-4.3-30
				"for another method": {good(map[string]any{"htm": "DELETE"})},
				// P-4.3-31
				"for another path": {good(map[string]any{"htu": place.url + "/other"})},
				"for another host": {good(map[string]any{"htu": strings.Replace(place.url, ".outdoor.", ".indoor.", 1)})},
				"for http":         {good(map[string]any{"htu": strings.Replace(place.url, "https", "http", 1)})},
				// P-4.3-32, P-4.3-33
				"too old":         {good(map[string]any{"iat": now.Add(-10 * time.Minute).Unix()})},
				"from the future": {good(map[string]any{"iat": now.Add(10 * time.Minute).Unix()})},
			}
			if place.token != "" {
				// P-4.3-35, P-4.3-36, P-4.3-39
				refused["without ath"] = []string{good(map[string]any{"ath": nil})}
				refused["of another token"] = []string{good(map[string]any{"ath": "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"})}
				refused["by a key that the token is not bound to"] = []string{
					s.agent.ProofBy(s.NewProofKey(), dpop.Request{Method: place.method, URL: place.url, Token: secret.New(place.token)}),
				}
			}
			for name, proofs := range refused {
				response := place.send(proofs...)
				// P-4.3-43, P-4.3-44
				wantError(t, response, place.status, "invalid_dpop_proof")
				// P-4.3-45, P-6-14
				challenges := strings.Join(response.Header.Values("WWW-Authenticate"), "\n")
				if (place.token != "") != strings.Contains(challenges, `DPoP error="invalid_dpop_proof"`) {
					t.Errorf("%s: WWW-Authenticate %q", name, challenges)
				}
			}
			// P-3.2-34, P-4.3-04; the URL compares without query, P-4.3-20
			wantOK(t, place.send(good(nil)))
		})
	}
}

func TestOtherAlgorithmsAreAcceptedIfConfigured(t *testing.T) {
	t.Parallel()
	config := outdoor()
	config.Proof.Algorithms = []string{"RS256"}
	// P-3.2-36
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "ES256") {
		t.Errorf("algorithms without ES256: %v", err)
	}
	// P-3.2-34: ES256 works whatever else is listed
	s := open(t, func(c *company.Config) { c.Proof.Algorithms = []string{"RS256", "ES256"} })
	s.start(userID)
}

func TestAProofIsGoodOnceAtTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	s := open(t)
	proof := s.agent.Proof(http.MethodPost, tokenURL, "")
	wantOK(t, s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode(), proof))
	// P-4.3-06, P-4.3-37
	wantError(t, s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode(), proof), http.StatusBadRequest, "invalid_dpop_proof")
	// Also when another Personal Agent sends it.
	other := s.NewAgent("other-agent.example")
	wantError(t, s.PostForm(tokenURL, other.SessionForm(issuer, userID, "").Encode(), proof), http.StatusBadRequest, "invalid_dpop_proof")
	// P-4.3-07, P-4.3-38: elsewhere a repeated request is served as it is
	token := s.token()
	again := http.Header{"Authorization": {"DPoP " + token}, "Dpop": {s.agent.Proof(http.MethodGet, ordersURL, token)}}
	wantOK(t, s.Do(http.MethodGet, ordersURL, again, nil))
	wantOK(t, s.Do(http.MethodGet, ordersURL, again, nil))
	// P-4.3-39: and not after the window
	s.Clock.Advance(2 * time.Minute)
	wantError(t, s.Do(http.MethodGet, ordersURL, again, nil), http.StatusUnauthorized, "invalid_dpop_proof")
}

func TestATokenIsBoundToTheKeyOfItsRequest(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.start(userID)
	key := s.NewProofKey()
	proof := s.agent.ProofBy(key, dpop.Request{Method: http.MethodPost, URL: tokenURL})
	renewed := s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, first.Text("session_id")).Encode(), proof)
	wantOK(t, renewed)
	// P-4.3-22
	token := renewed.Text("access_token")
	own := s.agent.ProofBy(key, dpop.Request{Method: http.MethodGet, URL: ordersURL, Token: secret.New(token)})
	wantOK(t, s.Do(http.MethodGet, ordersURL, http.Header{"Authorization": {"DPoP " + token}, "Dpop": {own}}, nil))
	wantError(t, s.agent.Send(http.MethodGet, ordersURL, token, nil), http.StatusUnauthorized, "invalid_dpop_proof")
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, first.Text("access_token"), nil))
}

func TestNonces(t *testing.T) {
	t.Parallel()
	for _, use := range []company.NonceUse{company.NoncesToken, company.NoncesEverywhere} {
		t.Run(string(use), func(t *testing.T) {
			t.Parallel()
			s := open(t, func(c *company.Config) { c.Proof.Nonces, c.Proof.NonceLifetime = use, 4*time.Minute })
			ask := func(nonce string) companytest.Response {
				proof := s.agent.ProofBy(s.agent.Proofs, dpop.Request{Method: http.MethodPost, URL: tokenURL, Nonce: nonce})
				return s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode(), proof)
			}
			// P-4.3-34, P-4.3-41, P-4.3-43, P-4.3-44
			response := ask("")
			wantError(t, response, http.StatusBadRequest, "use_dpop_nonce")
			nonce := response.Header.Get("DPoP-Nonce")
			wantError(t, ask("made-up"), http.StatusBadRequest, "use_dpop_nonce")
			response = ask(nonce)
			wantOK(t, response)
			if next := response.Header.Get("DPoP-Nonce"); next != "" {
				t.Error("a fresh nonce is replaced already")
			}
			token := response.Text("access_token")

			use2 := func(nonce string) companytest.Response {
				proof := s.agent.ProofBy(s.agent.Proofs, dpop.Request{Method: http.MethodGet, URL: ordersURL, Nonce: nonce, Token: secret.New(token)})
				return s.Do(http.MethodGet, ordersURL, http.Header{"Authorization": {"DPoP " + token}, "Dpop": {proof}}, nil)
			}
			if use == company.NoncesToken {
				wantOK(t, use2(""))
			} else {
				// P-4.3-45
				response := use2("")
				wantError(t, response, http.StatusUnauthorized, "use_dpop_nonce")
				if !strings.HasPrefix(response.Header.Get("WWW-Authenticate"), `DPoP error="use_dpop_nonce"`) || response.Header.Get("DPoP-Nonce") == "" {
					t.Errorf("WWW-Authenticate %q, DPoP-Nonce %q", response.Header.Get("WWW-Authenticate"), response.Header.Get("DPoP-Nonce"))
				}
				wantOK(t, use2(response.Header.Get("DPoP-Nonce")))
			}

			// Past half its life it is replaced, and then it is over.
			s.Clock.Advance(2 * time.Minute)
			response = ask(nonce)
			wantOK(t, response)
			next := response.Header.Get("DPoP-Nonce")
			if next == "" {
				t.Error("a nonce past half its life is not replaced")
			}
			s.Clock.Advance(2 * time.Minute)
			wantError(t, ask(nonce), http.StatusBadRequest, "use_dpop_nonce")
			wantOK(t, ask(next))
		})
	}
}

// P-4.3-33: the nonce shows when a proof was made, however wrong the agent's clock is
func TestAFreshNonceStandsInForTheAgentsClock(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Proof.Nonces = company.NoncesToken })
	nonce := s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode(), s.agent.Proof(http.MethodPost, tokenURL, "")).Header.Get("DPoP-Nonce")
	place := proofPlace{method: http.MethodPost, url: tokenURL}
	proof := s.signed(t, "dpop+jwt", place.claims(s.Clock.Now()), map[string]any{"iat": s.Clock.Now().Add(-time.Hour).Unix(), "nonce": nonce})
	wantOK(t, s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode(), proof))
	wantError(t, s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode(), proof), http.StatusBadRequest, "invalid_dpop_proof")
}

func TestTheMCPServerInResourceDecidesTheTokenType(t *testing.T) {
	t.Parallel()
	s := open(t)
	ask := func(resource string, proofs ...string) companytest.Response {
		form := s.agent.SessionForm(issuer, userID, "")
		form.Set("resource", resource)
		return s.PostForm(tokenURL, form.Encode(), proofs...)
	}
	proof := func() string { return s.agent.Proof(http.MethodPost, tokenURL, "") }
	// P-4.3-48
	if response := ask(mcpURL, proof()); response.Text("token_type") != "DPoP" {
		t.Errorf("for a server with DPoP: %s", response.Body)
	}
	// P-4.3-49
	wantError(t, ask(mcpURL), http.StatusBadRequest, "invalid_dpop_proof")
	// P-4.3-50, P-4.2-28
	for name, response := range map[string]companytest.Response{"with": ask(legacyURL, proof()), "without": ask(legacyURL)} {
		if response.Status != http.StatusOK || response.Text("token_type") != "Bearer" {
			t.Errorf("for a server without DPoP, %s a proof: %d %s", name, response.Status, response.Body)
		}
	}
	// A proof that is sent is checked, needed or not.
	wantError(t, ask(legacyURL, "abc"), http.StatusBadRequest, "invalid_dpop_proof")
	// P-3.2-21: a resource is a string
	for _, resource := range []string{
		legacyURL + "/", "https://MCP.outdoor.example/legacy", "https://mcp.outdoor.example:443/legacy", "https://mcp.indoor.example/mcp", "https://outdoor.example",
	} {
		wantError(t, ask(resource, proof()), http.StatusBadRequest, "invalid_target")
		wantError(t, ask(resource), http.StatusBadRequest, "invalid_dpop_proof")
	}
	form := s.agent.SessionForm(issuer, userID, "")
	form["resource"] = []string{mcpURL, legacyURL}
	wantError(t, s.agent.Token(tokenURL, form), http.StatusBadRequest, "invalid_request")
}

func TestABearerTokenForASignedInSession(t *testing.T) {
	t.Parallel()
	s := open(t)
	signIn := s.signedIn("acct_1", "poppy:read")
	form := s.agent.Form(issuer, poppy.GrantRefreshToken)
	form.Set("refresh_token", signIn.RefreshToken.Reveal())
	form.Set("session_id", signIn.SessionID)
	form.Set("resource", legacyURL)
	// P-4.3-65
	response := s.PostForm(tokenURL, form.Encode())
	if response.Status != http.StatusOK || response.Text("token_type") != "Bearer" || response.Text("scope") != "poppy:read" ||
		response.Text("session_id") != signIn.SessionID || response.JSON("expires_in") == nil {
		t.Errorf("answer %d %s", response.Status, response.Body)
	}
}

func TestTokensWorkOnlyWhereTheyWereIssuedFor(t *testing.T) {
	t.Parallel()
	s := open(t)
	started := s.start(userID)
	tokens := map[string]string{"": started.Text("access_token")}
	for _, resource := range []string{mcpURL, legacyURL, paymentsURL} {
		form := s.agent.SessionForm(issuer, userID, started.Text("session_id"))
		form.Set("resource", resource)
		response := s.agent.Token(tokenURL, form)
		wantOK(t, response)
		tokens[resource] = response.Text("access_token")
	}
	start := []byte(`{"message":{"id":"msg_1","sender":"agent","text":"Hello"}}`)
	send := func(scheme, url, token string) companytest.Response {
		header := http.Header{"Authorization": {scheme + " " + token}, "Content-Type": {"application/json"}}
		if scheme == "DPoP" {
			header["Dpop"] = []string{s.agent.Proof(http.MethodPost, url, token)}
		}
		return s.Do(http.MethodPost, url, header, start)
	}
	// P-4.3-53: all at once; P-4.3-54, P-4.3-68, P-4.3-70, P-6-04 to P-6-07
	places := map[string]struct{ resource, scheme string }{
		ordersURL: {"", "DPoP"}, conversations: {"", "DPoP"}, paymentsURL: {paymentsURL, "DPoP"}, mcpURL: {mcpURL, "DPoP"}, legacyURL: {legacyURL, "Bearer"},
	}
	for url, takes := range places {
		for resource, token := range tokens {
			for _, scheme := range []string{"DPoP", "Bearer"} {
				response := send(scheme, url, token)
				if resource == takes.resource && scheme == takes.scheme {
					wantOK(t, response)
					continue
				}
				// P-4.3-08, P-4.3-54, P-4.3-55, P-4.3-56, P-4.3-57, P-4.3-63, P-4.3-70
				wantError(t, response, http.StatusUnauthorized, "invalid_token")
				if takes.scheme == "DPoP" && !strings.Contains(strings.Join(response.Header.Values("WWW-Authenticate"), "\n"), `DPoP error="invalid_token"`) {
					t.Errorf("%s %s: WWW-Authenticate %q", scheme, url, response.Header.Values("WWW-Authenticate"))
				}
			}
		}
	}
	// P-4.3-55: another path of the MCP server's host
	wantError(t, send("Bearer", legacyURL+"/other", tokens[legacyURL]), http.StatusUnauthorized, "invalid_token")
	wantError(t, send("Bearer", legacyURL+"/", tokens[legacyURL]), http.StatusUnauthorized, "invalid_token")
	// The scheme's case does not matter (RFC 9110 11.1).
	wantOK(t, send("bearer", legacyURL, tokens[legacyURL]))
}

func TestATokenIsTakenFromTheAuthorizationHeaderAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	token := s.token()
	proof := func(method string) []string { return []string{s.agent.Proof(method, ordersURL, token)} }
	// P-4.3-71: no cookie is needed, nor looked at
	wantOK(t, s.Do(http.MethodGet, ordersURL, http.Header{
		"Authorization": {"DPoP " + token}, "Dpop": proof(http.MethodGet), "Cookie": {"session=another"},
	}, nil))
	// P-4.3-76
	wantError(t, s.Do(http.MethodGet, ordersURL+"?access_token="+token, http.Header{"Dpop": proof(http.MethodGet)}, nil),
		http.StatusUnauthorized, "invalid_token")
	wantError(t, s.Do(http.MethodPost, ordersURL, http.Header{
		"Dpop": proof(http.MethodPost), "Content-Type": {"application/x-www-form-urlencoded"},
	}, []byte("access_token="+token)), http.StatusUnauthorized, "invalid_token")
	// P-4.3-76: nor are the parameters of a token request taken from its URL
	form := s.agent.SessionForm(issuer, userID, "")
	wantError(t, s.PostForm(tokenURL+"?"+form.Encode(), "", s.agent.Proof(http.MethodPost, tokenURL, "")), http.StatusUnauthorized, "invalid_client")
	for name, values := range map[string][]string{
		"none": nil, "two": {"DPoP " + token, "DPoP " + token}, "no scheme": {token}, "another scheme": {"Basic " + token}, "empty": {"DPoP "},
	} {
		response := s.Do(http.MethodGet, ordersURL, http.Header{"Authorization": values, "Dpop": proof(http.MethodGet)}, nil)
		if response.Status != http.StatusUnauthorized || response.Text("error") != "invalid_token" {
			t.Errorf("Authorization header %s: %d %s", name, response.Status, response.Body)
		}
	}
}

func TestAChallengeNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := open(t)
	token := s.token()
	signIn := s.signedIn("acct_1", "poppy:write")
	const api = "https://api.outdoor.example"
	for name, c := range map[string]struct {
		url, token, code, challenge string
	}{
		// P-4-06: a Session starts signed out
		"signed out": {api + "/account", token, "sign_in_required", `DPoP error="sign_in_required", algs="ES256"`},
		// The account comes before the scopes.
		"signed out, with scopes": {api + "/addresses", token, "sign_in_required", `DPoP error="sign_in_required", algs="ES256"`},
		// P-6-17
		"without a scope": {api + "/addresses", signIn.AccessToken.Reveal(), "insufficient_scope", `DPoP error="insufficient_scope", scope="poppy:write addresses", algs="ES256"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := s.agent.Send(http.MethodGet, c.url, c.token, nil)
			wantError(t, response, http.StatusForbidden, c.code)
			if got := response.Header.Get("WWW-Authenticate"); got != c.challenge {
				t.Errorf("WWW-Authenticate %q, want %q", got, c.challenge)
			}
		})
	}
}

func TestAnMCPServersChallengesLeadToItsMetadata(t *testing.T) {
	t.Parallel()
	s := open(t)
	// P-6-15, P-6-16, P-3-18
	for url, want := range map[string][]string{
		mcpURL: {
			`DPoP error="invalid_token", algs="ES256", resource_metadata="https://mcp.outdoor.example/.well-known/oauth-protected-resource/mcp"`,
			`Bearer error="invalid_token", resource_metadata="https://mcp.outdoor.example/.well-known/oauth-protected-resource/mcp"`,
		},
		legacyURL: {`Bearer error="invalid_token", resource_metadata="https://mcp.outdoor.example/.well-known/oauth-protected-resource/legacy"`},
	} {
		response := s.Do(http.MethodPost, url, nil, nil)
		got := response.Header.Values("WWW-Authenticate")
		if response.Status != http.StatusUnauthorized || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %d %q, want 401 %q", url, response.Status, got, want)
		}
	}
}

func TestAnAgentWithoutTheExtensionIsToldSo(t *testing.T) {
	t.Parallel()
	s := open(t)
	const proposals = "https://api.outdoor.example/proposals"
	wantOK(t, s.agent.Send(http.MethodGet, proposals, s.token(), nil))
	other := s.NewAgent("other-agent.example")
	other.Describe(map[string]any{"extensions": map[string]any{"operations": map[string]any{"version": "2"}}})
	token := other.Token(tokenURL, other.SessionForm(issuer, userID, "")).Text("access_token")
	// P-3.3-09, P-3.3-10, P-3.3-12
	response := other.Send(http.MethodGet, proposals, token, nil)
	wantError(t, response, http.StatusForbidden, "extension_required")
	if got := response.Header.Get("WWW-Authenticate"); got != `DPoP error="extension_required", extension="operations", algs="ES256"` {
		t.Errorf("WWW-Authenticate %q", got)
	}
	// P-3.3-11: at an endpoint of the extension, in the body
	response = other.Send(http.MethodGet, operations+"/exc_1", token, nil)
	wantError(t, response, http.StatusForbidden, "extension_required")
	if response.Text("extension") != "operations" || response.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("body %s, WWW-Authenticate %q", response.Body, response.Header.Get("WWW-Authenticate"))
	}
}

func TestRequestsAreLimitedForEachSession(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Limits.RequestsPerMinute = 3 })
	token, other := s.token(), s.token()
	for range 3 {
		wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
	}
	// P-4.3-77, P-4.3-79
	for _, url := range []string{ordersURL, conversations + "/cnv_1/events"} {
		response := s.agent.Send(http.MethodGet, url, token, nil)
		wantError(t, response, http.StatusTooManyRequests, "rate_limited")
		if response.Header.Get("Retry-After") != "20" || string(response.Body) != `{"error":"rate_limited"}` {
			t.Errorf("%s: Retry-After %q, body %s", url, response.Header.Get("Retry-After"), response.Body)
		}
	}
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, other, nil))
	s.Clock.Advance(20 * time.Second)
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
}

func TestAProxyInFrontDoesNotChangeTheURLOfAProof(t *testing.T) {
	t.Parallel()
	s := open(t)
	token := s.token()
	for path, status := range map[string]int{"/orders": http.StatusOK, "/orders/ord_7Hk2": http.StatusOK, "/orders/a%2Fb": http.StatusOK} {
		url := "https://api.outdoor.example" + path
		response := s.Do(http.MethodGet, url+"?expand=items", http.Header{
			"Authorization": {"DPoP " + token}, "Dpop": {s.agent.Proof(http.MethodGet, url, token)},
			"X-Forwarded-Host": {"internal.example"}, "X-Forwarded-Proto": {"http"},
		}, nil)
		if response.Status != status {
			t.Errorf("%s: %d %s, want %d", path, response.Status, response.Body, status)
		}
	}
}

// P-4.3-70: an endpoint of the protocol with a resource of its own
func TestAnEndpointCanTakeTokensOfItsOwn(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Conversations.Resource = conversations })
	start := []byte(`{"message":{"id":"msg_1","sender":"agent","text":"Hello"}}`)
	wantError(t, s.agent.Send(http.MethodPost, conversations, s.token(), start), http.StatusUnauthorized, "invalid_token")
	wantOK(t, s.agent.Send(http.MethodPost, conversations, s.tokenFor(conversations), start))
}

// P-4.3-40: what a replayed proof can do is nothing new
func TestAReplayedMessageIsOneMessage(t *testing.T) {
	t.Parallel()
	s := open(t)
	token := s.token()
	header := http.Header{
		"Authorization": {"DPoP " + token}, "Dpop": {s.agent.Proof(http.MethodPost, conversations, token)}, "Content-Type": {"application/json"},
	}
	start := []byte(`{"message":{"id":"msg_1","sender":"agent","text":"Hello"}}`)
	first := s.Do(http.MethodPost, conversations, header, start)
	again := s.Do(http.MethodPost, conversations, header, start)
	wantOK(t, first)
	wantOK(t, again)
	if first.Text("conversation_id") != again.Text("conversation_id") {
		t.Errorf("the replay started another conversation: %s and %s", first.Body, again.Body)
	}
}
