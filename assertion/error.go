package assertion

// Reason says which check refused an assertion. It is for logs and metrics and, in one case, for the caller.
type Reason string

// The reasons, in the order of the checks.
const (
	ReasonMalformed  Reason = "malformed"   // not a compact JWS
	ReasonAlgorithm  Reason = "alg"         // none, symmetric or not supported
	ReasonType       Reason = "typ"         // of another kind of JWT
	ReasonUnknownKey Reason = "unknown_key" // the key set may be out of date: fetch it again, once
	ReasonSignature  Reason = "signature"   // not made by the key it names
	ReasonClaims     Reason = "claims"      // a claim missing or not of its type
	ReasonIssuer     Reason = "iss"         // not the Personal Agent that is asking
	ReasonSubject    Reason = "sub"         // not what the kind needs
	ReasonAudience   Reason = "aud"         // for another Company, or not one string
	ReasonLifetime   Reason = "lifetime"    // from iat to exp is too long or nothing
	ReasonNotYet     Reason = "not_yet"     // iat or nbf is in the future
	ReasonExpired    Reason = "expired"
)

// Error is the refusal of an assertion. Its text repeats nothing of the assertion.
type Error struct {
	Reason Reason
	cause  error
}

// Error returns the reason and, if known, what exactly was wrong.
func (e *Error) Error() string {
	text := "assertion refused (" + string(e.Reason) + ")"
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns what exactly was wrong, if known.
func (e *Error) Unwrap() error { return e.cause }

func refuse(reason Reason, cause error) error { return &Error{Reason: reason, cause: cause} }
