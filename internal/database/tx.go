package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrNoRows is what a row's Scan returns when there is none.
var ErrNoRows = sql.ErrNoRows

// Tx is the transaction that [DB.Write] or [DB.Read] gives to its work. It must not be used after the work returned, nor
// by two goroutines.
type Tx struct {
	ctx     context.Context //nolint:containedctx // it belongs to the transaction and ends with it
	prepare func(statement string) (*sql.Stmt, error)
}

// Exec runs a statement and returns how many rows it changed: the answer of every compare-and-set.
func (tx *Tx) Exec(statement string, args ...any) (changed int64, err error) {
	stmt, err := tx.prepare(statement)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(tx.ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("executing a statement: %w", err)
	}
	return result.RowsAffected()
}

// QueryRow reads one row.
func (tx *Tx) QueryRow(statement string, args ...any) Row {
	stmt, err := tx.prepare(statement)
	if err != nil {
		return Row{err: err}
	}
	return Row{row: stmt.QueryRowContext(tx.ctx, args...)}
}

// Query reads rows and calls each for every one of them; scan fills its arguments from the row. each must not use tx.
func (tx *Tx) Query(each func(scan func(...any) error) error, statement string, args ...any) error {
	stmt, err := tx.prepare(statement)
	if err != nil {
		return err
	}
	return query(tx.ctx, stmt, each, args)
}

// Row is one row that was asked for.
type Row struct {
	row *sql.Row
	err error
}

// Scan fills dest from the row. It returns [ErrNoRows] when there is none.
func (r Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.row.Scan(dest...)
}

func query(ctx context.Context, stmt *sql.Stmt, each func(scan func(...any) error) error, args []any) error {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return fmt.Errorf("querying: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// writer runs groups of units on the one connection that may write.
type writer struct {
	conn       *sql.Conn
	dialect    dialect
	statements map[string]*sql.Stmt
}

func newWriter(conn *sql.Conn, d dialect) *writer {
	return &writer{conn: conn, dialect: d, statements: make(map[string]*sql.Stmt)}
}

// commit runs a group and tells every caller the truth about its own work.
func (w *writer) commit(group []*unit) {
	// Never the context of a caller: interrupting one statement would roll the whole group back.
	tx := &Tx{ctx: context.Background(), prepare: w.prepare}
	err := w.run(tx, w.dialect.begin())
	if err == nil {
		for _, u := range group {
			w.runUnit(tx, u)
		}
		if err = w.run(tx, "COMMIT"); err != nil {
			err = errors.Join(err, w.run(tx, "ROLLBACK"))
		}
	}
	for _, u := range group {
		if err != nil && u.err == nil {
			u.err = fmt.Errorf("committing: %w", err)
		}
		close(u.finished)
	}
}

// runUnit runs one caller's work in a savepoint, so that its failure undoes nothing of the others.
func (w *writer) runUnit(tx *Tx, u *unit) {
	if u.err = u.ctx.Err(); u.err != nil {
		return
	}
	if u.err = w.run(tx, "SAVEPOINT unit"); u.err != nil {
		return
	}
	func() {
		defer func() {
			if u.panicked = recover(); u.panicked != nil {
				u.err = errors.New("work panicked")
			}
		}()
		u.err = u.work(tx)
	}()
	if u.err != nil {
		if err := w.run(tx, "ROLLBACK TO SAVEPOINT unit"); err != nil {
			u.err = errors.Join(u.err, err)
		}
	}
	if err := w.run(tx, "RELEASE SAVEPOINT unit"); err != nil {
		u.err = errors.Join(u.err, err)
	}
}

func (w *writer) run(tx *Tx, statement string) error {
	_, err := tx.Exec(statement)
	return err
}

func (w *writer) prepare(statement string) (*sql.Stmt, error) {
	if stmt, ok := w.statements[statement]; ok {
		return stmt, nil
	}
	stmt, err := w.conn.PrepareContext(context.Background(), w.dialect.rewrite(statement))
	if err != nil {
		return nil, fmt.Errorf("preparing a statement: %w", err)
	}
	w.statements[statement] = stmt
	return stmt, nil
}
