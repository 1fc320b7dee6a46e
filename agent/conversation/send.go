package conversation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"countersign/agent/session"
	"countersign/internal/id"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// prepare gives a draft its ID and its final form, which are kept from then on: sending it again must repeat both (7.3).
func prepare(d Draft, request func(poppy.Message) any) (pending, error) {
	messageID := d.ID
	if messageID == "" {
		messageID = id.New("msg")
	}
	message := d.message(messageID)
	if err := message.ValidateFromAgent(); err != nil {
		return pending{}, fmt.Errorf("the message cannot be sent: %w", err)
	}
	body, err := strictjson.Marshal(request(message))
	if err != nil {
		return pending{}, fmt.Errorf("the message cannot be sent: %w", err)
	}
	if len(body) > poppy.MaxMessageBytes {
		return pending{}, fmt.Errorf("the message cannot be sent: it is longer than %d bytes", poppy.MaxMessageBytes)
	}
	return pending{MessageID: message.ID, Body: body}, nil
}

// Send sends a message, after any earlier one that is not known to have arrived (7.3). The state tells whether the Company
// prepares a reply, which [Conversation.Follow] brings.
func (c *Conversation) Send(ctx context.Context, d Draft) (poppy.State, error) {
	message, err := prepare(d, func(m poppy.Message) any { return poppy.SendRequest{Message: m} })
	if err != nil {
		return poppy.State{}, err
	}
	done, err := c.takeTurn(ctx)
	if err != nil {
		return poppy.State{}, err
	}
	defer done()
	if _, err := c.flush(ctx); err != nil {
		return poppy.State{}, fmt.Errorf("sending an earlier message first: %w", err)
	}
	if err := c.keep(ctx, &message); err != nil {
		return poppy.State{}, err
	}
	return c.flush(ctx)
}

// Flush sends the message that is not known to have arrived, if there is one, as it was sent before. Without one it returns
// the zero state.
func (c *Conversation) Flush(ctx context.Context) (poppy.State, error) {
	done, err := c.takeTurn(ctx)
	if err != nil {
		return poppy.State{}, err
	}
	defer done()
	return c.flush(ctx)
}

func (c *Conversation) takeTurn(ctx context.Context) (done func(), err error) {
	select {
	case c.sending <- struct{}{}:
		return func() { <-c.sending }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// flush sends the pending message twice at most, and needs the turn. A message that the Company refuses is not kept, since
// it would be refused again.
func (c *Conversation) flush(ctx context.Context) (poppy.State, error) {
	message, conversationID := c.unsent()
	if message == nil {
		return poppy.State{}, nil
	}
	var path []string
	if conversationID != "" {
		path = []string{conversationID, poppy.PathMessages}
	}
	accepted, err := c.post(ctx, message.Body, path...)
	unanswered := lost(err)
	if unanswered {
		accepted, err = c.post(ctx, message.Body, path...)
	}
	// A refusal of the second attempt does not speak for the first one.
	if err != nil && (unanswered || undecided(err)) {
		return poppy.State{}, &UndeliveredError{Err: err, MayHaveArrived: unanswered}
	}
	if err != nil {
		return poppy.State{}, errors.Join(err, c.discard(ctx))
	}
	if conversationID == "" && accepted.ConversationID == "" {
		return poppy.State{}, &UndeliveredError{Err: errors.New("the Company did not say which conversation it started"), MayHaveArrived: true}
	}
	if err := c.delivered(ctx, cmp.Or(conversationID, accepted.ConversationID)); err != nil {
		return poppy.State{}, err
	}
	return accepted.State, nil
}

// lost tells whether a message may have arrived although it was not answered, and can be sent again at once.
func lost(err error) bool {
	if err == nil || undecided(err) {
		return false
	}
	problem, ok := errors.AsType[*poppy.Error](err)
	return !ok || problem.HTTPStatus >= http.StatusInternalServerError
}

// undecided tells whether a message did not arrive for a reason that passes.
func undecided(err error) bool {
	_, limited := errors.AsType[*session.RateLimitedError](err)
	_, changed := errors.AsType[*session.ChangedError](err)
	code := poppy.CodeOf(err)
	return limited || changed || code == poppy.ErrSignInRequired || code == poppy.ErrInsufficientScope
}

func (c *Conversation) unsent() (*pending, string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.pending, c.id
}

// keptAs returns the row of the vault, "" for none.
func (c *Conversation) keptAs() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.row
}

// keep stores a message before it is sent for the first time.
func (c *Conversation) keep(ctx context.Context, message *pending) error {
	if row := c.keptAs(); row != "" {
		if err := c.service.store.setPending(ctx, row, message); err != nil {
			return fmt.Errorf("keeping the message: %w", err)
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.pending = message
	return nil
}

// delivered notes that the pending message arrived, and in which conversation.
func (c *Conversation) delivered(ctx context.Context, conversationID string) error {
	row := c.keptAs()
	if row != "" {
		var err error
		if row, err = c.service.store.setDelivered(ctx, c, row, conversationID); err != nil {
			return fmt.Errorf("noting that the message arrived: %w", err)
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.row, c.id, c.pending = row, conversationID, nil
	return nil
}

// discard forgets a message that the Company refused; the conversation too, if it was the first.
func (c *Conversation) discard(ctx context.Context) error {
	_, conversationID := c.unsent()
	if row := c.keptAs(); row != "" {
		err := c.service.store.setPending(ctx, row, nil)
		if conversationID == "" {
			err = c.service.store.delete(ctx, row)
		}
		if err != nil {
			return fmt.Errorf("forgetting the message: %w", err)
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.pending = nil
	return nil
}

// Direct starts a Direct Conversation with the User's own words, in which the User talks with the Company themselves (7.10).
// Only do it when the User wants it.
func (c *Conversation) Direct(ctx context.Context, words string) (*Conversation, poppy.State, error) {
	return c.service.start(ctx, c.session, c.ID(), Draft{Sender: poppy.SenderHuman, Text: words})
}

// Handoff asks for a person at the Company (7.9).
func (c *Conversation) Handoff(ctx context.Context) (poppy.State, error) {
	return c.act(ctx, poppy.PathHandoff)
}

// Close closes the conversation, which undoes nothing that it started (7.12).
func (c *Conversation) Close(ctx context.Context) (poppy.State, error) {
	return c.act(ctx, poppy.PathClose)
}

func (c *Conversation) act(ctx context.Context, action string) (poppy.State, error) {
	conversationID := c.ID()
	if conversationID == "" {
		return poppy.State{}, errNotStarted
	}
	accepted, err := c.post(ctx, []byte("{}"), conversationID, action)
	if err != nil {
		return poppy.State{}, err
	}
	return accepted.State, nil
}

var errNotStarted = errors.New("the conversation has not started: its first message has not arrived yet")

// post sends a body to something below the endpoint.
func (c *Conversation) post(ctx context.Context, body []byte, path ...string) (poppy.Accepted, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, poppy.SubURL(c.endpoint.URL, path...), bytes.NewReader(body))
	if err != nil {
		return poppy.Accepted{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.do(request, session.Bounds{MaxBytes: poppy.MaxMetadataBytes})
	if err != nil {
		return poppy.Accepted{}, err
	}
	return poppy.ParseAccepted(response.Body)
}

// do sends a request, in the new Session if the Company has ended the old one: a conversation outlasts Sessions (7.11).
func (c *Conversation) do(request *http.Request, bounds session.Bounds) (*session.Response, error) {
	response, err := c.session.Do(request, c.endpoint, bounds)
	if _, changed := errors.AsType[*session.ChangedError](err); changed {
		response, err = c.session.Do(request, c.endpoint, bounds)
	}
	return response, err
}
