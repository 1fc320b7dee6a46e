package session

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"time"

	"countersign/agent/vault"
	"countersign/dpop"
	"countersign/internal/database"
	"countersign/internal/secret"
	"countersign/poppy"
)

//go:embed migrations
var migrations embed.FS

// store keeps Users, Sessions, Account Tokens and limits. Rows are named by keyed hashes, and all else is sealed: the file
// tells nothing of who is known where (4.2).
type store struct{ vault *vault.Vault }

func (s store) open(ctx context.Context) error { return s.vault.Migrate(ctx, "session", migrations) }

// account is an Account Token and what it is for (4.8). The zero account is none.
type account struct {
	row       string
	token     secret.Text
	scopes    poppy.Scopes
	expiresAt time.Time // zero if the Company set no time
	fresh     bool      // a sign-in is ending with it
}

// The kept forms hold secrets as plain text, since they are sealed as a whole.
type (
	keptUser struct {
		Issuer string `json:"issuer"`
		Person string `json:"person"`
		ID     string `json:"user_id"`
		Key    []byte `json:"dpop_key"`
	}
	keptSession struct {
		Name    string      `json:"name"`
		ID      string      `json:"session_id"`
		Account string      `json:"account"`
		Scope   string      `json:"scope"`
		Tokens  []keptToken `json:"tokens"`
	}
	keptToken struct {
		Resource string `json:"resource"`
		Value    string `json:"token"`
		Type     string `json:"type"`
		RenewAt  int64  `json:"renew_at"`
	}
	keptAccount struct {
		Token     string `json:"token"`
		Scope     string `json:"scope"`
		ExpiresAt int64  `json:"expires_at"`
	}
)

func (s store) userRow(issuer, person string) string { return s.vault.Hash("user", issuer, person) }

func (s store) sessionRow(issuer, person, name string) string {
	return s.vault.Hash("session", issuer, person, name)
}

func place(table, row string) vault.Place {
	return vault.Place{Table: table, Row: row, Column: "content"}
}

// user returns the User's ID and key at a Company, made when first asked for and kept from then on.
func (s store) user(ctx context.Context, issuer, person string) (user, error) {
	row := s.userRow(issuer, person)
	sealed, err := s.read(ctx, "SELECT content FROM users WHERE id = ?", row)
	if err != nil {
		return user{}, err
	}
	if sealed == nil {
		if sealed, err = s.createUser(ctx, row, issuer, person); err != nil {
			return user{}, err
		}
	}
	var kept keptUser
	if err := s.vault.Unseal(place("users", row), sealed, &kept); err != nil {
		return user{}, err
	}
	key, err := dpop.ParseKey(secret.New(string(kept.Key)))
	if err != nil {
		return user{}, err
	}
	return user{id: kept.ID, key: key}, nil
}

// createUser stores a new User ID and key, unless another caller was faster, and returns what is stored.
func (s store) createUser(ctx context.Context, row, issuer, person string) (sealed []byte, err error) {
	fresh, err := newUser()
	if err != nil {
		return nil, err
	}
	content, err := s.vault.Seal(place("users", row), keptUser{
		Issuer: issuer, Person: person, ID: fresh.id, Key: []byte(fresh.key.Marshal().Reveal()),
	})
	if err != nil {
		return nil, err
	}
	err = s.vault.Write(ctx, func(tx *database.Tx) error {
		if _, err := tx.Exec("INSERT INTO users (id, content) VALUES (?, ?) ON CONFLICT DO NOTHING", row, content); err != nil {
			return err
		}
		return tx.QueryRow("SELECT content FROM users WHERE id = ?", row).Scan(&sealed)
	})
	return sealed, err
}

// session returns a Session's state as it is kept.
func (s store) session(ctx context.Context, row string) (kept state, found bool, err error) {
	sealed, err := s.read(ctx, "SELECT content FROM sessions WHERE id = ?", row)
	if err != nil || sealed == nil {
		return state{}, false, err
	}
	kept, err = s.unsealSession(row, sealed)
	return kept, err == nil, err
}

func (s store) unsealSession(row string, sealed []byte) (state, error) {
	var kept keptSession
	if err := s.vault.Unseal(place("sessions", row), sealed, &kept); err != nil {
		return state{}, err
	}
	scopes, err := poppy.ParseScopes(kept.Scope)
	if err != nil {
		return state{}, fmt.Errorf("a kept scope %w", err)
	}
	read := state{name: kept.Name, id: kept.ID, account: kept.Account, scopes: scopes, tokens: make(map[string]token, len(kept.Tokens))}
	for _, t := range kept.Tokens {
		read.tokens[t.Resource] = token{
			value: secret.New(t.Value), kind: poppy.TokenType(t.Type), session: kept.ID, renewAt: database.Time(t.RenewAt),
		}
	}
	return read, nil
}

// putSession keeps a Session's state and, if there is one, its Account Token, together.
func (s store) putSession(ctx context.Context, row, userRow string, next state, a account) error {
	kept := keptSession{Name: next.name, ID: next.id, Account: next.account, Scope: next.scopes.String()}
	for resource, t := range next.tokens {
		kept.Tokens = append(kept.Tokens, keptToken{
			Resource: resource, Value: t.value.Reveal(), Type: string(t.kind), RenewAt: database.Millis(t.renewAt),
		})
	}
	content, err := s.vault.Seal(place("sessions", row), kept)
	if err != nil {
		return err
	}
	var accountContent []byte
	if !a.token.IsZero() {
		accountContent, err = s.vault.Seal(place("accounts", a.row), keptAccount{
			Token: a.token.Reveal(), Scope: a.scopes.String(), ExpiresAt: database.Millis(a.expiresAt),
		})
		if err != nil {
			return err
		}
	}
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec(`INSERT INTO sessions (id, user_id, content) VALUES (?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET content = excluded.content`, row, userRow, content)
		if err != nil || accountContent == nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO accounts (id, user_id, content) VALUES (?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET content = excluded.content`, a.row, userRow, accountContent)
		return err
	})
}

func (s store) deleteSession(ctx context.Context, row string) error {
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec("DELETE FROM sessions WHERE id = ?", row)
		return err
	})
}

func (s store) list(ctx context.Context) ([]Info, error) {
	var all []Info
	err := s.vault.Query(ctx, func(scan func(...any) error) error {
		var row, userRow string
		var sealed, sealedUser []byte
		if err := scan(&row, &sealed, &userRow, &sealedUser); err != nil {
			return err
		}
		session, err := s.unsealSession(row, sealed)
		if err != nil {
			return err
		}
		var user keptUser
		if err := s.vault.Unseal(place("users", userRow), sealedUser, &user); err != nil {
			return err
		}
		all = append(all, Info{
			Issuer: user.Issuer, Person: user.Person, Name: session.name,
			ID: session.id, SignedIn: len(session.scopes) > 0, Scopes: session.scopes,
		})
		return nil
	}, "SELECT s.id, s.content, u.id, u.content FROM sessions s JOIN users u ON u.id = s.user_id")
	return all, err
}

// accounts returns the accounts whose Account Tokens can still be used.
func (s store) accounts(ctx context.Context, issuer, person string, now time.Time) ([]account, error) {
	var all []account
	err := s.vault.Query(ctx, func(scan func(...any) error) error {
		var row string
		var sealed []byte
		if err := scan(&row, &sealed); err != nil {
			return err
		}
		a, err := s.unsealAccount(row, sealed)
		if err == nil && a.valid(now) {
			all = append(all, a)
		}
		return err
	}, "SELECT id, content FROM accounts WHERE user_id = ? ORDER BY id", s.userRow(issuer, person))
	return all, err
}

// account returns the account of a row, none if there is none or its Account Token has expired.
func (s store) account(ctx context.Context, row string, now time.Time) (account, error) {
	sealed, err := s.read(ctx, "SELECT content FROM accounts WHERE id = ?", row)
	if err != nil || sealed == nil {
		return account{}, err
	}
	a, err := s.unsealAccount(row, sealed)
	if err != nil || !a.valid(now) {
		return account{}, err
	}
	return a, nil
}

func (a account) valid(now time.Time) bool { return a.expiresAt.IsZero() || now.Before(a.expiresAt) }

// dropAccount forgets an Account Token that the Company no longer takes. If another process has replaced it meanwhile, it
// stays, and is returned.
func (s store) dropAccount(ctx context.Context, used account) (newer account, err error) {
	err = s.vault.Write(ctx, func(tx *database.Tx) error {
		var sealed []byte
		err := tx.QueryRow("SELECT content FROM accounts WHERE id = ?", used.row).Scan(&sealed)
		if errors.Is(err, database.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		kept, err := s.unsealAccount(used.row, sealed)
		if err != nil {
			return err
		}
		if !kept.token.Equal(used.token) {
			newer = kept
			return nil
		}
		_, err = tx.Exec("DELETE FROM accounts WHERE id = ?", used.row)
		return err
	})
	return newer, err
}

func (s store) unsealAccount(row string, sealed []byte) (account, error) {
	var kept keptAccount
	if err := s.vault.Unseal(place("accounts", row), sealed, &kept); err != nil {
		return account{}, err
	}
	scopes, err := poppy.ParseScopes(kept.Scope)
	if err != nil {
		return account{}, fmt.Errorf("a kept scope %w", err)
	}
	return account{row: row, token: secret.New(kept.Token), scopes: scopes, expiresAt: database.Time(kept.ExpiresAt)}, nil
}

// limitRow names the URL that a limit is for; queries do not count.
func (s store) limitRow(u *url.URL) string {
	return s.vault.Hash("limit", u.Scheme+"://"+u.Host+u.EscapedPath())
}

// limits returns those that still hold.
func (s store) limits(ctx context.Context, now time.Time) (map[string]time.Time, error) {
	until := make(map[string]time.Time)
	err := s.vault.Query(ctx, func(scan func(...any) error) error {
		var row string
		var millis int64
		if err := scan(&row, &millis); err != nil {
			return err
		}
		until[row] = database.Time(millis)
		return nil
	}, "SELECT id, until FROM limits WHERE until > ?", database.Millis(now))
	return until, err
}

// putLimit keeps a limit and forgets those that are over.
func (s store) putLimit(ctx context.Context, row string, until, now time.Time) error {
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		if _, err := tx.Exec("DELETE FROM limits WHERE until <= ?", database.Millis(now)); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO limits (id, until) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET until = excluded.until",
			row, database.Millis(until))
		return err
	})
}

// read returns the one value that a statement selects, nil if there is none.
func (s store) read(ctx context.Context, statement, row string) ([]byte, error) {
	var sealed []byte
	err := s.vault.QueryRow(ctx, statement, row).Scan(&sealed)
	if errors.Is(err, database.ErrNoRows) {
		return nil, nil
	}
	return sealed, err
}
