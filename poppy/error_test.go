package poppy_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// P-4.2-47 P-4.3-44 P-4.3-45 P-6-14 P-7.13-01 P-7.13-02 P-8-15 P-8-16 P-3.3-10 P-3.3-11 P-3.3-12
// O-9-01 O-9-02 O-9-03 O-9-04 O-9-05 O-9-06: where each code occurs, with which status, and whether it is in a challenge.
func TestErrorsOnEverySurface(t *testing.T) {
	t.Parallel()
	const no = 0
	for _, test := range []struct {
		code                 poppy.ErrorCode
		token, protocol, api int
		challenged           bool // at protocol endpoints
	}{
		{"invalid_request", 400, 400, 400, false},
		{"invalid_client", 401, no, no, false},
		{"invalid_grant", 400, no, no, false},
		{"invalid_session", 400, 400, no, false},
		{"account_mismatch", 400, 400, no, false},
		{"invalid_scope", 400, 400, no, false},
		{"invalid_target", 400, no, no, false},
		{"unsupported_grant_type", 400, no, no, false},
		{"unauthorized_client", 400, no, no, false},
		{"unsupported_token_type", 400, no, no, false},
		{"authorization_pending", 400, no, no, false},
		{"slow_down", 400, no, no, false},
		{"access_denied", 400, no, no, false},
		{"expired_token", 400, no, no, false},
		{"invalid_dpop_proof", 400, 401, 401, true},
		{"use_dpop_nonce", 400, 401, 401, true},
		{"invalid_token", no, 401, 401, true},
		{"sign_in_required", no, 403, 403, true},
		{"insufficient_scope", no, 403, 403, true},
		{"extension_required", 403, 403, 403, false},
		{"rate_limited", 429, 429, 429, false},
		{"conversation_not_found", no, 404, no, false},
		{"conversation_closed", no, 409, no, false},
		{"direct_conversation_open", no, 409, no, false},
		{"message_id_conflict", no, 409, no, false},
		{"invalid_cursor", no, 400, no, false},
		{"cursor_expired", no, 410, no, false},
		{"operation_not_found", no, 404, no, false},
		{"terms_changed", no, 409, no, false},
		{"user_approval_required", no, 403, no, false},
		{"server_error", 500, 500, 500, false},
	} {
		for surface, want := range map[poppy.Surface]int{poppy.SurfaceToken: test.token, poppy.SurfaceProtocol: test.protocol, poppy.SurfaceAPI: test.api} {
			e := &poppy.Error{Code: test.code}
			status, header, body, err := e.Response(surface)
			if err != nil {
				t.Fatal(err)
			}
			if want == no {
				want = http.StatusInternalServerError // does not occur there
			}
			if status != want || e.Status(surface) != want {
				t.Errorf("%s on surface %d: got %d, want %d", test.code, surface, status, want)
			}
			var read struct {
				Error       string `json:"error"`
				Description string `json:"error_description"`
			}
			if err := strictjson.Unmarshal(body, &read); err != nil || read.Error != string(test.code) {
				t.Errorf("%s on surface %d: body %s", test.code, surface, body)
			}
			// RFC 6749 section 5.2 names the characters.
			if strings.ContainsFunc(read.Description, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
				t.Errorf("%s: %s", test.code, read.Description)
			}
			if e.Meaning() == "" {
				t.Errorf("%s has no meaning", test.code)
			}
			challenged := surface != poppy.SurfaceToken && test.challenged || surface == poppy.SurfaceAPI && test.code == "extension_required"
			if got := header.Get("WWW-Authenticate"); challenged != (got == `DPoP error="`+string(test.code)+`"`) || !challenged && got != "" {
				t.Errorf("%s on surface %d: challenge %q", test.code, surface, got)
			}
			if header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: header %v", test.code, header)
			}
			if (header.Get("Retry-After") != "") != (test.code == "rate_limited") {
				t.Errorf("%s: Retry-After %q", test.code, header.Get("Retry-After"))
			}
		}
	}
	if status := (&poppy.Error{Code: "made_up"}).Status(poppy.SurfaceToken); status != 500 {
		t.Errorf("an unknown code has status %d", status)
	}
}

func TestErrorExtras(t *testing.T) {
	t.Parallel()
	changed := operation(t, "proposed.json")
	for name, test := range map[string]struct {
		e         poppy.Error
		surface   poppy.Surface
		body      string // without error_description
		challenge string
		header    [2]string
	}{
		// P-6-17
		"scopes": {
			e: poppy.Error{Code: poppy.ErrInsufficientScope, Scope: "poppy:read poppy:write"}, surface: poppy.SurfaceAPI,
			body: `{"error":"insufficient_scope","scope":"poppy:read poppy:write"}`, challenge: `DPoP error="insufficient_scope", scope="poppy:read poppy:write"`,
		},
		// P-3.3-11
		"extension in a body": {
			e: poppy.Error{Code: poppy.ErrExtensionRequired, Extension: "operations"}, surface: poppy.SurfaceProtocol,
			body: `{"error":"extension_required","extension":"operations"}`,
		},
		// P-3.3-12
		"extension in a header": {
			e: poppy.Error{Code: poppy.ErrExtensionRequired, Extension: "operations"}, surface: poppy.SurfaceAPI,
			body: `{"error":"extension_required","extension":"operations"}`, challenge: `DPoP error="extension_required", extension="operations"`,
		},
		// section 7.10
		"conversation": {
			e: poppy.Error{Code: poppy.ErrDirectConversationOpen, ConversationID: "cnv_1"}, surface: poppy.SurfaceProtocol,
			body: `{"error":"direct_conversation_open","conversation_id":"cnv_1"}`,
		},
		// O-9-04
		"operation": {
			e: poppy.Error{Code: poppy.ErrTermsChanged, Operation: &changed}, surface: poppy.SurfaceProtocol,
			body: `{"error":"terms_changed","operation":` + string(load(t, "proposed.json")) + `}`,
		},
		// section 4.3
		"nonce at the token endpoint": {
			e: poppy.Error{Code: poppy.ErrUseDPoPNonce, Nonce: "n-1"}, surface: poppy.SurfaceToken,
			body: `{"error":"use_dpop_nonce"}`, header: [2]string{"DPoP-Nonce", "n-1"},
		},
		"nonce elsewhere": {
			e: poppy.Error{Code: poppy.ErrUseDPoPNonce, Nonce: "n-1"}, surface: poppy.SurfaceProtocol,
			body: `{"error":"use_dpop_nonce"}`, challenge: `DPoP error="use_dpop_nonce"`, header: [2]string{"DPoP-Nonce", "n-1"},
		},
		// P-4.3-77 P-4.3-79
		"wait": {
			e: poppy.Error{Code: poppy.ErrRateLimited, RetryAfter: 1500 * time.Millisecond}, surface: poppy.SurfaceProtocol,
			body: `{"error":"rate_limited"}`, header: [2]string{"Retry-After", "2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.e.Cause = errors.New("cAuSe")
			status, header, body, err := test.e.Response(test.surface)
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, strictjson.Raw(edit(t, body, "error_description", gone)), []byte(test.body))
			if header.Get("WWW-Authenticate") != test.challenge {
				t.Errorf("got challenge %q", header.Get("WWW-Authenticate"))
			}
			if test.header[0] != "" && header.Get(test.header[0]) != test.header[1] {
				t.Errorf("got header %v", header)
			}
			if sent := fmt.Sprint(header, string(body)); strings.Contains(sent, "cAuSe") {
				t.Errorf("the cause is sent: %s", sent)
			}
			// What one side writes, the other reads.
			read := poppy.ParseError(status, header, body)
			if read.Code != test.e.Code || read.Scope != test.e.Scope || read.Extension != test.e.Extension ||
				read.ConversationID != test.e.ConversationID || (read.Operation == nil) != (test.e.Operation == nil) ||
				read.Nonce != test.e.Nonce || read.HTTPStatus != status {
				t.Errorf("read as %+v", read)
			}
		})
	}
	// The protocol spells out two bodies in full: P-4.3-79 P-3.3-11
	for want, e := range map[string]poppy.Error{
		`{"error":"rate_limited"}`:                              {Code: poppy.ErrRateLimited},
		`{"error":"extension_required","extension":"gift.x/a"}`: {Code: poppy.ErrExtensionRequired, Extension: "gift.x/a"},
	} {
		if body, err := e.Body(); err != nil || string(body) != want {
			t.Errorf("got %s, %v", body, err)
		}
	}
}

// Section 6: a challenge for each scheme that is accepted.
func TestErrorAtAnMCPServerChallengesForEveryScheme(t *testing.T) {
	t.Parallel()
	metadata := poppy.Param{Name: "resource_metadata", Value: "https://mcp.outdoor.example/.well-known/oauth-protected-resource/mcp"}
	accepted := []poppy.Challenge{
		{Scheme: "Bearer", Params: []poppy.Param{metadata}},
		{Scheme: "DPoP", Params: []poppy.Param{{Name: "algs", Value: "ES256"}, metadata}},
	}
	_, header, _, err := (&poppy.Error{Code: poppy.ErrInvalidToken}).Response(poppy.SurfaceAPI, accepted...)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`Bearer error="invalid_token", resource_metadata="` + metadata.Value + `"`,
		`DPoP error="invalid_token", algs="ES256", resource_metadata="` + metadata.Value + `"`,
	}
	if got := header.Values("WWW-Authenticate"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if len(accepted[0].Params) != 1 {
		t.Error("the given challenges were changed")
	}
}

func TestParseError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		header http.Header
		body   string
		want   poppy.Error
	}{
		"OAuth body": {
			400, nil, `{"error":"invalid_grant","error_description":"Used twice."}`,
			poppy.Error{Code: poppy.ErrInvalidGrant, Description: "Used twice."},
		},
		// Q18: the header first
		"header and body": {
			403,
			http.Header{"Www-Authenticate": {`DPoP error="insufficient_scope", scope="poppy:write"`}},
			`{"error":"sign_in_required","error_description":"x","scope":"y"}`,
			poppy.Error{Code: poppy.ErrInsufficientScope, Scope: "poppy:write"},
		},
		"header, and its scope in the body": {
			403,
			http.Header{"Www-Authenticate": {`DPoP error="insufficient_scope"`}},
			`{"error":"insufficient_scope","scope":"poppy:write"}`,
			poppy.Error{Code: poppy.ErrInsufficientScope, Scope: "poppy:write"},
		},
		"header without error": {
			403,
			http.Header{"Www-Authenticate": {`DPoP algs="ES256"`}},
			`{"error":"sign_in_required"}`,
			poppy.Error{Code: poppy.ErrSignInRequired},
		},
		"malformed header": {
			401,
			http.Header{"Www-Authenticate": {`DPoP error="invalid_dpop_proof`}},
			`{"error":"use_dpop_nonce"}`,
			poppy.Error{Code: poppy.ErrUseDPoPNonce},
		},
		// Q2: the code counts, whatever the status
		"sign_in_required with 401": {
			401,
			http.Header{"Www-Authenticate": {`dpop ERROR=sign_in_required`}},
			``,
			poppy.Error{Code: poppy.ErrSignInRequired},
		},
		// no code at all
		"bare 401":           {401, nil, ``, poppy.Error{Code: poppy.ErrInvalidToken}},
		"401 by a proxy":     {401, http.Header{"Www-Authenticate": {`Basic realm="staging"`}}, `<html>`, poppy.Error{Code: poppy.ErrInvalidToken}},
		"challenge, no code": {401, http.Header{"Www-Authenticate": {`Bearer resource_metadata="https://a.example/b"`}}, ``, poppy.Error{Code: poppy.ErrInvalidToken}},
		"bare 403":           {403, nil, ``, poppy.Error{}},
		"bare 500":           {500, nil, `oops`, poppy.Error{}},
		// section 4.3: an API keeps its own body
		"429 with a body of the API's": {
			429,
			http.Header{"Retry-After": {"30"}},
			`{"error":{"message":"slow"}}`,
			poppy.Error{Code: poppy.ErrRateLimited, RetryAfter: 30 * time.Second},
		},
		// the scheme that the agent's proofs belong to
		"both schemes, DPoP first": {
			401,
			http.Header{"Www-Authenticate": {`Bearer error="invalid_token"`, `DPoP error="use_dpop_nonce"`}, "Dpop-Nonce": {"n-1"}},
			``,
			poppy.Error{Code: poppy.ErrUseDPoPNonce, Nonce: "n-1"},
		},
		"only Bearer": {
			401,
			http.Header{"Www-Authenticate": {`Bearer error="invalid_token", error_description="Expired, sorry"`}},
			``,
			poppy.Error{Code: poppy.ErrInvalidToken, Description: "Expired, sorry"},
		},
		"an extension": {
			403,
			http.Header{"Www-Authenticate": {`DPoP error="extension_required", extension="operations"`}},
			``,
			poppy.Error{Code: poppy.ErrExtensionRequired, Extension: "operations"},
		},
		"a code of later":          {400, nil, `{"error":"too_shiny","x":1}`, poppy.Error{Code: "too_shiny"}},
		"an error that is no text": {400, nil, `{"error":5}`, poppy.Error{}},
		"a member twice":           {400, nil, `{"error":"a","error":"b"}`, poppy.Error{}},
		"another conversation":     {409, nil, `{"error":"direct_conversation_open","conversation_id":"cnv_1"}`, poppy.Error{Code: poppy.ErrDirectConversationOpen, ConversationID: "cnv_1"}},
		"no ID":                    {409, nil, `{"error":"direct_conversation_open","conversation_id":"../a"}`, poppy.Error{Code: poppy.ErrDirectConversationOpen}},
		"terms without operation":  {409, nil, `{"error":"terms_changed","operation":{"operation_id":"a"}}`, poppy.Error{Code: poppy.ErrTermsChanged}},
		"a text for a terminal": {
			400, nil, `{"error":"invalid_request","error_description":"a\u001b[2J\nb` + strings.Repeat("é", 400) + `"}`,
			poppy.Error{Code: poppy.ErrInvalidRequest, Description: "a [2J b" + strings.Repeat("é", 293) + "…"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.want.HTTPStatus = test.status
			if got := poppy.ParseError(test.status, test.header, []byte(test.body)); *got != test.want {
				t.Errorf("got  %+v\nwant %+v", *got, test.want)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := errors.New("no row")
	for want, e := range map[string]*poppy.Error{
		"invalid_session: The Session has ended or is not this Personal Agent's. Start a new Session.: no row": {Code: poppy.ErrInvalidSession, Cause: cause},
		"insufficient_scope: Not enough. [poppy:write]":                                                        {Code: poppy.ErrInsufficientScope, Description: "Not enough.", Scope: "poppy:write"},
		"extension_required: This needs an extension that the Personal Agent's metadata document does not list. [operations]": {
			Code: poppy.ErrExtensionRequired, Extension: "operations",
		},
		"HTTP status 502": {HTTPStatus: 502},
		"too_shiny":       {Code: "too_shiny", HTTPStatus: 400},
	} {
		if e.Error() != want {
			t.Errorf("got %s", e)
		}
	}
	wrapped := fmt.Errorf("renewing: %w", &poppy.Error{Code: poppy.ErrInvalidSession, Cause: cause})
	if poppy.CodeOf(wrapped) != poppy.ErrInvalidSession || !errors.Is(wrapped, cause) || poppy.CodeOf(cause) != "" || poppy.CodeOf(nil) != "" {
		t.Error("the code or the cause is lost")
	}
}

// Section 4.3: how long to wait.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const date = "Thu, 08 Oct 2026 19:03:00 GMT"
	for _, test := range []struct {
		retryAfter, date string
		want             time.Duration
	}{
		{"120", "", 2 * time.Minute},
		{"0", "", 0},
		{"999999999", "", 999999999 * time.Second},
		{"Thu, 08 Oct 2026 19:04:30 GMT", date, 90 * time.Second},
		{"Thu, 08 Oct 2026 19:02:00 GMT", date, 0},
		{"Thu, 08 Oct 2026 19:04:30 GMT", "", 0},
		{"", date, 0},
		{"-5", date, 0},
		{"1.5", date, 0},
		{"99999999999999999999", date, 0},
		{"soon", date, 0},
	} {
		header := http.Header{"Retry-After": {test.retryAfter}, "Date": {test.date}}
		if got := poppy.ParseRetryAfter(header); got != test.want {
			t.Errorf("%q at %q: got %s", test.retryAfter, test.date, got)
		}
	}
	for wait, want := range map[time.Duration]string{0: "1", -time.Second: "1", time.Nanosecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Hour: "3600"} {
		if got := poppy.FormatRetryAfter(wait); got != want {
			t.Errorf("%s: got %s", wait, got)
		}
	}
}
