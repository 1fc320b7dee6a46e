package operation

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/strictjson"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the tables of operations up to date.
func Migrate(ctx context.Context, db *database.DB) error {
	return db.Migrate(ctx, "broker_operation", migrations)
}

// errStale says that an operation has another revision by now: someone else has moved it.
var errStale = errors.New("the operation was changed by someone else")

// record is an operation with what only the store knows.
type record struct {
	Operation
	seq  int64
	plan string // the stored plan, "" if there is none
}

const itemColumns = `o.seq, o.id, o.client_id, o.request_id, o.name, o.title, o.summary, o.state, o.revision,
	o.created_at, o.updated_at, o.terminal_at`

const recordQuery = "SELECT " + itemColumns + `, o.effect, o.request_digest, o.plan_digest, o.approval_id,
	o.error_code, o.error_message, o.result_cut, o.result, r.target, r.arguments, r.reason, r.rulings, r.plan
	FROM operation o JOIN operation_request r ON r.seq = o.seq WHERE `

// rower reads one row, from the database or in a transaction.
type rower func(statement string, args ...any) database.Row

// findOwn returns an operation of a client by its ID.
func findOwn(row rower, clientID, id string) (record, error) {
	return scanRecord(row(recordQuery+"o.id = ? AND o.client_id = ?", id, clientID))
}

// find returns an operation of any client.
func find(row rower, id string) (record, error) {
	return scanRecord(row(recordQuery+"o.id = ?", id))
}

// findRequest returns an operation of a client by its request ID.
func findRequest(row rower, clientID, requestID string) (record, error) {
	return scanRecord(row(recordQuery+"o.client_id = ? AND o.request_id = ?", clientID, requestID))
}

func scanRecord(row database.Row) (record, error) {
	var (
		r                          record
		created, updated, terminal int64
		problem                    Problem
		result, rulings            []byte
	)
	err := row.Scan(&r.seq, &r.ID, &r.ClientID, &r.RequestID, &r.Name, &r.Title, &r.Summary, &r.State, &r.Revision,
		&created, &updated, &terminal, &r.Effect, &r.RequestDigest, &r.PlanDigest, &r.ApprovalID,
		&problem.Code, &problem.Message, &r.ResultCut, &result, (*[]byte)(&r.Target), (*[]byte)(&r.Arguments), &r.Reason, &rulings, &r.plan)
	if err != nil {
		return record{}, err
	}
	if err := strictjson.Unmarshal(rulings, &r.Rulings); err != nil {
		return record{}, fmt.Errorf("reading the rulings of operation %s: %w", r.ID, err)
	}
	r.CreatedAt, r.UpdatedAt, r.TerminalAt = database.Time(created), database.Time(updated), database.Time(terminal)
	if problem.Code != "" {
		r.Error = &problem
	}
	r.Result = result
	return r, nil
}

// insert stores a new operation with its request, plan and first event. It returns false, and stores nothing, if the client
// has used the request ID before.
func insert(tx *database.Tx, r record, actor string) (bool, error) {
	var problem Problem
	if r.Error != nil {
		problem = *r.Error
	}
	var seq int64
	err := tx.QueryRow(`
		INSERT INTO operation (id, client_id, request_id, request_digest, name, effect, title, summary, plan_digest, approval_id,
			state, revision, created_at, updated_at, terminal_at, error_code, error_message)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)
		ON CONFLICT (client_id, request_id) DO NOTHING
		RETURNING seq`,
		r.ID, r.ClientID, r.RequestID, r.RequestDigest, r.Name, string(r.Effect), r.Title, r.Summary, r.PlanDigest, r.ApprovalID,
		string(r.State), database.Millis(r.CreatedAt), database.Millis(r.UpdatedAt), database.Millis(r.TerminalAt),
		problem.Code, problem.Message).Scan(&seq)
	if errors.Is(err, database.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	rulings, err := strictjson.Marshal(r.Rulings)
	if err != nil {
		return false, err
	}
	_, err = tx.Exec("INSERT INTO operation_request (seq, target, arguments, reason, rulings, plan) VALUES (?, ?, ?, ?, ?, ?)",
		seq, string(r.Target), string(r.Arguments), r.Reason, string(rulings), r.plan)
	if err != nil {
		return false, err
	}
	return true, insertEvent(tx, seq, Event{Revision: 1, Kind: EventSubmitted, State: r.State, Actor: actor, At: r.CreatedAt})
}

// change is one durable change of an operation.
type change struct {
	kind    Kind
	state   State
	actor   string
	detail  string
	problem Problem
	result  strictjson.Raw
	cut     bool
}

// advance makes a change of the operation that r shows, and fails with errStale if that has changed since.
func advance(tx *database.Tx, r record, c change, now time.Time) error {
	if !r.State.mayBecome(c.state) {
		return fmt.Errorf("operation %s: %s cannot become %s", r.ID, r.State, c.state)
	}
	var terminal time.Time
	if c.state.Terminal() {
		terminal = now
	}
	var result any
	if c.result != nil {
		result = string(c.result)
	}
	changed, err := tx.Exec(`
		UPDATE operation SET state = ?, revision = revision + 1, updated_at = ?, terminal_at = ?,
			error_code = ?, error_message = ?, result_cut = ?, result = ?
		WHERE seq = ? AND revision = ?`,
		string(c.state), database.Millis(now), database.Millis(terminal), c.problem.Code, c.problem.Message, c.cut, result, r.seq, r.Revision)
	if err != nil {
		return err
	}
	if changed == 0 {
		return errStale
	}
	return insertEvent(tx, r.seq, Event{Revision: r.Revision + 1, Kind: c.kind, State: c.state, Actor: c.actor, At: now, Detail: c.detail})
}

// mayBecome is the table of moves in the package comment.
func (s State) mayBecome(next State) bool {
	switch s {
	case Pending:
		return next == Approved || next == Denied || next == Expired || next == Canceled
	case Approved:
		return next == Executing || next == Canceled || next == Failed
	case Executing:
		return next == Executing || next == Succeeded || next == Failed
	case Succeeded, Failed, Denied, Expired, Canceled:
	}
	return false
}

func insertEvent(tx *database.Tx, seq int64, e Event) error {
	_, err := tx.Exec("INSERT INTO operation_event (seq, revision, kind, state, actor, at, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
		seq, e.Revision, string(e.Kind), string(e.State), e.Actor, database.Millis(e.At), e.Detail)
	return err
}

// events returns the events of an operation after a revision, oldest first.
func events(ctx context.Context, db *database.DB, seq, after int64, limit int) (list []Event, err error) {
	err = db.Query(ctx, func(scan func(...any) error) error {
		var (
			e  Event
			at int64
		)
		err := scan(&e.Revision, &e.Kind, &e.State, &e.Actor, &at, &e.Detail)
		e.At = database.Time(at)
		list = append(list, e)
		return err
	}, "SELECT revision, kind, state, actor, at, detail FROM operation_event WHERE seq = ? AND revision > ? ORDER BY revision LIMIT ?",
		seq, after, limit)
	return list, err
}

// findSeq returns the place of an operation in its client's lists.
func findSeq(ctx context.Context, db *database.DB, clientID, id string) (seq int64, err error) {
	err = db.QueryRow(ctx, "SELECT seq FROM operation WHERE id = ? AND client_id = ?", id, clientID).Scan(&seq)
	return seq, err
}

const itemQuery = "SELECT " + itemColumns + " FROM operation o WHERE "

// list returns operations of a client before a place, newest first.
func list(ctx context.Context, db *database.DB, clientID string, filter Filter, before int64, limit int) (found []Item, err error) {
	each := func(scan func(...any) error) error {
		var (
			s                               Item
			seq, created, updated, terminal int64
		)
		err := scan(&seq, &s.ID, &s.ClientID, &s.RequestID, &s.Name, &s.Title, &s.Summary, &s.State, &s.Revision,
			&created, &updated, &terminal)
		s.CreatedAt, s.UpdatedAt, s.TerminalAt = database.Time(created), database.Time(updated), database.Time(terminal)
		if filter.State == "" || s.State == filter.State { // the index has chosen, except by request ID: one row at most
			found = append(found, s)
		}
		return err
	}
	const newest = " AND o.seq < ? ORDER BY o.seq DESC LIMIT ?"
	switch {
	case filter.RequestID != "":
		err = db.Query(ctx, each, itemQuery+"o.client_id = ? AND o.request_id = ?"+newest, clientID, filter.RequestID, before, limit)
	case filter.State != "":
		err = db.Query(ctx, each, itemQuery+"o.client_id = ? AND o.state = ?"+newest, clientID, string(filter.State), before, limit)
	default:
		err = db.Query(ctx, each, itemQuery+"o.client_id = ?"+newest, clientID, before, limit)
	}
	return found, err
}

// unfinished returns what is approved or executing, oldest first.
func unfinished(ctx context.Context, db *database.DB) (left []job, err error) {
	err = db.Query(ctx, func(scan func(...any) error) error {
		var (
			j     job
			state State
		)
		err := scan(&j.id, &state)
		j.recovering = state == Executing
		left = append(left, j)
		return err
	}, "SELECT id, state FROM operation WHERE state IN ('approved', 'executing') ORDER BY seq")
	return left, err
}

// planDocument is the document that is stored and digested: what will be done, for whom and upon which request.
type planDocument struct {
	ClientID      string                `json:"client_id"`
	Operation     string                `json:"operation"`
	RequestDigest string                `json:"request_digest"`
	Presentation  provider.Presentation `json:"presentation"`
	Facts         provider.Facts        `json:"facts"`
	Content       strictjson.Raw        `json:"content"`
}
