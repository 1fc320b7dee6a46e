package poppy_test

import (
	"strings"
	"testing"
	"time"

	"countersign/internal/secret"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// P-4.7-06 P-4.7-10
func TestMediatedRequestsOnTheWire(t *testing.T) {
	t.Parallel()
	const text = `{"scope":"poppy:read","credentials":{"email":"a","password":"b"}}`
	r, err := poppy.ParseMediatedRequest([]byte(text))
	if err != nil || r.Scope != "poppy:read" || r.Credentials["password"].Reveal() != "b" {
		t.Fatalf("got %v, %v", r, err)
	}
	encoded, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, strictjson.Raw(encoded), []byte(text))

	code, err := poppy.ParseMediatedCode([]byte(`{"code":"123456","x":1}`))
	if err != nil || code.Reveal() != "123456" {
		t.Errorf("got %v, %v", code, err)
	}
	encoded, err = poppy.EncodeMediatedCode(secret.New("123456"))
	if err != nil || string(encoded) != `{"code":"123456"}` {
		t.Errorf("got %s, %v", encoded, err)
	}
}

func TestMediatedRequestFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                                 "credentials",
		`{"credentials":{}}`:                 "credentials",
		`{"credentials":"a"}`:                "credentials",
		`{"credentials":{"pin":1234}}`:       "credentials.pin",
		`{"scope":5,"credentials":{"a":""}}`: "scope",
		`[]`:                                 "",
		`x`:                                  "",
	} {
		_, err := poppy.ParseMediatedRequest([]byte(text))
		wantFields(t, err, want)
		if err != nil && strings.Contains(err.Error(), "1234") {
			t.Errorf("a credential in %v", err)
		}
	}
	// Section 4.4: a missing scope is invalid_scope, which the Company answers, not a malformed request.
	if r, err := poppy.ParseMediatedRequest([]byte(`{"credentials":{"a":"b"}}`)); err != nil || r.Scope != "" {
		t.Error(err)
	}
	for _, text := range []string{`{}`, `{"code":""}`, `{"code":null}`, `{"code":123456}`} {
		if _, err := poppy.ParseMediatedCode([]byte(text)); err == nil {
			t.Errorf("%s accepted", text)
		}
	}
}

// P-4.7-07 P-4.7-08
func TestMediatedResponsesAreReadAndWrittenAsTheyStand(t *testing.T) {
	t.Parallel()
	complete := edit(t, []byte(signedIn), "status", "complete")
	for name, text := range map[string]string{
		"complete":      string(complete),
		"code required": `{"status":"code_required","sign_in_id":"sgn_3Hq8","code":{"sent_to":"Text to the number ending in 71"},"expires_at":"2026-10-03T00:15:00Z"}`,
		"failed":        `{"status":"failed"}`,
		"expired":       `{"status":"expired"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := poppy.ParseMediatedResponse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, strictjson.Raw(encoded), []byte(text))
		})
	}
	r, err := poppy.ParseMediatedResponse(complete)
	if err != nil || r.Tokens.RefreshToken.Reveal() != "pat_8Hk2Wq1" || !r.Tokens.SignedIn() {
		t.Errorf("got %v, %v", r, err)
	}
	r, err = poppy.ParseMediatedResponse([]byte(`{"status":"code_required","sign_in_id":"sgn_3Hq8","expires_at":"2026-10-02T17:15:00-07:00"}`))
	if err != nil || r.SignInID != "sgn_3Hq8" || !r.ExpiresAt.Equal(time.Date(2026, 10, 3, 0, 15, 0, 0, time.UTC)) {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestMediatedResponseFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                         "status",
		`{"status":"done"}`:          "status",
		`{"status":"code_required"}`: "sign_in_id",
		`{"status":"code_required","sign_in_id":"a","expires_at":"soon"}`:              "expires_at",
		string(edit(t, []byte(signedIn), "status", "complete", "scope", gone)):         "scope",
		string(edit(t, []byte(signedIn), "status", "complete", "scope", "")):           "scope",
		string(edit(t, []byte(signedIn), "status", "complete", "refresh_token", gone)): "refresh_token",
	} {
		_, err := poppy.ParseMediatedResponse([]byte(text))
		wantFields(t, err, want)
	}
}
