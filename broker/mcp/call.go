package mcp

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/broker/internal/wire"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/id"
	"countersign/internal/strictjson"
)

const requestIDPattern = `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`

var requestID = regexp.MustCompile(requestIDPattern)

// submit returns the handler that submits an operation.
func (t tools) submit(name string) sdk.ToolHandler {
	return func(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var input struct {
			Target    strictjson.Raw `json:"target"`
			Arguments strictjson.Raw `json:"arguments"`
			Reason    string         `json:"reason"`
			RequestID *string        `json:"request_id"`
		}
		if err := decode(request, &input); err != nil {
			return t.refuse(ctx, "", err)
		}
		chosen := id.New("req")
		if input.RequestID != nil {
			chosen = *input.RequestID
		}
		if err := checkRequestID(chosen); err != nil {
			return t.refuse(ctx, "", err)
		}
		op, _, err := t.Operations.Submit(ctx, operation.Request{
			RequestID: chosen,
			Operation: name,
			Target:    input.Target,
			Arguments: input.Arguments,
			Reason:    input.Reason,
		})
		if err != nil {
			return t.refuse(ctx, chosen, err)
		}
		return answer(t.document(op))
	}
}

func (t tools) get(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	return t.byID(ctx, request, t.Operations.Get)
}

func (t tools) cancel(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	return t.byID(ctx, request, t.Operations.Cancel)
}

func (t tools) byID(ctx context.Context, request *sdk.CallToolRequest, do func(context.Context, string) (operation.Operation, error)) (*sdk.CallToolResult, error) {
	var input struct {
		ID string `json:"id"`
	}
	if err := decode(request, &input); err != nil {
		return t.refuse(ctx, "", err)
	}
	op, err := do(ctx, input.ID)
	if err != nil {
		return t.refuse(ctx, "", err)
	}
	return answer(t.document(op))
}

// wait returns the operation when it has ended, or as it is when the time is over. Changes between do not end it: they would
// cost the model a turn and tell it nothing to act on.
func (t tools) wait(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var input struct {
		ID      string `json:"id"`
		Seconds *int64 `json:"timeout_seconds"`
	}
	if err := decode(request, &input); err != nil {
		return t.refuse(ctx, "", err)
	}
	timeout := operation.MaxWait
	if input.Seconds != nil {
		if *input.Seconds < 0 {
			return t.refuse(ctx, "", invalid("timeout_seconds must be a whole number from 0 to 25."))
		}
		timeout = time.Duration(min(*input.Seconds, int64(operation.MaxWait/time.Second))) * time.Second
	}
	end := time.Now().Add(timeout)
	waiting, cancel := wire.Waiting(ctx)
	defer cancel()
	op, err := t.Operations.Get(ctx, input.ID)
	for err == nil && !op.State.Terminal() {
		remaining := time.Until(end)
		if remaining <= 0 {
			break
		}
		changed, waitErr := t.Operations.Wait(waiting, input.ID, op.Revision, remaining)
		if waiting.Err() != nil {
			break // the server stops
		}
		op, err = changed, waitErr
	}
	if err != nil {
		return t.refuse(ctx, "", err)
	}
	return answer(t.document(op))
}

func (t tools) list(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var input struct {
		RequestID *string         `json:"request_id"`
		State     operation.State `json:"state"`
		Limit     *int            `json:"limit"`
		Cursor    string          `json:"cursor"`
	}
	if err := decode(request, &input); err != nil {
		return t.refuse(ctx, "", err)
	}
	filter, limit := operation.Filter{State: input.State}, 0
	if input.RequestID != nil {
		if err := checkRequestID(*input.RequestID); err != nil { // blank would list everything
			return t.refuse(ctx, "", err)
		}
		filter.RequestID = *input.RequestID
	}
	if input.Limit != nil {
		if limit = *input.Limit; limit < 1 {
			return t.refuse(ctx, "", invalid("limit must be a whole number from 1 to 50."))
		}
	}
	found, err := t.Operations.List(ctx, filter, limit, input.Cursor)
	if err != nil {
		return t.refuse(ctx, "", err)
	}
	return answer(newPageDocument(found))
}

// decode reads the arguments of a call.
func decode(request *sdk.CallToolRequest, input any) error {
	arguments := []byte(request.Params.Arguments)
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	if err := strictjson.UnmarshalClosed(arguments, input); err != nil {
		return invalid("The arguments of the tool are wrong: " + err.Error() + ".")
	}
	return nil
}

// invalid refuses a call with a message that tells what to change, cut to 500 bytes since some name a place in what was sent.
func invalid(message string) *operation.Error {
	return &operation.Error{Code: operation.InvalidRequest, Message: provider.Sanitize(message, 500)}
}

// checkRequestID refuses what hosts put in place of a value that they blanked in a transcript: used as it is, every later
// request would conflict with the first one.
func checkRequestID(text string) error {
	if requestID.MatchString(text) && !strings.EqualFold(text, "redacted") {
		return nil
	}
	return invalid("This request_id is blank, was blanked out on its way, or has characters that it may not have. Leave request_id out for new work. " +
		"To find earlier work whose request_id is lost, list the operations without it.")
}

// refuse answers why a call was refused, in text: structured content would have to be an operation. requestID is what a
// submission was sent with.
func (t tools) refuse(ctx context.Context, requestID string, err error) (*sdk.CallToolResult, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err() // nobody waits for the answer
	}
	refused, ok := errors.AsType[*operation.Error](err)
	if !ok {
		t.Log.ErrorContext(ctx, "calling a tool", "error", err)
		refused = &operation.Error{Code: "server_error", Message: "Something went wrong. The same call, with the same request_id, may be made again."}
	}
	fault := faultDocument{Code: refused.Code, Message: refused.Message, RequestID: requestID}
	for _, field := range refused.Fields {
		fault.Fields = append(fault.Fields, fieldDocument(field))
	}
	if refused.Code == operation.RequestIDConflict {
		page, err := t.Operations.List(ctx, operation.Filter{RequestID: requestID}, 1, "")
		if err == nil && len(page.Operations) == 1 {
			existing := page.Operations[0]
			fault.Existing = &existingDocument{existing.ID, existing.State, existing.Revision}
		}
	}
	text, err := strictjson.Marshal(fault)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}, IsError: true}, nil
}

// answer returns a document as structured content and, for hosts that read only that, as text.
func answer(document any) (*sdk.CallToolResult, error) {
	data, err := strictjson.Marshal(document)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{StructuredContent: strictjson.Raw(data), Content: []sdk.Content{&sdk.TextContent{Text: string(data)}}}, nil
}
