package poppy

import "countersign/internal/strictjson"

// EventType says which fields an event has (7.5).
type EventType string

// The event types.
const (
	EventMessage       EventType = "message"        // either side said something
	EventState         EventType = "state"          // status or responder changed
	EventAuthorization EventType = "authorization"  // the Company Agent needs the account, or more scopes
	EventUserRequested EventType = "user_requested" // the Company asks to talk with the User
	EventDirectOpened  EventType = "direct_opened"  // in the parent, when a Direct Conversation opens
	EventDirectClosed  EventType = "direct_closed"  // in the parent, when it closes
)

// Event is one event of a conversation. Its ID is also a cursor (7.5).
type Event struct {
	ID        string    `json:"id"`
	Type      EventType `json:"type"`
	CreatedAt Time      `json:"created_at"`

	Message        *Message  `json:"message,omitzero"`          // of message
	Status         Status    `json:"status,omitempty"`          // of state
	Responder      Responder `json:"responder,omitempty"`       // of state
	Error          ErrorCode `json:"error,omitempty"`           // of authorization: sign_in_required or insufficient_scope
	Scope          string    `json:"scope,omitempty"`           // of authorization with insufficient_scope: the scopes needed
	Reason         string    `json:"reason,omitempty"`          // of user_requested
	ConversationID string    `json:"conversation_id,omitempty"` // of direct_opened and direct_closed: the Direct Conversation
}

// Known tells whether the type is defined by the protocol. Readers skip the others, but their IDs are cursors too (7.5).
func (t EventType) Known() bool {
	switch t {
	case EventMessage, EventState, EventAuthorization, EventUserRequested, EventDirectOpened, EventDirectClosed:
		return true
	}
	return false
}

// UnmarshalJSON keeps of an event whose type is not known here only what every event has.
func (e *Event) UnmarshalJSON(data []byte) error {
	var header struct {
		ID        string    `json:"id"`
		Type      EventType `json:"type"`
		CreatedAt Time      `json:"created_at"`
	}
	if err := strictjson.Unmarshal(data, &header); err != nil {
		return err
	}
	if !header.Type.Known() {
		*e = Event{ID: header.ID, Type: header.Type, CreatedAt: header.CreatedAt}
		return nil
	}
	type plain Event
	return strictjson.Unmarshal(data, (*plain)(e))
}

// ParseEvent reads the data of one server-sent event as a Personal Agent must (7.6). The error is [Problems].
func ParseEvent(data []byte) (Event, error) {
	var e Event
	if err := decode(data, MaxPageBytes, &e); err != nil {
		return Event{}, err
	}
	if err := e.Validate(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// Validate checks what every event has and what its type adds. The error is [Problems].
func (e Event) Validate() error {
	var c checker
	c.require(ValidID(e.ID), "7.2", "id", "must be 1 to 256 letters, digits, - and _")
	c.require(e.Type != "", "7.5", "type", "is required")
	c.require(!e.CreatedAt.IsZero(), "7.5", "created_at", "is required: a time such as 2026-10-08T19:03:00Z")
	switch e.Type {
	case EventMessage:
		e.checkMessage(&c)
	case EventState:
		State{e.Status, e.Responder}.check(&c)
	case EventAuthorization:
		c.require(e.Error == ErrSignInRequired || e.Error == ErrInsufficientScope, "7.11", "error", "must be sign_in_required or insufficient_scope")
		scopes, err := ParseScopes(e.Scope)
		c.rule(err, "7.11", "scope")
		c.require(e.Error != ErrInsufficientScope || err != nil || len(scopes) > 0, "7.11", "scope", "is required with insufficient_scope: the scopes needed")
	case EventUserRequested:
		c.require(e.Reason != "", "7.10", "reason", "is required: a short text")
	case EventDirectOpened, EventDirectClosed:
		c.require(ValidID(e.ConversationID), "7.10", "conversation_id", "is required: the Direct Conversation's ID")
	}
	return c.err()
}

// checkMessage checks what is needed to show the message and to tell who wrote it. What it says may all be in a field
// of an extension that is not known here.
func (e Event) checkMessage(c *checker) {
	if e.Message == nil {
		c.require(false, "7.5", "message", "is required")
		return
	}
	var message checker
	e.Message.check(&message)
	message.require(e.Message.Role == RoleCompany || e.Message.Role == RoleUser, "7.7", "role", "must be company or user")
	c.within("message", message.err())
}

// TextDelta is a piece of a message that is still being written, the data of a text-delta event of a stream. Nothing
// may be done because of its text (7.6).
type TextDelta struct {
	MessageID string `json:"message_id"`
	Text      string `json:"text"`
}

// ParseTextDelta reads the data of a text-delta event. The error is [Problems].
func ParseTextDelta(data []byte) (TextDelta, error) {
	var d TextDelta
	if err := decode(data, MaxMessageBytes, &d); err != nil {
		return TextDelta{}, err
	}
	var c checker
	c.require(ValidID(d.MessageID), "7.6", "message_id", "must be the ID of the message")
	if err := c.err(); err != nil {
		return TextDelta{}, err
	}
	return d, nil
}
