package poppy

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"countersign/internal/strictjson"
)

// ErrorCode is an error code of the protocol. A code that is not listed here is another one.
type ErrorCode string

// The error codes: of the token endpoint (4.2), Mediated Sign-In (4.7), APIs (6), conversations (7.13), feedback (8)
// and operations (Operations 9).
const (
	ErrInvalidRequest         ErrorCode = "invalid_request"
	ErrInvalidClient          ErrorCode = "invalid_client"
	ErrInvalidGrant           ErrorCode = "invalid_grant"
	ErrInvalidSession         ErrorCode = "invalid_session"
	ErrAccountMismatch        ErrorCode = "account_mismatch"
	ErrInvalidScope           ErrorCode = "invalid_scope"
	ErrInvalidTarget          ErrorCode = "invalid_target"
	ErrUnsupportedGrantType   ErrorCode = "unsupported_grant_type"
	ErrUnauthorizedClient     ErrorCode = "unauthorized_client"
	ErrUnsupportedTokenType   ErrorCode = "unsupported_token_type"
	ErrAuthorizationPending   ErrorCode = "authorization_pending"
	ErrSlowDown               ErrorCode = "slow_down"
	ErrAccessDenied           ErrorCode = "access_denied"
	ErrExpiredToken           ErrorCode = "expired_token"
	ErrInvalidDPoPProof       ErrorCode = "invalid_dpop_proof"
	ErrUseDPoPNonce           ErrorCode = "use_dpop_nonce"
	ErrInvalidToken           ErrorCode = "invalid_token"
	ErrSignInRequired         ErrorCode = "sign_in_required"
	ErrInsufficientScope      ErrorCode = "insufficient_scope"
	ErrExtensionRequired      ErrorCode = "extension_required"
	ErrRateLimited            ErrorCode = "rate_limited"
	ErrConversationNotFound   ErrorCode = "conversation_not_found"
	ErrConversationClosed     ErrorCode = "conversation_closed"
	ErrDirectConversationOpen ErrorCode = "direct_conversation_open"
	ErrMessageIDConflict      ErrorCode = "message_id_conflict"
	ErrInvalidCursor          ErrorCode = "invalid_cursor"
	ErrCursorExpired          ErrorCode = "cursor_expired"
	ErrOperationNotFound      ErrorCode = "operation_not_found"
	ErrTermsChanged           ErrorCode = "terms_changed"
	ErrUserApprovalRequired   ErrorCode = "user_approval_required"
	ErrServerError            ErrorCode = "server_error"
)

// Surface is where an error is returned, which decides its status and how it travels.
type Surface int

// The surfaces.
const (
	// SurfaceToken is an OAuth endpoint: token, device authorization, revocation. Errors are a JSON body (4.2).
	SurfaceToken Surface = iota
	// SurfaceProtocol is an endpoint that takes a Session Token: Mediated Sign-In, conversations, feedback, operations.
	// Errors are a JSON body; token errors are also in the WWW-Authenticate header (4.7, 7.13).
	SurfaceProtocol
	// SurfaceAPI is a Company's own API or MCP server. Errors of the protocol are in the WWW-Authenticate header (6).
	SurfaceAPI
)

// errorRow is what the protocol says of a code.
type errorRow struct {
	status     [3]int // by Surface; 0 where the code does not occur
	tokenError bool   // in the WWW-Authenticate header wherever a Session Token is taken (6)
	text       string // for people, within the characters of RFC 6749 section 5.2
}

// errorTable holds every code: 4.2, 4.7, 6, 7.13, 8 and Operations 9.
var errorTable = map[ErrorCode]errorRow{
	ErrInvalidRequest:         {status: [3]int{400, 400, 400}, text: "The request is malformed: a field is missing, has the wrong form or is too long."},
	ErrInvalidClient:          {status: [3]int{401, 0, 0}, text: "The Personal Agent could not be authenticated, or is not accepted here. Check its metadata document, its keys and the client assertion."},
	ErrInvalidGrant:           {status: [3]int{400, 0, 0}, text: "The assertion, code or Account Token is not valid, has expired or was used before. Ask for a new one; for an account, sign in again."},
	ErrInvalidSession:         {status: [3]int{400, 400, 0}, text: "The Session has ended or is not this Personal Agent's. Start a new Session."},
	ErrAccountMismatch:        {status: [3]int{400, 400, 0}, text: "The Session belongs to another account. Use a new Session for this one."},
	ErrInvalidScope:           {status: [3]int{400, 400, 0}, text: "The scopes are missing, not known or not available here. Ask only for scopes that the Company lists."},
	ErrInvalidTarget:          {status: [3]int{400, 0, 0}, text: "The resource is not one of this Company's. Use the url or resource of an entry in its poppy.json."},
	ErrUnsupportedGrantType:   {status: [3]int{400, 0, 0}, text: "The grant type is not offered here. See grant_types_supported."},
	ErrUnauthorizedClient:     {status: [3]int{400, 0, 0}, text: "The Personal Agent may not use this grant type here."},
	ErrUnsupportedTokenType:   {status: [3]int{400, 0, 0}, text: "Tokens of this type cannot be revoked here. Revoke the Account Token."},
	ErrAuthorizationPending:   {status: [3]int{400, 0, 0}, text: "The User has not finished signing in. Ask again after the interval."},
	ErrSlowDown:               {status: [3]int{400, 0, 0}, text: "The User has not finished signing in. Wait 5 seconds longer between requests."},
	ErrAccessDenied:           {status: [3]int{400, 0, 0}, text: "The User declined."},
	ErrExpiredToken:           {status: [3]int{400, 0, 0}, text: "The sign-in was not finished in time. Start it again."},
	ErrInvalidDPoPProof:       {status: [3]int{400, 401, 401}, tokenError: true, text: "The DPoP proof is missing or not valid for this request and token."},
	ErrUseDPoPNonce:           {status: [3]int{400, 401, 401}, tokenError: true, text: "The DPoP proof needs the nonce of the DPoP-Nonce header. Repeat the request with it."},
	ErrInvalidToken:           {status: [3]int{0, 401, 401}, tokenError: true, text: "The Session Token is missing, has expired, was revoked or is for something else. Get a new one."},
	ErrSignInRequired:         {status: [3]int{0, 403, 403}, tokenError: true, text: "This needs the User's account. Sign in."},
	ErrInsufficientScope:      {status: [3]int{0, 403, 403}, tokenError: true, text: "The sign-in does not cover this. Sign in with the scopes named."},
	ErrExtensionRequired:      {status: [3]int{403, 403, 403}, text: "This needs an extension that the Personal Agent's metadata document does not list."},
	ErrRateLimited:            {status: [3]int{429, 429, 429}, text: "Too many requests. Wait as long as Retry-After says."},
	ErrConversationNotFound:   {status: [3]int{0, 404, 0}, text: "There is no such conversation for this User."},
	ErrConversationClosed:     {status: [3]int{0, 409, 0}, text: "The conversation is closed. Start a new one."},
	ErrDirectConversationOpen: {status: [3]int{0, 409, 0}, text: "The User is talking with the Company in a Direct Conversation. Wait until it closes, or use it."},
	ErrMessageIDConflict:      {status: [3]int{0, 409, 0}, text: "Another message was sent with this ID. Use a new ID for new content."},
	ErrInvalidCursor:          {status: [3]int{0, 400, 0}, text: "The cursor is not one of this conversation. Read from the beginning."},
	ErrCursorExpired:          {status: [3]int{0, 410, 0}, text: "Events after this cursor are no longer kept. Read from the beginning."},
	ErrOperationNotFound:      {status: [3]int{0, 404, 0}, text: "There is no such operation for this Session."},
	ErrTermsChanged:           {status: [3]int{0, 409, 0}, text: "The terms have changed since. Get the User's approval for the operation as it is now."},
	ErrUserApprovalRequired:   {status: [3]int{0, 403, 0}, text: "The User must approve this revision themselves. A standing permission is not enough."},
	ErrServerError:            {status: [3]int{500, 500, 500}, text: "Something went wrong here. Try again later."},
}

// Error is one error of the protocol, made by a Company or received by a Personal Agent.
type Error struct {
	Code           ErrorCode     // "" if the answer that was received has none
	Description    string        // what the other party wrote, cut and cleaned; "" for the fixed text of the code
	Scope          string        // of insufficient_scope: the scopes needed
	Extension      string        // of extension_required: its name
	ConversationID string        // of direct_conversation_open: the open one
	Operation      *Operation    // of terms_changed: as it is now
	Nonce          string        // of use_dpop_nonce: for the next proof
	RetryAfter     time.Duration // of rate_limited: how long to wait
	HTTPStatus     int           // as received; 0 in an error that was made here
	Cause          error         // why, for this side's log; never sent
}

// Error returns the code, what it means, and what this side knows of the cause.
func (e *Error) Error() string {
	text := string(e.Code)
	if text == "" {
		text = "HTTP status " + strconv.Itoa(e.HTTPStatus)
	}
	if meaning := e.Meaning(); meaning != "" {
		text += ": " + meaning
	}
	if e.Scope != "" {
		text += " [" + e.Scope + "]"
	}
	if e.Extension != "" {
		text += " [" + e.Extension + "]"
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Meaning returns what the code means and what to do: the other party's words if it sent some, otherwise a fixed text,
// "" for a code that is not known here.
func (e *Error) Meaning() string {
	if e.Description != "" {
		return e.Description
	}
	return errorTable[e.Code].text
}

// CodeOf returns the code of the protocol error that err is or wraps, "" if there is none.
func CodeOf(err error) ErrorCode {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Status returns the HTTP status of the error on a surface, 500 for a code that does not occur there.
func (e *Error) Status(s Surface) int {
	if status := errorTable[e.Code].status[s]; status != 0 {
		return status
	}
	return http.StatusInternalServerError
}

// Body returns the error as JSON, with only fixed texts and what the Company itself put into e (4.2, 7.13).
func (e *Error) Body() ([]byte, error) {
	body := errorBody{
		Error: e.Code, Scope: e.Scope, Extension: e.Extension, ConversationID: e.ConversationID, Operation: e.Operation,
	}
	if e.Code != ErrRateLimited && e.Code != ErrExtensionRequired { // the protocol spells out their bodies (3.3, 4.3)
		body.Description = errorTable[e.Code].text
	}
	return strictjson.Marshal(body)
}

type errorBody struct {
	Error          ErrorCode  `json:"error"`
	Description    string     `json:"error_description,omitempty"`
	Scope          string     `json:"scope,omitempty"`
	Extension      string     `json:"extension,omitempty"`
	ConversationID string     `json:"conversation_id,omitempty"`
	Operation      *Operation `json:"operation,omitzero"`
}

// Response returns the whole answer for a surface: status, header and body. On surfaces that take a Session Token, the
// accepted challenges say which schemes the endpoint takes, each with parameters of its own such as resource_metadata;
// without any it is DPoP. The error's parameters are put before those.
func (e *Error) Response(s Surface, accepted ...Challenge) (status int, header http.Header, body []byte, err error) {
	if body, err = e.Body(); err != nil {
		return 0, nil, nil, err
	}
	header = http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}}
	row := errorTable[e.Code]
	if s != SurfaceToken && row.tokenError || s == SurfaceAPI && e.Code == ErrExtensionRequired {
		if len(accepted) == 0 {
			accepted = []Challenge{{Scheme: string(TokenDPoP)}}
		}
		for _, challenge := range accepted {
			challenge.Params = append(e.params(), challenge.Params...)
			header.Add("WWW-Authenticate", challenge.String())
		}
	}
	if e.Nonce != "" {
		header.Set("DPoP-Nonce", e.Nonce)
	}
	if e.Code == ErrRateLimited {
		header.Set("Retry-After", FormatRetryAfter(e.RetryAfter))
	}
	return e.Status(s), header, body, nil
}

// params are the parameters of a challenge that carries the error (6).
func (e *Error) params() []Param {
	params := []Param{{"error", string(e.Code)}}
	if e.Scope != "" {
		params = append(params, Param{"scope", e.Scope})
	}
	if e.Extension != "" {
		params = append(params, Param{"extension", e.Extension})
	}
	return params
}

// ParseError reads an answer that is not a success, as a Personal Agent must: the header first, then the body, which
// the caller leaves out at APIs, whose bodies are their own. What counts is the code, whatever the status; a 401
// without code is invalid_token and a 429 is rate_limited. It always returns an error, if only with the status.
func ParseError(status int, header http.Header, body []byte) *Error {
	e := &Error{HTTPStatus: status, Nonce: header.Get("DPoP-Nonce"), RetryAfter: ParseRetryAfter(header)}
	inBody := parseErrorBody(body)
	if challenge, ok := errorChallenge(header); ok {
		e.Code = ErrorCode(challenge.Param("error"))
		e.Description = clean(challenge.Param("error_description"))
		e.Scope, e.Extension = challenge.Param("scope"), challenge.Param("extension")
	}
	if e.Code == "" {
		e.Code = inBody.Error
	}
	if e.Code == inBody.Error {
		e.Description = cmp.Or(e.Description, clean(inBody.Description))
		e.Scope = cmp.Or(e.Scope, inBody.Scope)
		e.Extension = cmp.Or(e.Extension, inBody.Extension)
		e.ConversationID, e.Operation = inBody.ConversationID, inBody.Operation
	}
	switch {
	case e.Code != "":
	case status == http.StatusUnauthorized:
		e.Code = ErrInvalidToken
	case status == http.StatusTooManyRequests:
		e.Code = ErrRateLimited
	}
	return e
}

// errorChallenge returns the challenge that carries an error: that of DPoP, otherwise that of Bearer.
func errorChallenge(header http.Header) (Challenge, bool) {
	challenges, err := ParseChallenges(header.Values("WWW-Authenticate"))
	if err != nil {
		return Challenge{}, false
	}
	for _, tokenType := range []TokenType{TokenDPoP, TokenBearer} {
		for _, challenge := range challenges {
			if equalFold(challenge.Scheme, string(tokenType)) && challenge.Param("error") != "" {
				return challenge, true
			}
		}
	}
	return Challenge{}, false
}

// parseErrorBody reads what it can: a body of another form is one without code, and so is one with an invalid operation.
func parseErrorBody(body []byte) errorBody {
	var read errorBody
	if decode(body, MaxErrorBytes, &read) != nil {
		return errorBody{}
	}
	if read.Operation != nil && read.Operation.Validate() != nil {
		read.Operation = nil
	}
	if !ValidID(read.ConversationID) {
		read.ConversationID = ""
	}
	return read
}

// clean makes a text of the other party fit for one line of a log or terminal.
func clean(text string) string {
	const longest = 300
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "…"
	}
	return strings.TrimSpace(text)
}

// ParseRetryAfter returns how long a Retry-After header asks to wait, in either of its forms (RFC 9110 section 10.2.3);
// a date counts from the Date header. It is 0 if there is none that can be read.
func ParseRetryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if isDigits(text) && len(text) <= 9 {
		seconds, _ := strconv.Atoi(text)
		return time.Duration(seconds) * time.Second
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	from, err := http.ParseTime(header.Get("Date"))
	if err != nil || until.Before(from) {
		return 0
	}
	return until.Sub(from)
}

// FormatRetryAfter writes a Retry-After header: whole seconds, rounded up, at least 1.
func FormatRetryAfter(wait time.Duration) string {
	seconds := (wait + time.Second - 1) / time.Second
	return strconv.FormatInt(max(1, int64(seconds)), 10)
}
