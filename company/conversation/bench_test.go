package conversation_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/company/conversation"
	"countersign/internal/database"
	"countersign/internal/wake"
	"countersign/poppy"
)

// bench is a Company whose Clerk answers at once.
func bench(b *testing.B) *conversation.Service {
	b.Helper()
	db, err := database.Open(b.Context(), filepath.Join(b.TempDir(), "company.db"))
	if err != nil {
		b.Fatal(err)
	}
	if err := conversation.Migrate(b.Context(), db); err != nil {
		b.Fatal(err)
	}
	s := conversation.New(conversation.Options{Database: db, Hub: new(wake.Hub), Clerk: clerk(echo), Log: quiet(), Now: time.Now})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = s.Run(ctx) })
	b.Cleanup(func() { cancel(); group.Wait(); _ = db.Close() })
	return s
}

func first(id string) poppy.StartRequest {
	return poppy.StartRequest{Message: poppy.Message{ID: id, Sender: poppy.SenderAgent, Text: "Is the insulated jacket there in medium?"}}
}

// BenchmarkQuestionAndAnswer is a conversation's first message up to the reply: three durable commits.
func BenchmarkQuestionAndAnswer(b *testing.B) {
	s := bench(b)
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			started, err := s.Start(b.Context(), guest, first("msg_"+strconv.FormatInt(n.Add(1), 10)))
			for page := (poppy.Page{State: started.State}); err == nil && page.Status == poppy.StatusWorking; {
				page, err = s.Read(b.Context(), guest, started.ConversationID, page.Cursor, 10*time.Second)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReadLast reads the last event of a conversation, which must not cost more in a long one.
func BenchmarkReadLast(b *testing.B) {
	for _, messages := range []int{10, 10_000} {
		b.Run(strconv.Itoa(messages), func(b *testing.B) {
			s := bench(b)
			started, err := s.Start(b.Context(), guest, first("msg_0"))
			if err != nil {
				b.Fatal(err)
			}
			var group sync.WaitGroup
			for worker := range 50 {
				group.Go(func() {
					for i := worker; i < messages; i += 50 {
						m := poppy.Message{ID: fmt.Sprintf("msg_c%d", i), Sender: poppy.SenderAgent, Context: poppy.Context{}}
						if _, err := s.Send(b.Context(), guest, started.ConversationID, poppy.SendRequest{Message: m}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			group.Wait()
			var cursor, before string
			for more := true; more; {
				page, err := s.Read(b.Context(), guest, started.ConversationID, cursor, 0)
				if err != nil {
					b.Fatal(err)
				}
				before = page.Events[max(0, len(page.Events)-2)].ID
				cursor, more = page.Cursor, page.HasMore
			}
			for b.Loop() {
				if page, err := s.Read(b.Context(), guest, started.ConversationID, before, 0); err != nil || len(page.Events) > 2 {
					b.Fatal(len(page.Events), err)
				}
			}
		})
	}
}

// BenchmarkWaitingReader reports what a reader that waits holds, without its connection.
func BenchmarkWaitingReader(b *testing.B) {
	s := bench(b)
	started, err := s.Start(b.Context(), guest, first("msg_0"))
	if err != nil {
		b.Fatal(err)
	}
	page, err := s.Read(b.Context(), guest, started.ConversationID, "", 0)
	for err == nil && page.Status == poppy.StatusWorking {
		page, err = s.Read(b.Context(), guest, started.ConversationID, page.Cursor, 10*time.Second)
	}
	if err != nil {
		b.Fatal(err)
	}
	used := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapInuse + stats.StackInuse
	}
	const readers = 2_000
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		before := used()
		var group sync.WaitGroup
		for range readers {
			group.Go(func() { _, _ = s.Read(ctx, guest, started.ConversationID, page.Cursor, 20*time.Second) })
		}
		time.Sleep(300 * time.Millisecond)
		b.ReportMetric(float64(used()-before)/readers, "bytes/reader")
		cancel()
		group.Wait()
	}
}
