package session

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"time"

	"countersign/company/guard"
	"countersign/company/registry"
	"countersign/internal/database"
	"countersign/internal/id"
	"countersign/internal/secret"
	"countersign/poppy"
)

// holder is whom a token is issued to, and for what.
type holder struct {
	clientID      string
	agentName     string
	extensions    map[string]string // those of the Company's that the agent lists
	keyThumbprint string            // empty for a Bearer token
	resource      string
	tokenType     poppy.TokenType
}

// access is what a token allows beyond the Session itself. The zero value is a signed-out one.
type access struct {
	account        string
	scopes         poppy.Scopes
	accountTokenID string
	until          time.Time // when the Account Token ends, which no Session Token outlives; zero for never
}

// accountToken is a User's approval for a Personal Agent to use one account (4.8).
type accountToken struct {
	id       string
	clientID string
	userID   string
	account  string
	scopes   poppy.Scopes
	issued   time.Time
	expires  time.Time // zero for never
}

// startOrRenew is the JWT bearer grant (4.2): it starts a Session, or renews one with a signed-out token. Renewing one that is
// signed in does not sign it out; its other tokens stay as they are.
func (s *Service) startOrRenew(tx *database.Tx, h holder, userID, sessionID string, now time.Time) (poppy.TokenResponse, error) {
	session, err := sessionFor(tx, h.clientID, userID, sessionID, now)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	return s.issue(tx, session, h, access{}, now)
}

// useAccountToken is the refresh token grant (4.8): it issues a signed-in token for the Session, which it signs in if it was
// not, or for a new one. A scope that is nil asks for all the scopes that the Account Token has.
func (s *Service) useAccountToken(
	tx *database.Tx, h holder, token secret.Text, sessionID string, scope poppy.Scopes, now time.Time,
) (poppy.TokenResponse, error) {
	account, err := selectAccountToken(tx, digestOf(token), now)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	if account.clientID != h.clientID {
		return poppy.TokenResponse{}, refuse(poppy.ErrInvalidGrant, errors.New("the Account Token is another Personal Agent's"))
	}
	session, err := sessionFor(tx, h.clientID, account.userID, sessionID, now)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	// A Session is never signed in to a second account, even after it was signed out of the first (4.4).
	if session.Account != "" && session.Account != account.account {
		return poppy.TokenResponse{}, refuse(poppy.ErrAccountMismatch, nil)
	}
	if scope == nil {
		scope = account.scopes
	}
	if !account.scopes.Covers(scope) {
		return poppy.TokenResponse{}, refuse(poppy.ErrInvalidScope, errors.New("more than the Account Token has"))
	}
	session.Account, session.accountTokenID = account.account, account.id
	return s.issue(tx, session, h, access{account.account, scope, account.id, account.expires}, now)
}

// SignIn is how every type of sign-in ends (4.4): it signs the Session of a request in to an account, and returns a new Account
// Token for it and a signed-in Session Token. The User approved the scopes, at least one. A lifetime of 0 means that only
// revocation ends the Account Token.
//
// It belongs into the transaction that decides the sign-in. The error is account_mismatch, invalid_session, or the store's;
// nothing was written then.
func (s *Service) SignIn(
	tx *database.Tx, by guard.Principal, account string, scopes poppy.Scopes, lifetime time.Duration,
) (poppy.TokenResponse, error) {
	now := s.Now()
	session, err := sessionFor(tx, by.ClientID, by.UserID, by.SessionID, now)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	if session.Account != "" && session.Account != account {
		return poppy.TokenResponse{}, refuse(poppy.ErrAccountMismatch, nil)
	}
	token := accountToken{
		id: id.New("acc"), clientID: by.ClientID, userID: by.UserID, account: account, scopes: scopes, issued: now,
	}
	if lifetime > 0 {
		token.expires = now.Add(lifetime)
	}
	text := newToken()
	if err := insertAccountToken(tx, digestOf(text), token); err != nil {
		return poppy.TokenResponse{}, err
	}
	session.Account, session.accountTokenID = account, token.id
	h := holder{
		clientID: by.ClientID, agentName: by.AgentName, extensions: by.Extensions,
		keyThumbprint: by.KeyThumbprint, tokenType: poppy.TokenDPoP,
	}
	response, err := s.issue(tx, session, h, access{account, scopes, token.id, token.expires}, now)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	response.RefreshToken, response.RefreshTokenExpiresIn = text, int64(lifetime/time.Second)
	return response, nil
}

// revoke ends a token of the client: an Account Token, with every Session signed out that was signed in with it (4.9), or one
// Session Token. What is not a token of this client is left alone.
func revoke(tx *database.Tx, clientID string, token secret.Text) error {
	signedOut, err := deleteAccountToken(tx, digestOf(token), clientID)
	if err != nil {
		return err
	}
	if signedOut == "" {
		return deleteSessionToken(tx, digestOf(token), clientID)
	}
	return signOut(tx, signedOut)
}

// sessionFor returns the Session that a request names, which must be the User's at this Personal Agent (4.2), or a new one if it
// names none. A new one has no Started time until it is issued a token.
func sessionFor(tx *database.Tx, clientID, userID, sessionID string, now time.Time) (Session, error) {
	if sessionID == "" {
		return Session{ID: id.New("ses"), ClientID: clientID, UserID: userID}, nil
	}
	session, err := readSession(tx.QueryRow(selectSession, sessionID, database.Millis(now)), sessionID)
	if errors.Is(err, ErrNoSession) {
		return Session{}, refuse(poppy.ErrInvalidSession, err)
	}
	if err != nil {
		return Session{}, err
	}
	if session.ClientID != clientID || session.UserID != userID {
		return Session{}, refuse(poppy.ErrInvalidSession, errors.New("the Session is another Personal Agent's or User's"))
	}
	return session, nil
}

// issue writes the Session and a new token for it. It is the last step of a grant: nothing may be refused after it.
func (s *Service) issue(tx *database.Tx, session Session, h holder, a access, now time.Time) (poppy.TokenResponse, error) {
	lifetime := s.TokenLifetime
	if !a.until.IsZero() {
		lifetime = min(lifetime, a.until.Sub(now).Truncate(time.Second))
	}
	text := newToken()
	session.Ends = now.Add(s.SessionLifetime)
	write := updateSession
	if session.Started.IsZero() {
		session.Started, write = now, insertSession
	}
	if err := write(tx, session); err != nil {
		return poppy.TokenResponse{}, err
	}
	if err := insertToken(tx, digestOf(text), session.ID, h, a, now.Add(lifetime)); err != nil {
		return poppy.TokenResponse{}, err
	}
	return poppy.TokenResponse{
		AccessToken: text, TokenType: h.tokenType, ExpiresIn: int64(lifetime / time.Second),
		Scope: a.scopes, SessionID: session.ID,
	}, nil
}

// holderOf says whom a token is issued to.
func (s *Service) holderOf(agent registry.Agent, keyThumbprint, resource string) holder {
	h := holder{
		clientID: agent.Metadata.ClientID, agentName: agent.Name(), extensions: make(map[string]string),
		keyThumbprint: keyThumbprint, resource: resource, tokenType: s.tokenType(resource),
	}
	for name, version := range s.Extensions {
		if agent.Metadata.Extensions.Supports(name, version) {
			h.extensions[name] = version
		}
	}
	if h.tokenType == poppy.TokenBearer {
		h.keyThumbprint = "" // whoever has it can use it, so it is bound to nothing
	}
	return h
}

// tokenType is that of tokens for a resource: DPoP, except for an MCP server that does not support it (4.3).
func (s *Service) tokenType(resource string) poppy.TokenType {
	if s.Resources[resource] == poppy.TokenBearer {
		return poppy.TokenBearer
	}
	return poppy.TokenDPoP
}

// newToken makes a token of 256 random bits.
func newToken() secret.Text {
	var random [32]byte
	_, _ = rand.Read(random[:]) // crypto/rand ends the program rather than return an error
	return secret.New(base64.RawURLEncoding.EncodeToString(random[:]))
}

func refuse(code poppy.ErrorCode, cause error) error { return &poppy.Error{Code: code, Cause: cause} }
