// Package guard admits requests that carry a Session Token: it finds the token, checks the DPoP Proof beside it (protocol
// 4.3), and hands the handler behind it one [Principal].
//
// A handler gets the Principal with [PrincipalFrom] and asks for more with [RequireAccount], [RequireScopes] and
// [RequireExtension].
package guard

import "net/http"

// Guard makes the Principal of a request. Its methods may be called concurrently.
type Guard struct{}

// Endpoint says what a guarded place is and what it takes.
type Endpoint struct {
	// Origin is the scheme and host that clients see, such as https://api.outdoor.example; the request's path is added to
	// it before a proof's htu is compared. A proxy in front does not change it.
	Origin string
	// Resource is what tokens must have been issued for (RFC 8707). Empty takes tokens without a resource.
	Resource string
}

// Protect returns next behind the guard. next runs only for a request with a valid Session Token and proof.
func (g *Guard) Protect(endpoint Endpoint, next http.Handler) http.Handler { panic("being built") }

// RequireAccount returns sign_in_required unless the token is signed in.
func RequireAccount(p Principal) error { panic("being built") }

// RequireScopes returns sign_in_required unless the token is signed in, and insufficient_scope, which names all the
// scopes, unless it has each of them.
func RequireScopes(p Principal, scopes ...string) error { panic("being built") }

// RequireExtension returns extension_required unless the Personal Agent listed the extension.
func RequireExtension(p Principal, name string) error { panic("being built") }
