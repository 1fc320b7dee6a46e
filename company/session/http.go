package session

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"countersign/assertion"
	"countersign/company/internal/answer"
	"countersign/company/registry"
	"countersign/dpop"
	"countersign/internal/database"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
	"countersign/internal/web"
	"countersign/poppy"
)

// ServeToken is the token endpoint (4.2, 4.8), for POST requests.
func (s *Service) ServeToken(w http.ResponseWriter, r *http.Request) error {
	response, err := s.serveToken(w, r)
	if err != nil {
		return answer.Error(err, poppy.SurfaceToken)
	}
	body, err := response.Encode()
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return web.WriteJSON(w, http.StatusOK, strictjson.Raw(body))
}

// ServeRevocation is the revocation endpoint (4.9, RFC 7009), for POST requests. The answer is 200 for a token that is unknown
// or another Personal Agent's too.
func (s *Service) ServeRevocation(w http.ResponseWriter, r *http.Request) error {
	if err := s.serveRevocation(w, r); err != nil {
		return answer.Error(err, poppy.SurfaceToken)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return nil
}

// request is a token request whose client and proof were checked.
type request struct {
	form   url.Values
	agent  registry.Agent
	holder holder
	once   []once
	now    time.Time
}

// once is something in a request that may be used only once: an assertion or a proof.
type once struct {
	owner    string // who chose the jti, and so must not choose it again: a client_id, or the thumbprint of a proof's key
	jti      string
	until    time.Time       // from then on it would be refused for its age
	replayed poppy.ErrorCode // the answer if it was used before
}

// serveToken checks in this order: form, client, proof, grant (docs/decisions.md, Q29).
func (s *Service) serveToken(w http.ResponseWriter, r *http.Request) (poppy.TokenResponse, error) {
	now := s.Now()
	form, err := readForm(w, r)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	agent, clientAssertion, err := s.authenticate(r.Context(), form, now)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	resource := form.Get(poppy.ParamResource)
	proof, err := s.checkProof(w.Header(), r, s.tokenType(resource), now)
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	req := request{form, agent, s.holderOf(agent, proof.Thumbprint, resource), []once{clientAssertion}, now}
	if proof.ID != "" {
		req.once = append(req.once, once{proof.Thumbprint, proof.ID, proof.Until, poppy.ErrInvalidDPoPProof})
	}
	switch form.Get(poppy.ParamGrantType) {
	case poppy.GrantJWTBearer:
		return s.serveJWTBearer(r.Context(), req)
	case poppy.GrantRefreshToken:
		return s.serveRefreshToken(r.Context(), req)
	case "":
		return poppy.TokenResponse{}, refuse(poppy.ErrInvalidRequest, errors.New("no grant_type"))
	default:
		return poppy.TokenResponse{}, refuse(poppy.ErrUnsupportedGrantType, nil)
	}
}

func (s *Service) serveJWTBearer(ctx context.Context, r request) (response poppy.TokenResponse, err error) {
	compact := r.form.Get(poppy.ParamAssertion)
	if compact == "" {
		return poppy.TokenResponse{}, refuse(poppy.ErrInvalidRequest, errors.New("no assertion"))
	}
	claims, err := s.verify(ctx, &r.agent, compact, assertion.Session, r.now)
	if _, refused := errors.AsType[*assertion.Error](err); refused {
		return poppy.TokenResponse{}, refuse(poppy.ErrInvalidGrant, err)
	}
	if err != nil {
		return poppy.TokenResponse{}, err
	}
	if r.form.Get(poppy.ParamScope) != "" { // a signed-out token has no scopes (docs/decisions.md, Q11)
		return poppy.TokenResponse{}, refuse(poppy.ErrInvalidScope, nil)
	}
	if err := s.checkTargetAndRate(r); err != nil {
		return poppy.TokenResponse{}, err
	}
	r.once = append(r.once, once{r.holder.clientID, claims.ID, claims.ExpiresAt, poppy.ErrInvalidGrant})
	err = s.decide(ctx, r.agent, r.once, r.now, func(tx *database.Tx) error {
		response, err = s.startOrRenew(tx, r.holder, claims.Subject, r.form.Get(poppy.ParamSessionID), r.now)
		return err
	})
	return response, err
}

func (s *Service) serveRefreshToken(ctx context.Context, r request) (response poppy.TokenResponse, err error) {
	token := secret.New(r.form.Get(poppy.ParamRefreshToken))
	if token.IsZero() {
		return poppy.TokenResponse{}, refuse(poppy.ErrInvalidRequest, errors.New("no refresh_token"))
	}
	var scopes poppy.Scopes // nil for all that the Account Token has
	if text := r.form.Get(poppy.ParamScope); text != "" {
		if scopes, err = poppy.ParseScopes(text); err != nil {
			return poppy.TokenResponse{}, refuse(poppy.ErrInvalidScope, err)
		}
	}
	if err := s.checkTargetAndRate(r); err != nil {
		return poppy.TokenResponse{}, err
	}
	err = s.decide(ctx, r.agent, r.once, r.now, func(tx *database.Tx) error {
		response, err = s.useAccountToken(tx, r.holder, token, r.form.Get(poppy.ParamSessionID), scopes, r.now)
		return err
	})
	return response, err
}

// checkTargetAndRate refuses a resource that is not the Company's, compared as a string (RFC 9728 3.3), and one Session too
// many in a minute.
func (s *Service) checkTargetAndRate(r request) error {
	if _, known := s.Resources[r.holder.resource]; r.holder.resource != "" && !known {
		return refuse(poppy.ErrInvalidTarget, nil)
	}
	if r.form.Get(poppy.ParamSessionID) == "" {
		if wait := s.starts.Allow(r.holder.clientID, r.now); wait > 0 {
			return &poppy.Error{Code: poppy.ErrRateLimited, RetryAfter: wait}
		}
	}
	return nil
}

func (s *Service) serveRevocation(w http.ResponseWriter, r *http.Request) error {
	now := s.Now()
	form, err := readForm(w, r)
	if err != nil {
		return err
	}
	agent, clientAssertion, err := s.authenticate(r.Context(), form, now)
	if err != nil {
		return err
	}
	token := secret.New(form.Get(poppy.ParamToken))
	if token.IsZero() {
		return refuse(poppy.ErrInvalidRequest, errors.New("no token"))
	}
	return s.decide(r.Context(), agent, []once{clientAssertion}, now, func(tx *database.Tx) error {
		return revoke(tx, agent.Metadata.ClientID, token)
	})
}

// decide runs a grant in the one transaction that spends what may be used only once. A replay, like an agent that may not
// come, undoes all of it: until every check has passed nothing is spent, so that nobody can use up what an honest request
// still needs. Then it stays spent, though the grant itself may be refused: a copy must not work later.
func (s *Service) decide(
	ctx context.Context, agent registry.Agent, used []once, now time.Time, grant func(*database.Tx) error,
) error {
	var refusal error
	err := s.Database.Write(ctx, func(tx *database.Tx) error {
		if err := s.Agents.Admit(tx, agent); err != nil {
			return err
		}
		for _, u := range used {
			fresh, err := spend(tx, u.owner, u.jti, u.until)
			if err != nil {
				return err
			}
			if !fresh {
				return refuse(u.replayed, errors.New("used before"))
			}
		}
		if err := tidy(tx, now); err != nil {
			return err
		}
		err := grant(tx)
		if _, refused := errors.AsType[*poppy.Error](err); refused {
			refusal = err
			return nil
		}
		return err
	})
	if err == nil {
		err = refusal
	}
	return refuseClient(err)
}

// authenticate finds out which Personal Agent is asking, by its client assertion (4.1). client_id may be left out, since the
// assertion names it too (RFC 7521 4.2).
func (s *Service) authenticate(ctx context.Context, form url.Values, now time.Time) (registry.Agent, once, error) {
	compact := form.Get(poppy.ParamClientAssertion)
	if form.Get(poppy.ParamClientAssertionType) != poppy.ClientAssertionType || compact == "" {
		return registry.Agent{}, once{}, refuse(poppy.ErrInvalidClient, errors.New("no client assertion"))
	}
	clientID := form.Get(poppy.ParamClientID)
	if clientID == "" {
		var err error
		if clientID, err = assertion.UnverifiedIssuer(compact); err != nil {
			return registry.Agent{}, once{}, refuse(poppy.ErrInvalidClient, err)
		}
	}
	agent, err := s.Agents.Agent(ctx, clientID)
	if err != nil {
		return registry.Agent{}, once{}, refuseClient(err)
	}
	claims, err := s.verify(ctx, &agent, compact, assertion.Client, now)
	if _, refused := errors.AsType[*assertion.Error](err); refused {
		return registry.Agent{}, once{}, refuse(poppy.ErrInvalidClient, err)
	}
	if err != nil {
		return registry.Agent{}, once{}, err
	}
	return agent, once{clientID, claims.ID, claims.ExpiresAt, poppy.ErrInvalidClient}, nil
}

// verify verifies an assertion of the agent. If it names a key that is not in the agent's key set, the set is fetched anew,
// once.
func (s *Service) verify(
	ctx context.Context, agent *registry.Agent, compact string, kind assertion.Kind, now time.Time,
) (assertion.Claims, error) {
	want := assertion.Expected{Kind: kind, ClientID: agent.Metadata.ClientID, Audience: s.Issuer}
	claims, err := assertion.Verify(compact, agent.Keys, want, now)
	if refused, ok := errors.AsType[*assertion.Error](err); !ok || refused.Reason != assertion.ReasonUnknownKey {
		return claims, err
	}
	fresh, err := s.Agents.Refresh(ctx, want.ClientID)
	if err != nil {
		return assertion.Claims{}, refuseClient(err)
	}
	*agent = fresh
	return assertion.Verify(compact, fresh.Keys, want, now)
}

// checkProof validates the DPoP Proof of a token request (4.3). A request for a Bearer token may leave it out.
func (s *Service) checkProof(response http.Header, r *http.Request, tokenType poppy.TokenType, now time.Time) (dpop.Proof, error) {
	if tokenType == poppy.TokenBearer && len(r.Header.Values(dpop.Header)) == 0 {
		return dpop.Proof{}, nil
	}
	return s.Proofs.Check(response, r.Header, dpop.Expected{Method: r.Method, URL: s.TokenEndpoint}, now)
}

// refuseClient gives the registry's reasons not to let an agent in their code; any other error stays as it is.
func refuseClient(err error) error {
	if tooMany, ok := errors.AsType[*registry.LimitError](err); ok {
		return &poppy.Error{Code: poppy.ErrRateLimited, RetryAfter: tooMany.Wait, Cause: err}
	}
	for _, reason := range []error{registry.ErrClientID, registry.ErrDocument, registry.ErrBlocked, registry.ErrNotAllowed} {
		if errors.Is(err, reason) {
			return refuse(poppy.ErrInvalidClient, err)
		}
	}
	return err
}

// readForm reads the parameters of an OAuth request from its body. The query is not looked at, so no token is taken from a
// URL (4.3). A parameter that is sent twice is refused and one without value is as if left out (RFC 6749 3.2).
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	form, err := web.ReadForm(w, r, poppy.MaxTokenBytes)
	if err != nil {
		return nil, refuse(poppy.ErrInvalidRequest, err)
	}
	for _, values := range form {
		if len(values) > 1 {
			return nil, refuse(poppy.ErrInvalidRequest, errors.New("a parameter is sent twice"))
		}
	}
	return form, nil
}
