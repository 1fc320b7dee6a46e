// Package guard admits requests that carry a Session Token: it finds the token, checks the DPoP Proof beside it (protocol
// 4.3), and hands the handler behind it one [Principal].
//
// A handler gets the Principal with [PrincipalFrom] and asks for more with [RequireAccount], [RequireScopes] and
// [RequireExtension]. It returns errors of the protocol as they are ([poppy.Error]): [Guard.Protect] gives them the status,
// headers and body of the place.
package guard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/company/internal/answer"
	"countersign/company/internal/limit"
	"countersign/dpop"
	"countersign/internal/secret"
	"countersign/poppy"
)

// Token is what a Session Token was issued for.
type Token struct {
	Principal Principal
	Type      poppy.TokenType
	Ended     bool // its Session has ended, or its Personal Agent may not come any more
}

// ErrNoToken is returned by [Tokens] for a token that does not exist, has expired or was revoked.
var ErrNoToken = errors.New("no such Session Token")

// Tokens looks up Session Tokens, which are known by their SHA-256 digest only.
type Tokens interface {
	// Token returns the token with this digest, or [ErrNoToken]. It is called with every request, concurrently, and what it
	// returns is as of that moment: an ended Session and a blocked Personal Agent show at once.
	Token(ctx context.Context, digest [sha256.Size]byte) (Token, error)
}

// Options configures a [Guard].
type Options struct {
	Tokens Tokens
	Proofs Proofs
	Now    func() time.Time

	RequestsPerMinute int // that one Session may send; 0 for no limit
	CountedSessions   int // how many Sessions' requests are counted at once; 0 for 100,000
}

// Guard makes the Principal of a request. Its methods may be called concurrently.
type Guard struct {
	options  Options
	requests *limit.Limiter
}

// New returns a Guard.
func New(options Options) *Guard {
	return &Guard{
		options:  options,
		requests: limit.New(options.RequestsPerMinute, cmp.Or(options.CountedSessions, 100_000)),
	}
}

// Handler is what a [web.Mux] routes to: an error that it returns, before it has written anything, becomes the answer.
type Handler = func(http.ResponseWriter, *http.Request) error

// Endpoint says what a guarded place is and what it takes.
type Endpoint struct {
	// Surface decides how errors travel: [poppy.SurfaceProtocol] or [poppy.SurfaceAPI].
	Surface poppy.Surface
	// Origin is the scheme and host that clients see, such as https://api.outdoor.example; the request's path is added to
	// it before a proof's htu is compared. A proxy in front does not change it.
	Origin string
	// Resource is what tokens must have been issued for (RFC 8707): for an MCP server its url. Empty takes tokens without one.
	Resource string
	// Schemes are those that the place takes. None means DPoP alone, which is all that anything but an MCP server may take.
	// Bearer takes tokens that were issued as Bearer tokens, at exactly the URL that is their resource.
	Schemes []poppy.TokenType
	// ResourceMetadata is the URL of an MCP server's protected resource metadata, for its challenges (6); else empty.
	ResourceMetadata string
}

// Protect returns next behind the guard, for a [web.Mux]. next runs only for a request with a valid Session Token and proof.
func (g *Guard) Protect(endpoint Endpoint, next Handler) Handler {
	if len(endpoint.Schemes) == 0 {
		endpoint.Schemes = []poppy.TokenType{poppy.TokenDPoP}
	}
	all := make([]poppy.Challenge, len(endpoint.Schemes))
	for i, scheme := range endpoint.Schemes {
		all[i] = g.challenge(scheme, endpoint)
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		token, err := g.admit(w.Header(), r, endpoint)
		if err != nil {
			return answer.Error(err, endpoint.Surface, all...) // a 401 names every scheme that would do (6)
		}
		if err := next(w, r.WithContext(WithPrincipal(r.Context(), token.Principal))); err != nil {
			return answer.Error(err, endpoint.Surface, g.challenge(token.Type, endpoint))
		}
		return nil
	}
}

func (g *Guard) challenge(scheme poppy.TokenType, endpoint Endpoint) poppy.Challenge {
	challenge := poppy.Challenge{Scheme: string(scheme)}
	if scheme == poppy.TokenDPoP {
		challenge.Params = append(challenge.Params, poppy.Param{Name: "algs", Value: strings.Join(g.options.Proofs.Verifier.Algorithms(), " ")})
	}
	if endpoint.ResourceMetadata != "" {
		challenge.Params = append(challenge.Params, poppy.Param{Name: "resource_metadata", Value: endpoint.ResourceMetadata})
	}
	return challenge
}

// admit makes the checks of 4.3 in their order: token, proof, Session. It reads the Authorization and DPoP headers and nothing
// else: no cookie is needed, and a token in a URL or body is not looked at.
func (g *Guard) admit(response http.Header, r *http.Request, endpoint Endpoint) (Token, error) {
	now := g.options.Now()

	// One Authorization header, with a scheme that the place takes.
	scheme, text, ok := credentials(r.Header)
	if !ok || !slices.Contains(endpoint.Schemes, scheme) {
		return Token{}, &poppy.Error{Code: poppy.ErrInvalidToken}
	}
	token, err := g.options.Tokens.Token(r.Context(), sha256.Sum256([]byte(text)))
	if errors.Is(err, ErrNoToken) {
		return Token{}, &poppy.Error{Code: poppy.ErrInvalidToken, Cause: err}
	}
	if err != nil {
		return Token{}, err
	}
	// A DPoP token is not taken as a Bearer token, nor the reverse (RFC 9449 7.1).
	if token.Type != scheme {
		return Token{}, &poppy.Error{Code: poppy.ErrInvalidToken, Cause: errors.New("token sent with the wrong scheme")}
	}
	// The token was issued for this place, compared as a string (RFC 9728 3.3).
	if token.Principal.Resource != endpoint.Resource {
		return Token{}, &poppy.Error{Code: poppy.ErrInvalidToken, Cause: errors.New("token for another resource")}
	}
	url := endpoint.Origin + r.URL.EscapedPath()
	switch scheme {
	case poppy.TokenBearer:
		// Other paths on the host of its MCP server do not take it.
		if resource, _, _ := strings.Cut(endpoint.Resource, "?"); url != resource {
			return Token{}, &poppy.Error{Code: poppy.ErrInvalidToken, Cause: errors.New("token of type Bearer at another URL than its resource")}
		}
	case poppy.TokenDPoP:
		// A reused jti is not looked for: a copied proof works only with the same token, method and URL, and what changes
		// something is idempotent.
		if _, err := g.options.Proofs.Check(response, r.Header, dpop.Expected{
			Method: r.Method, URL: url, Token: secret.New(text), Thumbprint: token.Principal.KeyThumbprint,
		}, now); err != nil {
			return Token{}, err
		}
	}
	if token.Ended {
		return Token{}, &poppy.Error{Code: poppy.ErrInvalidToken, Cause: errors.New("the Session has ended, or its Personal Agent may not come")}
	}
	if wait := g.requests.Allow(token.Principal.SessionID, now); wait > 0 {
		return Token{}, &poppy.Error{Code: poppy.ErrRateLimited, RetryAfter: wait}
	}
	return token, nil
}

// credentials reads the Authorization header: a scheme, whose case does not matter, and a token.
func credentials(header http.Header) (poppy.TokenType, string, bool) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", "", false
	}
	name, token, found := strings.Cut(values[0], " ")
	scheme, known := poppy.ParseTokenType(name)
	return scheme, strings.TrimLeft(token, " "), found && known
}

// RequireAccount returns sign_in_required unless the token is signed in.
func RequireAccount(p Principal) error {
	if !p.SignedIn() {
		return &poppy.Error{Code: poppy.ErrSignInRequired}
	}
	return nil
}

// RequireScopes returns sign_in_required unless the token is signed in, and insufficient_scope, which names all the
// scopes, unless it has each of them.
func RequireScopes(p Principal, scopes ...string) error {
	if err := RequireAccount(p); err != nil {
		return err
	}
	if needed := poppy.Scopes(scopes); !p.Scopes.Covers(needed) {
		return &poppy.Error{Code: poppy.ErrInsufficientScope, Scope: needed.String()}
	}
	return nil
}

// RequireExtension returns extension_required unless the Personal Agent listed the extension in this version.
func RequireExtension(p Principal, name, version string) error {
	if p.Extensions[name] != version {
		return &poppy.Error{Code: poppy.ErrExtensionRequired, Extension: name}
	}
	return nil
}
