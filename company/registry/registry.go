// Package registry knows the Personal Agents that come to a Company (protocol 4.1): what their documents say, which keys they
// sign with, whom the Company lets in, and since when.
//
// Documents and keys are fetched and cached in memory. Who was seen and what somebody decided about them lies in the database,
// so it survives a restart, and a decision made by another process holds at once, for tokens already issued too.
package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"countersign/company/internal/limit"
	"countersign/internal/database"
	"countersign/internal/fetch"
	"countersign/internal/jws"
	"countersign/poppy"
)

// Agent is a Personal Agent as its own documents describe it.
type Agent struct {
	Metadata poppy.ClientMetadata
	Keys     jws.Set // public keys that its assertions are signed with
}

// maxName bounds an agent's name, in characters.
const maxName = 100

// Name returns the agent's client_name for people to read: one line of printable characters, cut to 100 of them.
func (a Agent) Name() string {
	name := []rune(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, a.Metadata.ClientName))
	return string(name[:min(len(name), maxName)])
}

// Mode says which Personal Agents may come.
type Mode string

// The modes.
const (
	Open      Mode = "open"      // all but those that were blocked
	Allowlist Mode = "allowlist" // only those that were allowed: the others must register first
)

// Admits tells whether a Personal Agent of this status may come. It is asked with every request that carries a token, so a
// decision ends the use of tokens at once (4.1).
func (m Mode) Admits(status Status) bool {
	return status == Allowed || m == Open && status != Blocked
}

// Why a Personal Agent is not let in. All of them mean invalid_client (4.1).
var (
	ErrClientID   = errors.New("the client_id is not an https URL of a document")
	ErrDocument   = errors.New("the Personal Agent's document or key set cannot be used")
	ErrBlocked    = errors.New("the Personal Agent is blocked")
	ErrNotAllowed = errors.New("the Personal Agent has not been allowed")
)

// LimitError says that too many new Personal Agents came. Those known before are not affected.
type LimitError struct{ Wait time.Duration }

// Error returns the reason.
func (*LimitError) Error() string { return "too many Personal Agents that were never here before" }

// Bounds of what is fetched, and for how long it is kept whatever its headers say.
const (
	maxKeySetBytes    = 256 << 10
	shortestKept      = time.Minute
	keptWithoutHeader = 5 * time.Minute
	failureKept       = time.Minute
)

// Options configures a [Registry].
type Options struct {
	Database *database.DB  // with the tables of [Migrate]
	Client   *fetch.Client // may be nil where [Registry.Agent] is not called
	Now      func() time.Time

	Mode           Mode
	NewPerHour     int // Personal Agents never seen before that may start here within an hour; 0 for no limit
	UnknownFetches int // documents of Personal Agents never seen before that are fetched per minute; 0 for no limit
	CachedAgents   int // how many agents' documents are kept in memory; 0 for 1000
}

// Registry answers who a Personal Agent is and whether it may come. Its methods may be called concurrently.
type Registry struct {
	options   Options
	documents *fetch.Cache[poppy.ClientMetadata]
	keys      *fetch.Cache[jws.Set]
	fetches   *limit.Limiter
}

// New returns a registry with an empty cache.
func New(options Options) *Registry {
	kept := fetch.CacheOptions{
		Floor: shortestKept, Default: keptWithoutHeader, Failure: failureKept,
		MaxEntries: options.CachedAgents, Now: options.Now,
	}
	documents, keys := kept, kept
	documents.Get.MaxBytes = poppy.MaxMetadataBytes
	keys.Get.MaxBytes = maxKeySetBytes
	return &Registry{
		options: options,
		fetches: limit.New(options.UnknownFetches, 1),
		// Neither follows a redirect: client_id is the URL the document was fetched from, and the keys lie on its domain (4.1).
		documents: fetch.NewCache(options.Client, documents, func(r *fetch.Response) (poppy.ClientMetadata, error) {
			return poppy.ParseClientMetadata(r.Body, r.URL)
		}),
		keys: fetch.NewCache(options.Client, keys, func(r *fetch.Response) (jws.Set, error) { return jws.ParseSet(r.Body) }),
	}
}

// Agent returns the Personal Agent behind a client_id, fetching its documents unless they are in the cache. The error is
// [ErrClientID], [ErrBlocked], [ErrNotAllowed], [ErrDocument] or a [*LimitError], or the store's.
//
// Nobody has authenticated yet, so it decides before it fetches whatever it can: a stranger must not make a Company that
// takes registered agents only send requests.
func (r *Registry) Agent(ctx context.Context, clientID string) (Agent, error) {
	if _, err := poppy.ParseClientID(clientID); err != nil {
		return Agent{}, ErrClientID
	}
	entry, err := r.find(ctx, clientID)
	if err != nil {
		return Agent{}, err
	}
	if err := r.admits(entry.Status); err != nil {
		return Agent{}, err
	}
	if entry.Status == "" {
		if wait := r.fetches.Allow("", r.options.Now()); wait > 0 {
			return Agent{}, &LimitError{Wait: wait}
		}
	}
	return r.fetch(ctx, clientID, r.keys.Get)
}

// Refresh is [Registry.Agent] with the key set fetched anew, for an assertion that names a key which is not in the cached one.
// The set of one agent is fetched at most once a minute, however many such assertions come.
func (r *Registry) Refresh(ctx context.Context, clientID string) (Agent, error) {
	return r.fetch(ctx, clientID, r.keys.Refresh)
}

func (r *Registry) fetch(ctx context.Context, clientID string, keySet func(context.Context, string) (jws.Set, error)) (Agent, error) {
	metadata, err := r.documents.Get(ctx, clientID)
	if err != nil {
		return Agent{}, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	keys, err := keySet(ctx, metadata.JWKSURI)
	if err != nil {
		return Agent{}, fmt.Errorf("%w: the key set: %w", ErrDocument, err)
	}
	return Agent{Metadata: metadata, Keys: keys}, nil
}

func (r *Registry) admits(status Status) error {
	switch {
	case r.options.Mode.Admits(status):
		return nil
	case status == Blocked:
		return ErrBlocked
	default:
		return ErrNotAllowed
	}
}

// Admits tells whether a Personal Agent of this status may come, as [Mode.Admits].
func (r *Registry) Admits(status Status) bool { return r.options.Mode.Admits(status) }

// Admit records that an agent has authenticated, in the transaction that serves its request. It looks again whether the agent
// may come, since that may have changed while its documents were fetched, and refuses one that is new when too many came
// within an hour. Errors are those of [Registry.Agent].
func (r *Registry) Admit(tx *database.Tx, agent Agent) error {
	now := r.options.Now()
	status, seen, err := selectStatus(tx, agent.Metadata.ClientID)
	if err != nil {
		return err
	}
	if err := r.admits(status); err != nil {
		return err
	}
	if !seen && r.options.NewPerHour > 0 {
		oldest, err := firstSeenBack(tx, r.options.NewPerHour)
		if err != nil {
			return err
		}
		if wait := oldest.Add(time.Hour).Sub(now); wait > 0 {
			return &LimitError{Wait: wait}
		}
	}
	if err := upsertSeen(tx, agent, now); err != nil {
		return fmt.Errorf("recording a Personal Agent: %w", err)
	}
	return nil
}
