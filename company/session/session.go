// Package session keeps the Sessions of Personal Agents at a Company and issues their tokens (protocol 4.2, 4.3, 4.8, 4.9).
//
// [Service.ServeToken] and [Service.ServeRevocation] are the two OAuth endpoints. Every token request goes the same way: read,
// authenticate the client, check the proof, check the grant, and then one transaction that spends what may be used once,
// decides, and issues. [Service.Token] is what the guard asks with every request.
package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"countersign/company/guard"
	"countersign/company/internal/limit"
	"countersign/company/registry"
	"countersign/internal/database"
	"countersign/poppy"
)

// ErrNoSession is returned for a Session that does not exist or has ended.
var ErrNoSession = errors.New("no such Session")

// Session is one User's activity at this Company through one Personal Agent (4).
type Session struct {
	ID       string // the session_id, which is not a credential
	ClientID string // the Personal Agent it belongs to
	UserID   string // the User it belongs to, as the Personal Agent names them
	Account  string // the only account it can be signed in to: kept after sign-out, empty before the first sign-in (4.4)
	Started  time.Time
	Ends     time.Time // when it ends unless another token is issued for it

	accountTokenID string // the Account Token it is signed in with
}

// SignedIn reports whether the Session is signed in to its account now.
func (s Session) SignedIn() bool { return s.accountTokenID != "" }

// Agents answers who a Personal Agent is and whether it may come.
type Agents interface {
	// Agent returns the Personal Agent behind a client_id. It may fetch its documents.
	Agent(ctx context.Context, clientID string) (registry.Agent, error)
	// Refresh is Agent with the key set fetched anew, if that was not done just now.
	Refresh(ctx context.Context, clientID string) (registry.Agent, error)
	// Admit records in a transaction that an agent has authenticated, or refuses it.
	Admit(tx *database.Tx, agent registry.Agent) error
	// Admits tells whether an agent of this status may come.
	Admits(status registry.Status) bool
}

var _ Agents = (*registry.Registry)(nil)

// Options configures a [Service].
type Options struct {
	Database *database.DB // with the tables of [Migrate] and of [registry.Migrate]
	Agents   Agents
	Proofs   guard.Proofs // of the token endpoint
	Now      func() time.Time

	Issuer        string // auth.issuer: the only aud that assertions may have
	TokenEndpoint string // URL of the token endpoint as clients see it: the htu of proofs sent there
	// Resources are those that tokens can be asked for (RFC 8707), with the type of token that each of them takes.
	Resources map[string]poppy.TokenType
	// Extensions are those that the Company supports: name to version. Others in an agent's document are ignored (3.3).
	Extensions map[string]string

	TokenLifetime   time.Duration // of a Session Token, whole seconds
	SessionLifetime time.Duration // of a Session after its last token was issued; not shorter than TokenLifetime
	StartsPerMinute int           // Sessions that one Personal Agent may start in a minute; 0 for no limit
}

// countedClients is how many Personal Agents' starts are counted at once.
const countedClients = 10_000

// Service keeps Sessions. Its methods may be called concurrently.
type Service struct {
	Options
	starts *limit.Limiter
}

// New returns a Service.
func New(options Options) *Service {
	return &Service{Options: options, starts: limit.New(options.StartsPerMinute, countedClients)}
}

var _ guard.Tokens = (*Service)(nil)

// Token implements [guard.Tokens] with one indexed read.
func (s *Service) Token(ctx context.Context, digest [sha256.Size]byte) (guard.Token, error) {
	return s.selectToken(ctx, digest, s.Now())
}

// Lookup returns a Session, or [ErrNoSession].
func (s *Service) Lookup(ctx context.Context, sessionID string) (Session, error) {
	return readSession(s.Database.QueryRow(ctx, selectSession, sessionID, database.Millis(s.Now())), sessionID)
}

// End ends a Session: its tokens are refused from now on and it cannot be renewed. The Account Token it was signed in with
// stays as it is (4). The error is [ErrNoSession] or the store's.
func (s *Service) End(ctx context.Context, sessionID string) error {
	return s.Database.Write(ctx, func(tx *database.Tx) error { return endSession(tx, sessionID, s.Now()) })
}
