package operation

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"countersign/company/guard"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

//go:embed migrations
var migrations embed.FS

// Migrate brings the tables of operations up to date.
func Migrate(ctx context.Context, db *database.DB) error {
	return db.Migrate(ctx, "operation", migrations)
}

// errChanged means that a row was not as it was read: somebody else got there first.
var errChanged = errors.New("an operation changed meanwhile")

// one makes sure that a compare-and-set took place.
func one(changed int64, err error) error {
	if err == nil && changed != 1 {
		return errChanged
	}
	return err
}

// Outcomes of an attempt as they are kept.
const (
	outcomeStarted    = "started"
	outcomeNotStarted = "not_started"
)

// outcomes are those that end an operation.
var outcomes = map[Verdict]string{Succeeded: "succeeded", Failed: "failed", Stopped: "stopped"}

// record is an operation with its latest revision, its confirmation and its latest attempt.
type record struct {
	issued

	clientID, userID, sessionID, account string
	conversationID, key                  string
	state                                poppy.OperationState
	stopRequested                        bool
	result                               *poppy.Result
	created                              time.Time

	confirmation *confirmation // nil until confirmed

	attempt int    // 0: none yet
	outcome string // of that attempt
	lookups int
	due     time.Time // when the next step of performing is due
}

// confirmation is what was stated when it was confirmed.
type confirmation struct {
	by         guard.Principal // as far as it is kept
	digest     string
	approvedBy poppy.Approval
	at         time.Time
}

const selectRecords = `SELECT o.operation_id, o.client_id, o.user_id, o.session_id, o.account, o.conversation_id, o.action_key,
		o.state, o.stop_requested, o.result, o.created, o.attempt,
		r.revision, r.summary, r.terms, r.user_approval_required, r.url, r.expires, r.scope, r.digest,
		coalesce(c.digest, ''), coalesce(c.approved_by, ''), coalesce(c.confirmed, 0),
		coalesce(c.client_id, ''), coalesce(c.user_id, ''), coalesce(c.session_id, ''), coalesce(c.account, ''),
		coalesce(a.outcome, ''), coalesce(a.lookups, 0), coalesce(a.due, 0)
	FROM operation o
	JOIN operation_revision r ON r.operation_id = o.operation_id AND r.revision = o.revision
	LEFT JOIN operation_confirmation c ON c.operation_id = o.operation_id
	LEFT JOIN operation_attempt a ON a.operation_id = o.operation_id AND a.attempt = o.attempt `

const (
	selectRecord = selectRecords + `WHERE o.operation_id = ?`
	// selectOpen finds the open operation for an action that a Session may use. One of the account comes first.
	selectOpen = selectRecords + `WHERE o.client_id = ? AND o.user_id = ? AND o.action_key = ?
		AND (o.account <> '' AND o.account = ? OR o.account = '' AND o.session_id = ?)
		AND o.state IN ('proposed', 'in_progress') ORDER BY o.account DESC LIMIT 1`
	// selectConversation finds the newest operations of a conversation.
	selectConversation = selectRecords + `WHERE o.conversation_id = ? AND o.conversation_id <> ''
		ORDER BY o.created DESC, o.operation_id LIMIT ?`
)

// scanRecord reads a row of selectRecords.
func scanRecord(scan func(...any) error) (record, error) {
	var (
		r                                          record
		terms, result                              sql.NullString
		stop, created, expires, confirmed, due     int64
		scope, digest, approvedBy                  string
		client, user, session, account, termsState string
	)
	o := &r.operation
	err := scan(&o.OperationID, &r.clientID, &r.userID, &r.sessionID, &r.account, &r.conversationID, &r.key,
		&termsState, &stop, &result, &created, &r.attempt,
		&o.Revision, &o.Summary, &terms, &o.UserApprovalRequired, &o.URL, &expires, &scope, &r.digest,
		&digest, &approvedBy, &confirmed, &client, &user, &session, &account,
		&r.outcome, &r.lookups, &due)
	if err != nil {
		return record{}, err
	}
	o.State, o.ExpiresAt = poppy.OperationProposed, poppy.At(database.Time(expires))
	if terms.Valid {
		o.Terms = poppy.Object(terms.String)
	}
	if r.scopes, err = poppy.ParseScopes(scope); err != nil {
		return record{}, fmt.Errorf("reading an operation: scope %w", err)
	}
	r.state, r.stopRequested = poppy.OperationState(termsState), stop != 0
	r.created, r.due = database.Time(created), database.Time(due)
	if result.Valid {
		r.result = new(poppy.Result)
		if err := strictjson.Unmarshal([]byte(result.String), r.result); err != nil {
			return record{}, fmt.Errorf("reading an operation's result: %w", err)
		}
	}
	if confirmed != 0 {
		r.confirmation = &confirmation{
			by:     guard.Principal{ClientID: client, UserID: user, SessionID: session, Account: account},
			digest: digest, approvedBy: poppy.Approval(approvedBy), at: database.Time(confirmed),
		}
	}
	return r, nil
}

// readRecord reads one operation. There is none if found is false.
func readRecord(row database.Row) (r record, found bool, err error) {
	r, err = scanRecord(row.Scan)
	if errors.Is(err, database.ErrNoRows) {
		return record{}, false, nil
	}
	return r, err == nil, err
}

// insertOperation keeps a new operation, without its revision.
func insertOperation(tx *database.Tx, id string, by guard.Principal, p Proposal, now time.Time) error {
	_, err := tx.Exec(`INSERT INTO operation (operation_id, client_id, user_id, session_id, account, conversation_id, action_key,
			state, revision, attempt, stop_requested, result, created, changed)
		VALUES (?, ?, ?, ?, ?, ?, ?, 'proposed', 1, 0, 0, NULL, ?, ?)`,
		id, by.ClientID, by.UserID, by.SessionID, by.Account, p.ConversationID, p.Key,
		database.Millis(now), database.Millis(now))
	return err
}

// insertRevision keeps a revision, which must be the operation's next or first.
func insertRevision(tx *database.Tx, i issued, now time.Time) error {
	o := i.operation
	var terms any
	if o.Terms != nil {
		terms = string(o.Terms)
	}
	_, err := tx.Exec(`INSERT INTO operation_revision (operation_id, revision, summary, terms, user_approval_required, url,
			expires, scope, digest, created)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		o.OperationID, o.Revision, o.Summary, terms, o.UserApprovalRequired, o.URL,
		database.Millis(o.ExpiresAt.Time), i.scopes.String(), i.digest, database.Millis(now))
	return err
}

// advanceRevision makes the next revision the latest, if the operation is still proposed with the one before.
func advanceRevision(tx *database.Tx, id string, next int64, now time.Time) error {
	return one(tx.Exec(`UPDATE operation SET revision = ?, changed = ? WHERE operation_id = ? AND revision = ? AND state = 'proposed'`,
		next, database.Millis(now), id, next-1))
}

// insertConfirmation moves an operation from proposed to in progress and records who confirmed which revision.
func insertConfirmation(tx *database.Tx, r record, by guard.Principal, approvedBy poppy.Approval, now time.Time) error {
	id, revision := r.operation.OperationID, r.operation.Revision
	if err := one(tx.Exec(`UPDATE operation SET state = 'in_progress', changed = ?
		WHERE operation_id = ? AND revision = ? AND state = 'proposed'`, database.Millis(now), id, revision)); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO operation_confirmation (operation_id, revision, digest, approved_by, confirmed,
			client_id, user_id, session_id, account, key_thumbprint)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		id, revision, r.digest, string(approvedBy), database.Millis(now),
		by.ClientID, by.UserID, by.SessionID, by.Account, by.KeyThumbprint)
	return err
}

// finish moves an operation to a final state.
func finish(tx *database.Tx, id string, from, to poppy.OperationState, result poppy.Result, now time.Time) error {
	if !from.MayBecome(to) {
		return fmt.Errorf("an operation cannot go from %s to %s", from, to)
	}
	text, err := strictjson.Marshal(result)
	if err != nil {
		return fmt.Errorf("writing an operation's result: %w", err)
	}
	return one(tx.Exec(`UPDATE operation SET state = ?, result = ?, changed = ? WHERE operation_id = ? AND state = ?`,
		string(to), string(text), database.Millis(now), id, string(from)))
}

// requestStop records that an operation in progress was cancelled.
func requestStop(tx *database.Tx, id string, now time.Time) error {
	_, err := tx.Exec(`UPDATE operation SET stop_requested = ? WHERE operation_id = ? AND state = 'in_progress' AND stop_requested = 0`,
		database.Millis(now), id)
	return err
}

// stopRequested tells whether an operation was cancelled while in progress.
func stopRequested(tx *database.Tx, id string) (requested bool, err error) {
	err = tx.QueryRow(`SELECT stop_requested <> 0 FROM operation WHERE operation_id = ?`, id).Scan(&requested)
	return requested, err
}

// insertAttempt records that an attempt starts. It must be the one after the operation's latest.
func insertAttempt(tx *database.Tx, id string, attempt int, worker string, now time.Time) error {
	if err := one(tx.Exec(`UPDATE operation SET attempt = ?, changed = ? WHERE operation_id = ? AND attempt = ? AND state = 'in_progress'`,
		attempt, database.Millis(now), id, attempt-1)); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO operation_attempt (operation_id, attempt, worker, outcome, lookups, due, started, ended)
		VALUES (?, ?, ?, 'started', 0, 0, ?, 0)`, id, attempt, worker, database.Millis(now))
	return err
}

// endAttempt records the outcome of an attempt that has none yet, and when the step after it is due.
func endAttempt(tx *database.Tx, id string, attempt int, outcome string, due, now time.Time) error {
	return one(tx.Exec(`UPDATE operation_attempt SET outcome = ?, due = ?, ended = ?
		WHERE operation_id = ? AND attempt = ? AND outcome = 'started'`,
		outcome, database.Millis(due), database.Millis(now), id, attempt))
}

// postponeAttempt records that the outcome of an attempt is still unknown, and when it will be looked up.
func postponeAttempt(tx *database.Tx, id string, attempt int, due time.Time) error {
	return one(tx.Exec(`UPDATE operation_attempt SET lookups = lookups + 1, due = ?
		WHERE operation_id = ? AND attempt = ? AND outcome = 'started'`, database.Millis(due), id, attempt))
}

// inProgress lists the operations that are not finished, for a start after a stop or crash.
func inProgress(ctx context.Context, db *database.DB) (ids []string, err error) {
	err = db.Query(ctx, func(scan func(...any) error) error {
		var id string
		if err := scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
		return nil
	}, `SELECT operation_id FROM operation WHERE state = 'in_progress'`)
	return ids, err
}
