package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"
	"weak"

	"countersign/agent/discovery"
	"countersign/agent/vault"
	"countersign/assertion"
	"countersign/dpop"
	"countersign/internal/fetch"
	"countersign/internal/id"
	"countersign/poppy"
)

// Identity is the Personal Agent's own identity (4.1), as far as Sessions need it.
type Identity interface {
	ClientID() string
	// Signer returns what signs assertions now.
	Signer(ctx context.Context) (*assertion.Signer, error)
}

// Options are what the Sessions rest on. All are required but Log and Now.
type Options struct {
	Vault    *vault.Vault
	Identity Identity
	Client   *fetch.Client
	Log      *slog.Logger     // says when a Session was started anew or signed out; none by default
	Now      func() time.Time // time.Now by default
}

// Service runs the Sessions of all Users. Its methods may be called concurrently.
type Service struct {
	store    store
	identity Identity
	wire     *wire
	log      *slog.Logger
	now      func() time.Time

	mutex sync.Mutex
	live  map[string]weak.Pointer[core] // the Sessions in use, by row, so that all their users share their tokens
}

// New opens the room.
func New(ctx context.Context, options Options) (*Service, error) {
	s := &Service{
		store:    store{options.Vault},
		identity: options.Identity,
		log:      options.Log,
		now:      options.Now,
		live:     make(map[string]weak.Pointer[core]),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.store.open(ctx); err != nil {
		return nil, err
	}
	limits, err := s.store.limits(ctx, s.now())
	if err != nil {
		return nil, fmt.Errorf("reading the limits of Companies: %w", err)
	}
	s.wire = &wire{client: options.Client, store: s.store, until: limits, nonces: make(map[string]string), now: s.now}
	return s, nil
}

// Open returns the User's Session, which is started if there is none. One that exists is resumed without asking the
// Company, also after a restart.
func (s *Service) Open(ctx context.Context, company discovery.Company, which Which) (*Session, error) {
	if which.Person == "" {
		return nil, errors.New("a Session needs the person it is for")
	}
	if company.Issuer == "" {
		return nil, fmt.Errorf("%s has only a website: it offers no Sessions", company.Domain)
	}
	row := s.store.sessionRow(company.Issuer, which.Person, which.Name)
	c, err := s.share(ctx, row, company.Issuer, which)
	if err != nil {
		return nil, fmt.Errorf("opening the Session at %s: %w", company.Domain, err)
	}
	session := &Session{Company: company, service: s, core: c}
	if err := session.start(ctx, which.Account); err != nil {
		return nil, fmt.Errorf("starting a Session at %s: %w", company.Domain, err)
	}
	return session, nil
}

// Private starts a Session under a User ID and a key of its own, like a private browser window. Nothing of it is kept, it
// cannot be signed in, and [Session.End] discards it (4.2).
func (s *Service) Private(ctx context.Context, company discovery.Company) (*Session, error) {
	if company.Issuer == "" {
		return nil, fmt.Errorf("%s has only a website: it offers no Sessions", company.Domain)
	}
	user, err := newUser()
	if err != nil {
		return nil, err
	}
	session := &Session{Company: company, service: s, core: &core{user: user, turn: make(chan struct{}, 1)}}
	if err := session.start(ctx, ""); err != nil {
		return nil, fmt.Errorf("starting a private Session at %s: %w", company.Domain, err)
	}
	return session, nil
}

// newUser makes a User ID that is random, and so says nothing about anyone, and a key for it (4.2, 4.3).
func newUser() (user, error) {
	key, err := dpop.GenerateKey()
	if err != nil {
		return user{}, err
	}
	return user{id: id.New("usr"), key: key}, nil
}

// share returns the one core for a row, with the state that is kept.
func (s *Service) share(ctx context.Context, row, issuer string, which Which) (*core, error) {
	if c := s.inUse(row); c != nil {
		return c, nil
	}
	user, err := s.store.user(ctx, issuer, which.Person)
	if err != nil {
		return nil, err
	}
	kept, found, err := s.store.session(ctx, row)
	if err != nil {
		return nil, err
	}
	if !found {
		kept = state{name: which.Name}
	}
	fresh := &core{row: row, person: which.Person, user: user, turn: make(chan struct{}, 1), state: kept}

	s.mutex.Lock()
	defer s.mutex.Unlock()
	if c := s.live[row].Value(); c != nil { // another caller was faster
		return c, nil
	}
	s.live[row] = weak.Make(fresh)
	runtime.AddCleanup(fresh, s.forget, row)
	return fresh, nil
}

func (s *Service) inUse(row string) *core {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.live[row].Value()
}

// forget drops the entry of a Session that nobody uses any more.
func (s *Service) forget(row string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.live[row].Value() == nil {
		delete(s.live, row)
	}
}

// Info describes a Session that is kept.
type Info struct {
	Issuer   string // the Company
	Person   string
	Name     string
	ID       string       // session_id
	SignedIn bool         // as of the token received last
	Scopes   poppy.Scopes // of that token
}

// List returns every Session that is kept, in no particular order.
func (s *Service) List(ctx context.Context) ([]Info, error) { return s.store.list(ctx) }

// Account is an account of a User at a Company that the agent may use: one for which it holds an Account Token (4.8).
type Account struct {
	ID        string
	Scopes    poppy.Scopes
	ExpiresAt time.Time // when the User must sign in again; zero if the Company set no time
}

// Accounts returns the accounts that a person has signed in to at a Company and that can still be used.
func (s *Service) Accounts(ctx context.Context, issuer, person string) ([]Account, error) {
	kept, err := s.store.accounts(ctx, issuer, person, s.now())
	if err != nil {
		return nil, err
	}
	accounts := make([]Account, len(kept))
	for i, k := range kept {
		accounts[i] = Account{ID: k.row, Scopes: k.scopes, ExpiresAt: k.expiresAt}
	}
	return accounts, nil
}

// End stops using a Session, which leaves the Account Token as it is (4.9). The next [Service.Open] of it starts a new one.
// Ending a private Session discards its User ID and key for ever.
func (s *Session) End(ctx context.Context) error {
	done, err := s.core.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !s.Private() {
		if err := s.service.store.deleteSession(ctx, s.core.row); err != nil {
			return fmt.Errorf("ending the Session: %w", err)
		}
	}
	s.core.replace(state{name: s.core.current().name})
	return nil
}
