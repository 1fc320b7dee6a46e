package session

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/company/guard"
	"countersign/company/registry"
	"countersign/internal/database"
	"countersign/internal/secret"
	"countersign/poppy"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the tables of Sessions and tokens up to date.
func Migrate(ctx context.Context, db *database.DB) error {
	return db.Migrate(ctx, "session", migrations)
}

// tidyRows is how many outdated rows of each kind one transaction removes. A transaction adds at most three of a kind, so
// more go than come, and no transaction takes longer for what has piled up.
const tidyRows = 6

// digestOf is how a token is kept and looked up. Tokens have 256 random bits, so nothing slower is needed.
func digestOf(token secret.Text) []byte {
	sum := sha256.Sum256([]byte(token.Reveal()))
	return sum[:]
}

// spend records that the jti of owner was accepted and must not be again before it expires. It returns false if it was.
func spend(tx *database.Tx, owner, jti string, expires time.Time) (bool, error) {
	sum := sha256.Sum256([]byte(owner + "\n" + jti)) // an owner is a URL or a thumbprint and has no line break
	added, err := tx.Exec(`INSERT INTO spent_jti (digest, expires) VALUES (?, ?) ON CONFLICT DO NOTHING`,
		sum[:], database.Millis(expires))
	return added == 1, err
}

// tidy removes a few rows that have outlived their use.
func tidy(tx *database.Tx, now time.Time) error {
	for _, statement := range []string{
		`DELETE FROM spent_jti WHERE digest IN (SELECT digest FROM spent_jti WHERE expires < ? LIMIT ?)`,
		`DELETE FROM session_token WHERE digest IN (SELECT digest FROM session_token WHERE expires < ? LIMIT ?)`,
		`DELETE FROM session WHERE session_id IN (SELECT session_id FROM session WHERE ends < ? LIMIT ?)`,
		`DELETE FROM account_token WHERE account_token_id IN
			(SELECT account_token_id FROM account_token WHERE expires <> 0 AND expires < ? LIMIT ?)`,
	} {
		if _, err := tx.Exec(statement, database.Millis(now), tidyRows); err != nil {
			return err
		}
	}
	return nil
}

func insertSession(tx *database.Tx, s Session) error {
	_, err := tx.Exec(`INSERT INTO session (session_id, client_id, user_id, account, account_token_id, started, ends)
		VALUES (?, ?, ?, ?, ?, ?, ?)`,
		s.ID, s.ClientID, s.UserID, s.Account, s.accountTokenID, database.Millis(s.Started), database.Millis(s.Ends))
	return err
}

// updateSession keeps what can change of a Session.
func updateSession(tx *database.Tx, s Session) error {
	_, err := tx.Exec(`UPDATE session SET account = ?, account_token_id = ?, ends = ? WHERE session_id = ?`,
		s.Account, s.accountTokenID, database.Millis(s.Ends), s.ID)
	return err
}

const selectSession = `SELECT client_id, user_id, account, account_token_id, started, ends FROM session
	WHERE session_id = ? AND ends > ?`

// readSession reads a Session that has not ended.
func readSession(row database.Row, id string) (Session, error) {
	s := Session{ID: id}
	var started, ends int64
	err := row.Scan(&s.ClientID, &s.UserID, &s.Account, &s.accountTokenID, &started, &ends)
	if errors.Is(err, database.ErrNoRows) {
		return Session{}, ErrNoSession
	}
	if err != nil {
		return Session{}, fmt.Errorf("reading a Session: %w", err)
	}
	s.Started, s.Ends = database.Time(started), database.Time(ends)
	return s, nil
}

func endSession(tx *database.Tx, id string, now time.Time) error {
	changed, err := tx.Exec(`UPDATE session SET ends = ? WHERE session_id = ? AND ends > ?`,
		database.Millis(now), id, database.Millis(now))
	if err == nil && changed == 0 {
		return ErrNoSession
	}
	return err
}

func insertToken(tx *database.Tx, digest []byte, sessionID string, h holder, a access, expires time.Time) error {
	_, err := tx.Exec(`INSERT INTO session_token (digest, session_id, key_thumbprint, resource, account, scope, account_token_id,
		agent_name, agent_extensions, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		digest, sessionID, h.keyThumbprint, h.resource, a.account, a.scopes.String(), a.accountTokenID,
		h.agentName, joinExtensions(h.extensions), database.Millis(expires))
	return err
}

// selectToken reads a Session Token as the guard needs it. It joins the registry's table of agents, because a guarded
// request may cost one read and a blocked agent must be refused at once (4.1). The read does not end with ctx: it takes less
// time than database/sql needs to watch for that.
func (s *Service) selectToken(ctx context.Context, digest [sha256.Size]byte, now time.Time) (guard.Token, error) {
	p := guard.Principal{Version: poppy.Version}
	var scope, extensions string
	var expires, ends int64
	var status registry.Status
	err := s.Database.QueryRow(context.WithoutCancel(ctx), `SELECT s.client_id, t.agent_name, s.user_id, t.session_id, t.account, t.scope, t.resource,
			t.agent_extensions, t.key_thumbprint, t.expires, s.ends, COALESCE(a.status, '')
		FROM session_token t JOIN session s ON s.session_id = t.session_id LEFT JOIN agent a ON a.client_id = s.client_id
		WHERE t.digest = ? AND t.expires > ?`, digest[:], database.Millis(now)).
		Scan(&p.ClientID, &p.AgentName, &p.UserID, &p.SessionID, &p.Account, &scope, &p.Resource,
			&extensions, &p.KeyThumbprint, &expires, &ends, &status)
	if errors.Is(err, database.ErrNoRows) {
		return guard.Token{}, guard.ErrNoToken
	}
	if err != nil {
		return guard.Token{}, fmt.Errorf("looking up a Session Token: %w", err)
	}
	if p.Scopes, err = poppy.ParseScopes(scope); err != nil {
		return guard.Token{}, fmt.Errorf("reading the scopes of a Session Token: %w", err)
	}
	p.Extensions = splitExtensions(extensions)
	p.TokenExpires = database.Time(expires)
	token := guard.Token{Principal: p, Type: poppy.TokenDPoP, Ended: ends <= database.Millis(now) || !s.Agents.Admits(status)}
	if p.KeyThumbprint == "" {
		token.Type = poppy.TokenBearer
	}
	return token, nil
}

// joinExtensions writes extensions for a column that is read with every request, which JSON would make slower.
func joinExtensions(extensions map[string]string) string {
	var pairs []string
	for name, version := range extensions {
		pairs = append(pairs, name+"="+version)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, " ")
}

func splitExtensions(text string) map[string]string {
	extensions := make(map[string]string)
	for pair := range strings.FieldsSeq(text) {
		name, version, _ := strings.Cut(pair, "=")
		extensions[name] = version
	}
	return extensions
}

func deleteSessionToken(tx *database.Tx, digest []byte, clientID string) error {
	_, err := tx.Exec(`DELETE FROM session_token WHERE digest = ? AND EXISTS
		(SELECT 1 FROM session s WHERE s.session_id = session_token.session_id AND s.client_id = ?)`, digest, clientID)
	return err
}

func insertAccountToken(tx *database.Tx, digest []byte, t accountToken) error {
	_, err := tx.Exec(`INSERT INTO account_token (account_token_id, digest, client_id, user_id, account, scope, issued, expires)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		t.id, digest, t.clientID, t.userID, t.account, t.scopes.String(), database.Millis(t.issued), database.Millis(t.expires))
	return err
}

// selectAccountToken reads an Account Token that lasts for another second at least, the shortest life of a Session Token.
func selectAccountToken(tx *database.Tx, digest []byte, now time.Time) (accountToken, error) {
	var t accountToken
	var scope string
	var issued, expires int64
	err := tx.QueryRow(`SELECT account_token_id, client_id, user_id, account, scope, issued, expires FROM account_token
		WHERE digest = ? AND (expires = 0 OR expires >= ?)`, digest, database.Millis(now.Add(time.Second))).
		Scan(&t.id, &t.clientID, &t.userID, &t.account, &scope, &issued, &expires)
	if errors.Is(err, database.ErrNoRows) {
		return accountToken{}, refuse(poppy.ErrInvalidGrant, errors.New("no such Account Token"))
	}
	if err != nil {
		return accountToken{}, fmt.Errorf("looking up an Account Token: %w", err)
	}
	if t.scopes, err = poppy.ParseScopes(scope); err != nil {
		return accountToken{}, fmt.Errorf("reading the scopes of an Account Token: %w", err)
	}
	t.issued, t.expires = database.Time(issued), database.Time(expires)
	return t, nil
}

// deleteAccountToken returns the ID of the token that it removed, "" if the client has no such token.
func deleteAccountToken(tx *database.Tx, digest []byte, clientID string) (string, error) {
	var removed string
	err := tx.QueryRow(`DELETE FROM account_token WHERE digest = ? AND client_id = ? RETURNING account_token_id`, digest, clientID).
		Scan(&removed)
	if errors.Is(err, database.ErrNoRows) {
		return "", nil
	}
	return removed, err
}

// signOut signs out the Sessions and the Session Tokens that were signed in with an Account Token. They go on signed out, and
// the Sessions keep their account (4.4, 4.9). The second condition is that of the partial indexes.
func signOut(tx *database.Tx, accountTokenID string) error {
	for _, statement := range []string{
		`UPDATE session SET account_token_id = '' WHERE account_token_id = ? AND account_token_id <> ''`,
		`UPDATE session_token SET account = '', scope = '', account_token_id = '' WHERE account_token_id = ? AND account_token_id <> ''`,
	} {
		if _, err := tx.Exec(statement, accountTokenID); err != nil {
			return err
		}
	}
	return nil
}
