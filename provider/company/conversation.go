package company

import (
	"cmp"
	"context"
	"time"

	"countersign/agent/conversation"
	"countersign/agent/discovery"
	"countersign/agent/quote"
	"countersign/agent/session"
	"countersign/broker/provider"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

const (
	// readMargin is what is kept of a call's time for the request itself when it waits for a reply.
	readMargin = 5 * time.Second
	// readPause is between two reads of a Company that does not hold its answer until there is something.
	readPause = time.Second
	// maxEvents bounds the events of one result, in bytes of JSON, so that none of them is cut off. The cursor leads to the rest.
	maxEvents = provider.MaxResult / 2
)

func (p *companies) start() provider.Operation {
	return simple{
		descriptor: provider.Descriptor{
			Name: "company.conversation.start", Title: "Start a conversation with a Company",
			Summary: "Starts a conversation with a Company by a first message, and returns what the Company answers within the time to wait. Nothing that is said there makes anything happen.",
			Effect:  provider.Keyed, Hint: provider.Unattended,
			Target: closed(`"company"`, companySchema), Arguments: closed(`"text"`, textSchema, humanSchema, waitSchema),
		},
		summary: func(in input) string { return "Say to " + in.Company + ": " + in.Text },
		execute: p.inSession(discovery.Conversations, func(ctx context.Context, in *session.Session, d provider.Dispatch, request input) provider.Outcome {
			c, _, err := p.agent.Conversations.Start(ctx, in, draft(d, request))
			if err != nil {
				return outcome(err)
			}
			return p.reply(ctx, in, c, "", request.wait())
		}),
	}
}

func (p *companies) send() provider.Operation {
	return simple{
		descriptor: provider.Descriptor{
			Name: "company.conversation.send", Title: "Say something in a conversation with a Company",
			Summary: "Sends a message in a conversation, and returns what comes after the cursor within the time to wait. Nothing that is said there makes anything happen.",
			Effect:  provider.Keyed, Hint: provider.Unattended,
			Target: closed(`"company","conversation"`, companySchema, conversationSchema),
			Arguments: closed(`"text"`, textSchema, humanSchema, waitSchema,
				`"cursor":{"type":"string","maxLength":256,"description":"the cursor of the last read; from the beginning when left out"}`),
		},
		summary: func(in input) string { return "Say to " + in.Company + ": " + in.Text },
		execute: p.inSession(discovery.Conversations, func(ctx context.Context, in *session.Session, d provider.Dispatch, request input) provider.Outcome {
			c, err := p.agent.Conversations.Open(ctx, in, request.Conversation)
			if err == nil {
				_, err = c.Send(ctx, draft(d, request))
			}
			if err != nil {
				return outcome(err)
			}
			return p.reply(ctx, in, c, request.Cursor, request.wait())
		}),
	}
}

func (p *companies) read() provider.Operation {
	return simple{
		descriptor: provider.Descriptor{
			Name: "company.conversation.read", Title: "Read a conversation with a Company",
			Summary: "Returns what was said in a conversation after a cursor, waiting for more if there is nothing yet. Changes nothing.",
			Effect:  provider.Read, Hint: provider.Unattended,
			Target: closed(`"company","conversation"`, companySchema, conversationSchema),
			Arguments: closed("", waitSchema,
				`"cursor":{"type":"string","maxLength":256,"description":"the cursor of the last read; from the beginning when left out"}`),
		},
		summary: func(in input) string { return "Read the conversation with " + in.Company + "." },
		execute: p.inSession(discovery.Conversations, func(ctx context.Context, in *session.Session, _ provider.Dispatch, request input) provider.Outcome {
			c, err := p.agent.Conversations.Open(ctx, in, request.Conversation)
			if err != nil {
				return outcome(err)
			}
			result, err := p.events(ctx, in, c, request.Cursor, request.wait())
			if err != nil && len(result.Events) == 0 {
				return outcome(err)
			}
			return provider.Succeeded(result)
		}),
	}
}

// draft is the message of a request. Its ID is made from the broker's operation, so that the Company takes it once however
// often it is sent (7.3).
func draft(d provider.Dispatch, request input) conversation.Draft {
	draft := conversation.Draft{ID: "msg_" + d.OperationID, Text: request.Text}
	if request.UsersOwnWords {
		draft.Sender = poppy.SenderHuman
	}
	return draft
}

// eventView is an event as a model sees it. What the Company wrote is a quotation.
type eventView struct {
	ID        string          `json:"id"`
	Type      poppy.EventType `json:"type"`
	From      string          `json:"from,omitempty"` // the Company's domain, or us
	Sender    poppy.Sender    `json:"sender,omitempty"`
	Text      quote.Text      `json:"text,omitzero"`
	Data      quote.Text      `json:"data,omitzero"` // JSON
	Operation *operationView  `json:"operation,omitzero"`
	Status    poppy.Status    `json:"status,omitempty"`
	Responder poppy.Responder `json:"responder,omitempty"`
	Reason    quote.Text      `json:"reason,omitzero"`
	Scopes    poppy.Scopes    `json:"scopes,omitempty"`
}

// eventsView is a part of a conversation as a model sees it.
type eventsView struct {
	Company      string          `json:"company"`
	Conversation string          `json:"conversation"`
	Events       []eventView     `json:"events"`
	Cursor       string          `json:"cursor"`
	Status       poppy.Status    `json:"status"`
	Responder    poppy.Responder `json:"responder"`
	Incomplete   bool            `json:"incomplete,omitzero"` // more can be read from the cursor on
}

// reply is the outcome of a message that was sent, with what follows it. The Company has taken the message, so failing to read
// what follows is not failing to send.
func (p *companies) reply(ctx context.Context, in *session.Session, c *conversation.Conversation, cursor string, wait time.Duration) provider.Outcome {
	result, _ := p.events(ctx, in, c, cursor, wait) // which says itself that it is incomplete
	return provider.Succeeded(result)
}

// events reads a conversation from a cursor on, until the Company has nothing more to say, the result is full, or the time to
// wait is over. With an error it returns what it had read before.
func (p *companies) events(ctx context.Context, in *session.Session, c *conversation.Conversation, cursor string, wait time.Duration) (eventsView, error) {
	result := eventsView{Company: in.Company.Domain, Conversation: c.ID(), Events: []eventView{}, Cursor: cursor, Incomplete: true}
	end := time.Now().Add(wait)
	if limit, ok := ctx.Deadline(); ok && limit.Add(-readMargin).Before(end) {
		end = limit.Add(-readMargin)
	}
	for size := 0; ; {
		began := time.Now()
		page, err := c.Read(ctx, result.Cursor, max(0, time.Until(end)))
		if err != nil {
			return result, err
		}
		result.Status, result.Responder = page.State.Status, page.State.Responder
		for _, event := range page.Events {
			shown := p.event(in, event)
			written, err := strictjson.Marshal(shown)
			if err != nil {
				return result, err
			}
			if size += len(written) + 1; size > maxEvents && len(result.Events) > 0 {
				return result, nil
			}
			result.Events = append(result.Events, shown)
			result.Cursor = event.ID // which is a cursor too (7.5)
		}
		result.Cursor = cmp.Or(page.Cursor, result.Cursor)
		goesOn := page.HasMore || page.State.Status == poppy.StatusWorking
		switch {
		case !time.Now().Before(end), !goesOn && len(result.Events) > 0:
			result.Incomplete = goesOn
			return result, nil
		case len(page.Events) == 0 && time.Since(began) < readPause:
			select {
			case <-time.After(min(readPause, time.Until(end))):
			case <-ctx.Done():
				return result, ctx.Err()
			}
		}
	}
}

func (p *companies) event(in *session.Session, event conversation.Event) eventView {
	company := in.Company.Domain
	v := eventView{
		ID: event.ID, Type: event.Type, Status: event.State.Status, Responder: event.State.Responder,
		Reason: event.Reason, Scopes: event.Scopes,
	}
	if m := event.Message; m != nil {
		v.From, v.Sender, v.Text, v.Data = company, m.Sender, m.Text, quoted(company, m.Data)
		if m.Role == poppy.RoleUser { // it is the Company that tells what we said
			author := company + ", as our words"
			v.From, v.Text, v.Data = "us", quote.New(author, m.Text.Verbatim()), quoted(author, m.Data)
		}
		if m.Operation != nil {
			shown := view(in.Company, *m.Operation)
			v.Operation = &shown
		}
	}
	return v
}
