package conversation

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"countersign/company/guard"
	"countersign/internal/database"
	"countersign/internal/id"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the tables of conversations up to date.
func Migrate(ctx context.Context, db *database.DB) error {
	return db.Migrate(ctx, "conversation", migrations)
}

// errChanged means that a conversation was not as it was read.
var errChanged = errors.New("a conversation changed meanwhile")

// record is a conversation.
type record struct {
	isNew              bool // not kept yet
	id                 string
	clientID, userID   string
	account            string // that it belongs to since it used it; "" before
	poppy.State               // what goes on, and who handles it
	context            poppy.Context
	asker              guard.Principal // of the newest message
	notes              strictjson.Raw  // nil for none
	turn               int64           // the latest call of the Clerk
	first, last        int64           // the oldest event that is kept, and the newest
	asked, answered    int64           // the newest message that says something, and that the last reply knew
	readTurn, readLast int64           // turn and last as they were read, for the compare-and-set
}

const selectRecord = `SELECT conversation_id, client_id, user_id, account, status, responder, context, asker, notes, turn,
	first_seq, last_seq, asked_seq, answered_seq FROM conversation WHERE conversation_id = ?`

// readRecord reads one conversation. There is none if found is false.
func readRecord(tx *database.Tx, conversationID string) (r record, found bool, err error) {
	var situation, asker string
	var notes sql.NullString
	err = tx.QueryRow(selectRecord, conversationID).Scan(&r.id, &r.clientID, &r.userID, &r.account, &r.Status, &r.Responder,
		&situation, &asker, &notes, &r.turn, &r.first, &r.last, &r.asked, &r.answered)
	if errors.Is(err, database.ErrNoRows) {
		return record{}, false, nil
	}
	if err == nil {
		err = strictjson.Unmarshal([]byte(situation), &r.context)
	}
	if err == nil {
		err = strictjson.Unmarshal([]byte(asker), &r.asker)
	}
	if err != nil {
		return record{}, false, fmt.Errorf("reading a conversation: %w", err)
	}
	if notes.Valid {
		r.notes = strictjson.Raw(notes.String)
	}
	r.readTurn, r.readLast = r.turn, r.last
	return r, true, nil
}

// insert keeps a new conversation.
func (r *record) insert(tx *database.Tx, now time.Time) error {
	_, err := tx.Exec(`INSERT INTO conversation (conversation_id, client_id, user_id, account, parent_id, status, responder,
			context, asker, notes, turn, first_seq, last_seq, asked_seq, answered_seq, created, changed)
		VALUES (?, ?, ?, '', '', ?, ?, '{}', '{}', NULL, 0, 1, 0, 0, 0, ?, ?)`,
		r.id, r.clientID, r.userID, string(r.Status), string(r.Responder), database.Millis(now), database.Millis(now))
	return err
}

// update keeps what has changed of a conversation, if nobody else changed it since it was read.
func (r *record) update(tx *database.Tx, now time.Time) error {
	situation, err := strictjson.Marshal(r.context)
	if err != nil {
		return fmt.Errorf("writing a conversation's context: %w", err)
	}
	asker, err := strictjson.Marshal(r.asker)
	if err != nil {
		return fmt.Errorf("writing who asked: %w", err)
	}
	var notes any
	if r.notes != nil {
		notes = string(r.notes)
	}
	changed, err := tx.Exec(`UPDATE conversation SET account = ?, status = ?, responder = ?, context = ?, asker = ?, notes = ?,
			turn = ?, last_seq = ?, asked_seq = ?, answered_seq = ?, changed = ?
		WHERE conversation_id = ? AND turn = ? AND last_seq = ?`,
		r.account, string(r.Status), string(r.Responder), string(situation), string(asker), notes,
		r.turn, r.last, r.asked, r.answered, database.Millis(now),
		r.id, r.readTurn, r.readLast)
	if err == nil && changed != 1 {
		return errChanged
	}
	return err
}

// add puts an event at the end of the conversation (7.5). It is kept as it will be sent.
func (r *record) add(tx *database.Tx, event poppy.Event, now time.Time) error {
	event.ID, event.CreatedAt = id.New("evt"), poppy.At(now.Truncate(time.Millisecond))
	content, err := strictjson.Marshal(event)
	if err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	r.last++
	_, err = tx.Exec(`INSERT INTO event (conversation_id, seq, event_id, content, created) VALUES (?, ?, ?, ?, ?)`,
		r.id, r.last, event.ID, string(content), database.Millis(now))
	return err
}

// position finds where a cursor stands: the number of its event. Without a cursor it is before the first event.
func (r *record) position(tx *database.Tx, cursor string) (seq int64, err error) {
	if cursor == "" {
		return r.first - 1, nil
	}
	err = tx.QueryRow(`SELECT seq FROM event WHERE event_id = ? AND conversation_id = ?`, cursor, r.id).Scan(&seq)
	switch {
	case errors.Is(err, database.ErrNoRows):
		return 0, &poppy.Error{Code: poppy.ErrInvalidCursor}
	case err != nil:
		return 0, fmt.Errorf("reading a cursor: %w", err)
	case seq < r.first-1: // the event after it is gone
		return 0, &poppy.Error{Code: poppy.ErrCursorExpired}
	}
	return seq, nil
}

// errFull ends a query whose answer is as long as it may get.
var errFull = errors.New("page is full")

// events reads the events after a position up to another one, at most so many and about so many bytes, and returns the position of
// the last.
func (r *record) events(tx *database.Tx, after, upTo int64, most, mostBytes int) (events []poppy.Event, last int64, err error) {
	events, last = []poppy.Event{}, after
	size := 0
	err = tx.Query(func(scan func(...any) error) error {
		var seq int64
		var content string
		if err := scan(&seq, &content); err != nil {
			return err
		}
		if size += len(content); size > mostBytes && len(events) > 0 {
			return errFull
		}
		var event poppy.Event
		if err := strictjson.Unmarshal([]byte(content), &event); err != nil {
			return err
		}
		events, last = append(events, event), seq
		return nil
	}, `SELECT seq, content FROM event WHERE conversation_id = ? AND seq > ? AND seq <= ? AND content IS NOT NULL ORDER BY seq LIMIT ?`,
		r.id, after, upTo, most)
	if err != nil && !errors.Is(err, errFull) {
		return nil, 0, fmt.Errorf("reading events: %w", err)
	}
	return events, last, nil
}

// accepted is the answer to a message, and the conversation's newest event after it.
type accepted struct {
	poppy.Accepted
	last int64
}

// readMessage finds what was answered to a message of the User with this ID. There was none if found is false.
func readMessage(tx *database.Tx, by guard.Principal, messageID string) (a accepted, digest string, found bool, err error) {
	err = tx.QueryRow(`SELECT digest, conversation_id, status, responder, last_seq FROM message
		WHERE client_id = ? AND user_id = ? AND message_id = ?`, by.ClientID, by.UserID, messageID).
		Scan(&digest, &a.ConversationID, &a.Status, &a.Responder, &a.last)
	if errors.Is(err, database.ErrNoRows) {
		return accepted{}, "", false, nil
	}
	if err != nil {
		return accepted{}, "", false, fmt.Errorf("reading a message: %w", err)
	}
	return a, digest, true, nil
}

// insertMessage keeps the ID of a message and the answer to it.
func insertMessage(tx *database.Tx, by guard.Principal, messageID, digest string, a accepted, now time.Time) error {
	_, err := tx.Exec(`INSERT INTO message (client_id, user_id, message_id, digest, conversation_id, status, responder, last_seq, accepted)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		by.ClientID, by.UserID, messageID, digest, a.ConversationID, string(a.Status), string(a.Responder), a.last, database.Millis(now))
	return err
}

// working lists the conversations that wait for a reply, for a start after a stop or crash.
func working(ctx context.Context, db *database.DB) (ids []string, err error) {
	err = db.Query(ctx, func(scan func(...any) error) error {
		var conversationID string
		if err := scan(&conversationID); err != nil {
			return err
		}
		ids = append(ids, conversationID)
		return nil
	}, `SELECT conversation_id FROM conversation WHERE status = 'working'`)
	return ids, err
}
