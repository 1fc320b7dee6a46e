package conversation

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"countersign/agent/quote"
	"countersign/agent/session"
	"countersign/poppy"
)

// Read reads the events after a cursor, "" for the beginning. If there are none, the Company holds the answer for up to
// wait, in whole seconds (7.5). It handles and keeps nothing; [Conversation.Follow] does.
func (c *Conversation) Read(ctx context.Context, cursor string, wait time.Duration) (Page, error) {
	conversationID := c.ID()
	if conversationID == "" {
		return Page{}, errNotStarted
	}
	query := url.Values{}
	if cursor != "" {
		query.Set(poppy.QueryCursor, cursor)
	}
	if seconds := int(wait.Seconds()); seconds > 0 {
		query.Set(poppy.QueryWait, strconv.Itoa(seconds))
	}
	at := poppy.SubURL(c.endpoint.URL, conversationID, poppy.PathEvents)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return Page{}, err
	}
	own := request.URL.Query()
	maps.Copy(own, query)
	request.URL.RawQuery = own.Encode()
	response, err := c.do(request, session.Bounds{MaxBytes: poppy.MaxPageBytes, Timeout: wait + readTimeout})
	if err != nil {
		return Page{}, err
	}
	page, err := poppy.ParsePage(response.Body)
	if err != nil {
		return Page{}, fmt.Errorf("the events cannot be read: %w", err)
	}
	return c.page(ctx, page), nil
}

// page turns what was read into our form.
func (c *Conversation) page(ctx context.Context, p poppy.Page) Page {
	page := Page{Cursor: p.Cursor, HasMore: p.HasMore, State: p.State}
	for _, e := range p.Events {
		if e.Type.Known() {
			page.Events = append(page.Events, c.event(ctx, e))
		}
	}
	return page
}

func (c *Conversation) event(ctx context.Context, e poppy.Event) Event {
	own := Event{
		ID: e.ID, Type: e.Type, CreatedAt: e.CreatedAt.Time,
		State:    poppy.State{Status: e.Status, Responder: e.Responder},
		Error:    e.Error,
		Reason:   quote.New(c.session.Company.Domain, e.Reason),
		DirectID: e.ConversationID,
	}
	own.Scopes, _ = poppy.ParseScopes(e.Scope) // checked when the page was read
	if m := e.Message; m != nil {
		author := c.session.Company.Domain
		if m.Role == poppy.RoleUser {
			author = "the User's side"
		}
		own.Message = &Message{ID: m.ID, Role: m.Role, Sender: m.Sender, Text: quote.New(author, m.Text), Data: m.Data}
		if m.Operation != nil && m.Role == poppy.RoleCompany {
			o, err := poppy.ParseOperation(m.Operation)
			if err != nil {
				c.service.log.WarnContext(ctx, "a message brings an operation that cannot be read",
					"domain", c.session.Company.Domain, "event", e.ID, "error", err)
			} else {
				own.Message.Operation = &o
			}
		}
	}
	return own
}
