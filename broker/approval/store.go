package approval

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"countersign/internal/database"
	"countersign/internal/strictjson"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the tables of approvals up to date.
func Migrate(ctx context.Context, db *database.DB) error {
	return db.Migrate(ctx, "broker_approval", migrations)
}

// Open stores a pending approval, in the transaction that stores its operation. ID, OperationID, ClientID, Operation, Reason,
// Presentation, PlanDigest, CreatedAt and ExpiresAt are the caller's.
// Wake [Topic] after the commit.
func Open(tx *database.Tx, a Approval) error {
	presentation, err := strictjson.Marshal(a.Presentation)
	if err != nil {
		return fmt.Errorf("opening an approval: %w", err)
	}
	_, err = tx.Exec(`
		INSERT INTO approval (id, operation_id, client_id, operation, reason, presentation, plan_digest, state, revision, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', 1, ?, ?)`,
		a.ID, a.OperationID, a.ClientID, a.Operation, a.Reason, string(presentation), a.PlanDigest,
		database.Millis(a.CreatedAt), database.Millis(a.ExpiresAt))
	return err
}

// Cancel closes a pending approval, in the transaction that cancels its operation. Wake [Topic] after the commit.
func Cancel(tx *database.Tx, id string, now time.Time) error {
	return closeAs(tx, id, 1, Canceled, now, decision{})
}

// decision is what is kept of an operator's command.
type decision struct{ by, note, key, digest string }

// errStale says that an approval has another revision by now.
var errStale = errors.New("the approval was changed by someone else")

// closeAs makes the one change that there is in an approval's life.
func closeAs(tx *database.Tx, id string, revision int64, state State, now time.Time, d decision) error {
	changed, err := tx.Exec(`
		UPDATE approval SET state = ?, revision = revision + 1, closed_at = ?, decided_by = ?, note = ?, decision_key = ?, decision_digest = ?
		WHERE id = ? AND state = 'pending' AND revision = ?`,
		string(state), database.Millis(now), d.by, d.note, d.key, d.digest, id, revision)
	if err == nil && changed == 0 {
		err = errStale
	}
	return err
}

const columns = `seq, id, operation_id, client_id, operation, reason, presentation, plan_digest, state, revision,
	created_at, expires_at, closed_at, decided_by, note, decision_key, decision_digest FROM approval `

// stored is an approval with what only the store knows.
type stored struct {
	Approval
	seq         int64
	key, digest string
}

func scan(from func(...any) error) (stored, error) {
	var (
		s                        stored
		presentation             []byte
		created, expires, closed int64
	)
	err := from(&s.seq, &s.ID, &s.OperationID, &s.ClientID, &s.Operation, &s.Reason, &presentation, &s.PlanDigest, &s.State, &s.Revision,
		&created, &expires, &closed, &s.DecidedBy, &s.Note, &s.key, &s.digest)
	if err != nil {
		return stored{}, err
	}
	if err := strictjson.Unmarshal(presentation, &s.Presentation); err != nil {
		return stored{}, fmt.Errorf("reading the presentation of approval %s: %w", s.ID, err)
	}
	s.CreatedAt, s.ExpiresAt, s.ClosedAt = database.Time(created), database.Time(expires), database.Time(closed)
	return s, nil
}

// rower reads one row, from the database or in a transaction.
type rower func(statement string, args ...any) database.Row

func find(row rower, id string) (stored, error) {
	return scan(row("SELECT "+columns+"WHERE id = ?", id).Scan)
}

// findSeq returns the place of an approval in lists.
func findSeq(ctx context.Context, db *database.DB, id string) (seq int64, err error) {
	err = db.QueryRow(ctx, "SELECT seq FROM approval WHERE id = ?", id).Scan(&seq)
	return seq, err
}

// list returns approvals before a place, newest first; an empty state selects all.
func list(ctx context.Context, db *database.DB, state State, before int64, limit int) (found []stored, err error) {
	each := func(from func(...any) error) error {
		s, err := scan(from)
		found = append(found, s)
		return err
	}
	if state == "" {
		err = db.Query(ctx, each, "SELECT "+columns+"WHERE seq < ? ORDER BY seq DESC LIMIT ?", before, limit)
	} else {
		err = db.Query(ctx, each, "SELECT "+columns+"WHERE state = ? AND seq < ? ORDER BY seq DESC LIMIT ?", string(state), before, limit)
	}
	return found, err
}

// due returns up to limit pending approvals whose time is over.
func due(tx *database.Tx, now time.Time, limit int) (found []stored, err error) {
	err = tx.Query(func(from func(...any) error) error {
		s, err := scan(from)
		found = append(found, s)
		return err
	}, "SELECT "+columns+"WHERE state = 'pending' AND expires_at <= ? ORDER BY expires_at LIMIT ?", database.Millis(now), limit)
	return found, err
}

// nearest returns the next deadline, and false if there is none.
func nearest(ctx context.Context, db *database.DB) (deadline time.Time, found bool, err error) {
	var millis int64
	err = db.QueryRow(ctx, "SELECT expires_at FROM approval WHERE state = 'pending' ORDER BY expires_at LIMIT 1").Scan(&millis)
	if errors.Is(err, database.ErrNoRows) {
		return time.Time{}, false, nil
	}
	return database.Time(millis), err == nil, err
}
