package company_test

import (
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/company"
	"countersign/company/companytest"
	"countersign/company/session"
	"countersign/internal/secret"
	"countersign/poppy"
)

func TestStartingASession(t *testing.T) {
	t.Parallel()
	s := open(t)
	// P-4.2-14: the form of the example
	response := s.start(userID)
	// P-4.2-26
	if response.Header.Get("Content-Type") != "application/json" || response.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Content-Type %q, Cache-Control %q", response.Header.Get("Content-Type"), response.Header.Get("Cache-Control"))
	}
	// P-4.2-27, P-4.2-28, P-4.2-30, P-4.2-31, P-4-11, P-4-12: the names of OAuth, and session_id
	token, err := poppy.ParseTokenResponse(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if token.TokenType != poppy.TokenDPoP || token.ExpiresIn != 3600 || !token.RefreshToken.IsZero() {
		t.Errorf("type %s, expires_in %d, refresh_token %v", token.TokenType, token.ExpiresIn, !token.RefreshToken.IsZero())
	}
	// P-4.2-34, P-4.2-35, P-4.2-36, P-4-06: signed out, which is said and not left out
	if scope, ok := response.JSON("scope").(string); !ok || scope != "" {
		t.Errorf(`scope %v, want ""`, response.JSON("scope"))
	}
	if !strings.HasPrefix(token.SessionID, "ses_") {
		t.Errorf("session_id %q", token.SessionID)
	}
	// P-4.2-46: a token holds nothing that could be read
	if text := token.AccessToken.Reveal(); len(text) != 43 || strings.Contains(text, ".") {
		t.Errorf("a token of %d characters", len(text))
	}
	// P-4.2-25
	if again := s.start(userID); again.Text("session_id") == token.SessionID {
		t.Error("two requests without session_id got one Session")
	}
	// P-4-02, P-4-07, P-4.2-32: who and whose it is
	seen := s.agent.Send(http.MethodGet, ordersURL, token.AccessToken.Reveal(), nil)
	if seen.Text("client_id") != s.agent.ClientID || seen.Text("user") != userID || seen.Text("session") != token.SessionID ||
		seen.Text("agent") != "Agent at agent.example" || seen.Text("account") != "" {
		t.Errorf("the Company sees %s", seen.Body)
	}
	// P-4.2-06
	if other := s.agent.Send(http.MethodGet, ordersURL, s.start("usr_other").Text("access_token"), nil); other.Text("user") != "usr_other" {
		t.Errorf("the Company sees %s", other.Body)
	}
}

// assertionForm is a request with this Session assertion.
func (s *shop) assertionForm(typ string, changes map[string]any) url.Values {
	form := s.agent.Form(issuer, poppy.GrantJWTBearer)
	form.Set("assertion", s.agent.Sign(typ, s.agent.Claims(userID, issuer, changes)))
	return form
}

func TestSessionAssertionsAreCheckedToTheLetter(t *testing.T) {
	t.Parallel()
	s := open(t)
	wantOK(t, s.agent.Token(tokenURL, s.assertionForm("JWT", nil)))
	now := s.Clock.Now().Unix()
	for name, changes := range map[string]map[string]any{
		// P-4.2-18
		"aud is the token endpoint":         {"aud": tokenURL},
		"aud is a list with the issuer":     {"aud": []string{issuer}},
		"aud has a slash more":              {"aud": issuer + "/"},
		"aud is another issuer":             {"aud": "https://auth.provider.example/shop-a"},
		"aud in another case":               {"aud": "https://auth.Outdoor.example"},
		"it lasts longer than five minutes": {"exp": now + 301},
		"it has expired":                    {"iat": now - 120, "exp": now - 60},
		"no exp":                            {"exp": nil},
		"no jti":                            {"jti": nil},
		"no sub":                            {"sub": nil},
		"sub is longer than a User ID":      {"sub": strings.Repeat("u", 256)},
		// P-4.2-24
		"iss is another agent": {"iss": "https://other-agent.example/agent.json"},
		// RFC 7523: the client assertion does not serve as a Session assertion
		"sub is the client_id": {"sub": s.agent.ClientID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantError(t, s.agent.Token(tokenURL, s.assertionForm("JWT", changes)), http.StatusBadRequest, "invalid_grant")
		})
	}
	t.Run("a browser assertion", func(t *testing.T) {
		t.Parallel()
		// P-5-20
		wantError(t, s.agent.Token(tokenURL, s.assertionForm("poppy-browser+jwt", nil)), http.StatusBadRequest, "invalid_grant")
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		wantError(t, s.agent.Token(tokenURL, s.agent.Form(issuer, poppy.GrantJWTBearer)), http.StatusBadRequest, "invalid_request")
	})
	t.Run("another agent's", func(t *testing.T) { // P-4.2-24
		t.Parallel()
		other := s.NewAgent("other-agent.example")
		form := other.Form(issuer, poppy.GrantJWTBearer)
		form.Set("assertion", s.agent.Sign("JWT", s.agent.Claims(userID, issuer, nil)))
		wantError(t, other.Token(tokenURL, form), http.StatusBadRequest, "invalid_grant")
	})
}

func TestBothSignaturesAreVerified(t *testing.T) {
	t.Parallel()
	s := open(t)
	// P-4.2-23
	for parameter, want := range map[string]string{"client_assertion": "invalid_client", "assertion": "invalid_grant"} {
		form := s.agent.SessionForm(issuer, userID, "")
		text := form.Get(parameter)
		middle := len(text) - 20
		form.Set(parameter, text[:middle]+string('A'+(text[middle]-'A'+1)%26)+text[middle+1:])
		response := s.agent.Token(tokenURL, form)
		if response.Status == http.StatusOK || response.Text("error") != want {
			t.Errorf("%s with another signature: %d %s, want %s", parameter, response.Status, response.Body, want)
		}
	}
}

func TestASessionAssertionIsGoodOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.agent.SessionForm(issuer, userID, "")
	wantOK(t, s.agent.Token(tokenURL, first))
	// P-4.2-22: with a fresh client assertion and proof
	again := s.agent.Form(issuer, poppy.GrantJWTBearer)
	again.Set("assertion", first.Get("assertion"))
	wantError(t, s.agent.Token(tokenURL, again), http.StatusBadRequest, "invalid_grant")
	// Another Personal Agent may happen to choose the same jti.
	other := s.NewAgent("other-agent.example")
	for _, agent := range []*companytest.Agent{s.agent, other} {
		form := agent.Form(issuer, poppy.GrantJWTBearer)
		form.Set("assertion", agent.Sign("JWT", agent.Claims(userID, issuer, map[string]any{"jti": "jti-of-both"})))
		wantOK(t, agent.Token(tokenURL, form))
	}
}

func TestWhatIsGoodOnceStaysSpentForAsLongAsItWouldBeAccepted(t *testing.T) {
	t.Parallel()
	s := open(t)
	form, proof := s.agent.SessionForm(issuer, userID, ""), s.agent.Proof(http.MethodPost, tokenURL, "")
	wantOK(t, s.PostForm(tokenURL, form.Encode(), proof))
	s.Clock.Advance(58 * time.Second) // all three last a minute
	s.start(userID)                   // which removes rows that are outdated

	// P-4.3-06, P-4.3-37
	fresh := s.agent.SessionForm(issuer, userID, "")
	wantError(t, s.PostForm(tokenURL, fresh.Encode(), proof), http.StatusBadRequest, "invalid_dpop_proof")
	// P-4.1-16
	fresh.Set("client_assertion", form.Get("client_assertion"))
	wantError(t, s.agent.Token(tokenURL, fresh), http.StatusUnauthorized, "invalid_client")
	// P-4.2-22
	fresh = s.agent.Form(issuer, poppy.GrantJWTBearer)
	fresh.Set("assertion", form.Get("assertion"))
	wantError(t, s.agent.Token(tokenURL, fresh), http.StatusBadRequest, "invalid_grant")
}

func TestARefusedRequestSpendsNothingUntilEveryCheckHasPassed(t *testing.T) {
	t.Parallel()
	s := open(t)
	form := s.agent.SessionForm(issuer, userID, "")
	proof := s.agent.Proof(http.MethodPost, tokenURL, "")
	// Refused for a check that comes after those of the client and the proof.
	withScope := maps.Clone(form)
	withScope.Set("scope", "poppy:read")
	wantError(t, s.PostForm(tokenURL, withScope.Encode(), proof), http.StatusBadRequest, "invalid_scope")
	// Refused because one of the three was used before: the other two stay good.
	other := s.agent.SessionForm(issuer, userID, "")
	wantOK(t, s.agent.Token(tokenURL, other))
	replay := maps.Clone(form)
	replay.Set("assertion", other.Get("assertion"))
	wantError(t, s.PostForm(tokenURL, replay.Encode(), proof), http.StatusBadRequest, "invalid_grant")

	wantOK(t, s.PostForm(tokenURL, form.Encode(), proof))
}

func TestAGrantThatIsRefusedStaysSpent(t *testing.T) {
	t.Parallel()
	s := open(t)
	form := s.agent.SessionForm(issuer, userID, "ses_unknown")
	wantError(t, s.agent.Token(tokenURL, form), http.StatusBadRequest, "invalid_session")
	form.Del("session_id")
	wantError(t, s.agent.Token(tokenURL, form), http.StatusUnauthorized, "invalid_client")
	fresh := s.agent.Form(issuer, poppy.GrantJWTBearer)
	fresh.Set("assertion", form.Get("assertion"))
	wantError(t, s.agent.Token(tokenURL, fresh), http.StatusBadRequest, "invalid_grant")
}

func TestRenewingASession(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.start(userID)
	id := first.Text("session_id")
	// P-4.2-40, P-4.2-32
	renewed := s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, id))
	wantOK(t, renewed)
	if renewed.Text("session_id") != id || renewed.Text("access_token") == first.Text("access_token") || renewed.JSON("scope") != "" {
		t.Errorf("renewed %s", renewed.Body)
	}
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, renewed.Text("access_token"), nil))
	// P-4.2-39, P-4.2-33, P-4-02: another User's, or another agent's
	wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, "usr_other", id)), http.StatusBadRequest, "invalid_session")
	other := s.NewAgent("other-agent.example")
	wantError(t, other.Token(tokenURL, other.SessionForm(issuer, userID, id)), http.StatusBadRequest, "invalid_session")
	// P-4.2-42
	wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, "ses_unknown")), http.StatusBadRequest, "invalid_session")
	// docs/decisions.md, Q11
	form := s.agent.SessionForm(issuer, userID, id)
	form.Set("scope", "poppy:read")
	wantError(t, s.agent.Token(tokenURL, form), http.StatusBadRequest, "invalid_scope")
}

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.SessionLifetime = 2 * time.Hour })
	first := s.start(userID)
	id := first.Text("session_id")
	// Each token moves the end on; P-4.2-42: then it is over.
	s.Clock.Advance(90 * time.Minute)
	renewed := s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, id))
	wantOK(t, renewed)
	s.Clock.Advance(90 * time.Minute)
	wantOK(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, id)))
	s.Clock.Advance(2 * time.Hour)
	wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, id)), http.StatusBadRequest, "invalid_session")

	// The Company can end one at any time: its tokens are refused at once.
	second := s.start(userID)
	token, id := second.Text("access_token"), second.Text("session_id")
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
	if err := s.company.Sessions.End(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.agent.Send(http.MethodGet, ordersURL, token, nil), http.StatusUnauthorized, "invalid_token")
	wantError(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, id)), http.StatusBadRequest, "invalid_session")
	if _, err := s.company.Sessions.Lookup(t.Context(), id); err != session.ErrNoSession { //nolint:errorlint // it is documented to be this one
		t.Errorf("looking up an ended Session: %v", err)
	}
	if err := s.company.Sessions.End(t.Context(), id); err != session.ErrNoSession { //nolint:errorlint // it is documented to be this one
		t.Errorf("ending an ended Session: %v", err)
	}
}

func TestATokenEndsWithItsLifetime(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.TokenLifetime = 2 * time.Minute })
	response := s.start(userID)
	// P-4.2-29
	if response.JSON("expires_in") != float64(120) {
		t.Errorf("expires_in %v, want 120", response.JSON("expires_in"))
	}
	token := response.Text("access_token")
	s.Clock.Advance(119 * time.Second)
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
	s.Clock.Advance(time.Second)
	wantError(t, s.agent.Send(http.MethodGet, ordersURL, token, nil), http.StatusUnauthorized, "invalid_token")
}

func TestTokenLifetimesOfDaysOrNoTimeAreRefused(t *testing.T) {
	t.Parallel()
	// P-4.2-31; P-4.2-30
	for _, lifetime := range []time.Duration{25 * time.Hour, -time.Second, time.Millisecond} {
		config := outdoor()
		config.TokenLifetime = lifetime
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "token_lifetime") {
			t.Errorf("a lifetime of %v: %v", lifetime, err)
		}
	}
}

// P-4.2-30: what is left of an Account Token may be less than a token can say that it lasts.
func TestATokenIsNotIssuedForNoTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	signIn, err := s.signIn(s.token(), "acct_1", time.Minute, "poppy:read")
	if err != nil {
		t.Fatal(err)
	}
	use := func() companytest.Response {
		form := s.agent.Form(issuer, poppy.GrantRefreshToken)
		form.Set("refresh_token", signIn.RefreshToken.Reveal())
		return s.agent.Token(tokenURL, form)
	}
	s.Clock.Advance(59 * time.Second)
	if last := use(); last.JSON("expires_in") != float64(1) {
		t.Errorf("with a second left: %d %s, want expires_in 1", last.Status, last.Body)
	}
	s.Clock.Advance(500 * time.Millisecond)
	wantError(t, use(), http.StatusBadRequest, "invalid_grant")
}

func TestASignedInSession(t *testing.T) {
	t.Parallel()
	s := open(t)
	signedOut := s.token()
	signIn, err := s.signIn(signedOut, "acct_1", 30*24*time.Hour, "poppy:read", "poppy:write")
	if err != nil {
		t.Fatal(err)
	}
	accountToken, id := signIn.RefreshToken.Reveal(), signIn.SessionID
	use := func(session string, changes ...string) companytest.Response {
		form := s.agent.Form(issuer, poppy.GrantRefreshToken)
		form.Set("refresh_token", accountToken)
		if session != "" {
			form.Set("session_id", session)
		}
		for i := 0; i < len(changes); i += 2 {
			form.Set(changes[i], changes[i+1])
		}
		return s.agent.Token(tokenURL, form)
	}

	// P-4.4-27, P-4.4-31, P-4.4-32
	if signIn.CheckSignIn() != nil || signIn.RefreshTokenExpiresIn != 30*24*3600 {
		t.Errorf("the sign-in ends with %+v", signIn)
	}
	// P-4.4-40: a token that was issued signed out stays so
	wantError(t, s.agent.Send(http.MethodGet, "https://api.outdoor.example/account", signedOut, nil), http.StatusForbidden, "sign_in_required")

	// P-4.8-02: for the Session; P-4.8-04, P-4.8-05; P-4.2-36: with its scopes; P-4.8-03 and P-4-09: for a new one
	renewed := use(id)
	if renewed.Text("session_id") != id || renewed.Text("scope") != "poppy:read poppy:write" || renewed.JSON("refresh_token") != nil {
		t.Errorf("renewed %s", renewed.Body)
	}
	if seen := s.agent.Send(http.MethodGet, ordersURL, renewed.Text("access_token"), nil); seen.Text("account") != "acct_1" {
		t.Errorf("the Company sees %s", seen.Body)
	}
	fresh := use("")
	if fresh.Text("session_id") == id || fresh.Text("scope") == "" {
		t.Errorf("without session_id %s", fresh.Body)
	}
	if err := s.company.Sessions.End(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantOK(t, use("")) // P-4-09
	wantError(t, use(id), http.StatusBadRequest, "invalid_session")
	id = fresh.Text("session_id")

	// Fewer scopes; P-4.8-12: not more
	if narrow := use(id, "scope", "poppy:read"); narrow.Text("scope") != "poppy:read" {
		t.Errorf("narrower %s", narrow.Body)
	}
	wantError(t, use(id, "scope", "poppy:read addresses"), http.StatusBadRequest, "invalid_scope")
	wantError(t, use(id, "scope", `"`), http.StatusBadRequest, "invalid_scope")

	// docs/decisions.md, Q10: an assertion renews it signed out, and signs nothing out
	signedIn := use(id).Text("access_token")
	renewedOut := s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, id))
	if renewedOut.Status != http.StatusOK || renewedOut.JSON("scope") != "" {
		t.Errorf("renewed with an assertion %s", renewedOut.Body)
	}
	wantOK(t, s.agent.Send(http.MethodGet, "https://api.outdoor.example/account", signedIn, nil))

	// P-4.8-07: only from the client it was issued to; P-4.8-06: only at the token and revocation endpoints
	other := s.NewAgent("other-agent.example")
	form := other.Form(issuer, poppy.GrantRefreshToken)
	form.Set("refresh_token", accountToken)
	wantError(t, other.Token(tokenURL, form), http.StatusBadRequest, "invalid_grant")
	wantError(t, s.agent.Send(http.MethodGet, ordersURL, accountToken, nil), http.StatusUnauthorized, "invalid_token")

	// P-4.8-13: using it does not extend it; P-4.8-16: then it is invalid, and no Session Token outlives it
	s.Clock.Advance(30*24*time.Hour - 10*time.Minute)
	last := use("")
	if last.JSON("expires_in") != float64(600) {
		t.Errorf("expires_in %v, want 600", last.JSON("expires_in"))
	}
	s.Clock.Advance(10 * time.Minute)
	wantError(t, use(""), http.StatusBadRequest, "invalid_grant")
}

func TestASessionIsNeverSignedInToASecondAccount(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.start(userID)
	id, token := first.Text("session_id"), first.Text("access_token")
	one, err := s.signIn(token, "acct_1", 0, "poppy:read")
	if err != nil {
		t.Fatal(err)
	}
	two := s.signedIn("acct_2", "poppy:read")
	use := func(accountToken secret.Text) companytest.Response {
		form := s.agent.Form(issuer, poppy.GrantRefreshToken)
		form.Set("refresh_token", accountToken.Reveal())
		form.Set("session_id", id)
		return s.agent.Token(tokenURL, form)
	}
	// P-4.4-36, P-4.8-09
	wantError(t, use(two.RefreshToken), http.StatusBadRequest, "account_mismatch")
	if _, err := s.signIn(token, "acct_2", 0, "poppy:read"); poppy.CodeOf(err) != poppy.ErrAccountMismatch {
		t.Errorf("signing in to a second account: %v", err)
	}
	// P-4.8-10: not even after it was signed out
	wantOK(t, s.revoke(one.RefreshToken.Reveal()))
	wantError(t, use(two.RefreshToken), http.StatusBadRequest, "account_mismatch")
	// P-4.8-08: another User of the same agent
	other := s.start("usr_other")
	if _, err := s.signIn(other.Text("access_token"), "acct_1", 0, "poppy:read"); err != nil {
		t.Fatal(err)
	}
	id = other.Text("session_id")
	wantError(t, use(two.RefreshToken), http.StatusBadRequest, "invalid_session")
}

// revoke asks the revocation endpoint, without a proof.
func (s *shop) revoke(token string) companytest.Response {
	form := s.agent.Form(issuer, "")
	form.Del("grant_type")
	form.Set("token", token)
	form.Set("token_type_hint", "refresh_token")
	return s.PostForm(revokeURL, form.Encode())
}

func TestRevocation(t *testing.T) {
	t.Parallel()
	s := open(t)
	signIn := s.signedIn("acct_1", "poppy:read")
	token, id := signIn.AccessToken.Reveal(), signIn.SessionID
	account := "https://api.outdoor.example/account"
	wantOK(t, s.agent.Send(http.MethodGet, account, token, nil))

	// RFC 7009 2.2: a token that is unknown, or another agent's, is as good as revoked, and stays as it is
	wantOK(t, s.revoke("pat_unknown"))
	other := s.NewAgent("other-agent.example")
	form := other.Form(issuer, "")
	form.Set("token", signIn.RefreshToken.Reveal())
	wantOK(t, s.PostForm(revokeURL, form.Encode()))
	form = other.Form(issuer, "")
	form.Set("token", token)
	wantOK(t, s.PostForm(revokeURL, form.Encode()))
	wantOK(t, s.agent.Send(http.MethodGet, account, token, nil))

	// P-4.3-14: no proof; P-4.9-02, P-4.9-03, P-3.2-24
	response := s.revoke(signIn.RefreshToken.Reveal())
	if response.Status != http.StatusOK || len(response.Body) != 0 {
		t.Errorf("revoking: %d %s", response.Status, response.Body)
	}
	refresh := s.agent.Form(issuer, poppy.GrantRefreshToken)
	refresh.Set("refresh_token", signIn.RefreshToken.Reveal())
	wantError(t, s.agent.Token(tokenURL, refresh), http.StatusBadRequest, "invalid_grant")
	// P-4.9-04, P-4.9-08: the Session is signed out at once; P-4.9-18: and goes on
	wantError(t, s.agent.Send(http.MethodGet, account, token, nil), http.StatusForbidden, "sign_in_required")
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, token, nil))
	// P-4.9-05, P-4.8-17
	renewed := s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, id))
	if renewed.Status != http.StatusOK || renewed.JSON("scope") != "" {
		t.Errorf("renewed after signing out: %s", renewed.Body)
	}

	// A Session Token can be revoked too.
	wantOK(t, s.revoke(renewed.Text("access_token")))
	wantError(t, s.agent.Send(http.MethodGet, ordersURL, renewed.Text("access_token"), nil), http.StatusUnauthorized, "invalid_token")

	t.Run("the client authenticates, each time anew", func(t *testing.T) {
		t.Parallel()
		form := s.agent.Form(issuer, "")
		form.Set("token", "pat_unknown")
		wantOK(t, s.PostForm(revokeURL, form.Encode()))
		wantError(t, s.PostForm(revokeURL, form.Encode()), http.StatusUnauthorized, "invalid_client")
		wantError(t, s.PostForm(revokeURL, "token=pat_unknown"), http.StatusUnauthorized, "invalid_client")
	})
	t.Run("without a token", func(t *testing.T) {
		t.Parallel()
		wantError(t, s.PostForm(revokeURL, s.agent.Form(issuer, "").Encode()), http.StatusBadRequest, "invalid_request")
	})
}

func TestGrantsThatAreNotOffered(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, grant := range []string{"authorization_code", "password", "client_credentials", poppy.GrantDeviceCode} {
		wantError(t, s.agent.Token(tokenURL, s.agent.Form(issuer, grant)), http.StatusBadRequest, "unsupported_grant_type")
	}
	form := s.agent.Form(issuer, "")
	wantError(t, s.agent.Token(tokenURL, form), http.StatusBadRequest, "invalid_request")
	// P-4.8-16: there is no such Account Token
	form = s.agent.Form(issuer, poppy.GrantRefreshToken)
	form.Set("refresh_token", "pat_unknown")
	wantError(t, s.agent.Token(tokenURL, form), http.StatusBadRequest, "invalid_grant")
	wantError(t, s.agent.Token(tokenURL, s.agent.Form(issuer, poppy.GrantRefreshToken)), http.StatusBadRequest, "invalid_request")
}

// The order of docs/decisions.md, Q29: client, proof, grant.
func TestTheFirstFailedCheckIsTheOneThatIsNamed(t *testing.T) {
	t.Parallel()
	s := open(t)
	form := s.agent.SessionForm(issuer, userID, "")
	form.Set("assertion", "broken")
	form.Set("resource", "https://unknown.example")
	wantError(t, s.PostForm(tokenURL, form.Encode(), "broken"), http.StatusBadRequest, "invalid_dpop_proof")
	form = s.agent.SessionForm(issuer, userID, "")
	form.Set("assertion", "broken")
	form.Set("resource", "https://unknown.example")
	wantError(t, s.agent.Token(tokenURL, form), http.StatusBadRequest, "invalid_grant")
	form.Set("client_assertion", "broken")
	wantError(t, s.PostForm(tokenURL, form.Encode(), "broken"), http.StatusUnauthorized, "invalid_client")
}

func TestOneOfManyEqualRequestsWins(t *testing.T) {
	t.Parallel()
	const requests = 50
	s := open(t)
	s.start(userID) // so that the agent is known
	// P-4.2-22, P-4.1-16, P-4.3-37: each case shares one thing and has the others fresh
	for name, share := range map[string]func(form url.Values) (url.Values, string){
		"one Session assertion": func(form url.Values) (url.Values, string) {
			own := s.agent.Form(issuer, poppy.GrantJWTBearer)
			own.Set("assertion", form.Get("assertion"))
			return own, s.agent.Proof(http.MethodPost, tokenURL, "")
		},
		"one client assertion": func(form url.Values) (url.Values, string) {
			own := s.agent.SessionForm(issuer, userID, "")
			own.Set("client_assertion", form.Get("client_assertion"))
			return own, s.agent.Proof(http.MethodPost, tokenURL, "")
		},
		"one proof": func(url.Values) (url.Values, string) { return s.agent.SessionForm(issuer, userID, ""), "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared, proof := s.agent.SessionForm(issuer, userID, ""), s.agent.Proof(http.MethodPost, tokenURL, "")
			var group sync.WaitGroup
			statuses := make(chan int, requests)
			for range requests {
				form, own := share(shared)
				if own == "" {
					own = proof
				}
				group.Go(func() { statuses <- s.PostForm(tokenURL, form.Encode(), own).Status })
			}
			group.Wait()
			close(statuses)
			succeeded := 0
			for status := range statuses {
				if status == http.StatusOK {
					succeeded++
				}
			}
			if succeeded != 1 {
				t.Errorf("%d of %d requests succeeded, want 1", succeeded, requests)
			}
		})
	}
}

func TestARestartForgetsNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	path := filepath.Join(t.TempDir(), "company.db")
	s.db = s.OpenDatabase(path)
	s.run(outdoor())

	form, proof := s.agent.SessionForm(issuer, userID, ""), s.agent.Proof(http.MethodPost, tokenURL, "")
	started := s.PostForm(tokenURL, form.Encode(), proof)
	wantOK(t, started)
	signIn := s.signedIn("acct_1", "poppy:read")
	blocked := s.NewAgent("other-agent.example")
	wantOK(t, blocked.Token(tokenURL, blocked.SessionForm(issuer, userID, "")))
	if err := s.company.Agents.Block(t.Context(), blocked.ClientID); err != nil {
		t.Fatal(err)
	}

	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.db = s.OpenDatabase(path)
	s.run(outdoor())

	// What was spent stays spent: each of the three alone.
	fresh := s.agent.SessionForm(issuer, userID, "")
	wantError(t, s.PostForm(tokenURL, fresh.Encode(), proof), http.StatusBadRequest, "invalid_dpop_proof")
	fresh.Set("client_assertion", form.Get("client_assertion"))
	wantError(t, s.agent.Token(tokenURL, fresh), http.StatusUnauthorized, "invalid_client")
	fresh = s.agent.Form(issuer, poppy.GrantJWTBearer)
	fresh.Set("assertion", form.Get("assertion"))
	wantError(t, s.agent.Token(tokenURL, fresh), http.StatusBadRequest, "invalid_grant")
	// Sessions and tokens stay good, and a block holds while the agent's host is down.
	wantOK(t, s.agent.Send(http.MethodGet, ordersURL, started.Text("access_token"), nil))
	wantOK(t, s.agent.Send(http.MethodGet, "https://api.outdoor.example/account", signIn.AccessToken.Reveal(), nil))
	wantOK(t, s.agent.Token(tokenURL, s.agent.SessionForm(issuer, userID, started.Text("session_id"))))
	blocked.Fail(http.StatusServiceUnavailable)
	asked := blocked.Fetched("/agent.json")
	wantError(t, blocked.Token(tokenURL, blocked.SessionForm(issuer, userID, "")), http.StatusUnauthorized, "invalid_client")
	if blocked.Fetched("/agent.json") != asked {
		t.Error("the document of a blocked agent was fetched")
	}
}

func TestOutdatedRowsAreRemovedAFewAtATime(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) {
		c.TokenLifetime, c.SessionLifetime, c.Limits.StartsPerMinute = time.Minute, time.Hour, -1
	})
	const sessions = 20
	for range sessions {
		s.start(userID)
	}
	count := func(table string) (rows int) {
		t.Helper()
		if err := s.db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	if rows := count("spent_jti"); rows != 3*sessions {
		t.Fatalf("%d spent jtis after %d starts, want %d", rows, sessions, 3*sessions)
	}
	s.Clock.Advance(2 * time.Hour)
	s.start(userID)
	if rows := count("spent_jti"); rows <= 2*sessions {
		t.Errorf("%d spent jtis are left after one request, which should have removed a few", rows)
	}
	for range sessions {
		s.start(userID)
	}
	for _, table := range []string{"session", "session_token"} {
		if rows := count(table); rows != sessions+1 {
			t.Errorf("%d rows in %s, want %d", rows, table, sessions+1)
		}
	}
	if rows := count("spent_jti"); rows != 3*(sessions+1) {
		t.Errorf("%d spent jtis, want %d", rows, 3*(sessions+1))
	}
}
