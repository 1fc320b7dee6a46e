package company_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"countersign/company/companytest"
	"countersign/poppy"
)

// Whatever is sent, the answer is an error of the protocol and never one of ours.
func TestBadInputIsAnswered(t *testing.T) {
	t.Parallel()
	s := open(t)
	token := s.token()
	form := func() string { return s.agent.SessionForm(issuer, userID, "").Encode() }
	const urlencoded, json = "application/x-www-form-urlencoded", "application/json"
	for name, c := range map[string]struct {
		method, url, contentType, body string
		status                         int
		code                           string
	}{
		// P-4.2-47
		"token: JSON":                {http.MethodPost, tokenURL, json, `{"grant_type":"refresh_token"}`, 400, "invalid_request"},
		"token: no content type":     {http.MethodPost, tokenURL, "", form(), 400, "invalid_request"},
		"token: 10 MiB":              {http.MethodPost, tokenURL, urlencoded, "assertion=" + strings.Repeat("a", 10<<20), 400, "invalid_request"},
		"token: broken encoding":     {http.MethodPost, tokenURL, urlencoded, "grant_type=%zz", 400, "invalid_request"},
		"token: a parameter twice":   {http.MethodPost, tokenURL, urlencoded, form() + "&grant_type=refresh_token", 400, "invalid_request"},
		"token: nothing":             {http.MethodPost, tokenURL, urlencoded, "", 401, "invalid_client"},
		"token: many parameters":     {http.MethodPost, tokenURL, urlencoded, strings.Repeat("a&", 30000), 400, "invalid_request"},
		"token: a NUL in session_id": {http.MethodPost, tokenURL, urlencoded, s.agent.SessionForm(issuer, userID, "ses_\x00").Encode(), 400, "invalid_session"},
		"token: invalid UTF-8":       {http.MethodPost, tokenURL, urlencoded, s.agent.SessionForm(issuer, userID, "ses_\xff").Encode(), 400, "invalid_request"},
		"token: a huge session_id":   {http.MethodPost, tokenURL, urlencoded, s.agent.SessionForm(issuer, userID, strings.Repeat("s", 40<<10)).Encode(), 400, "invalid_session"},
		"token: GET":                 {http.MethodGet, tokenURL, "", "", 405, "method_not_allowed"},
		"token: PUT":                 {http.MethodPut, tokenURL, urlencoded, form(), 405, "method_not_allowed"},
		"revocation: JSON":           {http.MethodPost, revokeURL, json, `{"token":"x"}`, 400, "invalid_request"},
		"revocation: 10 MiB":         {http.MethodPost, revokeURL, urlencoded, "token=" + strings.Repeat("a", 10<<20), 400, "invalid_request"},
		"revocation: DELETE":         {http.MethodDelete, revokeURL, "", "", 405, "method_not_allowed"},
		"document: POST":             {http.MethodPost, documentURL, json, "{}", 405, "method_not_allowed"},
		"an unknown path":            {http.MethodGet, issuer + "/oauth/unknown", "", "", 404, "not_found"},
		"an unclean path":            {http.MethodPost, issuer + "//oauth/token", urlencoded, form(), 404, "not_found"},
		"a path with dots":           {http.MethodGet, "https://outdoor.example/x/.." + poppy.DocumentPath, "", "", 404, "not_found"},
		"below an endpoint":          {http.MethodPost, tokenURL + "/more", urlencoded, form(), 404, "not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{"Dpop": {s.agent.Proof(c.method, tokenURL, "")}}
			if c.contentType != "" {
				header.Set("Content-Type", c.contentType)
			}
			response := s.Do(c.method, c.url, header, []byte(c.body))
			wantError(t, response, c.status, c.code)
			if response.Header.Get("Content-Type") != "application/json" {
				t.Errorf("Content-Type %q", response.Header.Get("Content-Type"))
			}
			if c.status == http.StatusMethodNotAllowed && response.Header.Get("Allow") == "" {
				t.Error("no Allow header")
			}
		})
	}
	deep := []byte(strings.Repeat(`{"message":`, 10_000) + "1" + strings.Repeat("}", 10_000))
	for name, body := range map[string][]byte{
		"not JSON": []byte("hello"), "nested deeply": deep, "a member twice": []byte(`{"message":{"id":"a","id":"b","sender":"agent","text":"x"}}`),
		"a list": []byte(`[]`), "invalid UTF-8": []byte("{\"message\":{\"id\":\"a\",\"sender\":\"agent\",\"text\":\"\xff\"}}"),
		"a null byte": bytes.Repeat([]byte{0}, 100),
	} {
		t.Run("conversations: "+name, func(t *testing.T) {
			t.Parallel()
			wantError(t, s.agent.Send(http.MethodPost, conversations, token, body), http.StatusBadRequest, "invalid_request")
		})
	}
}

// P-4.2-47: each code of the token endpoint that can occur, in its place
func TestTheErrorsOfTheTokenEndpointAreOAuthErrors(t *testing.T) {
	t.Parallel()
	s := open(t)
	grant := func(change func(form map[string][]string)) companytest.Response {
		form := s.agent.SessionForm(issuer, userID, "")
		change(form)
		return s.agent.Token(tokenURL, form)
	}
	for code, response := range map[string]companytest.Response{
		"invalid_client":         grant(func(f map[string][]string) { f["client_assertion"] = []string{"x"} }),
		"invalid_grant":          grant(func(f map[string][]string) { f["assertion"] = []string{"x"} }),
		"invalid_session":        grant(func(f map[string][]string) { f["session_id"] = []string{"x"} }),
		"invalid_scope":          grant(func(f map[string][]string) { f["scope"] = []string{"poppy:read"} }),
		"invalid_target":         grant(func(f map[string][]string) { f["resource"] = []string{"https://elsewhere.example"} }),
		"unsupported_grant_type": grant(func(f map[string][]string) { f["grant_type"] = []string{"password"} }),
		"invalid_request":        grant(func(f map[string][]string) { delete(f, "grant_type") }),
		"invalid_dpop_proof":     s.PostForm(tokenURL, s.agent.SessionForm(issuer, userID, "").Encode()),
	} {
		wantError(t, response, (&poppy.Error{Code: poppy.ErrorCode(code)}).Status(poppy.SurfaceToken), code)
		if response.Header.Get("Content-Type") != "application/json" || response.Header.Get("Cache-Control") != "no-store" ||
			response.Text("error_description") == "" {
			t.Errorf("%s: %v %s", code, response.Header, response.Body)
		}
		if response.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: WWW-Authenticate %q at an OAuth endpoint", code, response.Header.Get("WWW-Authenticate"))
		}
	}
}
