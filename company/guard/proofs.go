package guard

import (
	"errors"
	"net/http"
	"time"

	"countersign/dpop"
	"countersign/poppy"
)

// Proofs checks the DPoP Proofs (4.3) of one kind of place: the token endpoint, or wherever Session Tokens are used.
type Proofs struct {
	Verifier *dpop.Verifier
	Nonces   *dpop.Nonces // of the verifier; nil if it does not look at them
}

// Check validates the proof in a request's header. The error is use_dpop_nonce, with a nonce, invalid_dpop_proof, or a fault of
// ours. A nonce that will soon be over is replaced in the response's header.
func (p Proofs) Check(response, request http.Header, want dpop.Expected, now time.Time) (dpop.Proof, error) {
	proof, err := p.Verifier.Verify(request, want, now)
	if refused, ok := errors.AsType[*dpop.Error](err); ok {
		refusal := &poppy.Error{Code: poppy.ErrorCode(refused.Code()), Cause: err}
		if refusal.Code == poppy.ErrUseDPoPNonce {
			refusal.Nonce = p.Nonces.Issue(now)
		}
		return dpop.Proof{}, refusal
	}
	if err != nil {
		return dpop.Proof{}, err
	}
	if proof.NonceDue {
		response.Set(dpop.NonceHeader, p.Nonces.Issue(now))
	}
	return proof, nil
}
