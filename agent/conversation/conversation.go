// Package conversation talks with Companies (section 7): it sends messages so that each arrives once, and reads the events
// in their order, across renewed tokens, new Sessions and restarts.
//
// [Service.Start] begins a [Conversation] with its first message, [Conversation.Send] goes on, and [Conversation.Follow]
// gives every event to a function once. What a Company wrote is a [quote.Text] everywhere: data, never instructions.
package conversation

import (
	"errors"
	"sync"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/quote"
	"countersign/agent/session"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Conversation is one conversation of a User with a Company. Its methods may be called concurrently: one goroutine can
// follow it while others send. Use one value for one conversation.
type Conversation struct {
	service  *Service
	session  *session.Session
	endpoint discovery.Endpoint

	sending chan struct{} // holds an element while a message is under way, since they arrive in order

	mutex   sync.Mutex
	row     string   // of the vault; "" in a private Session, of which nothing is kept
	id      string   // Conversation ID; "" until the first message is known to have arrived
	pending *pending // a message that is not known to have arrived
	cursor  string   // of the last event that was handled
	handled map[string]bool
}

// pending is a message as it is sent, each time the same.
type pending struct {
	MessageID string         `json:"message_id"`
	Body      strictjson.Raw `json:"body"`
}

// ID returns the Conversation ID, "" until the first message is known to have arrived.
func (c *Conversation) ID() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.id
}

// Draft is a message to be sent. It has at least one of Text, Data and Context (7.4).
type Draft struct {
	// ID is the message's ID, for a caller that keeps one of its own and may send the same draft again after a crash: the
	// Company takes a message with an ID once (7.3). It must be unique for the User. "" has one made.
	ID string
	// Sender is who wrote it: [poppy.SenderHuman] only for the User's own words, as they wrote them. "" is the agent (7.8).
	Sender poppy.Sender
	// Text is the message itself, without JSON or other markup.
	Text string
	// Data are structured details that go with it.
	Data poppy.Object
	// Context are facts of the User's situation that the Company needs for its reply. Share only what the task needs.
	Context poppy.Context
}

// message returns the draft as a message with an ID.
func (d Draft) message(id string) poppy.Message {
	sender := d.Sender
	if sender == "" {
		sender = poppy.SenderAgent
	}
	return poppy.Message{ID: id, Sender: sender, Text: d.Text, Data: d.Data, Context: d.Context}
}

// Event is something that happened in a conversation (7.5). The type says which other fields it has.
type Event struct {
	ID        string
	Type      poppy.EventType
	CreatedAt time.Time

	Message  *Message        // of a message
	State    poppy.State     // of a change of state
	Error    poppy.ErrorCode // of authorization: sign_in_required or insufficient_scope (7.11)
	Scopes   poppy.Scopes    // of authorization: those needed
	Reason   quote.Text      // of user_requested: why the Company asks to talk with the User (7.10)
	DirectID string          // of direct_opened and direct_closed: the Direct Conversation
}

// Gap is the type of an event that no Company sends: the events that follow start at the beginning of what the Company
// still has, and part of the conversation is missing. Tell the User (7.5).
const Gap poppy.EventType = "gap"

// Message is a message of either side.
type Message struct {
	ID        string
	Role      poppy.Role   // whose side
	Sender    poppy.Sender // a person or an AI
	Text      quote.Text
	Data      poppy.Object
	Operation *poppy.Operation // what the Company proposes; a message never confirms it (Operations 4.3)
}

// Page is one read of events.
type Page struct {
	Events  []Event // those of known types
	Cursor  string  // to read on from
	HasMore bool    // whether more can be read at once
	State   poppy.State
}

// ErrStop is returned by the function given to [Conversation.Follow] to end it: the event counts as handled.
var ErrStop = errors.New("stop following the conversation")

// UndeliveredError says that a message did not arrive, or may not have. It is kept, and the next Send or Flush, also after
// a restart, sends it again as it is, so that the Company takes it once (7.3). The cause may be a [*poppy.Error] that says
// what is needed first, such as sign_in_required.
type UndeliveredError struct {
	Err error
	// MayHaveArrived tells that an attempt was not answered, so that the Company may have the message.
	MayHaveArrived bool
}

// Error says what becomes of the message.
func (e *UndeliveredError) Error() string {
	return "the message is kept and can be sent again: " + e.Err.Error()
}

// Unwrap returns what went wrong.
func (e *UndeliveredError) Unwrap() error { return e.Err }
