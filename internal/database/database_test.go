package database_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/internal/database"
)

func open(t testing.TB) *database.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "with space & %.db")
	db, err := database.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := db.Migrate(t.Context(), "test", os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("file mode %v, %v", info.Mode(), err)
	}
	return db
}

func insert(id string, n int) func(*database.Tx) error {
	return func(tx *database.Tx) error {
		_, err := tx.Exec("INSERT INTO item (id, n) VALUES (?, ?)", id, n)
		return err
	}
}

func count(t testing.TB, db *database.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM item").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAFailingWriterUndoesOnlyItself(t *testing.T) {
	t.Parallel()
	db := open(t)
	mine := errors.New("mine")
	var failed atomic.Int64
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			err := db.Write(t.Context(), func(tx *database.Tx) error {
				if err := insert(fmt.Sprint(i), i)(tx); err != nil {
					return err
				}
				if i%4 == 0 {
					return mine
				}
				return nil
			})
			if (i%4 == 0) != errors.Is(err, mine) {
				t.Errorf("writer %d: %v", i, err)
			}
			if err != nil {
				failed.Add(1)
			}
		})
	}
	group.Wait()
	if failed.Load() != 50 || count(t, db) != 150 {
		t.Fatalf("failed %d, kept %d; want 50 and 150", failed.Load(), count(t, db))
	}
}

func TestCompareAndSetHasOneWinner(t *testing.T) {
	t.Parallel()
	db := open(t)
	if err := db.Write(t.Context(), insert("a", 1)); err != nil {
		t.Fatal(err)
	}
	var won atomic.Int64
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			err := db.Write(t.Context(), func(tx *database.Tx) error {
				changed, err := tx.Exec("UPDATE item SET n = n + 1 WHERE id = ? AND n = ?", "a", 1)
				won.Add(changed)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d winners", won.Load())
	}
}

func TestWriteIsRefusedNotLost(t *testing.T) {
	t.Parallel()
	db := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Write(ctx, insert("a", 1)); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled before it starts: %v", err)
	}
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("a panic must reach its own caller")
			}
		}()
		_ = db.Write(t.Context(), func(tx *database.Tx) error { _ = insert("a", 1)(tx); panic("boom") })
	}()
	if n := count(t, db); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
	if err := db.Write(t.Context(), insert("b", -1)); err == nil {
		t.Fatal("a constraint must fail the write")
	}
	if err := db.Write(t.Context(), insert("c", 1)); err != nil {
		t.Fatalf("the writer must go on after all that: %v", err)
	}
	if err := db.Read(t.Context(), func(tx *database.Tx) error { return insert("d", 1)(tx) }); err == nil {
		t.Fatal("a reader must not write")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Write(t.Context(), insert("e", 1)); !errors.Is(err, database.ErrClosed) {
		t.Fatalf("after close: %v", err)
	}
}

// Each reader holds a connection when it meets a statement that nobody has prepared yet.
func TestReadersDoNotWaitForEachOthersConnections(t *testing.T) {
	t.Parallel()
	db := open(t)
	const readers = 4 // as many as there are connections
	var holding, group sync.WaitGroup
	holding.Add(readers)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range readers {
		group.Go(func() {
			err := db.Read(ctx, func(tx *database.Tx) error {
				holding.Done()
				holding.Wait()
				var n int
				return tx.QueryRow(fmt.Sprintf("SELECT %d", i)).Scan(&n)
			})
			if err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	group.Wait()
}

func BenchmarkWrite(b *testing.B) {
	db := open(b)
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := db.Write(context.Background(), insert(fmt.Sprint(n.Add(1)), 1)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	db := open(b)
	if err := db.Write(b.Context(), insert("a", 1)); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var n int
	for b.Loop() {
		if err := db.QueryRow(context.Background(), "SELECT n FROM item WHERE id = ?", "a").Scan(&n); err != nil {
			b.Fatal(err)
		}
	}
}
