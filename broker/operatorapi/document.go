package operatorapi

import (
	"time"

	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

// decisionDocument is the body of a decision.
type decisionDocument struct {
	ExpectedRevision int64  `json:"expected_revision"`
	Key              string `json:"idempotency_key"`
	Note             string `json:"note,omitempty"`
}

// Document is an approval as this surface shows it.
type Document struct {
	ID           string                `json:"id"`
	OperationID  string                `json:"operation_id"`
	ClientID     string                `json:"client_id"`
	Operation    string                `json:"operation"`
	Reason       string                `json:"reason"` // in the client's words
	Presentation provider.Presentation `json:"presentation"`
	PlanDigest   string                `json:"plan_digest"`
	State        approval.State        `json:"state"`
	Revision     int64                 `json:"revision"`
	CreatedAt    time.Time             `json:"created_at"`
	ExpiresAt    time.Time             `json:"expires_at"`
	ClosedAt     time.Time             `json:"closed_at,omitzero"`
	DecidedBy    string                `json:"decided_by,omitempty"`
	Note         string                `json:"note,omitempty"`
}

// NewDocument returns the approval as this surface shows it.
func NewDocument(a approval.Approval) Document {
	d := Document{
		ID:           a.ID,
		OperationID:  a.OperationID,
		ClientID:     a.ClientID,
		Operation:    a.Operation,
		Reason:       a.Reason,
		Presentation: a.Presentation,
		PlanDigest:   a.PlanDigest,
		State:        a.State,
		Revision:     a.Revision,
		CreatedAt:    a.CreatedAt.UTC(),
		ExpiresAt:    a.ExpiresAt.UTC(),
		DecidedBy:    a.DecidedBy,
		Note:         a.Note,
	}
	if !a.ClosedAt.IsZero() {
		d.ClosedAt = a.ClosedAt.UTC()
	}
	return d
}

func (d Document) approval() approval.Approval {
	return approval.Approval{
		ID:           d.ID,
		OperationID:  d.OperationID,
		ClientID:     d.ClientID,
		Operation:    d.Operation,
		Reason:       d.Reason,
		Presentation: d.Presentation,
		PlanDigest:   d.PlanDigest,
		State:        d.State,
		Revision:     d.Revision,
		CreatedAt:    d.CreatedAt,
		ExpiresAt:    d.ExpiresAt,
		ClosedAt:     d.ClosedAt,
		DecidedBy:    d.DecidedBy,
		Note:         d.Note,
	}
}

// Terms are exactly what is decided about.
type Terms struct {
	Effect    provider.Effect    `json:"effect"`
	Target    strictjson.Raw     `json:"target"` // as the client submitted them, in canonical form
	Arguments strictjson.Raw     `json:"arguments"`
	Rulings   []operation.Ruling `json:"rulings"` // why a person is asked
}

// DetailDocument is an approval with its terms as this surface shows it.
type DetailDocument struct {
	Document
	Terms Terms `json:"terms"`
}

// PageDocument is a part of a list as this surface shows it.
type PageDocument struct {
	Approvals  []Document `json:"approvals"`
	NextCursor *string    `json:"next_cursor"` // null on the last page
}

// NewPageDocument returns the page as this surface shows it.
func NewPageDocument(found approval.Page) PageDocument {
	var d PageDocument
	for _, a := range found.Approvals {
		d.Approvals = append(d.Approvals, NewDocument(a))
	}
	if found.Next != "" {
		d.NextCursor = &found.Next
	}
	return d
}

func (d PageDocument) page() approval.Page {
	var found approval.Page
	for _, each := range d.Approvals {
		found.Approvals = append(found.Approvals, each.approval())
	}
	if d.NextCursor != nil {
		found.Next = *d.NextCursor
	}
	return found
}
