package work_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/internal/work"
)

// record counts what runs.
type record struct {
	mutex          sync.Mutex
	runs           map[string]int
	now            map[string]int
	most, together int
	twice          bool
}

func (r *record) enter(key string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.runs[key]++
	r.now[key]++
	r.together++
	r.most = max(r.most, r.together)
	r.twice = r.twice || r.now[key] > 1
}

func (r *record) leave(key string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.now[key]--
	r.together--
}

func (r *record) count(key string) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.runs[key]
}

func start(t *testing.T, limit int, length time.Duration) (*work.Pool, *record, context.CancelFunc) {
	t.Helper()
	r := &record{runs: make(map[string]int), now: make(map[string]int)}
	p := work.New(limit, func(ctx context.Context, key string) {
		r.enter(key)
		defer r.leave(key)
		select {
		case <-time.After(length):
		case <-ctx.Done():
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	return p, r, func() { cancel(); <-done }
}

func TestJobsRunTogetherUpToTheLimitAndNeverTwoOfAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r, stop := start(t, 3, time.Second)
		for i := range 9 {
			for range 5 {
				p.Add(fmt.Sprint(i))
			}
		}
		began := time.Now()
		synctest.Wait()
		time.Sleep(3500 * time.Millisecond)
		stop()
		if r.most != 3 || r.twice {
			t.Fatalf("%d together, two of a key: %v", r.most, r.twice)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Fatalf("took %v", took)
		}
		for key, runs := range r.runs {
			if runs != 1 {
				t.Errorf("%s ran %d times; added five times before it ran, it runs once", key, runs)
			}
		}
		if len(r.runs) != 9 {
			t.Errorf("%d keys ran", len(r.runs))
		}
	})
}

func TestAKeyAddedWhileItRunsRunsOnceMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r, stop := start(t, 3, time.Second)
		p.Add("a")
		synctest.Wait()
		p.Add("a")
		p.Add("a")
		time.Sleep(5 * time.Second)
		stop()
		if r.runs["a"] != 2 || r.twice {
			t.Fatalf("ran %d times, at the same time: %v", r.runs["a"], r.twice)
		}
	})
}

func TestAddAfterWaitsAndRunEndsWithItsJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r, stop := start(t, 1, time.Hour)
		p.AddAfter("a", time.Minute)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if r.count("a") != 0 {
			t.Fatal("ran before its time")
		}
		time.Sleep(2 * time.Second)
		p.Add("b")
		synctest.Wait()
		stop()
		if r.runs["a"] != 1 || r.runs["b"] != 0 || r.together != 0 {
			t.Fatalf("runs %v, %d still running", r.runs, r.together)
		}
	})
}
