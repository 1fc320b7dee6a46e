package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"countersign/agent/discovery"
	"countersign/dpop"
	"countersign/internal/secret"
	"countersign/poppy"
)

// Do sends a request with the Session's token for an endpoint and returns the answer. The request is to that endpoint,
// to something below it or, for an API, to wherever its description says; always https. Its body must be one that can be
// sent again, as [http.NewRequestWithContext] makes of bytes.Reader and strings.Reader.
//
// Do waits, renews and retries as the protocol says (4.3). What then is still an error of the protocol is a
// [*poppy.Error]: at an API those in its WWW-Authenticate header, such as sign_in_required, while its other answers are
// returned whatever their status; elsewhere every status from 400. A redirect is a fetch.ErrRedirected and is not
// followed. A [*ChangedError] says that the Session was replaced, a [*RateLimitedError] when to try again.
func (s *Session) Do(request *http.Request, to discovery.Endpoint, bounds Bounds) (*Response, error) {
	if request.Body != nil && request.Body != http.NoBody && request.GetBody == nil {
		return nil, errors.New("the request's body cannot be sent again: make it of a bytes.Reader or strings.Reader")
	}
	if to.Kind != discovery.OpenAPI && !below(request.URL, to.URL) { // where an API is, its description says (6)
		return nil, fmt.Errorf("the request is not for the %s endpoint of %s, so it gets no token for it", to.Kind, s.Company.Domain)
	}
	in := s.ID()
	response, used, err := s.do(request, to, bounds, in, secret.Text{})
	if err != nil || response.Status < http.StatusBadRequest {
		return response, err
	}
	problem := parseProblem(response, to.Kind)
	if problem.Code == poppy.ErrInvalidToken { // it expired early or was revoked: once with a new one
		if response, _, err = s.do(request, to, bounds, in, used); err != nil || response.Status < http.StatusBadRequest {
			return response, err
		}
		problem = parseProblem(response, to.Kind)
	}
	if (to.Kind == discovery.OpenAPI || to.Kind == discovery.MCP) && problem.Code == "" {
		return response, nil // the API's own error
	}
	return nil, problem
}

// do sends the request with the newest token, but not with the one that was rejected, and returns the token used.
func (s *Session) do(request *http.Request, to discovery.Endpoint, bounds Bounds, in string, rejected secret.Text) (*Response, secret.Text, error) {
	var used secret.Text
	response, err := s.service.wire.send(request.Context(), request.URL, to.Kind, bounds,
		func(ctx context.Context, nonce string) (*http.Request, error) {
			t, err := s.token(ctx, to, rejected)
			if err != nil {
				return nil, err
			}
			if t.session != in {
				return nil, &ChangedError{Domain: s.Company.Domain, Old: in, New: t.session}
			}
			used = t.value
			return s.authorize(request, t, nonce)
		})
	return response, used, err
}

// authorize returns the request with a token, under the scheme that token_type named, and a proof for it (4.3).
func (s *Session) authorize(request *http.Request, t token, nonce string) (*http.Request, error) {
	sent := request.Clone(request.Context())
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			return nil, fmt.Errorf("reading the body again: %w", err)
		}
		sent.Body = body
	}
	sent.Header.Set("Authorization", string(t.kind)+" "+t.value.Reveal())
	sent.Header.Del(dpop.Header)
	if t.kind == poppy.TokenBearer {
		return sent, nil
	}
	proof, err := s.core.user.key.Proof(dpop.Request{
		Method: sent.Method, URL: sent.URL.String(), Token: t.value, Nonce: nonce,
	}, s.service.now())
	if err != nil {
		return nil, err
	}
	sent.Header.Set(dpop.Header, proof)
	return sent, nil
}

// below tells whether a URL is an endpoint or something below it.
func below(u *url.URL, endpoint string) bool {
	base, err := url.Parse(endpoint)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host {
		return false
	}
	path, root := u.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/")
	return path == base.EscapedPath() || strings.HasPrefix(path, root+"/")
}
