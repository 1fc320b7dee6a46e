package conversation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"countersign/company/guard"
	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

const (
	// storeRetry is when a turn is tried again that failed because of our own database.
	storeRetry = 5 * time.Second
	// maxTurnMessages and maxTurnBytes bound what the Clerk is given at once; the rest is the next turn's.
	maxTurnMessages = 100
	maxTurnBytes    = 1 << 20
	// maxTurnOperations is how many operations of the conversation the Clerk is told.
	maxTurnOperations = 20
	// maxStale is how often a turn starts anew because an operation changed under the reply.
	maxStale = 3
)

// Run answers messages until ctx ends, and returns when no call of the Clerk runs any more. It begins with the turns that an
// earlier run left unfinished.
func (s *Service) Run(ctx context.Context) error {
	unfinished, err := working(ctx, s.Database)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("looking for unfinished turns: %w", err)
	}
	for _, conversationID := range unfinished {
		s.turns.Add(conversationID)
	}
	s.turns.Run(ctx)
	return nil
}

// reply is the job of [Service.turns]: it answers what is new in one conversation.
func (s *Service) reply(ctx context.Context, conversationID string) {
	if err := s.answer(ctx, conversationID); err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "answering in a conversation", "conversation_id", conversationID, "error", err)
		s.turns.AddAfter(conversationID, storeRetry)
	}
}

func (s *Service) answer(ctx context.Context, conversationID string) error {
	log := s.Log.With("conversation_id", conversationID)
	for stale := 0; ; stale++ {
		turn, number, upTo, err := s.begin(ctx, conversationID)
		if err != nil || number == 0 {
			return err
		}
		reply, err := s.ask(ctx, turn)
		if err != nil && ctx.Err() != nil {
			return err // the conversation stays working, and the next run takes the turn
		}
		// A reply is kept even when this run is being stopped.
		kept := context.WithoutCancel(ctx)
		if err == nil {
			err = s.finish(kept, conversationID, number, upTo, turn.Asker, reply)
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, operation.ErrNotProposed) && stale < maxStale {
			continue
		}
		log.ErrorContext(ctx, "the Company Agent could not answer", "error", err)
		return s.finish(kept, conversationID, number, upTo, turn.Asker, Reply{Messages: []Message{{Text: textFailed}}})
	}
}

// begin commits that the next turn starts, and gathers what it is about: the messages up to upTo. number is 0 if there is
// nothing to answer.
func (s *Service) begin(ctx context.Context, conversationID string) (turn Turn, number, upTo int64, err error) {
	now := s.Now()
	err = s.Database.Write(ctx, func(tx *database.Tx) error {
		r, found, err := readRecord(tx, conversationID)
		if err != nil || !found || r.Status != poppy.StatusWorking {
			return err
		}
		turn = Turn{ConversationID: r.id, Context: r.context, Asker: r.asker, Notes: r.notes, Now: now}
		if turn.Messages, upTo, err = r.unanswered(tx); err != nil {
			return err
		}
		r.turn++
		number = r.turn
		return r.update(tx, now)
	})
	if err == nil && number != 0 && s.Operations != nil {
		turn.Operations, err = s.Operations.Conversation(ctx, turn.Asker, conversationID, maxTurnOperations)
	}
	if err != nil {
		return Turn{}, 0, 0, fmt.Errorf("beginning a turn: %w", err)
	}
	return turn, number, upTo, nil
}

// unanswered reads the first messages that say something and are not answered, and how far it has read. What is between them
// only updated the context.
func (r *record) unanswered(tx *database.Tx) (messages []poppy.Message, upTo int64, err error) {
	for upTo = r.answered; len(messages) == 0 && upTo < r.asked; {
		var events []poppy.Event
		if events, upTo, err = r.events(tx, upTo, r.asked, maxTurnMessages, maxTurnBytes); err != nil || len(events) == 0 {
			return nil, r.asked, err
		}
		for _, event := range events {
			if m := event.Message; m != nil && m.Role == poppy.RoleUser && m.SaysSomething() {
				messages = append(messages, *m)
			}
		}
	}
	return messages, upTo, nil
}

// ask calls the Clerk.
func (s *Service) ask(ctx context.Context, turn Turn) (reply Reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			reply, err = Reply{}, fmt.Errorf("the Clerk panicked: %v\n%s", cause, debug.Stack())
		}
	}()
	return s.Clerk.Reply(ctx, turn)
}

// finish writes the reply of a turn in one transaction: messages, operations, status. It writes nothing if the turn is not the
// latest any more, or the conversation was closed.
func (s *Service) finish(ctx context.Context, conversationID string, number, upTo int64, asker guard.Principal, reply Reply) error {
	now, more := s.Now(), false
	err := s.Database.Write(ctx, func(tx *database.Tx) error {
		r, found, err := readRecord(tx, conversationID)
		if err != nil || !found || r.turn != number || r.Status != poppy.StatusWorking {
			return err
		}
		if err := r.use(asker, reply); err != nil {
			return err
		}
		for _, m := range reply.Messages {
			if err := s.write(tx, &r, asker, m, now); err != nil {
				return err
			}
		}
		if reply.Notes != nil {
			r.notes = reply.Notes
		}
		r.answered = upTo
		// What came meanwhile is the next turn's, and the status stays working.
		if more = r.asked > r.answered; !more {
			if err := r.become(tx, poppy.StatusIdle, now); err != nil {
				return err
			}
		}
		return r.update(tx, now)
	})
	if err != nil {
		return fmt.Errorf("writing a reply: %w", err)
	}
	s.Hub.Wake(conversationID)
	if more {
		s.turns.Add(conversationID)
	}
	return nil
}

// use makes a conversation the account's once a reply uses the account (7.2, 7.11).
func (r *record) use(asker guard.Principal, reply Reply) error {
	used := reply.UsedAccount
	for _, m := range reply.Messages {
		used = used || asker.SignedIn() && (m.Propose != nil || m.Revise != nil) // such an operation is the account's too
	}
	switch {
	case len(reply.Notes) > maxData:
		return errors.New("the Clerk's notes are too long")
	case !used:
		return nil
	case !asker.SignedIn():
		return errors.New("the reply used an account, but the asker is signed out")
	case r.account != "" && r.account != asker.Account: // the message was accepted before an earlier turn used the other one
		return errors.New("the reply used an account, but the conversation has come to belong to another one")
	}
	r.account = asker.Account
	return nil
}

// write adds one message of a reply, with the operation that it proposes or revises.
func (s *Service) write(tx *database.Tx, r *record, asker guard.Principal, m Message, now time.Time) error {
	if utf8.RuneCountInString(m.Text) > maxText || len(m.Data) > maxData {
		return errors.New("a message of the Clerk is too long")
	}
	message := poppy.Message{Text: m.Text, Data: m.Data}
	if m.Propose == nil && m.Revise == nil {
		return r.say(tx, message, now)
	}
	if s.Operations == nil {
		return errors.New("the Clerk proposed an operation, but the Company has none")
	}
	if !operates(asker) {
		// The message was accepted before anyone knew, so it is refused in words (Operations 2), and for programs.
		return r.say(tx, poppy.Message{Text: textOperations, Data: dataOperations}, now)
	}
	var t operation.Tracked
	var err error
	if m.Revise != nil {
		t, err = s.Operations.Revise(tx, asker, m.Revise.OperationID, m.Revise.Revision)
	} else {
		proposal := *m.Propose
		proposal.ConversationID = r.id
		t, err = s.Operations.Propose(tx, asker, proposal)
	}
	if err != nil {
		return err
	}
	if message.Operation, err = strictjson.Marshal(t.Operation); err != nil {
		return fmt.Errorf("writing an operation: %w", err)
	}
	return r.say(tx, message, now)
}

var dataOperations = poppy.Object(`{"error":"extension_required","extension":"operations"}`)
