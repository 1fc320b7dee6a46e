// Package database keeps state in SQL with durable, grouped commits.
//
// All writes of a process go through one queue: its writer takes what is waiting, runs each caller's work in a savepoint of
// its own, and commits all of it with one disk synchronisation. [DB.Write] returns only after that commit, so whatever a
// caller tells the outside afterwards survives a crash, and hundreds of callers share the price of one.
//
// Statements use ? for parameters, ON CONFLICT and RETURNING, times as integer milliseconds ([Millis]) and JSON as text:
// the common ground of SQLite and PostgreSQL. What differs between them stands in dialect.go.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
)

// ErrClosed is returned for work that arrives after [DB.Close].
var ErrClosed = errors.New("database is closed")

// maxGroup bounds how many callers share one commit, and with it how long the first of them can wait for the last.
const maxGroup = 256

// DB is one open database. Its methods may be called concurrently.
type DB struct {
	dialect dialect
	source  string
	writer  *sql.DB
	reader  *sql.DB
	queue   chan *unit
	closing chan struct{}
	close   sync.Once
	done    chan struct{}
	reads   sync.Map // statement text -> *sql.Stmt on reader
}

// unit is one caller's work and what became of it.
type unit struct {
	ctx      context.Context //nolint:containedctx // it is the caller's, read once before the work starts
	work     func(*Tx) error
	err      error
	panicked any
	finished chan struct{}
}

// Open opens or creates the SQLite database at path, readable by its owner only. Close it when done.
func Open(ctx context.Context, path string) (*DB, error) {
	d := sqlite{}
	source, err := d.prepare(path)
	if err != nil {
		return nil, fmt.Errorf("opening database %s: %w", path, err)
	}
	db := &DB{
		dialect: d, source: source,
		queue: make(chan *unit, maxGroup), closing: make(chan struct{}), done: make(chan struct{}),
	}
	if db.writer, err = d.open(source, false); err != nil {
		return nil, fmt.Errorf("opening database %s: %w", path, err)
	}
	if db.reader, err = d.open(source, true); err != nil {
		return nil, errors.Join(fmt.Errorf("opening database %s: %w", path, err), db.writer.Close())
	}
	conn, err := db.writer.Conn(ctx)
	if err == nil {
		err = d.check(ctx, conn)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening database %s: %w", path, err), db.reader.Close(), db.writer.Close())
	}
	go db.write(conn)
	return db, nil
}

// Close finishes the writes that are queued and closes the database.
func (db *DB) Close() error {
	db.close.Do(func() { close(db.closing) })
	<-db.done
	return errors.Join(db.reader.Close(), db.writer.Close())
}

// Migrate brings the tables of one room up to date. The files lie in migrations/<dialect> of source, are numbered per room,
// and are never changed once released; room is a lower-case name unique in the database.
func (db *DB) Migrate(ctx context.Context, room string, source fs.FS) error {
	files, err := fs.Sub(source, "migrations/"+db.dialect.name())
	if err != nil {
		return fmt.Errorf("migrating %s: %w", room, err)
	}
	// A connection of its own: goose brings its transactions along and must not meet a grouped one.
	conn, err := db.dialect.open(db.source, false)
	if err != nil {
		return fmt.Errorf("migrating %s: %w", room, err)
	}
	defer conn.Close()
	provider, err := goose.NewProvider(db.dialect.goose(), conn, files,
		goose.WithTableName("schema_"+room), goose.WithDisableGlobalRegistry(true))
	if err == nil {
		_, err = provider.Up(ctx)
	}
	if err != nil {
		return fmt.Errorf("migrating %s: %w", room, err)
	}
	return nil
}

// Write runs work in a transaction and returns when it is durable. An error from work undoes what that work wrote and
// nothing else, and is returned as it is. A context that ends before the work starts cancels it; after that Write
// waits, so a caller always learns whether its work was committed.
//
// work runs while every other writer waits: it must not call the network, wait, or call Write.
func (db *DB) Write(ctx context.Context, work func(*Tx) error) error {
	u := &unit{ctx: ctx, work: work, finished: make(chan struct{})}
	select {
	case <-db.closing: // first, since select picks at random among the ready
		return ErrClosed
	default:
	}
	select {
	case db.queue <- u:
	case <-ctx.Done():
		return ctx.Err()
	case <-db.closing:
		return ErrClosed
	}
	select {
	case <-u.finished:
	case <-db.done:
		select {
		case <-u.finished:
		default:
			return ErrClosed // it was queued behind the last group and never ran
		}
	}
	if u.panicked != nil {
		panic(u.panicked)
	}
	return u.err
}

// Read runs work in one read-only transaction: all its queries see the same state.
func (db *DB) Read(ctx context.Context, work func(*Tx) error) error {
	tx, err := db.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing to keep, also when work panics
	var fresh []string                   // statements that are not prepared for everyone yet
	err = work(&Tx{
		ctx: ctx,
		prepare: func(statement string) (*sql.Stmt, error) {
			if stmt, ok := db.reads.Load(statement); ok {
				return tx.StmtContext(ctx, stmt.(*sql.Stmt)), nil
			}
			// On its own connection: to wait for a second one while holding one would stop all readers, once each of them does.
			fresh = append(fresh, statement)
			stmt, err := tx.PrepareContext(ctx, db.dialect.rewrite(statement))
			if err != nil {
				return nil, fmt.Errorf("preparing a statement: %w", err)
			}
			return stmt, nil
		},
	})
	_ = tx.Rollback()
	for _, statement := range fresh {
		_, _ = db.prepared(ctx, statement) // if it fails, the next reader tries again
	}
	return err
}

// QueryRow reads one row outside a transaction.
func (db *DB) QueryRow(ctx context.Context, statement string, args ...any) Row {
	stmt, err := db.prepared(ctx, statement)
	if err != nil {
		return Row{err: err}
	}
	return Row{row: stmt.QueryRowContext(ctx, args...)}
}

// Query reads rows outside a transaction and calls each for every one of them; scan fills its arguments from the row.
func (db *DB) Query(ctx context.Context, each func(scan func(...any) error) error, statement string, args ...any) error {
	stmt, err := db.prepared(ctx, statement)
	if err != nil {
		return err
	}
	return query(ctx, stmt, each, args)
}

func (db *DB) prepared(ctx context.Context, statement string) (*sql.Stmt, error) {
	if stmt, ok := db.reads.Load(statement); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := db.reader.PrepareContext(ctx, db.dialect.rewrite(statement))
	if err != nil {
		return nil, fmt.Errorf("preparing a statement: %w", err)
	}
	if earlier, loaded := db.reads.LoadOrStore(statement, stmt); loaded {
		_ = stmt.Close()
		return earlier.(*sql.Stmt), nil
	}
	return stmt, nil
}

// write is the writer: the only goroutine that changes the database.
func (db *DB) write(conn *sql.Conn) {
	defer close(db.done)
	defer conn.Close()
	w := newWriter(conn, db.dialect)
	for {
		select {
		case first := <-db.queue:
			w.commit(db.gather(first))
		case <-db.closing:
			for { // what is queued is still done
				select {
				case first := <-db.queue:
					w.commit(db.gather(first))
				default:
					return
				}
			}
		}
	}
}

// gather takes what is waiting. It yields once, so that callers just woken by the last commit can join this group.
func (db *DB) gather(first *unit) []*unit {
	group := []*unit{first}
	runtime.Gosched()
	for len(group) < maxGroup {
		select {
		case next := <-db.queue:
			group = append(group, next)
		default:
			return group
		}
	}
	return group
}

// Millis is how a time is stored: milliseconds since 1970 UTC. The zero time is 0.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Time is the reverse of [Millis], in UTC.
func Time(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis).UTC()
}
