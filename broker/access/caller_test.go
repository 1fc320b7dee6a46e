package access_test

import (
	"net/http"
	"strings"
	"testing"

	"countersign/broker/access"
	"countersign/internal/secret"
)

const (
	aliceSecret = "alice-secret-that-is-long-enough-0123456789"
	bobSecret   = "bob-secret-that-is-long-enough-01234567890"
)

func callers(t *testing.T, secrets map[string]string) *access.Callers {
	t.Helper()
	var list []access.Caller
	for id, text := range secrets {
		list = append(list, access.Caller{ID: id, Hash: hash(t, text)})
	}
	c, err := access.NewCallers("agents", list)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func hash(t *testing.T, text string) string {
	t.Helper()
	h, err := access.Hash(secret.New(text))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	c := callers(t, map[string]string{"alice": aliceSecret, "bob": bobSecret})
	basic := func(password string) string {
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth("whoever", password)
		return r.Header.Get("Authorization")
	}
	for name, test := range map[string]struct {
		headers []string
		id      string
		err     error
	}{
		"bearer secret of alice":        {[]string{"Bearer " + aliceSecret}, "alice", nil},
		"bearer secret of bob":          {[]string{"Bearer " + bobSecret}, "bob", nil},
		"scheme in another case":        {[]string{"bearer " + aliceSecret}, "alice", nil},
		"basic password":                {[]string{basic(aliceSecret)}, "alice", nil},
		"nothing":                       {nil, "", access.ErrNoSecret},
		"empty header":                  {[]string{""}, "", access.ErrNoSecret},
		"scheme only":                   {[]string{"Bearer"}, "", access.ErrNoSecret},
		"empty token":                   {[]string{"Bearer "}, "", access.ErrNoSecret},
		"empty basic password":          {[]string{basic("")}, "", access.ErrNoSecret},
		"broken basic":                  {[]string{"Basic !"}, "", access.ErrNoSecret},
		"another scheme":                {[]string{"DPoP " + aliceSecret}, "", access.ErrNoSecret},
		"two headers":                   {[]string{"Bearer " + aliceSecret, "Bearer " + bobSecret}, "", access.ErrNoSecret},
		"unknown secret":                {[]string{"Bearer " + aliceSecret + "x"}, "", access.ErrWrongSecret},
		"part of a secret":              {[]string{"Bearer " + aliceSecret[:40]}, "", access.ErrWrongSecret},
		"hash instead of the secret":    {[]string{"Bearer " + hash(t, aliceSecret)}, "", access.ErrWrongSecret},
		"secret with blank in front":    {[]string{"Bearer  " + aliceSecret}, "", access.ErrWrongSecret},
		"secret followed by another":    {[]string{"Bearer " + aliceSecret + " " + bobSecret}, "", access.ErrWrongSecret},
		"ID of a client as the secret":  {[]string{"Bearer alice"}, "", access.ErrWrongSecret},
		"secret as the basic user name": {[]string{"Basic " + "YWxpY2U6Ym9i"}, "", access.ErrWrongSecret},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, err := c.Authenticate(&http.Request{Header: http.Header{"Authorization": test.headers}})
			if id != test.id || err != test.err { //nolint:errorlint // the documented errors themselves
				t.Errorf("got %q, %v; want %q, %v", id, err, test.id, test.err)
			}
		})
	}
}

func TestShortSecretIsNeverAccepted(t *testing.T) {
	t.Parallel()
	if _, err := access.Hash(secret.New(strings.Repeat("x", access.MinSecret-1))); err == nil {
		t.Error("a short secret was hashed")
	}
	// sha256 of "abc", as someone could write it into the configuration by hand.
	c, err := access.NewCallers("agents", []access.Caller{{ID: "weak", Hash: "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := c.Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer abc"}}}); id != "" || err == nil {
		t.Errorf("a secret of three bytes was accepted for %q", id)
	}
}

func TestNewSecretsAreLongAndDiffer(t *testing.T) {
	t.Parallel()
	a, b := access.NewSecret(), access.NewSecret()
	if a.Equal(b) || len(a.Reveal()) < access.MinSecret {
		t.Errorf("secrets of %d bytes, equal: %v", len(a.Reveal()), a.Equal(b))
	}
}

func TestNewCallersRefuses(t *testing.T) {
	t.Parallel()
	good := hash(t, aliceSecret)
	for name, list := range map[string][]access.Caller{
		"ID twice":       {{ID: "a", Hash: good}, {ID: "a", Hash: hash(t, bobSecret)}},
		"secret twice":   {{ID: "a", Hash: good}, {ID: "b", Hash: good}},
		"no ID":          {{Hash: good}},
		"ID with blank":  {{ID: "a b", Hash: good}},
		"ID with colon":  {{ID: "client:a", Hash: good}},
		"long ID":        {{ID: strings.Repeat("a", 129), Hash: good}},
		"no hash":        {{ID: "a"}},
		"secret as hash": {{ID: "a", Hash: aliceSecret}},
		"no prefix":      {{ID: "a", Hash: strings.TrimPrefix(good, "sha256:")}},
		"short hash":     {{ID: "a", Hash: good[:len(good)-2]}},
		"long hash":      {{ID: "a", Hash: good + "00"}},
		"odd hash":       {{ID: "a", Hash: good[:len(good)-1]}},
	} {
		if c, err := access.NewCallers("agents", list); err == nil || c != nil {
			t.Errorf("%s: got %v, %v", name, c, err)
		}
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	clients := callers(t, map[string]string{"alice": aliceSecret})
	if id := callers(t, map[string]string{"root": aliceSecret}).Shared(clients); id != "root" {
		t.Errorf("got %q for an operator with the secret of a client", id)
	}
	if id := callers(t, map[string]string{"alice": bobSecret}).Shared(clients); id != "" {
		t.Errorf("got %q for secrets that differ", id)
	}
}
