package poppy

import (
	"fmt"
	"maps"
	"strings"

	"countersign/internal/strictjson"
)

// Names of the query parameters and paths of conversations (7.2, 7.5).
const (
	QueryCursor     = "cursor"
	QueryWait       = "wait"
	PathMessages    = "messages"
	PathEvents      = "events"
	PathHandoff     = "handoff"
	PathClose       = "close"
	EventTextDelta  = "text-delta" // the name of an SSE event, not a type of the list (7.6)
	HeaderLastEvent = "Last-Event-ID"
)

// Sender says who wrote a message: a person or an AI (7.8).
type Sender string

// The senders.
const (
	SenderAgent Sender = "agent"
	SenderHuman Sender = "human"
)

// Role says which side a message is from. The Company sets it in events (7.4).
type Role string

// The roles.
const (
	RoleUser    Role = "user" // the Personal Agent's side
	RoleCompany Role = "company"
)

// Status is what goes on in a conversation (7.7).
type Status string

// The statuses.
const (
	StatusWorking Status = "working" // the Company prepares a reply or does something
	StatusIdle    Status = "idle"    // the Company waits for the next message
	StatusQueued  Status = "queued"  // waiting for a person to join; the responder is still the Company Agent
	StatusClosed  Status = "closed"  // takes no more messages
)

// Responder is who handles the Company's side now (7.7).
type Responder string

// The responders.
const (
	ResponderAgent Responder = "agent"
	ResponderHuman Responder = "human"
)

// State is both of them. Every successful response and every state event has it (7.7).
type State struct {
	Status    Status    `json:"status"`
	Responder Responder `json:"responder"`
}

func (s State) check(c *checker) {
	switch s.Status {
	case StatusWorking, StatusIdle, StatusQueued, StatusClosed:
	default:
		c.require(false, "7.7", "status", "must be working, idle, queued or closed")
	}
	c.require(s.Responder == ResponderAgent || s.Responder == ResponderHuman, "7.7", "responder", "must be agent or human")
	c.require(s.Status != StatusQueued || s.Responder != ResponderHuman, "7.7", "responder", "must be agent while the conversation is queued")
}

// Context holds facts about the User's situation (7.4). Nil is absent; an empty one is present and changes nothing.
type Context map[string]strictjson.Raw

// The fields of a context whose form the protocol defines; others may stand beside them.
const (
	ContextLocale        = "locale"         // a language tag such as en-US (RFC 5646)
	ContextTimeZone      = "time_zone"      // an IANA name such as America/Los_Angeles
	ContextUserAvailable = "user_available" // whether the User can answer questions right now
)

// Locale returns the language tag, "" if there is none.
func (c Context) Locale() string { return c.text(ContextLocale) }

// TimeZone returns the IANA time zone name, "" if there is none.
func (c Context) TimeZone() string { return c.text(ContextTimeZone) }

// UserAvailable returns whether the User can answer right now, and whether the context says so at all.
func (c Context) UserAvailable() (available, said bool) {
	raw, ok := c[ContextUserAvailable]
	if !ok {
		return false, false
	}
	err := strictjson.Unmarshal(raw, &available)
	return available, err == nil
}

func (c Context) text(name string) string {
	var text string
	if raw, ok := c[name]; !ok || strictjson.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// Updated returns the context after a message with newer: fields that newer leaves out keep their values (7.4).
func (c Context) Updated(newer Context) Context {
	merged := maps.Clone(c)
	if merged == nil {
		merged = Context{}
	}
	maps.Copy(merged, newer)
	return merged
}

func (c Context) check(check *checker, place string) {
	if raw, ok := c[ContextLocale]; ok {
		check.require(raw.Kind() == '"' && validLocale(c.Locale()), "7.4", place+".locale", "must be a language tag such as en-US")
	}
	if raw, ok := c[ContextTimeZone]; ok {
		check.require(raw.Kind() == '"' && validTimeZone(c.TimeZone()), "7.4", place+".time_zone", "must be an IANA time zone name such as America/Los_Angeles")
	}
	if raw, ok := c[ContextUserAvailable]; ok {
		check.require(raw.Kind() == 't' || raw.Kind() == 'f', "7.4", place+".user_available", "must be true or false")
	}
}

// validLocale checks the outline of a language tag: a language and subtags of 1 to 8 letters and digits (RFC 5646 2.1).
func validLocale(tag string) bool {
	for subtag := range strings.SplitSeq(tag, "-") {
		if subtag == "" || len(subtag) > 8 || strings.Trim(subtag, alphanumeric) != "" {
			return false
		}
	}
	return len(tag) <= 64 && !isDigits(tag[:1])
}

// validTimeZone checks the outline of a time zone name. The database of names grows, so it is not asked.
func validTimeZone(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, alphanumeric+"_+-/") == "" &&
		!strings.HasPrefix(name, "/") && !strings.HasSuffix(name, "/")
}

// Message is one message of a conversation (7.4).
type Message struct {
	ID        string         `json:"id"`
	Role      Role           `json:"role,omitempty"` // set by the Company in events; one that the Personal Agent sends is ignored
	Sender    Sender         `json:"sender"`
	Text      string         `json:"text,omitempty"`
	Data      Object         `json:"data,omitzero"`
	Context   Context        `json:"context,omitzero"`   // only from the Personal Agent
	Operation strictjson.Raw `json:"operation,omitzero"` // only from the Company (Operations 4.3); read it with ParseOperation
}

// ValidateFromAgent checks a message of the Personal Agent, on either side (7.2, 7.4, 7.8). The error is [Problems].
func (m Message) ValidateFromAgent() error {
	var c checker
	m.check(&c)
	m.Context.check(&c, "context")
	c.require(m.Text != "" || m.Data != nil || m.Context != nil, "7.4", "", "must have at least one of text, data and context")
	return c.err()
}

// ValidateFromCompany checks a message that the Company sends (7.4, 7.7). The error is [Problems].
func (m Message) ValidateFromCompany() error {
	var c checker
	m.check(&c)
	c.require(m.Role == RoleCompany, "7.7", "role", "must be company")
	c.require(m.Context == nil, "7.4", "context", "must be left out: only the Personal Agent sends it")
	c.require(m.Text != "" || m.Data != nil || m.Operation.Kind() == '{', "7.4", "", "must have at least one of text, data and operation")
	return c.err()
}

func (m Message) check(c *checker) {
	c.require(ValidID(m.ID), "7.2", "id", "must be 1 to 256 letters, digits, - and _")
	c.require(m.Sender == SenderAgent || m.Sender == SenderHuman, "7.8", "sender", "must be agent or human")
}

// SaysSomething tells whether the message asks for a turn of the Company, rather than only updating the context (7.4).
func (m Message) SaysSomething() bool { return m.Text != "" || m.Data != nil }

// StartRequest starts a conversation with its first message (7.3).
type StartRequest struct {
	ParentConversationID string  `json:"parent_conversation_id,omitempty"` // not "": a Direct Conversation (7.10)
	Message              Message `json:"message"`
}

// ParseStartRequest reads the body of POST {endpoint} as a Company must. The error is [Problems].
func ParseStartRequest(data []byte) (StartRequest, error) {
	var r StartRequest
	if err := decode(data, MaxMessageBytes, &r); err != nil {
		return StartRequest{}, err
	}
	var c checker
	c.require(r.ParentConversationID == "" || ValidID(r.ParentConversationID), "7.10", "parent_conversation_id", "must be a Conversation ID")
	c.within("message", r.Message.ValidateFromAgent())
	if err := c.err(); err != nil {
		return StartRequest{}, err
	}
	r.Message = r.Message.received()
	return r, nil
}

// Digest identifies the content of a first message, to tell a retry from another message with the same ID (7.3).
func (r StartRequest) Digest() (string, error) {
	return contentDigest(r.Message, "", r.ParentConversationID)
}

// SendRequest sends a message to a conversation (7.3).
type SendRequest struct {
	Message Message `json:"message"`
}

// ParseSendRequest reads the body of POST {endpoint}/{id}/messages as a Company must. The error is [Problems].
func ParseSendRequest(data []byte) (SendRequest, error) {
	var r SendRequest
	if err := decode(data, MaxMessageBytes, &r); err != nil {
		return SendRequest{}, err
	}
	var c checker
	c.within("message", r.Message.ValidateFromAgent())
	if err := c.err(); err != nil {
		return SendRequest{}, err
	}
	r.Message = r.Message.received()
	return r, nil
}

// Digest identifies the content of a message sent to that conversation, to tell a retry from another message with the
// same ID (7.3).
func (r SendRequest) Digest(conversationID string) (string, error) {
	return contentDigest(r.Message, conversationID, "")
}

// received drops what only a Company may say in a message.
func (m Message) received() Message {
	m.Role, m.Operation = "", nil
	return m
}

// contentDigest covers what a retry must repeat: sender, text, data and context, and where they were sent. Member order,
// members that are not known here and role do not count. Data with a number that no canonical form keeps, such as an order
// number of 19 digits, counts as it is spelled too: otherwise another order's message would be taken for a retry.
func contentDigest(m Message, conversationID, parentID string) (string, error) {
	spelled, err := strictjson.Marshal(m.Context)
	if err != nil {
		return "", err
	}
	if spelled = append(spelled, m.Data...); exactNumbers(spelled) == nil {
		spelled = nil
	}
	canonical, err := strictjson.MarshalCanonical(struct {
		ConversationID string  `json:"conversation_id,omitempty"`
		ParentID       string  `json:"parent_conversation_id,omitempty"`
		ID             string  `json:"id"`
		Sender         Sender  `json:"sender"`
		Text           string  `json:"text,omitempty"`
		Data           Object  `json:"data,omitzero"`
		Context        Context `json:"context,omitzero"`
		Spelled        string  `json:"spelled,omitempty"`
	}{conversationID, parentID, m.ID, m.Sender, m.Text, m.Data, m.Context, string(spelled)})
	if err != nil {
		return "", err
	}
	return strictjson.Digest(canonical), nil
}

// Accepted answers a message without wait, a handoff and a close (7.3, 7.9, 7.12).
type Accepted struct {
	ConversationID string `json:"conversation_id,omitempty"` // always of a message; the Company sends it with all of them
	State
}

// ParseAccepted reads the answer as a Personal Agent must. The error is [Problems].
func ParseAccepted(data []byte) (Accepted, error) {
	var a Accepted
	if err := decode(data, MaxMetadataBytes, &a); err != nil {
		return Accepted{}, err
	}
	var c checker
	c.require(a.ConversationID == "" || ValidID(a.ConversationID), "7.3", "conversation_id", "must be a Conversation ID")
	a.check(&c)
	if err := c.err(); err != nil {
		return Accepted{}, err
	}
	return a, nil
}

// Page answers a read of events, and a message with wait (7.5, 7.3).
type Page struct {
	ConversationID string  `json:"conversation_id"`
	Events         []Event `json:"events"` // never null on the wire
	Cursor         string  `json:"cursor"` // the last event's ID, or the request's cursor
	HasMore        bool    `json:"has_more"`
	State
}

// ParsePage reads the answer as a Personal Agent must. Events of unknown types stay in their places, without their
// fields. The error is [Problems].
func ParsePage(data []byte) (Page, error) {
	var p Page
	if err := decode(data, MaxPageBytes, &p); err != nil {
		return Page{}, err
	}
	var c checker
	c.require(ValidID(p.ConversationID), "7.5", "conversation_id", "is required")
	c.require(p.Events != nil, "7.5", "events", "is required, [] when there are none")
	for i, event := range p.Events {
		c.within(fmt.Sprintf("events[%d]", i), event.Validate())
	}
	c.require(ValidID(p.Cursor) || p.Cursor == "" && len(p.Events) == 0, "7.5", "cursor", "is required: the last event returned, or the request's cursor")
	p.check(&c)
	if err := c.err(); err != nil {
		return Page{}, err
	}
	return p, nil
}
