package database

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// dialect is all that differs between the databases. PostgreSQL becomes a second one.
type dialect interface {
	name() string
	goose() goose.Dialect
	// prepare makes the place ready and returns the data source for open.
	prepare(path string) (source string, err error)
	open(source string, readOnly bool) (*sql.DB, error)
	// check refuses versions that are known to lose data.
	check(ctx context.Context, conn *sql.Conn) error
	begin() string
	// rewrite turns ? parameters into the database's own.
	rewrite(statement string) string
}

type sqlite struct{}

var _ dialect = sqlite{}

func (sqlite) name() string         { return "sqlite" }
func (sqlite) goose() goose.Dialect { return goose.DialectSQLite3 }
func (sqlite) begin() string        { return "BEGIN IMMEDIATE" }

func (sqlite) rewrite(statement string) string { return statement }

// prepare creates the file itself, since SQLite would make it readable by everyone.
func (sqlite) prepare(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: path}).String(), nil
}

// open uses FULL, not NORMAL: in WAL mode NORMAL may lose the last commits when the power fails, and a lost jti, confirmation
// or 'started' record breaks at-most-once.
func (sqlite) open(source string, readOnly bool) (*sql.DB, error) {
	parameters := url.Values{
		"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)"},
	}
	parameters.Set("_busy_timeout", "5000")
	parameters.Set("_dqs", "0")
	if readOnly {
		parameters.Set("_query_only", "1")
	}
	db, err := sql.Open("sqlite", source+"?"+parameters.Encode())
	if err != nil {
		return nil, err
	}
	if readOnly {
		db.SetMaxOpenConns(4)
		db.SetMaxIdleConns(4)
	} else {
		db.SetMaxOpenConns(1)
	}
	return db, nil
}

// check: SQLite 3.7.0 to 3.51.2 can corrupt a WAL database when two connections write and checkpoint at once.
func (sqlite) check(ctx context.Context, conn *sql.Conn) error {
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	const want = "3.51.3"
	if !atLeast(version, want) {
		return fmt.Errorf("SQLite %s can corrupt data; %s or newer is needed", version, want)
	}
	return nil
}

func atLeast(version, want string) bool {
	have, need := strings.Split(version, "."), strings.Split(want, ".")
	for i := range need {
		if i >= len(have) {
			return false
		}
		h, errH := strconv.Atoi(have[i])
		n, errN := strconv.Atoi(need[i])
		if errH != nil || errN != nil || h < n {
			return false
		}
		if h > n {
			return true
		}
	}
	return true
}
