package guard_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"countersign/company/guard"
	"countersign/dpop"
	"countersign/internal/web"
	"countersign/poppy"
)

func TestWhatARoomAsksOfAPrincipal(t *testing.T) {
	t.Parallel()
	signedOut := guard.Principal{Extensions: map[string]string{"operations": "1"}}
	signedIn := guard.Principal{Account: "acct_1", Scopes: poppy.Scopes{"poppy:read", "addresses"}}
	for name, c := range map[string]struct {
		err  error
		want poppy.Error
	}{
		"the account, signed in":          {guard.RequireAccount(signedIn), poppy.Error{}},
		"the account, signed out":         {guard.RequireAccount(signedOut), poppy.Error{Code: poppy.ErrSignInRequired}},
		"scopes that it has":              {guard.RequireScopes(signedIn, "addresses", "poppy:read"), poppy.Error{}},
		"scopes, signed out":              {guard.RequireScopes(signedOut, "addresses"), poppy.Error{Code: poppy.ErrSignInRequired}},
		"no scopes, signed out":           {guard.RequireScopes(signedOut), poppy.Error{Code: poppy.ErrSignInRequired}},
		"one scope too many":              {guard.RequireScopes(signedIn, "poppy:read", "poppy:write"), poppy.Error{Code: poppy.ErrInsufficientScope, Scope: "poppy:read poppy:write"}},
		"an extension":                    {guard.RequireExtension(signedOut, "operations", "1"), poppy.Error{}},
		"an extension in another version": {guard.RequireExtension(signedOut, "operations", "2"), poppy.Error{Code: poppy.ErrExtensionRequired, Extension: "operations"}},
		"an extension that it has not":    {guard.RequireExtension(signedIn, "operations", "1"), poppy.Error{Code: poppy.ErrExtensionRequired, Extension: "operations"}},
	} {
		var got poppy.Error
		if err, ok := errors.AsType[*poppy.Error](c.err); ok {
			got = *err
		}
		if got.Code != c.want.Code || got.Scope != c.want.Scope || got.Extension != c.want.Extension {
			t.Errorf("%s: %v, want %v", name, c.err, c.want.Code)
		}
	}
}

// broken is a store that cannot be read.
type broken struct{}

func (broken) Token(context.Context, [sha256.Size]byte) (guard.Token, error) {
	return guard.Token{}, errors.New("the disk is gone")
}

func TestAFaultOfOursIsNotTheClients(t *testing.T) {
	t.Parallel()
	proofs, err := dpop.NewVerifier(dpop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := guard.New(guard.Options{Tokens: broken{}, Proofs: guard.Proofs{Verifier: proofs}, Now: time.Now})
	handler := g.Protect(guard.Endpoint{Origin: "https://api.outdoor.example"}, func(http.ResponseWriter, *http.Request) error {
		t.Error("the request was let through")
		return nil
	})
	request := httptest.NewRequest(http.MethodGet, "/orders", nil)
	request.Header.Set("Authorization", "DPoP token")
	err = handler(httptest.NewRecorder(), request)
	if _, refused := errors.AsType[*web.Error](err); err == nil || refused {
		t.Errorf("error %v, want one that is answered with server_error", err)
	}
}
