package operation_test

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/wake"
	"countersign/poppy"
)

// instant is a Performer that succeeds at once.
type instant struct{}

func (instant) Perform(context.Context, operation.Action) (operation.Outcome, error) {
	return succeeded(), nil
}

func (instant) Lookup(context.Context, operation.Action) (operation.Outcome, error) {
	return succeeded(), nil
}

// BenchmarkProposeConfirmPerform is an operation's whole life: four durable commits.
func BenchmarkProposeConfirmPerform(b *testing.B) {
	db, err := database.Open(b.Context(), filepath.Join(b.TempDir(), "company.db"))
	if err != nil {
		b.Fatal(err)
	}
	if err := operation.Migrate(b.Context(), db); err != nil {
		b.Fatal(err)
	}
	s := operation.New(operation.Options{Database: db, Hub: new(wake.Hub), Performer: instant{}, Log: quiet(), Now: time.Now, Parallel: 64})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = s.Run(ctx) })
	b.Cleanup(func() { cancel(); group.Wait(); _ = db.Close() })
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var t operation.Tracked
			proposal := hold()
			proposal.Key = strconv.FormatInt(n.Add(1), 10)
			if err := db.Write(b.Context(), func(tx *database.Tx) (err error) { t, err = s.Propose(tx, guest, proposal); return err }); err != nil {
				b.Fatal(err)
			}
			done, err := s.Confirm(b.Context(), guest, t.OperationID, poppy.Confirm{Revision: 1, ApprovedBy: poppy.ApprovedByUser})
			if err != nil || done.State != poppy.OperationSucceeded {
				b.Fatal(done.State, err)
			}
		}
	})
}
