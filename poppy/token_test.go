package poppy_test

import (
	"fmt"
	"strings"
	"testing"

	"countersign/internal/secret"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

const signedOut = `{"access_token":"eyJhbGciOi.Lm9x","token_type":"DPoP","expires_in":3600,"scope":"","session_id":"ses_2Lm0"}`

const signedIn = `{"access_token":"eyJhbGciOi.Qp4w","token_type":"DPoP","expires_in":3600,"refresh_token":"pat_8Hk2Wq1",
	"refresh_token_expires_in":2592000,"scope":"poppy:read poppy:write","session_id":"ses_2Lm0"}`

// P-4.2-27 P-4.2-35 P-4.2-36 P-4.2-37 P-4.4-31
func TestTokenResponseIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{signedOut: false, signedIn: true} {
		r, err := poppy.ParseTokenResponse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, strictjson.Raw(encoded), []byte(text))
		if r.SignedIn() != want || (r.CheckSignIn() == nil) != want {
			t.Errorf("signed in: got %t, %v", r.SignedIn(), r.CheckSignIn())
		}
	}
}

func TestTokenResponseFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  string // "" for accepted
	}{
		// P-4.2-35: absent is not empty
		"no scope":         {[]any{"scope", gone}, "scope"},
		"scope null":       {[]any{"scope", nil}, "scope"},
		"scope empty":      {[]any{"scope", ""}, ""},
		"scopes in a list": {[]any{"scope", []any{"poppy:read"}}, "scope"},
		// P-4.2-34
		"scopes with commas and spaces": {[]any{"scope", "a,  b"}, "scope"},
		// P-4.2-30
		"lasts 0":        {[]any{"expires_in", 0}, "expires_in"},
		"lasts -1":       {[]any{"expires_in", -1}, "expires_in"},
		"lasts not said": {[]any{"expires_in", gone}, "expires_in"},
		"lasts a text":   {[]any{"expires_in", "3600"}, "expires_in"},
		"lasts a half":   {[]any{"expires_in", 0.5}, "expires_in"},
		"lasts for ever": {[]any{"expires_in", 1e15}, "expires_in"},
		"lasts a second": {[]any{"expires_in", 1}, ""},
		// P-4.2-28
		"no type":          {[]any{"token_type", gone}, "token_type"},
		"another type":     {[]any{"token_type", "mac"}, "token_type"},
		"type in any case": {[]any{"token_type", "dpop"}, ""},
		"Bearer":           {[]any{"token_type", "BEARER"}, ""},
		// P-4.2-27
		"no token":              {[]any{"access_token", gone}, "access_token"},
		"token with a space":    {[]any{"access_token", "a b"}, "access_token"},
		"token with a new line": {[]any{"access_token", "a\r\nX: y"}, "access_token"},
		"only padding":          {[]any{"access_token", "=="}, "access_token"},
		"padded":                {[]any{"access_token", "YQ=="}, ""},
		"no session":            {[]any{"session_id", gone}, "session_id"},
		"session and new line":  {[]any{"session_id", "a\nb"}, "session_id"},
		// P-4.4-31 P-4.4-32
		"account token too long": {[]any{"refresh_token", strings.Repeat("a", 16<<10+1)}, "refresh_token"},
		"account 0 seconds":      {[]any{"refresh_token_expires_in", 0}, "refresh_token_expires_in"},
		"account no limit":       {[]any{"refresh_token_expires_in", gone}, ""},
		"no account token":       {[]any{"refresh_token", gone, "refresh_token_expires_in", gone}, ""},
		"old signed_in flag":     {[]any{"signed_in", true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := poppy.ParseTokenResponse(edit(t, []byte(signedIn), test.edits...))
			if test.want == "" {
				wantFields(t, err)
				return
			}
			wantFields(t, err, test.want)
			if !r.AccessToken.IsZero() || !r.RefreshToken.IsZero() {
				t.Error("tokens together with an error")
			}
		})
	}
	if _, err := poppy.ParseTokenResponse([]byte(`{"scope":"a","scope":""}`)); err == nil {
		t.Error("a member twice")
	}
	if _, err := poppy.ParseTokenResponse([]byte(`{"access_token":"` + strings.Repeat("a", poppy.MaxTokenBytes) + `"}`)); err == nil {
		t.Error("no bound")
	}
}

// Section 4.4: how every sign-in ends.
func TestCheckSignIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		"no Account Token":      {[]any{"refresh_token", gone}, []string{"refresh_token"}},
		"no scope was approved": {[]any{"scope", ""}, []string{"scope"}},
		"neither":               {[]any{"scope", "", "refresh_token", ""}, []string{"refresh_token", "scope"}},
	} {
		r, err := poppy.ParseTokenResponse(edit(t, []byte(signedIn), test.edits...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantFields(t, r.CheckSignIn(), test.want...)
	}
}

func TestTokensAreNotPrinted(t *testing.T) {
	t.Parallel()
	r, err := poppy.ParseTokenResponse([]byte(signedIn))
	if err != nil {
		t.Fatal(err)
	}
	d := poppy.DeviceAuthorization{DeviceCode: secret.New("dev_8Hk2Wq1")}
	m := poppy.MediatedRequest{Credentials: map[string]secret.Text{"password": secret.New("pwd_8Hk2Wq1")}}
	_, parseErr := poppy.ParseTokenResponse([]byte(`{"access_token":"eyJ pat_8Hk2Wq1","refresh_token":5}`))
	printed := fmt.Sprintf("%v %+v %#v %v %+v %v %+v %v", r, r, r, d, d, m, m, parseErr)
	for _, v := range []any{r, d, m} {
		text, err := strictjson.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		printed += string(text)
	}
	for _, leak := range []string{"eyJ", "8Hk2Wq1"} {
		if strings.Contains(printed, leak) {
			t.Errorf("printed %s", printed)
		}
	}
}

const deviceAnswer = `{"device_code":"GmRhmhcxhw","user_code":"WDJB-MJHT","verification_uri":"https://auth.outdoor.example/device",
	"verification_uri_complete":"https://auth.outdoor.example/device?user_code=WDJB-MJHT","expires_in":600,"interval":7}`

// P-4.6-04
func TestDeviceAuthorization(t *testing.T) {
	t.Parallel()
	d, err := poppy.ParseDeviceAuthorization([]byte(deviceAnswer))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, strictjson.Raw(encoded), []byte(deviceAnswer))

	d, err = poppy.ParseDeviceAuthorization(edit(t, []byte(deviceAnswer), "interval", gone, "verification_uri_complete", gone))
	if err != nil || d.Interval != 5 {
		t.Errorf("got an interval of %d, %v, want the 5 seconds of RFC 8628", d.Interval, err)
	}
	for name, test := range map[string]struct {
		edits []any
		want  string
	}{
		"no device code": {[]any{"device_code", ""}, "device_code"},
		"no user code":   {[]any{"user_code", gone}, "user_code"},
		"odd user code":  {[]any{"user_code", "a\x1b[2J"}, "user_code"},
		"no link":        {[]any{"verification_uri", gone}, "verification_uri"},
		// P-3-18
		"link by http":          {[]any{"verification_uri", "http://auth.outdoor.example"}, "verification_uri"},
		"complete link by http": {[]any{"verification_uri_complete", "http://auth.outdoor.example"}, "verification_uri_complete"},
		"lasts 0":               {[]any{"expires_in", 0}, "expires_in"},
		"interval 0":            {[]any{"interval", 0}, "interval"},
	} {
		_, err := poppy.ParseDeviceAuthorization(edit(t, []byte(deviceAnswer), test.edits...))
		t.Log(name)
		wantFields(t, err, test.want)
	}
}

// P-4.2-28: compared ignoring case (RFC 6749 5.1), written as the protocol writes it.
func TestParseTokenType(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]poppy.TokenType{"DPoP": "DPoP", "dpop": "DPoP", "DPOP": "DPoP", "bearer": "Bearer", "Bearer": "Bearer", "": "", "Basic": "", "DPoP ": ""} {
		if got, ok := poppy.ParseTokenType(text); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %t", text, got, ok)
		}
	}
}
