package guard

import (
	"context"
	"time"

	"countersign/poppy"
)

// Principal is who is asking, as a Session Token and its proof showed it: the Session as it was when the token was
// issued (protocol 4.4), less what was signed out since. No room behind the guard knows how it was proved.
type Principal struct {
	Version      string            // protocol version that the request was proved by: "0.3"
	ClientID     string            // the Personal Agent's client_id
	AgentName    string            // its client_name, for people to read
	UserID       string            // the User, as this Personal Agent names them at this Company
	SessionID    string            // the Session
	Account      string            // the account the token is signed in to; empty when signed out
	Scopes       poppy.Scopes      // account scopes of the token; none when signed out
	Resource     string            // the resource the token was issued for; empty for the Company's services in general
	Extensions   map[string]string // those of the Company's extensions that the agent listed when the token was issued: name to version
	TokenExpires time.Time         // when the token ends; a stream must not outlive it

	// KeyThumbprint is the RFC 7638 thumbprint of the key that signed the request's proof: a confirmation is recorded with it
	// (Operations 8).
	KeyThumbprint string
}

// SignedIn reports whether the token is signed in to an account.
func (p Principal) SignedIn() bool { return p.Account != "" }

// HasScope reports whether the token has a scope.
func (p Principal) HasScope(scope string) bool { return p.Scopes.Has(scope) }

type principalKey struct{}

// PrincipalFrom returns who is asking, and false when the request did not come through a [Guard].
func PrincipalFrom(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

// WithPrincipal returns a context that carries who is asking. The guard calls it; so does a test of a room behind it.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}
