package conversation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/session"
	"countersign/agent/vault"
	"countersign/internal/id"
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
