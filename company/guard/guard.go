// Package guard admits requests that carry a Session Token: it finds the token, checks the DPoP Proof beside it (protocol
// 4.3), and hands the handler behind it one [Principal].
//
// A handler gets the Principal with [PrincipalFrom] and asks for more with [RequireAccount], [RequireScopes] and
// [RequireExtension]. It returns errors of the protocol as they are ([poppy.Error]): [Guard.Protect] gives them the status,
// headers and body of the place.
package guard

import (
	"net/http"

	"countersign/poppy"
)

// Handler is what a [web.Mux] routes to: an error that it returns, before it has written anything, becomes the answer.
type Handler = func(http.ResponseWriter, *http.Request) error

// Guard makes the Principal of a request. Its methods may be called concurrently.
type Guard struct{}

// Endpoint says what a guarded place is and what it takes.
type Endpoint struct {
	// Surface decides how errors travel: [poppy.SurfaceProtocol] or [poppy.SurfaceAPI].
	Surface poppy.Surface
	// Origin is the scheme and host that clients see, such as https://api.outdoor.example; the request's path is added to
	// it before a proof's htu is compared. A proxy in front does not change it.
	Origin string
	// Resource is what tokens must have been issued for (RFC 8707). Empty takes tokens without a resource.
	Resource string
}

// Protect returns next behind the guard, for a [web.Mux]. next runs only for a request with a valid Session Token and proof.
func (g *Guard) Protect(endpoint Endpoint, next Handler) Handler { panic("being built") }

// RequireAccount returns sign_in_required unless the token is signed in.
func RequireAccount(p Principal) error { panic("being built") }

// RequireScopes returns sign_in_required unless the token is signed in, and insufficient_scope, which names all the
// scopes, unless it has each of them.
func RequireScopes(p Principal, scopes ...string) error { panic("being built") }

// RequireExtension returns extension_required unless the Personal Agent listed the extension in this version.
func RequireExtension(p Principal, name, version string) error { panic("being built") }
