package provider_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"countersign/broker/provider"
)

// secrets are credentials as a provider may echo them; none of the marked parts may survive.
var secrets = map[string]struct{ text, mark string }{
	"GitHub token":           {"bad credentials ghp_MARKmarkMARKmark0123456789 given", "MARK"},
	"GitHub fine-grained":    {"github_pat_11AAMARK_0123456789abcdef", "MARK"},
	"token after underscore": {"x_ghs_MARKmark0123456789", "MARK"},
	"bearer":                 {"sent Bearer MARK0123456789abcdef", "MARK"},
	"basic":                  {"header was basic TUFSSzpNQVJLTUFSSw==", "TUFSSz"},
	"authorization header":   {`Authorization: Custom MARK0123`, "MARK"},
	"authorization member":   {`{"authorization":"MARK0123"}`, "MARK"},
	"cookie header":          {"Cookie: a=MARK1; b=MARK2", "MARK"},
	"JWT":                    {"got eyJhbGciOiJFUzI1NiJ9.eyJNQVJLIjoxfQ.c2lnbmF0dXJl back", "eyJNQVJL"},
	"URL":                    {"fetching https://user:MARK@api.outdoor.example/x failed", "MARK"},
	"URL with user only":     {"cloning https://MARK@git.outdoor.example/x", "MARK"},
	"private key":            {"-----BEGIN EC PRIVATE KEY-----\nMARK\nMARK==\n-----END EC PRIVATE KEY-----", "MARK"},
	"half a private key":     {"-----BEGIN OPENSSH PRIVATE KEY-----\nMARK", "MARK"},
	"label =":                {"client_secret=MARKvalue&x=1", "MARK"},
	"label :":                {"the password: MARKvalue was wrong", "MARK"},
	"quoted label":           {`{"api_key": "MARK with spaces"}`, "MARK"},
	"JSON in a string":       {`{"log":"{\"access_token\":\"MARK with spaces\"}"}`, "MARK"},
	"header in a string":     {`{"log":"{\"authorization\":\"Custom MARK\",\"x\":1}"}`, "MARK"},
	"cookie in a string":     {`{"log":"{\"cookie\":\"a=MARK; b=MARK\"}"}`, "MARK"},
	"JSON deep in strings":   {`{\\\"token\\\": \\\"MARK\\\"}`, "MARK"},
	"access_token query":     {"GET /x?access_token=MARK", "MARK"},
	"split by control":       {"Bea\x00rer MARK0123456789", "MARK"},
	"split by zero width":    {"gh\u200bp_MARK0123456789", "MARK"},
}

// B-results-05 B-results-08
func TestSanitizeRedactsCredentials(t *testing.T) {
	t.Parallel()
	for name, c := range secrets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := provider.Sanitize(c.text, 500)
			if strings.Contains(got, c.mark) || !strings.Contains(got, provider.Redacted) {
				t.Fatalf("%q", got)
			}
		})
	}
}

func TestSanitizeKeepsWhatIsUseful(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Merge method disabled: squash merging is not allowed on this repository.",
		"Order ord_7Hk2 of 2026-10-08 has no item itm_4Qa.",
		"See https://api.outdoor.example/docs?page=2#errors",
		"commit 0123456789abcdef0123456789abcdef01234567 not found",
	} {
		if got := provider.Sanitize(text, 500); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// B-results-07
func TestSanitizeRemovesControlCharacters(t *testing.T) {
	t.Parallel()
	got := provider.Sanitize("a\x00\x1b[31mb\r\n\tc\u202ed\u0085e \xff f", 500)
	if got != "a[31mb cd e f" {
		t.Fatalf("%q", got)
	}
}

// B-results-09
func TestSanitizeLimitsTheText(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"words": strings.Repeat("word ", 1<<18), "one word": strings.Repeat("x", 1<<20), "wide": strings.Repeat("é", 400),
	} {
		got := provider.Sanitize(text, 500)
		if len(got) > 500 || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, valid %v", name, len(got), utf8.ValidString(got))
		}
	}
	token := strings.Repeat("Bearer "+strings.Repeat("a", 4089)+" ", 16) // the 64 KiB bound falls into the last token
	if got := provider.Sanitize(token[:65_500]+"aaMARK", 500); strings.Contains(got, "aa") {
		t.Errorf("half a token is left: %q", got)
	}
}

func FuzzSanitize(f *testing.F) {
	for _, c := range secrets {
		f.Add(c.text, 40)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 3 || limit > 4096 {
			t.Skip()
		}
		got := provider.Sanitize(text, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x1b\n\r\u202e") {
			t.Fatalf("%q", got)
		}
	})
}

func TestPresentationIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 1000)
	p := provider.Presentation{Title: "\x00", Summary: long, Warnings: make([]string, 50)}
	for range 50 {
		p.Details = append(p.Details, provider.Detail{Label: long, Value: long})
	}
	got := p.Bounded("Write a note")
	if got.Title != "Write a note" || len(got.Summary) > 500 || len(got.Details) != 20 || len(got.Warnings) != 10 ||
		len(got.Details[0].Label) > 80 || len(got.Details[0].Value) > 500 {
		t.Fatalf("%+v", got)
	}
}
