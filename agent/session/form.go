package session

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"countersign/agent/discovery"
	"countersign/assertion"
	"countersign/dpop"
	"countersign/poppy"
)

// PostForm sends a form to an OAuth endpoint of the Company that needs no proof, with the Personal Agent's client
// assertion: the revocation and device authorization endpoints (4.6, 4.9). Refusals are [*poppy.Error]s.
func (s *Service) PostForm(ctx context.Context, company discovery.Company, kind discovery.Kind, form url.Values) (*Response, error) {
	return s.post(ctx, company, kind, nil, func(*assertion.Signer) (url.Values, error) { return maps.Clone(form), nil })
}

// post sends a form with a client assertion and, if there is a key, a proof. fill is called for each try.
func (s *Service) post(ctx context.Context, company discovery.Company, kind discovery.Kind, key *dpop.Key, fill func(*assertion.Signer) (url.Values, error)) (*Response, error) {
	endpoint, ok := company.Endpoint(kind)
	if !ok {
		return nil, fmt.Errorf("%s has no %s endpoint", company.Domain, kind)
	}
	to, err := poppy.ParseURL(endpoint.URL)
	if err != nil {
		return nil, fmt.Errorf("the %s endpoint %w", kind, err)
	}
	response, err := s.wire.send(ctx, to, kind, Bounds{MaxBytes: poppy.MaxTokenBytes},
		func(ctx context.Context, nonce string) (*http.Request, error) {
			signer, err := s.identity.Signer(ctx)
			if err != nil {
				return nil, err
			}
			form, err := fill(signer)
			if err != nil {
				return nil, err
			}
			client, err := signer.ClientAssertion(company.Issuer, s.now())
			if err != nil {
				return nil, err
			}
			form.Set(poppy.ParamClientID, s.identity.ClientID())
			form.Set(poppy.ParamClientAssertionType, poppy.ClientAssertionType)
			form.Set(poppy.ParamClientAssertion, client.Reveal())
			// Its answer may hold the only copy of a new Account Token, so a caller who gives up does not cancel it.
			request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, endpoint.URL, strings.NewReader(form.Encode()))
			if err != nil {
				return nil, err
			}
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if key != nil {
				proof, err := key.Proof(dpop.Request{Method: http.MethodPost, URL: endpoint.URL, Nonce: nonce}, s.now())
				if err != nil {
					return nil, err
				}
				request.Header.Set(dpop.Header, proof)
			}
			return request, nil
		})
	if err != nil {
		return nil, err
	}
	if response.Status >= http.StatusBadRequest {
		return nil, parseProblem(response, kind)
	}
	return response, nil
}
