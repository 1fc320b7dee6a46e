package conversation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"countersign/company/guard"
	"countersign/company/internal/limit"
	"countersign/internal/database"
	"countersign/internal/id"
	"countersign/internal/strictjson"
	"countersign/internal/wake"
	"countersign/internal/web"
	"countersign/internal/work"
	"countersign/poppy"
)

// Options configures a [Service].
type Options struct {
	// Database keeps the conversations; [Migrate] has run.
	Database *database.DB
	// Hub wakes requests that wait for events. Its topics here are Conversation IDs.
	Hub *wake.Hub
	// Clerk is the Company Agent.
	Clerk Clerk
	// Operations is the record that the Clerk's proposals go to; nil for a Company without the Operations extension.
	Operations Operations
	// Log takes what went wrong while replying.
	Log *slog.Logger
	// Now is the clock.
	Now func() time.Time

	// MaxWait is how long a read is held at most (7.5); 25 s by default.
	MaxWait time.Duration
	// Timeout bounds one call of the Clerk; 60 s by default.
	Timeout time.Duration
	// Parallel is how many calls of the Clerk run at a time, each for another conversation; 64 by default.
	Parallel int
	// MessagesPerMinute is how many messages one User may send in a minute; 0 for no limit.
	MessagesPerMinute int
	// CountedUsers is how many Users' messages are counted at once; 100,000 by default.
	CountedUsers int
}

// Service is the conversations of one Company. Make one with [New]; its methods may be called concurrently. Their errors
// are those of 7.13, as [poppy.Error], or faults of our own.
type Service struct {
	Options

	limit *limit.Limiter
	turns *work.Pool
}

// New returns a service. It panics if an option without a default is missing. Messages wait for a reply until [Service.Run].
func New(o Options) *Service {
	if o.Database == nil || o.Hub == nil || o.Clerk == nil || o.Log == nil || o.Now == nil {
		panic("conversation: an option without a default is missing")
	}
	o.MaxWait = cmp.Or(o.MaxWait, 25*time.Second)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.Parallel = cmp.Or(o.Parallel, 64)
	s := &Service{Options: o, limit: limit.New(o.MessagesPerMinute, cmp.Or(o.CountedUsers, 100_000))}
	s.turns = work.New(o.Parallel, s.reply)
	return s
}

// Bounds of a message, of either side.
const (
	maxText    = 32_000   // characters
	maxData    = 64 << 10 // bytes; also of the Clerk's notes
	maxContext = 64 << 10 // bytes, of one message and of all that were merged
)

// Start starts a conversation with its first message (7.3). A message that was accepted before, from any Session of the
// User, returns the conversation that it started.
func (s *Service) Start(ctx context.Context, by guard.Principal, request poppy.StartRequest) (poppy.Accepted, error) {
	a, err := s.start(ctx, by, request)
	return a.Accepted, err
}

func (s *Service) start(ctx context.Context, by guard.Principal, request poppy.StartRequest) (accepted, error) {
	if request.ParentConversationID != "" {
		// Direct Conversations (7.10) are not offered, so nothing can be the parent of one.
		return accepted{}, &poppy.Error{Code: poppy.ErrConversationNotFound}
	}
	digest, err := request.Digest()
	if err != nil {
		return accepted{}, invalid(err)
	}
	return s.accept(ctx, by, request.Message, digest, func(*database.Tx) (record, error) {
		return record{
			isNew: true, id: id.New("cnv"), clientID: by.ClientID, userID: by.UserID,
			State: poppy.State{Status: poppy.StatusIdle, Responder: poppy.ResponderAgent}, first: 1,
		}, nil
	})
}

// Send sends a message to a conversation (7.3).
func (s *Service) Send(ctx context.Context, by guard.Principal, conversationID string, request poppy.SendRequest) (poppy.Accepted, error) {
	a, err := s.send(ctx, by, conversationID, request)
	return a.Accepted, err
}

func (s *Service) send(ctx context.Context, by guard.Principal, conversationID string, request poppy.SendRequest) (accepted, error) {
	digest, err := request.Digest(conversationID)
	if err != nil {
		return accepted{}, invalid(err)
	}
	return s.accept(ctx, by, request.Message, digest, func(tx *database.Tx) (record, error) {
		return usable(tx, by, conversationID)
	})
}

// accept records a message in the conversation that target finds or makes. The checks and the record are one transaction,
// so that of a message that comes twice at once, one is accepted and the other recognised.
func (s *Service) accept(ctx context.Context, by guard.Principal, m poppy.Message, digest string,
	target func(*database.Tx) (record, error),
) (a accepted, err error) {
	if err := bounds(m); err != nil {
		return accepted{}, invalid(err)
	}
	now, again := s.Now(), false
	err = s.Database.Write(ctx, func(tx *database.Tx) error {
		r, err := target(tx)
		if err != nil {
			return err
		}
		// A retry is answered as the message was, whatever has become of the conversation since (7.3).
		var earlier string
		if a, earlier, again, err = readMessage(tx, by, m.ID); err != nil {
			return err
		}
		if again {
			if earlier != digest {
				return &poppy.Error{Code: poppy.ErrMessageIDConflict}
			}
			_, err = usable(tx, by, a.ConversationID)
			return err
		}
		if r.Status == poppy.StatusClosed {
			return &poppy.Error{Code: poppy.ErrConversationClosed}
		}
		if wait := s.limit.Allow(by.ClientID+"\n"+by.UserID, now); wait > 0 {
			return &poppy.Error{Code: poppy.ErrRateLimited, RetryAfter: wait}
		}
		if err := r.receive(tx, by, m, now); err != nil {
			return err
		}
		a = accepted{poppy.Accepted{ConversationID: r.id, State: r.State}, r.last}
		return insertMessage(tx, by, m.ID, digest, a, now)
	})
	if err != nil {
		return accepted{}, err
	}
	if !again {
		s.Hub.Wake(a.ConversationID)
		if a.Status == poppy.StatusWorking {
			s.turns.Add(a.ConversationID)
		}
	}
	return a, nil
}

// receive adds a message of the Personal Agent to the conversation, and starts a turn if it asks for one.
func (r *record) receive(tx *database.Tx, by guard.Principal, m poppy.Message, now time.Time) error {
	if r.isNew {
		if err := r.insert(tx, now); err != nil {
			return err
		}
	}
	m.Role = poppy.RoleUser
	if err := r.add(tx, poppy.Event{Type: poppy.EventMessage, Message: &m}, now); err != nil {
		return err
	}
	r.asker = by
	r.context = r.context.Updated(m.Context)
	if merged, err := strictjson.Marshal(r.context); err != nil || len(merged) > maxContext {
		return invalid(errors.Join(err, errors.New("the context is too long")))
	}
	if m.SaysSomething() {
		r.asked = r.last
		// While a person is awaited or there, it is theirs to answer.
		if r.Status == poppy.StatusIdle && r.Responder == poppy.ResponderAgent {
			if err := r.become(tx, poppy.StatusWorking, now); err != nil {
				return err
			}
		}
	}
	return r.update(tx, now)
}

// become changes the status and says so in an event (7.7).
func (r *record) become(tx *database.Tx, status poppy.Status, now time.Time) error {
	r.Status = status
	return r.add(tx, poppy.Event{Type: poppy.EventState, Status: r.Status, Responder: r.Responder}, now)
}

// bounds checks the size of a message from a Personal Agent.
func bounds(m poppy.Message) error {
	switch {
	case utf8.RuneCountInString(m.Text) > maxText:
		return errors.New("the text is too long")
	case len(m.Data) > maxData:
		return errors.New("the data is too long")
	}
	return nil
}

func invalid(cause error) error { return &poppy.Error{Code: poppy.ErrInvalidRequest, Cause: cause} }

// usable returns a conversation to whoever may use it (7.2, 7.11).
func usable(tx *database.Tx, by guard.Principal, conversationID string) (record, error) {
	r, found, err := readRecord(tx, conversationID)
	switch {
	case err != nil:
		return record{}, err
	case !found, by.ClientID != r.clientID, by.UserID != r.userID:
		return record{}, &poppy.Error{Code: poppy.ErrConversationNotFound}
	case r.account != "" && by.Account != r.account: // signed out, or signed in to another account
		return record{}, &poppy.Error{Code: poppy.ErrSignInRequired}
	}
	return r, nil
}

// Read returns the events after a cursor, from the first one if it is empty (7.5). Without any it waits for one, as long as
// wait says and [Options.MaxWait] allows.
func (s *Service) Read(ctx context.Context, by guard.Principal, conversationID, cursor string, wait time.Duration) (poppy.Page, error) {
	return s.hold(ctx, by, conversationID, cursor, wait, func(page poppy.Page, _ int64) bool { return len(page.Events) > 0 })
}

// readReply is the read that a message with wait asks for: it waits for more than the message itself, since it is there "to
// get the Company's reply in the same request" (7.3).
func (s *Service) readReply(ctx context.Context, by guard.Principal, a accepted, cursor string, wait time.Duration) (poppy.Page, error) {
	return s.hold(ctx, by, a.ConversationID, cursor, wait, func(page poppy.Page, last int64) bool {
		return last > a.last || page.Status != poppy.StatusWorking
	})
}

// hold reads until there is enough, or the time is up. It subscribes before it reads, so that nothing is missed between.
func (s *Service) hold(ctx context.Context, by guard.Principal, conversationID, cursor string, wait time.Duration,
	enough func(page poppy.Page, last int64) bool,
) (poppy.Page, error) {
	changed, cancel := s.Hub.Subscribe(conversationID)
	defer cancel()
	limit := time.NewTimer(min(wait, s.MaxWait))
	defer limit.Stop()
	for {
		page, last, err := s.read(ctx, by, conversationID, cursor)
		if err != nil || wait == 0 || enough(page, last) || page.Status == poppy.StatusClosed { // nothing more can come
			return page, err
		}
		select {
		case <-changed:
		case <-limit.C:
			return page, nil
		case <-web.Stopping(ctx):
			return page, nil
		case <-ctx.Done():
			return page, nil
		}
	}
}

// Bounds of a page of events. The longest event is a little longer than the longest message, so that a page is shorter than
// poppy.MaxPageBytes.
const (
	maxPageEvents = 100
	maxPageBytes  = 1 << 20
)

// read returns one page, and the number of the conversation's newest event. It asks anew whether the Principal may use the
// conversation: while it waited, the conversation may have come to belong to an account.
func (s *Service) read(ctx context.Context, by guard.Principal, conversationID, cursor string) (page poppy.Page, newest int64, err error) {
	err = s.Database.Read(ctx, func(tx *database.Tx) error {
		r, err := usable(tx, by, conversationID)
		if err != nil {
			return err
		}
		after, err := r.position(tx, cursor)
		if err != nil {
			return err
		}
		events, last, err := r.events(tx, after, r.last, maxPageEvents, maxPageBytes)
		if err != nil {
			return err
		}
		if n := len(events); n > 0 {
			cursor = events[n-1].ID
		}
		newest = r.last
		page = poppy.Page{ConversationID: r.id, Events: events, Cursor: cursor, HasMore: last < r.last, State: r.State}
		return nil
	})
	if err != nil {
		return poppy.Page{}, 0, err
	}
	if !operates(by) {
		withoutOperations(page.Events)
	}
	return page, newest, nil
}

// operates tells whether the Personal Agent lists the Operations extension. One that does not is never sent an operation
// (Operations 2).
func operates(by guard.Principal) bool {
	return guard.RequireExtension(by, poppy.ExtensionOperations, poppy.OperationsVersion) == nil
}

// withoutOperations takes the operations out of events that were written while the Personal Agent listed the extension.
func withoutOperations(events []poppy.Event) {
	for _, event := range events {
		if m := event.Message; m != nil && m.Operation != nil {
			m.Operation = nil
			m.Text = cmp.Or(m.Text, textOperations)
		}
	}
}

// Close closes a conversation (7.12). One that is closed stays as it is. What it started goes on.
func (s *Service) Close(ctx context.Context, by guard.Principal, conversationID string) (poppy.Accepted, error) {
	return s.change(ctx, by, conversationID, func(tx *database.Tx, r *record, now time.Time) error {
		if r.Status == poppy.StatusClosed {
			return nil
		}
		return r.become(tx, poppy.StatusClosed, now)
	})
}

// Handoff asks for a person (7.9). Nobody is available here, which the events tell as they would anywhere: queued, a message
// that says why, and back to what went on before.
func (s *Service) Handoff(ctx context.Context, by guard.Principal, conversationID string) (poppy.Accepted, error) {
	return s.change(ctx, by, conversationID, func(tx *database.Tx, r *record, now time.Time) error {
		before := r.Status
		switch {
		case before == poppy.StatusClosed:
			return &poppy.Error{Code: poppy.ErrConversationClosed}
		case before == poppy.StatusQueued, r.Responder == poppy.ResponderHuman:
			return nil
		}
		if err := r.become(tx, poppy.StatusQueued, now); err != nil {
			return err
		}
		if err := r.say(tx, poppy.Message{Text: textNobody}, now); err != nil {
			return err
		}
		return r.become(tx, before, now)
	})
}

// change changes a conversation on behalf of whoever may use it.
func (s *Service) change(ctx context.Context, by guard.Principal, conversationID string,
	change func(*database.Tx, *record, time.Time) error,
) (poppy.Accepted, error) {
	now := s.Now()
	var r record
	err := s.Database.Write(ctx, func(tx *database.Tx) (err error) {
		if r, err = usable(tx, by, conversationID); err != nil {
			return err
		}
		if err := change(tx, &r, now); err != nil {
			return err
		}
		return r.update(tx, now)
	})
	if err != nil {
		return poppy.Accepted{}, err
	}
	s.Hub.Wake(conversationID)
	return poppy.Accepted{ConversationID: r.id, State: r.State}, nil
}

// say adds a message of the Company Agent (7.4, 7.7).
func (r *record) say(tx *database.Tx, m poppy.Message, now time.Time) error {
	m.ID, m.Role, m.Sender = id.New("msg"), poppy.RoleCompany, poppy.SenderAgent
	if err := m.ValidateFromCompany(); err != nil {
		return fmt.Errorf("a message of the Company: %w", err)
	}
	return r.add(tx, poppy.Event{Type: poppy.EventMessage, Message: &m}, now)
}

// What the Company says by itself.
const (
	textNobody     = "Nobody is available to join this conversation right now. I can go on helping here."
	textFailed     = "Sorry, something went wrong on our side and I could not answer that. Please ask again."
	textOperations = "I can't do that here: it needs the operations extension, so that your agent can confirm the exact terms, and your agent does not list it."
)
