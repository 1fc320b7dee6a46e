package session

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"countersign/internal/id"
	"countersign/poppy"
)

// SignIn ends Direct or Device Sign-In: it sends the grant, such as authorization_code with its parameters, for this
// Session, and keeps the Account Token (4.4). The token endpoint's refusals are [*poppy.Error]s and leave everything as it
// was. A private Session is refused ([ErrPrivate]).
func (s *Session) SignIn(ctx context.Context, grant url.Values) error {
	return s.signIn(ctx, func(current state, a account) error { return s.request(ctx, grant, current.id, "", a) })
}

// Adopt ends Mediated Sign-In, whose tokens come from another endpoint (4.7). It keeps them as [Session.SignIn] does.
func (s *Session) Adopt(ctx context.Context, tokens poppy.TokenResponse) error {
	return s.signIn(ctx, func(current state, a account) error {
		if tokens.SessionID != current.id {
			return errOtherSession
		}
		return s.adopt(ctx, tokens, "", a, s.service.now())
	})
}

func (s *Session) signIn(ctx context.Context, finish func(state, account) error) error {
	if s.Private() {
		return ErrPrivate
	}
	done, err := s.core.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := s.reload(ctx); err != nil {
		return err
	}
	current := s.core.current()
	// A Session never changes its account, so a second sign-in is to the same one and replaces its Account Token (4.4).
	a := account{row: cmp.Or(current.account, id.New("acc")), fresh: true}
	if err := finish(current, a); err != nil {
		return fmt.Errorf("signing in at %s: %w", s.Company.Domain, err)
	}
	return nil
}
