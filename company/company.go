// Package company is the Company side of the Personal Agent Protocol: one issuer with its documents, Sessions, conversations
// and operations, to embed as an [http.Handler] or to run by the command.
//
// Make a Company with [New], serve it with [Handler], which takes several at once, and keep [Company.Run] running beside it.
// A Company is exactly one issuer (3.2) with a database of its own, so nothing of one Company can be used at another.
package company

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"countersign/company/conversation"
	"countersign/company/discovery"
	"countersign/company/guard"
	"countersign/company/operation"
	"countersign/company/registry"
	"countersign/company/session"
	"countersign/dpop"
	"countersign/internal/database"
	"countersign/internal/fetch"
	"countersign/internal/secret"
	"countersign/internal/wake"
	"countersign/poppy"
)

//go:embed migrations
var migrations embed.FS

const minSecret = 32 // bytes

// Options is what a Company is built on. All but Clerk and Performer are required.
type Options struct {
	Database *database.DB  // the Company's own
	Client   *fetch.Client // fetches the documents of Personal Agents
	Log      *slog.Logger
	Now      func() time.Time
	// Secret is at least 32 random bytes, the same after a restart and on every server of the Company.
	Secret secret.Text

	Clerk     conversation.Clerk  // answers conversations; required if the configuration has an endpoint for them
	Performer operation.Performer // performs operations; required if the configuration has an endpoint for them
}

// Company is one issuer. Its methods and those of its rooms may be called concurrently.
type Company struct {
	// Agents knows the Personal Agents that come, and blocks or allows them.
	Agents *registry.Registry
	// Sessions keeps their Sessions and tokens.
	Sessions *session.Service
	// Guard protects further services of the Company's own, such as its APIs.
	Guard *guard.Guard

	issuer        string
	endpoints     []endpoint
	conversations *conversation.Service // nil if none are offered
	operations    *operation.Service    // nil if the extension is not supported
}

// New returns a Company after bringing its database up to date. The error is [Mistakes] if the configuration is wrong.
func New(ctx context.Context, config Config, options Options) (*Company, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	if config.Conversations.URL != "" && options.Clerk == nil {
		return nil, errors.New("a Company with an endpoint for conversations needs a Clerk")
	}
	if config.Operations.URL != "" && options.Performer == nil {
		return nil, errors.New("a Company with an endpoint for operations needs a Performer")
	}
	if err := prepare(ctx, options.Database, config.Issuer); err != nil {
		return nil, err
	}
	tokenProofs, resourceProofs, err := newProofs(config, options.Secret)
	if err != nil {
		return nil, err
	}
	c := &Company{issuer: config.Issuer}
	c.Agents = registry.New(registry.Options{
		Database: options.Database, Client: options.Client, Now: options.Now,
		Mode: config.Agents.Mode, NewPerHour: config.Agents.NewPerHour,
		UnknownFetches: config.Limits.UnknownFetchesPerMinute, CachedAgents: config.Limits.CachedAgents,
	})
	resources := make(map[string]poppy.TokenType)
	for _, use := range config.resources() {
		resources[use.name] = use.tokenType
	}
	c.Sessions = session.New(session.Options{
		Database: options.Database, Agents: c.Agents, Proofs: tokenProofs, Now: options.Now,
		Issuer: config.Issuer, TokenEndpoint: config.TokenEndpoint, Resources: resources, Extensions: config.extensions(),
		TokenLifetime: config.TokenLifetime, SessionLifetime: config.SessionLifetime, StartsPerMinute: config.Limits.StartsPerMinute,
	})
	c.Guard = guard.New(guard.Options{
		Tokens: c.Sessions, Proofs: resourceProofs, Now: options.Now,
		RequestsPerMinute: config.Limits.RequestsPerMinute,
	})
	c.buildRooms(config, options)
	documents, err := config.documents()
	if err != nil {
		return nil, err
	}
	handlers, err := discovery.Publish(documents)
	if err != nil {
		return nil, fmt.Errorf("the Company's documents: %w", err)
	}
	if err := c.serve(config, handlers); err != nil {
		return nil, err
	}
	return c, nil
}

// buildRooms makes the rooms behind the guard that the configuration asks for.
func (c *Company) buildRooms(config Config, options Options) {
	hub := new(wake.Hub)
	if config.Operations.URL != "" {
		c.operations = operation.New(operation.Options{
			Database: options.Database, Hub: hub, Performer: options.Performer, Log: options.Log, Now: options.Now,
		})
	}
	if config.Conversations.URL != "" {
		rooms := conversation.Options{
			Database: options.Database, Hub: hub, Clerk: options.Clerk, Log: options.Log, Now: options.Now,
		}
		if c.operations != nil { // an interface that holds a nil pointer is not nil
			rooms.Operations = c.operations
		}
		c.conversations = conversation.New(rooms)
	}
}

// prepare brings the tables of every room up to date and makes sure that the database is this Company's.
func prepare(ctx context.Context, db *database.DB, issuer string) error {
	err := db.Migrate(ctx, "company", migrations)
	for _, migrate := range []func(context.Context, *database.DB) error{
		registry.Migrate, session.Migrate, operation.Migrate, conversation.Migrate,
	} {
		if err == nil {
			err = migrate(ctx, db)
		}
	}
	if err != nil {
		return err
	}
	var owner string
	err = db.Write(ctx, func(tx *database.Tx) error {
		if _, err := tx.Exec(`INSERT INTO company (only, issuer) VALUES (1, ?) ON CONFLICT DO NOTHING`, issuer); err != nil {
			return err
		}
		return tx.QueryRow(`SELECT issuer FROM company`).Scan(&owner)
	})
	if err != nil {
		return fmt.Errorf("claiming the database: %w", err)
	}
	if owner != issuer {
		return fmt.Errorf("the database belongs to the Company with issuer %s: give %s a database of its own", owner, issuer)
	}
	return nil
}

// newProofs makes what checks proofs at the token endpoint, and wherever Session Tokens are used.
func newProofs(config Config, master secret.Text) (token, resource guard.Proofs, err error) {
	if config.Proof.Nonces != NoncesOff {
		if token.Nonces, err = newNonces(config, master); err != nil {
			return guard.Proofs{}, guard.Proofs{}, err
		}
	}
	if config.Proof.Nonces == NoncesEverywhere {
		resource.Nonces = token.Nonces
	}
	for _, p := range []*guard.Proofs{&token, &resource} {
		p.Verifier, err = dpop.NewVerifier(dpop.Options{
			Algorithms: config.Proof.Algorithms, Window: config.Proof.Window, Nonces: p.Nonces, RequireNonce: p.Nonces != nil,
		})
		if err != nil {
			return guard.Proofs{}, guard.Proofs{}, err
		}
	}
	return token, resource, nil
}

// newNonces derives the Company's own secret for nonces, so that Companies that are given one secret do not take each other's.
func newNonces(config Config, master secret.Text) (*dpop.Nonces, error) {
	if len(master.Reveal()) < minSecret {
		return nil, fmt.Errorf("the Company's secret must have at least %d bytes", minSecret)
	}
	own, err := hkdf.Key(sha256.New, []byte(master.Reveal()), []byte(config.Issuer), "countersign company nonces 1", minSecret)
	if err != nil {
		return nil, fmt.Errorf("deriving the secret for nonces: %w", err)
	}
	return dpop.NewNonces(secret.New(string(own)), config.Proof.NonceLifetime)
}

// Run does the work that goes on behind the requests, until ctx ends; the error is nil then. If a part of it fails, the rest
// stops too: a Company of which a part stands still must not go on as if nothing was.
func (c *Company) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts []func(context.Context) error
	if c.operations != nil {
		parts = append(parts, c.operations.Run)
	}
	if c.conversations != nil {
		parts = append(parts, c.conversations.Run)
	}
	results := make(chan error, len(parts))
	for _, part := range parts {
		go func() { results <- part(ctx) }()
	}
	var failed error
	for range parts {
		if err := <-results; err != nil {
			failed = errors.Join(failed, err)
			stop()
		}
	}
	if failed == nil {
		<-ctx.Done()
	}
	return failed
}
