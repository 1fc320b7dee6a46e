package dpop

// The OAuth error codes for a refused proof (RFC 9449 5 and 8).
const (
	CodeInvalidProof = "invalid_dpop_proof"
	CodeUseNonce     = "use_dpop_nonce"
)

// Reason says which check refused a proof. It is for logs and metrics: the other party gets only the code.
type Reason string

// The reasons, in the order of the checks.
const (
	ReasonHeader       Reason = "header_count"  // no DPoP header, or several
	ReasonMalformed    Reason = "malformed"     // not a compact JWS
	ReasonAlgorithm    Reason = "alg"           // none, symmetric or not accepted here
	ReasonClaims       Reason = "claims"        // jti, htm, htu or iat missing or not of their type
	ReasonType         Reason = "typ"           // not dpop+jwt
	ReasonKey          Reason = "jwk"           // no usable public key, or a private one
	ReasonSignature    Reason = "signature"     // not made by that key
	ReasonMethod       Reason = "htm"           // for another method
	ReasonURL          Reason = "htu"           // for another URL, or not https
	ReasonNonce        Reason = "nonce"         // not issued here, or expired
	ReasonNonceMissing Reason = "nonce_missing" // none, and one is required
	ReasonNonceStale   Reason = "nonce_stale"   // neither iat nor the nonce is within the window
	ReasonStale        Reason = "iat"           // not within the window, and there is no nonce
	ReasonBinding      Reason = "key_binding"   // not the key that the token is bound to
	ReasonToken        Reason = "ath"           // missing or of another token
)

// Error is the refusal of a proof. Its text repeats nothing of the proof.
type Error struct {
	Reason Reason
	cause  error
}

// Error returns the reason and, if known, what exactly was wrong.
func (e *Error) Error() string {
	text := "DPoP proof refused (" + string(e.Reason) + ")"
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns what exactly was wrong, if known.
func (e *Error) Unwrap() error { return e.cause }

// Code returns the OAuth error code: [CodeUseNonce] if the same request with the nonce in the response's [NonceHeader]
// would be accepted, otherwise [CodeInvalidProof].
func (e *Error) Code() string {
	switch e.Reason {
	case ReasonNonce, ReasonNonceMissing, ReasonNonceStale:
		return CodeUseNonce
	default:
		return CodeInvalidProof
	}
}

func refuse(reason Reason, cause error) error { return &Error{Reason: reason, cause: cause} }
