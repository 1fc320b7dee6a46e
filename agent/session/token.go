package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"countersign/agent/discovery"
	"countersign/assertion"
	"countersign/internal/secret"
	"countersign/poppy"
)

// earliest is the longest time before its end that a token is renewed.
const earliest = 30 * time.Second

// token returns the Session's newest token for an endpoint, which is renewed if it is about to expire or is the rejected
// one. It may belong to another session_id than before, if the Company has ended the Session.
func (s *Session) token(ctx context.Context, to discovery.Endpoint, rejected secret.Text) (token, error) {
	if t, ok := s.usable(to, rejected); ok {
		return t, checkType(t.kind, to)
	}
	done, err := s.core.takeTurn(ctx)
	if err != nil {
		return token{}, err
	}
	defer done()
	if err := s.reload(ctx); err != nil {
		return token{}, err
	}
	if t, ok := s.usable(to, rejected); ok { // whoever had the turn before has renewed it
		return t, checkType(t.kind, to)
	}
	if err := s.renew(ctx, to.Resource); err != nil {
		return token{}, fmt.Errorf("renewing the Session at %s: %w", s.Company.Domain, err)
	}
	t := s.core.current().tokens[to.Resource]
	return t, checkType(t.kind, to)
}

// usable returns the token for an endpoint if it can be sent now.
func (s *Session) usable(to discovery.Endpoint, rejected secret.Text) (token, bool) {
	t, ok := s.core.current().tokens[to.Resource]
	return t, ok && s.service.now().Before(t.renewAt) && (rejected.IsZero() || !t.value.Equal(rejected))
}

// reload takes the state from the vault, where another process may have renewed it. It needs the turn.
func (s *Session) reload(ctx context.Context) error {
	if !s.Private() {
		kept, found, err := s.service.store.session(ctx, s.core.row)
		if err != nil {
			return err
		}
		if !found {
			kept = state{name: s.core.current().name}
		}
		s.core.replace(kept)
	}
	if s.core.current().id == "" {
		return ErrEnded
	}
	return nil
}

// start starts the Session unless it is started, signed in if there is an account to sign in to (4.8).
func (s *Session) start(ctx context.Context, accountID string) error {
	if s.core.current().id != "" {
		return nil
	}
	done, err := s.core.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := s.reload(ctx); !errors.Is(err, ErrEnded) { // another process, or an error
		return err
	}
	a, err := s.choose(ctx, accountID)
	if err != nil {
		return err
	}
	return s.grant(ctx, "", a, "")
}

// choose returns the account to start with: the one that was asked for, otherwise the User's only one, otherwise none.
func (s *Session) choose(ctx context.Context, accountID string) (account, error) {
	if s.Private() {
		return account{}, nil
	}
	accounts, err := s.service.store.accounts(ctx, s.Company.Issuer, s.Person(), s.service.now())
	if err != nil {
		return account{}, err
	}
	for _, a := range accounts {
		if a.row == accountID || accountID == "" && len(accounts) == 1 {
			return a, nil
		}
	}
	if accountID != "" {
		return account{}, errors.New("the account is not known, or the User must sign in to it again")
	}
	return account{}, nil
}

// renew gets a new token for a resource: with the Account Token if the Session is signed in, otherwise with an assertion
// (4.2, 4.8). A Session that the Company has ended is started anew (4.2). It needs the turn.
func (s *Session) renew(ctx context.Context, resource string) error {
	current := s.core.current()
	a, err := s.service.store.account(ctx, current.account, s.service.now())
	if err != nil {
		return err
	}
	err = s.grant(ctx, current.id, a, resource)
	if poppy.CodeOf(err) != poppy.ErrInvalidSession {
		return err
	}
	s.service.log.InfoContext(ctx, "the Company ended a Session; starting a new one", "domain", s.Company.Domain, "session_id", current.id)
	return s.grant(ctx, "", a, resource)
}

// grant gets a token with the Account Token of a. If there is none, or it is no longer valid, it gets a signed-out one with
// an assertion (4.8). An empty sessionID starts a new Session.
func (s *Session) grant(ctx context.Context, sessionID string, a account, resource string) error {
	for !a.token.IsZero() {
		err := s.request(ctx, url.Values{
			poppy.ParamGrantType:    {poppy.GrantRefreshToken},
			poppy.ParamRefreshToken: {a.token.Reveal()},
		}, sessionID, resource, a)
		if poppy.CodeOf(err) != poppy.ErrInvalidGrant {
			return err
		}
		s.service.log.InfoContext(ctx, "an Account Token is no longer valid", "domain", s.Company.Domain)
		if a, err = s.service.store.dropAccount(ctx, a); err != nil {
			return err
		}
	}
	return s.request(ctx, url.Values{poppy.ParamGrantType: {poppy.GrantJWTBearer}}, sessionID, resource, account{})
}

var errOtherSession = errors.New("the Company answered for another Session than it was asked for")

// request asks the token endpoint with a grant, for a Session ("" for a new one) and a resource ("" for the general token),
// and adopts the answer. a is the account that the answer signs in to. It needs the turn.
func (s *Session) request(ctx context.Context, grant url.Values, sessionID, resource string, a account) error {
	asked := s.service.now() // expires_in counts at the latest from here
	response, err := s.service.post(ctx, s.Company, discovery.Token, s.core.user.key, func(signer *assertion.Signer) (url.Values, error) {
		form := maps.Clone(grant)
		if form.Get(poppy.ParamGrantType) == poppy.GrantJWTBearer {
			session, err := signer.SessionAssertion(s.Company.Issuer, s.core.user.id, s.service.now())
			if err != nil {
				return nil, err
			}
			form.Set(poppy.ParamAssertion, session.Reveal())
		}
		if sessionID != "" {
			form.Set(poppy.ParamSessionID, sessionID)
		}
		if resource != "" {
			form.Set(poppy.ParamResource, resource)
		}
		return form, nil
	})
	if err != nil {
		return err
	}
	tokens, err := poppy.ParseTokenResponse(response.Body)
	if err != nil {
		return fmt.Errorf("the token endpoint's answer cannot be used: %w", err)
	}
	if sessionID != "" && tokens.SessionID != sessionID {
		return errOtherSession
	}
	return s.adopt(ctx, tokens, resource, a, asked)
}

// adopt makes the tokens of an answer those of the Session: in the vault first, so that none is used that could be lost. It
// needs the turn.
func (s *Session) adopt(ctx context.Context, tokens poppy.TokenResponse, resource string, a account, asked time.Time) error {
	if a.fresh {
		if err := tokens.CheckSignIn(); err != nil {
			return fmt.Errorf("the answer does not end a sign-in: %w", err)
		}
	}
	old := s.core.current()
	next := state{name: old.name, id: tokens.SessionID, scopes: tokens.Scope, tokens: map[string]token{}}
	if tokens.SignedIn() {
		next.account = a.row
	}
	// Tokens for other resources stay, unless they show the Session as it no longer is (4.4).
	if old.id == next.id && old.account == next.account && !a.fresh {
		maps.Copy(next.tokens, old.tokens)
	}
	lifetime := time.Duration(tokens.ExpiresIn) * time.Second
	next.tokens[resource] = token{
		value:   tokens.AccessToken,
		kind:    tokens.TokenType,
		session: tokens.SessionID,
		renewAt: asked.Add(lifetime - min(lifetime/10, earliest)),
	}
	if a.fresh {
		a.scopes = tokens.Scope
	}
	if !tokens.RefreshToken.IsZero() { // a new one replaces the old at once (4.8)
		a.token = tokens.RefreshToken
		if tokens.RefreshTokenExpiresIn > 0 {
			a.expiresAt = asked.Add(time.Duration(tokens.RefreshTokenExpiresIn) * time.Second)
		}
	}
	if !s.Private() {
		// The Company has issued them, so they are kept even if the caller no longer waits.
		if err := s.service.store.putSession(context.WithoutCancel(ctx), s.core.row, s.service.store.userRow(s.Company.Issuer, s.Person()), next, a); err != nil {
			return fmt.Errorf("keeping the tokens: %w", err)
		}
	}
	s.core.replace(next)
	return nil
}
