package poppy

import (
	"slices"
	"strings"

	"countersign/internal/strictjson"
)

// Paths below the operations endpoint and an operation ID (Operations 5.2, 7).
const (
	PathConfirm = "confirm"
	PathCancel  = "cancel"
)

// OperationState is where an operation is (Operations 3).
type OperationState string

// The states. Succeeded, failed, cancelled and expired are final.
const (
	OperationProposed   OperationState = "proposed"    // can be confirmed until expires_at
	OperationInProgress OperationState = "in_progress" // confirmed; being performed, or its outcome being found out
	OperationSucceeded  OperationState = "succeeded"   // performed
	OperationFailed     OperationState = "failed"      // not completed; result says what was changed
	OperationCancelled  OperationState = "cancelled"   // declined, or stopped; result says what was changed
	OperationExpired    OperationState = "expired"     // not confirmed in time; nothing was done
)

// followers says which states may come after which. Final states have none.
var followers = map[OperationState][]OperationState{
	OperationProposed:   {OperationInProgress, OperationCancelled, OperationExpired},
	OperationInProgress: {OperationSucceeded, OperationFailed, OperationCancelled},
	OperationSucceeded:  nil,
	OperationFailed:     nil,
	OperationCancelled:  nil,
	OperationExpired:    nil,
}

// Known tells whether the extension defines the state.
func (s OperationState) Known() bool {
	_, known := followers[s]
	return known
}

// Final tells whether an operation in this state never changes again.
func (s OperationState) Final() bool { return s.Known() && len(followers[s]) == 0 }

// MayBecome tells whether an operation in this state may go to next in one step.
func (s OperationState) MayBecome(next OperationState) bool {
	return slices.Contains(followers[s], next)
}

// Approval says how the User approved a revision (Operations 5.1).
type Approval string

// The ways of approving.
const (
	ApprovedByUser               Approval = "user"
	ApprovedByStandingPermission Approval = "standing_permission" // not if user_approval_required
)

// Operation is one action that a Company proposed, with its terms and, later, its result (Operations 3).
type Operation struct {
	OperationID          string         `json:"operation_id"`
	Revision             int64          `json:"revision"` // from 1
	State                OperationState `json:"state"`
	Summary              string         `json:"summary"`
	Terms                Object         `json:"terms,omitzero"`
	ExpiresAt            Time           `json:"expires_at,omitzero"` // the last time this revision can be confirmed
	UserApprovalRequired bool           `json:"user_approval_required"`
	URL                  string         `json:"url,omitempty"`
	Confirmation         *Confirmation  `json:"confirmation"` // nil until confirmed
	Result               *Result        `json:"result"`       // nil until final
}

// Confirmation is what the Personal Agent stated when it confirmed (Operations 5.2).
type Confirmation struct {
	Revision    int64    `json:"revision"`
	ApprovedBy  Approval `json:"approved_by"`
	ConfirmedAt Time     `json:"confirmed_at"`
}

// Result is the Company's account of what happened (Operations 6).
type Result struct {
	Summary string `json:"summary"` // every change that was made
	Data    Object `json:"data,omitzero"`
}

// ParseOperation reads an operation as a Personal Agent must. The error is [Problems].
func ParseOperation(data []byte) (Operation, error) {
	var o Operation
	if err := decode(data, MaxOperationBytes, &o); err != nil {
		return Operation{}, err
	}
	if err := o.Validate(); err != nil {
		return Operation{}, err
	}
	return o, nil
}

// FindOperation looks for an operation in an API's JSON response or an MCP tool's structuredContent (Operations 4.1,
// 4.2). It finds none in anything but an object with a member operation that is an object. The error is [Problems].
func FindOperation(data []byte) (operation Operation, found bool, err error) {
	member := operationMember(data)
	if member == nil {
		return Operation{}, false, nil
	}
	operation, err = ParseOperation(member)
	return operation, err == nil, err
}

// operationMember returns the object that stands in operation, nil if there is none.
func operationMember(data []byte) strictjson.Raw {
	var envelope struct {
		Operation strictjson.Raw `json:"operation"`
	}
	if decode(data, MaxOperationBytes, &envelope) != nil || envelope.Operation.Kind() != '{' {
		return nil
	}
	return envelope.Operation
}

// Validate checks what a Personal Agent needs to follow the operation and, while it is proposed, to let the User decide.
// The error is [Problems].
func (o Operation) Validate() error {
	var c checker
	o.check(&c)
	return c.err()
}

func (o Operation) check(c *checker) {
	c.require(ValidOperationID(o.OperationID), "Operations 3", "operation_id", "must be 1 to 256 characters that a URL path can hold as they are")
	c.require(o.Revision >= 1, "Operations 3", "revision", "must be 1 or more")
	c.require(o.State.Known(), "Operations 3", "state", "must be proposed, in_progress, succeeded, failed, cancelled or expired")
	c.require(strings.TrimSpace(o.Summary) != "", "Operations 3", "summary", "is required: the terms in plain language")
	c.optionalURL(o.URL, "Operations 3", "url")
	if o.State == OperationProposed {
		c.require(!o.ExpiresAt.IsZero(), "Operations 3", "expires_at", "is required while proposed")
		c.require(o.Confirmation == nil, "Operations 3", "confirmation", "must be null until confirmed")
	}
	c.require(o.Result == nil || o.State.Final(), "Operations 3", "result", "must be null until the operation is final")
}

// ValidateForPublishing checks what a Company must hold to in addition. The error is [Problems].
func (o Operation) ValidateForPublishing() error {
	var c checker
	o.check(&c)
	c.rule(exactNumbers(o.Terms), "Operations 3", "terms")
	switch o.State {
	case OperationInProgress, OperationSucceeded, OperationFailed:
		c.require(o.Confirmation != nil, "Operations 3", "confirmation", "is required once confirmed")
	case OperationExpired:
		c.require(o.Confirmation == nil, "Operations 3", "confirmation", "must be null: it was never confirmed")
	case OperationProposed, OperationCancelled:
	}
	if o.Confirmation != nil {
		c.require(o.Confirmation.Revision == o.Revision, "Operations 3.1", "confirmation.revision", "must be the revision: confirmed terms cannot change")
		c.require(o.Confirmation.ApprovedBy.valid(), "Operations 5.1", "confirmation.approved_by", "must be user or standing_permission")
		c.require(o.Confirmation.ApprovedBy != ApprovedByStandingPermission || !o.UserApprovalRequired, "Operations 5.1", "confirmation.approved_by", "must be user when user_approval_required is true")
		c.require(!o.Confirmation.ConfirmedAt.IsZero(), "Operations 5.2", "confirmation.confirmed_at", "is required")
	}
	c.require(!o.State.Final() || o.Result != nil && strings.TrimSpace(o.Result.Summary) != "", "Operations 6", "result.summary", "is required once final: every change that was made")
	return c.err()
}

func (a Approval) valid() bool { return a == ApprovedByUser || a == ApprovedByStandingPermission }

// TermsDigest identifies the exact terms of a revision: operation ID, revision, summary, terms, whether the User must
// approve, expiry and page. Take it while the operation is proposed, since a Company may leave expires_at out later.
// The error says that the terms hold a number that no canonical form keeps, so that two different ones would look alike.
func (o Operation) TermsDigest() (string, error) {
	if err := exactNumbers(o.Terms); err != nil {
		return "", &FieldError{Field: "terms", Rule: err.Error(), Section: "Operations 3"}
	}
	canonical, err := strictjson.MarshalCanonical(struct {
		OperationID          string `json:"operation_id"`
		Revision             int64  `json:"revision"`
		Summary              string `json:"summary"`
		Terms                Object `json:"terms,omitzero"`
		ExpiresAt            Time   `json:"expires_at,omitzero"`
		UserApprovalRequired bool   `json:"user_approval_required"`
		URL                  string `json:"url,omitempty"`
	}{o.OperationID, o.Revision, o.Summary, o.Terms, o.ExpiresAt, o.UserApprovalRequired, o.URL})
	if err != nil {
		return "", err
	}
	return strictjson.Digest(canonical), nil
}

// Confirm is the request that confirms a revision (Operations 5.2).
type Confirm struct {
	Revision   int64    `json:"revision"`
	ApprovedBy Approval `json:"approved_by"`
}

// ParseConfirm reads the request as a Company must. Whether the approval is allowed depends on the operation. The error
// is [Problems].
func ParseConfirm(data []byte) (Confirm, error) {
	var r Confirm
	if err := decode(data, MaxReportBytes, &r); err != nil {
		return Confirm{}, err
	}
	var c checker
	c.require(r.Revision >= 1, "Operations 5.2", "revision", "must be 1 or more")
	c.require(r.ApprovedBy.valid(), "Operations 5.2", "approved_by", "must be user or standing_permission")
	if err := c.err(); err != nil {
		return Confirm{}, err
	}
	return r, nil
}
