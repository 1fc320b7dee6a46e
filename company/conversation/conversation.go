// Package conversation is the Company's side of conversations with Personal Agents: their messages and events, and the turns
// of the Company Agent that answers them (protocol 7).
//
// A message is accepted by one transaction: its ID, its event and, if it says something, the status working. After that
// commit a worker gives the [Clerk] what is new, and writes the reply in one transaction again: the messages, the operations
// that they propose, and the status idle. A turn has a number; a reply of a turn that is not the latest is dropped, so that a
// turn which is run again after a crash is answered once.
package conversation

import (
	"context"
	"time"

	"countersign/company/guard"
	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Clerk is the Company Agent (7): it answers the Personal Agent. Its method may be called concurrently, for different
// conversations, and returns soon after ctx ends. It has no effect but its reply: it can be called again for the same turn.
type Clerk interface {
	// Reply answers the messages of a turn. After an error the Company says that it could not answer; the error is logged.
	Reply(ctx context.Context, turn Turn) (Reply, error)
}

// Turn is what the Company has not answered yet.
type Turn struct {
	ConversationID string
	// Messages are those of the Personal Agent since the last reply that say something, oldest first.
	Messages []poppy.Message
	// Context is the User's situation, merged from all messages so far (7.4).
	Context poppy.Context
	// Asker sent the newest message. A reply may use the account only as far as its token allows (7.11).
	Asker guard.Principal
	// Operations are the newest ones of the conversation that the Asker may use, the newest first, final ones too.
	Operations []operation.Tracked
	// Notes are those that the Clerk left with its last reply, nil if it left none.
	Notes strictjson.Raw
	// Now is the time of the turn.
	Now time.Time
}

// Reply is the Company's answer to a turn.
type Reply struct {
	// Messages are sent in this order. There may be none.
	Messages []Message
	// Notes are kept with the conversation for the Clerk's next turn, at most 64 KiB. Nil keeps those that there are.
	Notes strictjson.Raw
	// UsedAccount says that the reply tells or uses something of the account that the asker is signed in to. From then on
	// the conversation belongs to that account (7.2). Proposing an operation to a signed-in asker does so by itself.
	UsedAccount bool
}

// Message is one message of the Company. It has at least one of text, data and an operation.
type Message struct {
	Text string       // at most 32,000 characters, without markup (7.4)
	Data poppy.Object // at most 64 KiB; nil for none
	// Propose is an operation that the message proposes (Operations 4.3). The message carries what comes of it: the new
	// operation, its next revision, or the one that is open for the same action already.
	Propose *operation.Proposal
	// Revise changes the terms of an operation that is still proposed. If it no longer is, the turn starts anew, with the
	// operations as they are then.
	Revise *Revise
}

// Revise is a change of an operation's terms (Operations 3.1).
type Revise struct {
	OperationID string
	operation.Revision
}

// Operations is the record that proposals go to. A Company without the Operations extension has none.
type Operations interface {
	Propose(tx *database.Tx, by guard.Principal, p operation.Proposal) (operation.Tracked, error)
	// Revise returns [operation.ErrNotProposed] for an operation whose terms cannot change any more.
	Revise(tx *database.Tx, by guard.Principal, operationID string, r operation.Revision) (operation.Tracked, error)
	// Conversation returns those of the newest operations of a conversation that by may use, the newest first.
	Conversation(ctx context.Context, by guard.Principal, conversationID string, limit int) ([]operation.Tracked, error)
}

var _ Operations = (*operation.Service)(nil)
