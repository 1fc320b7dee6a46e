package script

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"countersign/company/conversation"
	"countersign/company/operation"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Clerk is a Company Agent that answers by rules. Make one with [NewClerk].
type Clerk struct {
	rules    []rule
	fallback Answer
	zone     *time.Location
}

var _ conversation.Clerk = (*Clerk)(nil)

// NewClerk returns a Clerk that follows the rules. The error joins a [Problem] for each mistake in them.
func NewClerk(rules Rules) (*Clerk, error) {
	checked, zone, err := rules.check()
	if err != nil {
		return nil, err
	}
	return &Clerk{rules: checked, fallback: rules.Default, zone: zone}, nil
}

// notes is what the Clerk remembers of a conversation.
type notes struct {
	Answered []string `json:"answered"` // names of the rules that have answered
}

// Reply answers each message by the first rule that fits it.
func (c *Clerk) Reply(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
	var memory notes
	if turn.Notes != nil {
		if err := strictjson.Unmarshal(turn.Notes, &memory); err != nil {
			return conversation.Reply{}, fmt.Errorf("reading the clerk's notes: %w", err)
		}
	}
	zone, err := location(turn.Context.TimeZone())
	if err != nil || turn.Context.TimeZone() == "" {
		zone = c.zone
	}
	var reply conversation.Reply
	for _, m := range turn.Messages {
		answer, err := c.answer(ctx, turn, &memory, m.Text, turn.Now.In(zone))
		if err != nil {
			return conversation.Reply{}, err
		}
		reply.Messages = append(reply.Messages, answer)
	}
	if reply.Notes, err = strictjson.Marshal(memory); err != nil {
		return conversation.Reply{}, fmt.Errorf("writing the clerk's notes: %w", err)
	}
	return reply, nil
}

// answer finds the answer to one text.
func (c *Clerk) answer(ctx context.Context, turn conversation.Turn, memory *notes, text string, now time.Time) (conversation.Message, error) {
	for _, r := range c.rules {
		groups, fits := r.fits(text)
		if !fits || r.After != "" && !slices.Contains(memory.Answered, r.After) {
			continue
		}
		if r.While != nil && latest(turn, r.While.Action).State != r.While.State {
			continue
		}
		if r.Revise != nil && latest(turn, r.Revise.Action).State != poppy.OperationProposed {
			continue
		}
		if r.Name != "" && !slices.Contains(memory.Answered, r.Name) {
			memory.Answered = append(memory.Answered, r.Name)
		}
		return r.message(ctx, turn, expander(now, groups))
	}
	return c.fallback.message(ctx, expander(now, nil))
}

// latest returns the newest operation of the conversation for an action, the zero one if there is none.
func latest(turn conversation.Turn, action string) operation.Tracked {
	for _, t := range turn.Operations {
		if t.Key == action {
			return t
		}
	}
	return operation.Tracked{}
}

func (a Answer) message(ctx context.Context, expand func(string) string) (conversation.Message, error) {
	select {
	case <-time.After(time.Duration(a.ThinkFor)):
	case <-ctx.Done():
		return conversation.Message{}, ctx.Err()
	}
	data, err := object(a.Data, expand)
	return conversation.Message{Text: expand(a.Text), Data: data}, err
}

func (r rule) message(ctx context.Context, turn conversation.Turn, expand func(string) string) (conversation.Message, error) {
	m, err := Answer{r.Text, r.Data, r.ThinkFor}.message(ctx, expand)
	if err != nil {
		return conversation.Message{}, err
	}
	switch {
	case r.Propose != nil:
		revision, err := r.Propose.revision(expand)
		m.Propose = &operation.Proposal{Key: r.Propose.Action, Revision: revision}
		return m, err
	case r.Revise != nil:
		revision, err := r.Revise.revision(expand)
		m.Revise = &conversation.Revise{OperationID: latest(turn, r.Revise.Action).OperationID, Revision: revision}
		return m, err
	}
	return m, nil
}

func (o Offer) revision(expand func(string) string) (operation.Revision, error) {
	terms, err := object(o.Terms, expand)
	return operation.Revision{
		Summary: expand(o.Summary), Terms: terms, UserApprovalRequired: o.UserApprovalRequired,
		ExpiresIn: cmp.Or(time.Duration(o.ExpiresIn), defaultExpiry), Scopes: o.Scopes, URL: o.URL,
	}, err
}
