package mcp

import (
	"time"

	"countersign/broker/operation"
	"countersign/internal/strictjson"
)

// document is an operation as a model sees it: nothing of the request, and no name that hosts blank.
type document struct {
	itemDocument
	Result    strictjson.Raw   `json:"result,omitempty"`
	ResultCut bool             `json:"result_cut,omitzero"`
	Error     *problemDocument `json:"error,omitzero"`
	Next      string           `json:"next,omitempty"`
}

type itemDocument struct {
	ID           string               `json:"id"`
	RequestID    string               `json:"request_id"`
	Operation    string               `json:"operation"`
	State        operation.State      `json:"state"`
	Revision     int64                `json:"revision"`
	Presentation presentationDocument `json:"presentation"`
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

func (t tools) document(op operation.Operation) document {
	return document{
		itemDocument: newItemDocument(op.Item),
		Result:       op.Result,
		ResultCut:    op.ResultCut,
		Error:        (*problemDocument)(op.Error),
		Next:         t.next(op),
	}
}

func newItemDocument(i operation.Item) itemDocument {
	d := itemDocument{
		ID:           i.ID,
		RequestID:    i.RequestID,
		Operation:    i.Name,
		State:        i.State,
		Revision:     i.Revision,
		Presentation: presentationDocument{i.Title, i.Summary},
		CreatedAt:    i.CreatedAt.UTC(),
		UpdatedAt:    i.UpdatedAt.UTC(),
	}
	if !i.TerminalAt.IsZero() {
		d.TerminalAt = i.TerminalAt.UTC()
	}
	return d
}

// next tells a model what to do about an operation, where that is not plain.
func (t tools) next(op operation.Operation) string {
	switch {
	case op.State == operation.Pending:
		return "A person is asked to approve this. Call " + t.Prefix + waitTool + " with the id. Do not submit it again."
	case !op.State.Terminal():
		return "This is under way. Call " + t.Prefix + waitTool + " with the id. Do not submit it again."
	case op.Error != nil && op.Error.Code == operation.CodeOutcomeUnknown:
		return "This may have happened. Never submit it again under another request_id. Tell the person, who can look at the provider."
	default:
		return ""
	}
}

type pageDocument struct {
	Operations []itemDocument `json:"operations"`
	NextCursor string         `json:"next_cursor,omitempty"`
}

func newPageDocument(page operation.Page) pageDocument {
	d := pageDocument{NextCursor: page.Next}
	for _, item := range page.Operations {
		d.Operations = append(d.Operations, newItemDocument(item))
	}
	return d
}

// faultDocument is why a call was refused.
type faultDocument struct {
	Code      operation.Code    `json:"code"`
	Message   string            `json:"message"`
	RequestID string            `json:"request_id,omitempty"` // to repeat the call with, where that may help
	Fields    []fieldDocument   `json:"fields,omitempty"`
	Existing  *existingDocument `json:"existing,omitzero"` // what the request_id stands for
}

type fieldDocument struct {
	Pointer string `json:"pointer"`
	Problem string `json:"problem"`
}

type existingDocument struct {
	ID       string          `json:"id"`
	State    operation.State `json:"state"`
	Revision int64           `json:"revision"`
}
