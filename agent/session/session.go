// Package session runs the Personal Agent's Sessions at Companies: it starts and renews them, keeps a User ID and a DPoP
// key for each User at each Company, and sends every request that carries a secret (sections 4.2, 4.3 and 4.8).
//
// [Service.Open] returns a User's [Session] at a Company, and [Session.Do] sends a request in it. That is all that most
// callers need: tokens, proofs, nonces and limits are kept right behind it. All requests that carry a token, a proof or an
// assertion, of whatever room, leave through one function, which follows no redirect.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"countersign/agent/discovery"
	"countersign/dpop"
	"countersign/internal/fetch"
	"countersign/internal/secret"
	"countersign/poppy"
)

// Response is an answer that was read to its end.
type Response = fetch.Response

// Bounds limits one request: the longest answer, and the longest time to wait for it.
type Bounds = fetch.DoOptions

// Which names one of a User's Sessions at a Company.
type Which struct {
	// Person is how the maker of the agent names the User: any text that stays the same. It is never sent to anyone.
	Person string
	// Name tells Sessions that run at once apart, such as a task. "" is the User's usual one.
	Name string
	// Account is the ID of the account to start signed in to, one of [Service.Accounts]. If it is "" and the User has exactly
	// one, it is that one. A Session that exists keeps its own.
	Account string
}

// Session is one User's activity at one Company (section 4). Its methods may be called concurrently, and all values for the
// same Session share its tokens.
type Session struct {
	// Company is the Company as the domain describes it that the Session was opened with. Other domains of the same issuer
	// share the Session, each with its own document (3.2).
	Company discovery.Company

	service *Service
	core    *core
}

// core is what all values for one Session share.
type core struct {
	row    string // of the vault; "" for a private Session, which only lives here
	person string
	user   user
	turn   chan struct{} // holds an element while a token request of the Session is under way

	mutex sync.Mutex
	state state
}

// user is a User as a Company sees them: a User ID, and the key that its Sessions' tokens are bound to (4.2, 4.3).
type user struct {
	id  string
	key *dpop.Key
}

// state is what changes in a Session. It is never modified, only replaced.
type state struct {
	name    string
	id      string // session_id; "" before the Session was started and after it was ended
	account string // the account that it is signed in to; "" when signed out
	scopes  poppy.Scopes
	tokens  map[string]token // by resource; "" is the general one
}

// token is a Session Token for one resource.
type token struct {
	value   secret.Text
	kind    poppy.TokenType
	session string    // session_id
	renewAt time.Time // a little before it expires
}

// ErrPrivate says that a private Session cannot be signed in (4.2).
var ErrPrivate = errors.New("a private Session cannot be signed in: open the User's own Session for that")

// ErrEnded says that a Session was ended by this agent.
var ErrEnded = errors.New("the Session was ended: open it again")

// ChangedError says that the Company ended a Session and that a new one was started in its place. The request was not sent,
// since it may have relied on what the old Session held. Sending it again sends it in the new one.
type ChangedError struct {
	Domain   string
	Old, New string // session_id
}

// Error says what happened and what to do.
func (e *ChangedError) Error() string {
	return e.Domain + " has ended the Session, and a new one was started: what the old one held, such as a cart, is gone. " +
		"Try again to go on in the new one"
}

// Person returns whose Session it is, as [Which] named them; "" for a private Session.
func (s *Session) Person() string { return s.core.person }

// Private tells whether the Session is a private one, of which nothing is kept.
func (s *Session) Private() bool { return s.core.row == "" }

// ID returns the session_id. It changes when the Company ends the Session, which [ChangedError] reports.
func (s *Session) ID() string { return s.core.current().id }

// Scopes returns the account scopes of the token received last; none when the Session is signed out (4.2).
func (s *Session) Scopes() poppy.Scopes { return s.core.current().scopes }

// SignedIn tells whether the Session is signed in to an account of the Company.
func (s *Session) SignedIn() bool { return len(s.Scopes()) > 0 }

func (c *core) current() state {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.state
}

func (c *core) replace(next state) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.state = next
}

// takeTurn waits until no token request of the Session is under way, and keeps others from starting one until the returned
// function is called.
func (c *core) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checkType refuses a token that the protocol does not allow where it is to be used: only an MCP server may take Bearer
// tokens (4.3).
func checkType(kind poppy.TokenType, to discovery.Endpoint) error {
	if kind == poppy.TokenBearer && to.Kind != discovery.MCP {
		return fmt.Errorf("the Company issued a Bearer token for %s, where the protocol requires DPoP (section 4.3)", to.URL)
	}
	return nil
}
