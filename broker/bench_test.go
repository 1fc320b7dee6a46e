package broker_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"countersign/broker/operation"
	"countersign/internal/database"
)

var stored = flag.Int("stored", 1_000, "operations that are stored before a benchmark starts")

// BenchmarkOperation measures an operation from submitting it to reading its success, every change durable, with some
// callers at once, in a database that already holds -stored operations of the same client. It reports operations per second
// and the median.
func BenchmarkOperation(b *testing.B) {
	bundle := build(b, filepath.Join(b.TempDir(), "broker.db"), nil)
	populate(b, bundle.db, *stored)
	bundle.start()
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			var (
				run   = rand.Text() // request IDs of its own
				next  atomic.Int64
				group sync.WaitGroup
			)
			took := make([]time.Duration, b.N)
			before := cpu(b)
			b.ResetTimer()
			for range callers {
				group.Go(func() {
					for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
						start := time.Now()
						one(b, bundle, fmt.Sprint(run, i))
						took[i] = time.Since(start)
					}
				})
			}
			group.Wait()
			b.StopTimer()
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "operations/s")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// cpu is the processor time that this process has used: what stays comparable on a busy machine.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func one(b *testing.B, bundle *bundle, id string) {
	op, _, err := bundle.Operations.Submit(context.Background(), "free", request(id, "demo.echo", `{}`, `{"text":"x"}`))
	for after := op.Revision; err == nil && !op.State.Terminal(); after = op.Revision {
		op, err = bundle.Operations.Wait(context.Background(), "free", op.ID, after, operation.MaxWait)
	}
	if err != nil || op.State != operation.Succeeded {
		b.Errorf("%+v, %v", op, err)
		runtime.Goexit()
	}
}

// populate stores n operations as they are after success, ten thousand in a transaction.
func populate(b *testing.B, db *database.DB, n int) {
	b.Helper()
	const each = 10_000
	now := database.Millis(time.Now())
	for first := 0; first < n; first += each {
		err := db.Write(b.Context(), func(tx *database.Tx) error {
			_, err := tx.Exec(`
				WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
				INSERT INTO operation (seq, id, client_id, request_id, request_digest, name, effect, title, summary, plan_digest, approval_id,
					state, revision, created_at, updated_at, terminal_at, result)
				SELECT i + 1, 'op_' || hex(randomblob(13)), 'free', 'old-' || hex(randomblob(8)), hex(randomblob(32)), 'demo.echo', 'read', 'Echo a text',
					'Return the text as it is.', hex(randomblob(32)), '', 'succeeded', 3, ?, ?, ?, '{"text":"x"}' FROM n`,
				first, min(first+each, n), now, now, now)
			if err != nil {
				return err
			}
			_, err = tx.Exec(`
				INSERT INTO operation_request (seq, target, arguments, reason, rulings, plan)
				SELECT seq, '{}', '{"text":"x"}', 'testing', '[]', '{"client_id":"free","content":{"text":"x"},"operation":"demo.echo"}'
				FROM operation WHERE seq > ?`, first)
			if err != nil {
				return err
			}
			for revision, kind := range []string{"submitted", "dispatched", "succeeded"} {
				_, err := tx.Exec(`
					INSERT INTO operation_event (seq, revision, kind, state, actor, at, detail)
					SELECT seq, ?, ?, 'succeeded', 'broker', created_at, '' FROM operation WHERE seq > ?`, revision+1, kind, first)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead measures the reads of a client among -stored operations.
func BenchmarkRead(b *testing.B) {
	bundle := build(b, filepath.Join(b.TempDir(), "broker.db"), nil)
	populate(b, bundle.db, *stored)
	page, err := bundle.Operations.List(b.Context(), "free", operation.Filter{}, 50, "")
	if err != nil {
		b.Fatal(err)
	}
	last := page.Operations[len(page.Operations)-1]
	for name, read := range map[string]func() error{
		"get":    func() error { _, err := bundle.Operations.Get(b.Context(), "free", last.ID); return err },
		"events": func() error { _, err := bundle.Operations.Events(b.Context(), "free", last.ID, 0); return err },
		"list": func() error {
			_, err := bundle.Operations.List(b.Context(), "free", operation.Filter{}, 20, page.Next)
			return err
		},
		"request": func() error {
			_, err := bundle.Operations.List(b.Context(), "free", operation.Filter{RequestID: last.RequestID}, 20, "")
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
