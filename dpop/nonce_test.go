package dpop_test

import (
	"strings"
	"testing"
	"time"

	"countersign/dpop"
	"countersign/internal/secret"
)

// P-4.3-34
func TestCheckNonce(t *testing.T) {
	t.Parallel()
	nonces := newNonces(t, master, 5*time.Minute)
	nonce := nonces.Issue(now)
	issuedAt, err := nonces.Check(nonce, now.Add(5*time.Minute-time.Millisecond))
	if err != nil || !issuedAt.Equal(now) {
		t.Fatalf("got %v, %v; want %v", issuedAt, err, now)
	}
	if _, err := newNonces(t, master, 5*time.Minute).Check(nonce, now.Add(-2*time.Second)); err != nil {
		t.Fatalf("another server with the secret, its clock a little behind: %v", err)
	}
	for name, test := range map[string]struct {
		nonce string
		at    time.Time
	}{
		"expired":                 {nonce, now.Add(5 * time.Minute)},
		"from the future":         {nonce, now.Add(-6 * time.Second)},
		"empty":                   {"", now},
		"made up":                 {strings.Repeat("A", len(nonce)), now},
		"truncated":               {nonce[:len(nonce)-1], now},
		"truncated by a block":    {nonce[:len(nonce)-4], now},
		"longer":                  {nonce + "AAAA", now},
		"first character":         {flip(nonce, 0), now},
		"a character of the time": {flip(nonce, 20), now},
		"last character":          {flip(nonce, len(nonce)-1), now},
		"not base64url":           {"+" + nonce[1:], now},
		"a line end":              {nonce + "\n", now},
		"of another secret":       {newNonces(t, strings.ToUpper(master), 0).Issue(now), now},
	} {
		if issuedAt, err := nonces.Check(test.nonce, test.at); err == nil || !issuedAt.IsZero() {
			t.Errorf("%s: got %v, %v", name, issuedAt, err)
		}
	}
}

func TestNonces(t *testing.T) {
	t.Parallel()
	nonces := newNonces(t, master, 0)
	if first, second := nonces.Issue(now), nonces.Issue(now); first == second {
		t.Error("two nonces of one moment are equal")
	}
	// RFC 9449 8.1: the characters that a nonce may have.
	if strings.Trim(nonces.Issue(now), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Error("a nonce has other characters than base64url")
	}
	if nonces.Due(now, now.Add(150*time.Second-1)) || !nonces.Due(now, now.Add(150*time.Second)) {
		t.Error("a new nonce is not due at half the life of five minutes")
	}
	if nonces, err := dpop.NewNonces(secret.New(master[:31]), 0); err == nil || nonces != nil {
		t.Errorf("a short secret: got %v, %v", nonces, err)
	}
	if nonces, err := dpop.NewNonces(secret.New(master), -1); err == nil || nonces != nil {
		t.Errorf("a negative lifetime: got %v, %v", nonces, err)
	}
}

func flip(nonce string, at int) string {
	other := "A"
	if nonce[at] == 'A' {
		other = "B"
	}
	return nonce[:at] + other + nonce[at+1:]
}
