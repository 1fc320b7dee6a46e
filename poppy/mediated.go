package poppy

import (
	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// MediatedRequest starts a Mediated Sign-In (4.7). Writing it as JSON by other means than [MediatedRequest.Encode] does
// not show the credentials.
type MediatedRequest struct {
	Scope       string // as sent; "" if absent, which is invalid_scope rather than a malformed request (4.4)
	Credentials map[string]secret.Text
}

type mediatedWire struct {
	Scope       string            `json:"scope"`
	Credentials map[string]string `json:"credentials"`
}

// ParseMediatedRequest reads the request as a Company must. Whether every field of auth.mediated.fields is there, and
// whether the scopes can be granted, the Company knows. The error is [Problems].
func ParseMediatedRequest(data []byte) (MediatedRequest, error) {
	var wire mediatedWire
	if err := decode(data, MaxTokenBytes, &wire); err != nil {
		return MediatedRequest{}, err
	}
	var c checker
	c.require(len(wire.Credentials) > 0, "4.7", "credentials", "is required: every field that auth.mediated.fields lists")
	if err := c.err(); err != nil {
		return MediatedRequest{}, err
	}
	r := MediatedRequest{Scope: wire.Scope, Credentials: make(map[string]secret.Text, len(wire.Credentials))}
	for name, value := range wire.Credentials {
		r.Credentials[name] = secret.New(value)
	}
	return r, nil
}

// Encode writes the request for the wire, credentials included.
func (r MediatedRequest) Encode() ([]byte, error) {
	wire := mediatedWire{Scope: r.Scope, Credentials: make(map[string]string, len(r.Credentials))}
	for name, value := range r.Credentials {
		wire.Credentials[name] = value.Reveal()
	}
	return strictjson.Marshal(wire)
}

// ParseMediatedCode reads the one-time code of a second step (4.7). The error is [Problems].
func ParseMediatedCode(data []byte) (secret.Text, error) {
	var wire codeWire
	if err := decode(data, MaxTokenBytes, &wire); err != nil {
		return secret.Text{}, err
	}
	var c checker
	c.require(wire.Code != "", "4.7", "code", "is required")
	if err := c.err(); err != nil {
		return secret.Text{}, err
	}
	return secret.New(wire.Code), nil
}

// EncodeMediatedCode writes the request that submits a one-time code.
func EncodeMediatedCode(code secret.Text) ([]byte, error) {
	return strictjson.Marshal(codeWire{Code: code.Reveal()})
}

type codeWire struct {
	Code string `json:"code"`
}

// MediatedStatus is where a Mediated Sign-In is. Every one comes with HTTP 200 (4.7).
type MediatedStatus string

// The statuses. All but MediatedCodeRequired are final.
const (
	MediatedComplete     MediatedStatus = "complete"      // signed in
	MediatedCodeRequired MediatedStatus = "code_required" // a one-time code was sent to the User
	MediatedFailed       MediatedStatus = "failed"        // wrong credentials, or too many wrong codes
	MediatedExpired      MediatedStatus = "expired"       // the code did not come in time
)

// MediatedResponse is the answer of the Mediated Sign-In endpoint (4.7).
type MediatedResponse struct {
	Status    MediatedStatus
	Tokens    TokenResponse // only of MediatedComplete
	SignInID  string        // only of MediatedCodeRequired, as are the next two
	SentTo    string        // where the code went, in words for the User; "" if not said
	ExpiresAt Time          // zero if not said
}

// mediatedHead is what the answer has besides the tokens.
type mediatedHead struct {
	Status    MediatedStatus `json:"status"`
	SignInID  string         `json:"sign_in_id,omitempty"`
	Code      *mediatedCode  `json:"code,omitzero"`
	ExpiresAt Time           `json:"expires_at,omitzero"`
}

type mediatedCode struct {
	SentTo string `json:"sent_to,omitempty"`
}

// ParseMediatedResponse reads the answer as a Personal Agent must. The error is [Problems].
func ParseMediatedResponse(data []byte) (MediatedResponse, error) {
	var head mediatedHead
	if err := decode(data, MaxTokenBytes, &head); err != nil {
		return MediatedResponse{}, err
	}
	r := MediatedResponse{Status: head.Status}
	switch head.Status {
	case MediatedFailed, MediatedExpired:
	case MediatedCodeRequired:
		var c checker
		c.require(printable(head.SignInID, MaxIDLength), "4.7", "sign_in_id", "is required: 1 to 256 printable ASCII characters")
		if err := c.err(); err != nil {
			return MediatedResponse{}, err
		}
		r.SignInID, r.ExpiresAt = head.SignInID, head.ExpiresAt
		if head.Code != nil {
			r.SentTo = head.Code.SentTo
		}
	case MediatedComplete:
		tokens, err := ParseTokenResponse(data)
		if err == nil {
			err = tokens.CheckSignIn()
		}
		if err != nil {
			return MediatedResponse{}, err
		}
		r.Tokens = tokens
	default:
		return MediatedResponse{}, Problems{{Field: "status", Rule: "must be complete, code_required, failed or expired", Section: "4.7"}}
	}
	return r, nil
}

// Encode writes the answer for the wire, tokens included.
func (r MediatedResponse) Encode() ([]byte, error) {
	head := mediatedHead{Status: r.Status}
	switch r.Status {
	case MediatedComplete:
		return strictjson.Marshal(struct {
			mediatedHead
			tokenWire
		}{head, r.Tokens.wire()})
	case MediatedCodeRequired:
		head.SignInID, head.Code, head.ExpiresAt = r.SignInID, &mediatedCode{SentTo: r.SentTo}, r.ExpiresAt
	case MediatedFailed, MediatedExpired:
	}
	return strictjson.Marshal(head)
}
