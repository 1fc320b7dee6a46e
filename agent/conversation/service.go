package conversation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/quote"
	"countersign/agent/session"
	"countersign/agent/vault"
	"countersign/internal/id"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Operations takes the operations that messages bring.
type Operations interface {
	Remember(ctx context.Context, in *session.Session, o poppy.Operation) error
}

// Options are what the room rests on. All are required but Log and Now.
type Options struct {
	Vault      *vault.Vault
	Operations Operations
	Log        *slog.Logger     // says when something of a Company could not be read; none by default
	Now        func() time.Time // time.Now by default
}

// Service keeps the conversations of all Users. Its methods may be called concurrently.
type Service struct {
	store      store
	operations Operations
	log        *slog.Logger
	now        func() time.Time
}

// New opens the room.
func New(ctx context.Context, options Options) (*Service, error) {
	s := &Service{store: store{options.Vault}, operations: options.Operations, log: options.Log, now: options.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s, s.store.open(ctx)
}

// Conversation is one conversation of a User with a Company. Its methods may be called concurrently: one goroutine can
// follow it while others send. Use one value for one conversation.
type Conversation struct {
	service  *Service
	session  *session.Session
	endpoint discovery.Endpoint
	row      string // of the vault; "" in a private Session, of which nothing is kept

	sending chan struct{} // holds an element while a message is under way, since they arrive in order

	mutex   sync.Mutex
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

// Start begins a conversation with its first message (7.3). If it is not known whether that arrived, the error is an
// [*UndeliveredError], and [Service.Unfinished] returns the conversation.
func (s *Service) Start(ctx context.Context, in *session.Session, first Draft) (*Conversation, poppy.State, error) {
	return s.start(ctx, in, "", first)
}

func (s *Service) start(ctx context.Context, in *session.Session, parentID string, first Draft) (*Conversation, poppy.State, error) {
	c, err := s.conversation(in)
	if err != nil {
		return nil, poppy.State{}, err
	}
	message, err := prepare(first, func(m poppy.Message) any {
		return poppy.StartRequest{ParentConversationID: parentID, Message: m}
	})
	if err != nil {
		return nil, poppy.State{}, err
	}
	c.pending = &message
	if !in.Private() {
		c.row = id.New("conversation")
		if err := s.store.insert(ctx, c); err != nil {
			return nil, poppy.State{}, fmt.Errorf("keeping the message: %w", err)
		}
	}
	state, err := c.Flush(ctx)
	if err != nil {
		return nil, poppy.State{}, err
	}
	return c, state, nil
}

// Open returns a conversation that the User had before, by its Conversation ID. One that this agent does not know is read
// from its beginning.
func (s *Service) Open(ctx context.Context, in *session.Session, conversationID string) (*Conversation, error) {
	if !poppy.ValidID(conversationID) {
		return nil, errors.New("that is not a Conversation ID")
	}
	c, err := s.conversation(in)
	if err != nil {
		return nil, err
	}
	c.id = conversationID
	if !in.Private() {
		if err := s.store.find(ctx, c); err != nil {
			return nil, fmt.Errorf("opening the conversation: %w", err)
		}
	}
	return c, nil
}

// Latest returns the conversation that the User began last at the Company, nil if there is none. It may be closed.
func (s *Service) Latest(ctx context.Context, in *session.Session) (*Conversation, error) {
	if in.Private() {
		return nil, nil
	}
	c, err := s.conversation(in)
	if err != nil {
		return nil, err
	}
	found, err := s.store.latest(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("looking for the latest conversation: %w", err)
	}
	if !found {
		return nil, nil
	}
	return c, nil
}

// Unfinished returns the User's conversations at the Company that have a message which is not known to have arrived.
// [Conversation.Flush] sends it again.
func (s *Service) Unfinished(ctx context.Context, in *session.Session) ([]*Conversation, error) {
	if in.Private() {
		return nil, nil
	}
	all, err := s.store.unfinished(ctx, in.Company.Issuer, in.Person(), func() (*Conversation, error) { return s.conversation(in) })
	if err != nil {
		return nil, fmt.Errorf("looking for unfinished conversations: %w", err)
	}
	return all, nil
}

// conversation returns an empty one in a Session.
func (s *Service) conversation(in *session.Session) (*Conversation, error) {
	endpoint, ok := in.Company.Endpoint(discovery.Conversations)
	if !ok {
		return nil, fmt.Errorf("%s does not offer conversations", in.Company.Domain)
	}
	return &Conversation{
		service: s, session: in, endpoint: endpoint, sending: make(chan struct{}, 1), handled: make(map[string]bool),
	}, nil
}

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

// ID returns the Conversation ID, "" until the first message is known to have arrived.
func (c *Conversation) ID() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.id
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
	if lost(err) {
		accepted, err = c.post(ctx, message.Body, path...)
	}
	if lost(err) || undecided(err) {
		return poppy.State{}, &UndeliveredError{err}
	}
	if err != nil {
		return poppy.State{}, errors.Join(err, c.discard(ctx))
	}
	if conversationID == "" && accepted.ConversationID == "" {
		return poppy.State{}, &UndeliveredError{errors.New("the Company did not say which conversation it started")}
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

// keep stores a message before it is sent for the first time.
func (c *Conversation) keep(ctx context.Context, message *pending) error {
	if c.row != "" {
		if err := c.service.store.setPending(ctx, c.row, message); err != nil {
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
	if c.row != "" {
		if err := c.service.store.setDelivered(ctx, c, conversationID); err != nil {
			return fmt.Errorf("noting that the message arrived: %w", err)
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.id, c.pending = conversationID, nil
	return nil
}

// discard forgets a message that the Company refused; the conversation too, if it was the first.
func (c *Conversation) discard(ctx context.Context) error {
	_, conversationID := c.unsent()
	if c.row != "" {
		err := c.service.store.setPending(ctx, c.row, nil)
		if conversationID == "" {
			err = c.service.store.delete(ctx, c.row)
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
	for name, values := range query {
		own[name] = values
	}
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
