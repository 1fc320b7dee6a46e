package agentapi

import (
	"strings"
	"time"

	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

// submission is the body of a submission. A member that is missing is as good as an empty one, which the lifecycle refuses.
type submission struct {
	RequestID string         `json:"idempotency_key"`
	Operation string         `json:"operation"`
	Target    strictjson.Raw `json:"target,omitzero"`
	Arguments strictjson.Raw `json:"arguments,omitzero"`
	Reason    string         `json:"reason"`
}

func (s submission) request() operation.Request { return operation.Request(s) }

// Document is an operation as this surface shows it, safe for transcripts: it lacks the request's target, arguments and reason,
// which the client knows and which may hold what nobody else should read.
type Document struct {
	API string `json:"api_version"` // ContractName
	itemDocument
	Effect     provider.Effect  `json:"effect"`
	ApprovalID string           `json:"approval_id,omitempty"`
	PlanDigest string           `json:"plan_digest,omitempty"`
	Result     strictjson.Raw   `json:"result,omitempty"`
	ResultCut  bool             `json:"result_cut,omitzero"`
	Error      *problemDocument `json:"error,omitzero"`
}

type itemDocument struct {
	ID           string               `json:"id"`
	ClientID     string               `json:"client_id"`
	RequestID    string               `json:"idempotency_key"`
	Operation    string               `json:"operation"`
	Presentation presentationDocument `json:"presentation"`
	State        operation.State      `json:"state"`
	Revision     int64                `json:"revision"`
	CreatedAt    time.Time            `json:"created_at"`
	UpdatedAt    time.Time            `json:"updated_at"`
	TerminalAt   time.Time            `json:"terminal_at,omitzero"`
}

type presentationDocument struct {
	Title   string `json:"title"`
	Summary string `json:"summary"`
}

type problemDocument struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// NewDocument returns the operation as this surface shows it.
func NewDocument(op operation.Operation) Document {
	d := Document{
		API:          ContractName,
		itemDocument: newItemDocument(op.Item),
		Effect:       op.Effect,
		ApprovalID:   op.ApprovalID,
		PlanDigest:   op.PlanDigest,
		Result:       op.Result,
		ResultCut:    op.ResultCut,
	}
	if op.Error != nil {
		d.Error = (*problemDocument)(op.Error)
	}
	return d
}

func newItemDocument(i operation.Item) itemDocument {
	d := itemDocument{
		ID:           i.ID,
		ClientID:     i.ClientID,
		RequestID:    i.RequestID,
		Operation:    i.Name,
		Presentation: presentationDocument{i.Title, i.Summary},
		State:        i.State,
		Revision:     i.Revision,
		CreatedAt:    i.CreatedAt.UTC(),
		UpdatedAt:    i.UpdatedAt.UTC(),
	}
	if !i.TerminalAt.IsZero() {
		d.TerminalAt = i.TerminalAt.UTC()
	}
	return d
}

// operation returns what a client learns from the document.
func (d Document) operation() operation.Operation {
	return operation.Operation{
		Item:       d.item(),
		Effect:     d.Effect,
		ApprovalID: d.ApprovalID,
		PlanDigest: d.PlanDigest,
		Result:     d.Result,
		ResultCut:  d.ResultCut,
		Error:      (*operation.Problem)(d.Error),
	}
}

func (d itemDocument) item() operation.Item {
	return operation.Item{
		ID:         d.ID,
		ClientID:   d.ClientID,
		RequestID:  d.RequestID,
		Name:       d.Operation,
		Title:      d.Presentation.Title,
		Summary:    d.Presentation.Summary,
		State:      d.State,
		Revision:   d.Revision,
		CreatedAt:  d.CreatedAt,
		UpdatedAt:  d.UpdatedAt,
		TerminalAt: d.TerminalAt,
	}
}

// PageDocument is a part of a list as this surface shows it.
type PageDocument struct {
	API        string         `json:"api_version"`
	Operations []itemDocument `json:"operations"`
	NextCursor *string        `json:"next_cursor"` // null on the last page
}

// NewPageDocument returns the page as this surface shows it.
func NewPageDocument(page operation.Page) PageDocument {
	d := PageDocument{API: ContractName}
	for _, item := range page.Operations {
		d.Operations = append(d.Operations, newItemDocument(item))
	}
	if page.Next != "" {
		d.NextCursor = &page.Next
	}
	return d
}

func (d PageDocument) page() operation.Page {
	var page operation.Page
	for _, item := range d.Operations {
		page.Operations = append(page.Operations, item.item())
	}
	if d.NextCursor != nil {
		page.Next = *d.NextCursor
	}
	return page
}

// EventDocument is a durable change as this surface shows it.
type EventDocument struct {
	Revision int64           `json:"revision"`
	Kind     operation.Kind  `json:"kind"`
	State    operation.State `json:"state"`
	// Actor is client, operator, policy or broker. Which operator it was is not the client's to know.
	Actor  string    `json:"actor"`
	At     time.Time `json:"at"`
	Detail string    `json:"detail,omitempty"`
}

// NewEventDocument returns the event as this surface shows it.
func NewEventDocument(event operation.Event) EventDocument {
	actor, _, _ := strings.Cut(event.Actor, ":")
	return EventDocument{event.Revision, event.Kind, event.State, actor, event.At.UTC(), event.Detail}
}

// discoveryDocument is what a broker tells about itself.
type discoveryDocument struct {
	API            string               `json:"api_version"`
	ContractDigest string               `json:"contract_digest"`
	ContractPath   string               `json:"contract"`
	Build          string               `json:"build_id"`
	Operations     []descriptorDocument `json:"operations"`
}

type descriptorDocument struct {
	Name      string          `json:"name"`
	Title     string          `json:"title"`
	Summary   string          `json:"summary"`
	Effect    provider.Effect `json:"effect"`
	Target    strictjson.Raw  `json:"target"`    // JSON Schema
	Arguments strictjson.Raw  `json:"arguments"` // JSON Schema
}

func describe(descriptors []provider.Descriptor) []descriptorDocument {
	list := make([]descriptorDocument, len(descriptors))
	for i, d := range descriptors {
		list[i] = descriptorDocument{d.Name, d.Title, d.Summary, d.Effect, d.Target.Source(), d.Arguments.Source()}
	}
	return list
}

func (d discoveryDocument) descriptors() []provider.Descriptor {
	list := make([]provider.Descriptor, len(d.Operations))
	for i, o := range d.Operations {
		list[i] = provider.Descriptor{
			Name: o.Name, Title: o.Title, Summary: o.Summary, Effect: o.Effect,
			Target: provider.NewSchema(string(o.Target)), Arguments: provider.NewSchema(string(o.Arguments)),
		}
	}
	return list
}
