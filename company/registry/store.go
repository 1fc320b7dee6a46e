package registry

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"countersign/internal/database"
	"countersign/poppy"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the table of Personal Agents up to date.
func Migrate(ctx context.Context, db *database.DB) error {
	return db.Migrate(ctx, "registry", migrations)
}

// Status is what was decided about a Personal Agent. It is empty for one that was never seen nor decided on.
type Status string

// The statuses.
const (
	Known   Status = "known"   // it came; nobody decided anything
	Allowed Status = "allowed" // it may come, whatever the mode
	Blocked Status = "blocked" // it may not, and its tokens are refused
)

// Entry is one line of the list of Personal Agents.
type Entry struct {
	ClientID  string
	Name      string // client_name when last seen; empty before
	Status    Status
	FirstSeen time.Time // zero if it was decided on and has not come yet
	LastSeen  time.Time // within a minute
}

// Block keeps a Personal Agent out, whether it came before or not. Tokens that it holds are refused from now on.
func (r *Registry) Block(ctx context.Context, clientID string) error {
	return r.decide(ctx, clientID, Blocked)
}

// Allow lets a Personal Agent in where only allowed ones may come, and undoes [Registry.Block].
func (r *Registry) Allow(ctx context.Context, clientID string) error {
	return r.decide(ctx, clientID, Allowed)
}

func (r *Registry) decide(ctx context.Context, clientID string, status Status) error {
	if _, err := poppy.ParseClientID(clientID); err != nil {
		return fmt.Errorf("client_id %w", err)
	}
	return r.options.Database.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec(`INSERT INTO agent (client_id, name, status, first_seen, last_seen) VALUES (?, '', ?, 0, 0)
			ON CONFLICT (client_id) DO UPDATE SET status = excluded.status`, clientID, status)
		return err
	})
}

// Forget removes what is known and decided about a Personal Agent. It returns false if there was nothing.
func (r *Registry) Forget(ctx context.Context, clientID string) (bool, error) {
	var removed int64
	err := r.options.Database.Write(ctx, func(tx *database.Tx) (err error) {
		removed, err = tx.Exec(`DELETE FROM agent WHERE client_id = ?`, clientID)
		return err
	})
	return removed == 1, err
}

// List returns Personal Agents in the order of their client_id: at most limit of those that come after the one given, ""
// for the first.
func (r *Registry) List(ctx context.Context, after string, limit int) ([]Entry, error) {
	var entries []Entry
	err := r.options.Database.Query(ctx, func(scan func(...any) error) error {
		entry, err := scanEntry(scan)
		entries = append(entries, entry)
		return err
	}, `SELECT client_id, name, status, first_seen, last_seen FROM agent WHERE client_id > ? ORDER BY client_id LIMIT ?`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("listing Personal Agents: %w", err)
	}
	return entries, nil
}

// find returns what is known about an agent, a zero Entry if nothing is.
func (r *Registry) find(ctx context.Context, clientID string) (Entry, error) {
	entry, err := scanEntry(r.options.Database.QueryRow(ctx,
		`SELECT client_id, name, status, first_seen, last_seen FROM agent WHERE client_id = ?`, clientID).Scan)
	if errors.Is(err, database.ErrNoRows) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, fmt.Errorf("looking up a Personal Agent: %w", err)
	}
	return entry, nil
}

func scanEntry(scan func(...any) error) (Entry, error) {
	var entry Entry
	var first, last int64
	if err := scan(&entry.ClientID, &entry.Name, &entry.Status, &first, &last); err != nil {
		return Entry{}, err
	}
	entry.FirstSeen, entry.LastSeen = database.Time(first), database.Time(last)
	return entry, nil
}

func selectStatus(tx *database.Tx, clientID string) (status Status, seen bool, err error) {
	var first int64
	err = tx.QueryRow(`SELECT status, first_seen FROM agent WHERE client_id = ?`, clientID).Scan(&status, &first)
	if errors.Is(err, database.ErrNoRows) {
		return "", false, nil
	}
	return status, first != 0, err
}

// firstSeenBack returns when the agent that is n-th from the newest was first seen, zero if there are fewer.
func firstSeenBack(tx *database.Tx, n int) (time.Time, error) {
	var first int64
	err := tx.QueryRow(`SELECT first_seen FROM agent ORDER BY first_seen DESC LIMIT 1 OFFSET ?`, n-1).Scan(&first)
	if errors.Is(err, database.ErrNoRows) {
		return time.Time{}, nil
	}
	return database.Time(first), err
}

// upsertSeen records that an agent came. Its row is written again at most once a minute.
func upsertSeen(tx *database.Tx, agent Agent, now time.Time) error {
	_, err := tx.Exec(`INSERT INTO agent (client_id, name, status, first_seen, last_seen) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (client_id) DO UPDATE SET
			name = excluded.name,
			first_seen = CASE agent.first_seen WHEN 0 THEN excluded.first_seen ELSE agent.first_seen END,
			last_seen = excluded.last_seen
		WHERE agent.last_seen < ?`,
		agent.Metadata.ClientID, agent.Name(), Known, database.Millis(now), database.Millis(now),
		database.Millis(now.Add(-time.Minute)))
	return err
}
