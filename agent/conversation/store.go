package conversation

import (
	"context"
	"embed"
	"errors"

	"countersign/agent/vault"
	"countersign/internal/database"
	"countersign/internal/id"
)

//go:embed migrations
var migrations embed.FS

// store keeps conversations: which, how far they were read, and what was not delivered yet.
type store struct{ vault *vault.Vault }

func (s store) open(ctx context.Context) error {
	return s.vault.Migrate(ctx, "conversation", migrations)
}

func (s store) owner(c *Conversation) string {
	return s.vault.Hash("conversations", c.session.Company.Issuer, c.session.Person())
}

// name is what a conversation is found by.
func (s store) name(c *Conversation, conversationID string) string {
	return s.vault.Hash("conversation", c.session.Company.Issuer, c.session.Person(), conversationID)
}

func place(row, column string) vault.Place {
	return vault.Place{Table: "conversations", Row: row, Column: column}
}

// insert keeps a conversation that is about to start.
func (s store) insert(ctx context.Context, c *Conversation) error {
	pending, err := s.vault.Seal(place(c.row, "pending"), c.pending)
	if err != nil {
		return err
	}
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec("INSERT INTO conversations (id, owner, opened_at, pending) VALUES (?, ?, ?, ?)",
			c.row, s.owner(c), database.Millis(c.service.now()), pending)
		return err
	})
}

// find fills c with what is kept of the conversation with its ID, or keeps it from now on.
func (s store) find(ctx context.Context, c *Conversation) error {
	sealedID, err := s.sealID(id.New("conversation"), c.id)
	if err != nil {
		return err
	}
	var cursor, pending []byte
	err = s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec(`INSERT INTO conversations (id, owner, opened_at, name, conversation_id) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (name) DO NOTHING`,
			sealedID.row, s.owner(c), database.Millis(c.service.now()), s.name(c, c.id), sealedID.value)
		if err != nil {
			return err
		}
		return tx.QueryRow("SELECT id, cursor, pending FROM conversations WHERE name = ?", s.name(c, c.id)).Scan(&c.row, &cursor, &pending)
	})
	if err != nil {
		return err
	}
	return s.fill(c, nil, cursor, pending)
}

type sealedID struct {
	row   string
	value []byte
}

func (s store) sealID(row, conversationID string) (sealedID, error) {
	value, err := s.vault.Seal(place(row, "conversation_id"), conversationID)
	return sealedID{row, value}, err
}

// fill opens what a row holds into c, whose row is set.
func (s store) fill(c *Conversation, conversationID, cursor, unsent []byte) error {
	if conversationID != nil {
		if err := s.vault.Unseal(place(c.row, "conversation_id"), conversationID, &c.id); err != nil {
			return err
		}
	}
	if cursor != nil {
		if err := s.vault.Unseal(place(c.row, "cursor"), cursor, &c.cursor); err != nil {
			return err
		}
	}
	if unsent != nil {
		c.pending = &pending{}
		return s.vault.Unseal(place(c.row, "pending"), unsent, c.pending)
	}
	return nil
}

// unfinished returns the conversations of an owner that have a pending message, each filled into one that empty makes.
func (s store) unfinished(ctx context.Context, issuer, person string, empty func() (*Conversation, error)) ([]*Conversation, error) {
	var all []*Conversation
	err := s.vault.Query(ctx, func(scan func(...any) error) error {
		c, err := empty()
		if err != nil {
			return err
		}
		var conversationID, cursor, pending []byte
		if err := scan(&c.row, &conversationID, &cursor, &pending); err != nil {
			return err
		}
		all = append(all, c)
		return s.fill(c, conversationID, cursor, pending)
	}, "SELECT id, conversation_id, cursor, pending FROM conversations WHERE owner = ? AND pending IS NOT NULL ORDER BY id",
		s.vault.Hash("conversations", issuer, person))
	return all, err
}

// latest fills c with the conversation of its owner that was opened last, and returns false if there is none.
func (s store) latest(ctx context.Context, c *Conversation) (found bool, err error) {
	var conversationID, cursor, pending []byte
	err = s.vault.QueryRow(ctx, `SELECT id, conversation_id, cursor, pending FROM conversations
		WHERE owner = ? AND conversation_id IS NOT NULL ORDER BY opened_at DESC LIMIT 1`,
		s.owner(c)).Scan(&c.row, &conversationID, &cursor, &pending)
	if errors.Is(err, database.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.fill(c, conversationID, cursor, pending)
}

// setPending keeps a message that is about to be sent, or none.
func (s store) setPending(ctx context.Context, row string, message *pending) error {
	var sealed []byte
	if message != nil {
		var err error
		if sealed, err = s.vault.Seal(place(row, "pending"), message); err != nil {
			return err
		}
	}
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec("UPDATE conversations SET pending = ? WHERE id = ?", sealed, row)
		return err
	})
}

// setDelivered keeps that the pending message of a row arrived, and the ID that the Company gave the conversation. It returns
// the row of that conversation, which is another one if it was kept already: its first message was sent twice with the same
// [Draft.ID].
func (s store) setDelivered(ctx context.Context, c *Conversation, row, conversationID string) (string, error) {
	sealed, err := s.sealID(row, conversationID)
	if err != nil {
		return "", err
	}
	name, known := s.name(c, conversationID), row
	err = s.vault.Write(context.WithoutCancel(ctx), func(tx *database.Tx) error {
		err := tx.QueryRow("SELECT id FROM conversations WHERE name = ? AND id <> ?", name, row).Scan(&known)
		if errors.Is(err, database.ErrNoRows) {
			_, err = tx.Exec("UPDATE conversations SET pending = NULL, name = ?, conversation_id = ? WHERE id = ?", name, sealed.value, row)
			return err
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec("DELETE FROM conversations WHERE id = ?", row)
		return err
	})
	return known, err
}

func (s store) delete(ctx context.Context, row string) error {
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec("DELETE FROM conversations WHERE id = ?", row)
		return err
	})
}

func (s store) event(row, eventID string) string { return s.vault.Hash("event", row, eventID) }

func (s store) wasHandled(ctx context.Context, row, eventID string) (bool, error) {
	var one int
	err := s.vault.QueryRow(ctx, "SELECT 1 FROM handled WHERE event = ?", s.event(row, eventID)).Scan(&one)
	if errors.Is(err, database.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// advance keeps the cursor and, if there is one, the event that was handled.
func (s store) advance(ctx context.Context, row, cursor, eventID string) error {
	sealed, err := s.vault.Seal(place(row, "cursor"), cursor)
	if err != nil {
		return err
	}
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		if eventID != "" {
			_, err := tx.Exec("INSERT INTO handled (event, conversation) VALUES (?, ?) ON CONFLICT DO NOTHING", s.event(row, eventID), row)
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec("UPDATE conversations SET cursor = ? WHERE id = ?", sealed, row)
		return err
	})
}
