package operation_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/wake"
	"countersign/poppy"
)

// O-6-04, O-6-05
func TestFiftyConfirmsAtOncePerformOnce(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	o := w.propose(guest, hold())
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			r, err := w.try(guest, "POST", "/"+o.OperationID+"/confirm", confirmFirst)
			if err != nil || r.status != http.StatusOK {
				t.Errorf("%d %s, %v", r.status, r.body, err)
			}
		})
	}
	group.Wait()
	w.becomes(guest, o.OperationID, poppy.OperationSucceeded)
	if n := p.count("perform"); n != 1 {
		t.Fatalf("performed %d times", n)
	}
}

// O-6-04: confirmed or declined, never both.
func TestConfirmAndCancelAtOnceHaveOneWinner(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	performed := 0
	for i := range 20 {
		proposal := hold()
		proposal.Key = strconv.Itoa(i)
		o := w.propose(guest, proposal)
		var group sync.WaitGroup
		for _, call := range [][2]string{{"/confirm", confirmFirst}, {"/cancel", ""}} {
			group.Go(func() {
				if r, err := w.try(guest, "POST", "/"+o.OperationID+call[0], call[1]); err != nil || r.status != http.StatusOK {
					t.Errorf("%d %s, %v", r.status, r.body, err)
				}
			})
		}
		group.Wait()
		final := w.call(guest, "GET", "/"+o.OperationID, "").operation
		if final.State == poppy.OperationSucceeded {
			performed++
		} else if final.State != poppy.OperationCancelled {
			t.Errorf("state %s", final.State)
		}
	}
	if n := p.count("perform"); n != performed {
		t.Fatalf("%d operations succeeded, but %d were performed", performed, n)
	}
}

// O-5.2-10, O-3-18, O-6-02, O-5.2-08
func TestASlowActionIsInProgressWithRetryAfter(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := &performer{perform: func(context.Context, operation.Action) (operation.Outcome, error) { <-release; return succeeded(), nil }}
	w := newWorld(t, p, func(o *operation.Options) { o.Wait = 20 * time.Millisecond })
	id := w.propose(guest, hold()).OperationID
	for _, r := range []response{w.call(guest, "POST", "/"+id+"/confirm", confirmFirst), w.call(guest, "GET", "/"+id, ""), w.call(guest, "POST", "/"+id+"/confirm", confirmFirst)} {
		o := r.state(t, poppy.OperationInProgress)
		if o.Confirmation == nil || o.Result != nil || !o.ExpiresAt.IsZero() {
			t.Errorf("got %s", r.body)
		}
		if seconds, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
			t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
		}
	}
	close(release)
	w.becomes(guest, id, poppy.OperationSucceeded)
	if n := p.count("perform"); n != 1 {
		t.Errorf("performed %d times", n)
	}
}

// O-5.2-13
func TestAConfirmedOperationGoesOnWithoutTheRequestThatConfirmedIt(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	p := &performer{perform: func(ctx context.Context, _ operation.Action) (operation.Outcome, error) {
		close(started)
		select {
		case <-release:
			return succeeded(), nil
		case <-ctx.Done():
			return operation.Outcome{}, ctx.Err()
		}
	}}
	w := newWorld(t, p)
	id := w.propose(guest, hold()).OperationID
	ctx, hangUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := w.service.Confirm(ctx, guest, id, poppy.Confirm{Revision: 1, ApprovedBy: poppy.ApprovedByUser})
		done <- err
	}()
	<-started
	hangUp()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	w.becomes(guest, id, poppy.OperationSucceeded)
}

// O-6-06, O-6-07, O-3-18
func TestAnUnknownOutcomeIsLookedUpAndNeverFailedNorRepeated(t *testing.T) {
	t.Parallel()
	for name, perform := range map[string]func(context.Context, operation.Action) (operation.Outcome, error){
		"an error": func(context.Context, operation.Action) (operation.Outcome, error) {
			return operation.Outcome{Verdict: operation.Failed, Result: poppy.Result{Summary: "?"}}, errors.New("timed out")
		},
		"no time left": func(ctx context.Context, _ operation.Action) (operation.Outcome, error) {
			<-ctx.Done()
			return operation.Outcome{}, ctx.Err()
		},
		"a panic":    func(context.Context, operation.Action) (operation.Outcome, error) { panic("boom") },
		"no verdict": func(context.Context, operation.Action) (operation.Outcome, error) { return operation.Outcome{}, nil },
		"a verdict without an account": func(context.Context, operation.Action) (operation.Outcome, error) {
			return operation.Outcome{Verdict: operation.Failed}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found atomic.Bool
			p := &performer{perform: perform, lookup: func(context.Context, operation.Action) (operation.Outcome, error) {
				if found.Load() {
					return succeeded(), nil
				}
				return operation.Outcome{}, errors.New("not known yet")
			}}
			w := newWorld(t, p, func(o *operation.Options) { o.Wait, o.Timeout = 50*time.Millisecond, 30*time.Millisecond })
			id := w.propose(guest, hold()).OperationID
			w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
			for p.count("lookup") < 3 {
				w.call(guest, "GET", "/"+id, "").state(t, poppy.OperationInProgress)
				time.Sleep(5 * time.Millisecond)
			}
			found.Store(true)
			w.becomes(guest, id, poppy.OperationSucceeded)
			if n := p.count("perform"); n != 1 {
				t.Errorf("performed %d times", n)
			}
		})
	}
}

// O-6-04: only an attempt that provably had no effect is followed by another one.
func TestAnAttemptThatHadNoEffectIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	p := &performer{
		perform: func(_ context.Context, a operation.Action) (operation.Outcome, error) {
			switch a.Attempt {
			case 1:
				return operation.Outcome{}, errors.New("no connection")
			case 2:
				return operation.Outcome{Verdict: operation.NotStarted}, nil
			}
			return succeeded(), nil
		},
		lookup: func(context.Context, operation.Action) (operation.Outcome, error) {
			return operation.Outcome{Verdict: operation.NotStarted}, nil
		},
	}
	w := newWorld(t, p)
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst)
	w.becomes(guest, id, poppy.OperationSucceeded)
	var attempts string
	err := w.db.QueryRow(t.Context(), `SELECT group_concat(attempt || ' ' || outcome, ', ') FROM operation_attempt WHERE operation_id = ?`, id).Scan(&attempts)
	if want := "1 not_started, 2 not_started, 3 succeeded"; err != nil || attempts != want {
		t.Errorf("attempts %q, %v; want %q", attempts, err, want)
	}
}

// O-6-04
func TestAfterARestartWhatWasStartedIsLookedUpAndWhatWasNotIsPerformed(t *testing.T) {
	t.Parallel()
	hanging := &performer{perform: func(ctx context.Context, _ operation.Action) (operation.Outcome, error) {
		<-ctx.Done()
		return operation.Outcome{}, ctx.Err()
	}}
	// LookupAfter is for outcomes that stay unknown: after a stop nothing is waited for.
	w := newWorld(t, hanging, func(o *operation.Options) {
		o.Wait, o.Timeout, o.LookupAfter, o.LookupEvery = 10*time.Millisecond, time.Hour, time.Hour, time.Hour
	})
	started := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+started+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	for hanging.count("perform") == 0 {
		time.Sleep(time.Millisecond)
	}
	w.stopRun()
	other := hold()
	other.Key = "another"
	waiting := w.propose(guest, other).OperationID
	w.call(guest, "POST", "/"+waiting+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)

	p := &performer{lookup: func(context.Context, operation.Action) (operation.Outcome, error) { return succeeded(), nil }}
	w.restarts(p)
	w.becomes(guest, started, poppy.OperationSucceeded)
	w.becomes(guest, waiting, poppy.OperationSucceeded)
	if p.count("perform") != 1 || p.count("lookup") != 1 {
		t.Errorf("calls after the restart: %v", p.calls)
	}
	for _, a := range p.actions {
		if a.Attempt != 1 {
			t.Errorf("attempt %d of %s", a.Attempt, a.OperationID)
		}
	}
}

// A restart is no reason to ask more often than was decided.
func TestAfterARestartAnUnknownOutcomeIsLookedUpWhenItIsDue(t *testing.T) {
	t.Parallel()
	p := &performer{perform: func(context.Context, operation.Action) (operation.Outcome, error) {
		return operation.Outcome{}, errors.New("no answer")
	}}
	w := newWorld(t, p, func(o *operation.Options) {
		o.Wait, o.LookupAfter, o.LookupEvery = 50*time.Millisecond, time.Hour, time.Hour
	})
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	w.restarts(p)
	time.Sleep(50 * time.Millisecond)
	if n := p.count("lookup"); n != 0 {
		t.Errorf("looked up %d times before it was due", n)
	}
	w.at.Move(2 * time.Hour)
	p.lookup = func(context.Context, operation.Action) (operation.Outcome, error) { return succeeded(), nil }
	w.restarts(p)
	w.becomes(guest, id, poppy.OperationSucceeded)
}

// The attempt's number is a fence: an answer that comes after a newer attempt began changes nothing.
func TestALateAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	late, entered := make(chan struct{}), make(chan struct{})
	first := &performer{perform: func(context.Context, operation.Action) (operation.Outcome, error) {
		close(entered)
		<-late
		return operation.Outcome{Verdict: operation.Failed, Result: poppy.Result{Summary: "late"}}, nil
	}}
	w := newWorld(t, first, func(o *operation.Options) { o.Wait = 10 * time.Millisecond })
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	<-entered
	stopFirst := w.stopRun
	w.stopRun = nil // the first run goes on, as a process that was believed dead
	again, release := make(chan struct{}), make(chan struct{})
	w.restarts(&performer{
		lookup: func(context.Context, operation.Action) (operation.Outcome, error) {
			return operation.Outcome{Verdict: operation.NotStarted}, nil
		},
		perform: func(_ context.Context, a operation.Action) (operation.Outcome, error) {
			if a.Attempt != 2 {
				t.Errorf("attempt %d", a.Attempt)
			}
			close(again)
			<-release
			return succeeded(), nil
		},
	})
	<-again
	close(late)
	stopFirst()
	w.call(guest, "GET", "/"+id, "").state(t, poppy.OperationInProgress)
	close(release)
	if o := w.becomes(guest, id, poppy.OperationSucceeded); o.Result.Summary != "Held." {
		t.Errorf("result %q", o.Result.Summary)
	}
}

// O-3-14
func TestTermsThatAreNotTheConfirmedOnesAreNotPerformed(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	w.stopRun()
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	if err := w.db.Write(t.Context(), func(tx *database.Tx) error {
		_, err := tx.Exec(`UPDATE operation_revision SET terms = '{"sku":"gold-bar"}'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.restarts(p)
	w.becomes(guest, id, poppy.OperationFailed)
	if len(p.calls) != 0 {
		t.Fatalf("calls %v", p.calls)
	}
}

// O-3-20, O-3-21, O-6-10: what a Performer tells of partial changes is what the User is told.
func TestAFailureTellsWhichChangesWereMade(t *testing.T) {
	t.Parallel()
	p := &performer{perform: func(context.Context, operation.Action) (operation.Outcome, error) {
		return operation.Outcome{Verdict: operation.Failed, Result: poppy.Result{Summary: "The label was printed, but no jacket was left to hold."}}, nil
	}}
	w := newWorld(t, p)
	id := w.propose(guest, hold()).OperationID
	o := w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationFailed)
	if o.Result.Summary != "The label was printed, but no jacket was left to hold." {
		t.Errorf("result %q", o.Result.Summary)
	}
}

// O-7-05, O-3-21
func TestAnActionThatCanBeStoppedIsCancelled(t *testing.T) {
	t.Parallel()
	stop, entered := make(chan struct{}), make(chan struct{})
	p := &performer{
		perform: func(context.Context, operation.Action) (operation.Outcome, error) {
			close(entered)
			<-stop
			return operation.Outcome{Verdict: operation.Stopped, Result: poppy.Result{Summary: "Stopped. Nothing was held."}}, nil
		},
		stop: func(context.Context, operation.Action) error { close(stop); return nil },
	}
	w := newWorld(t, p, func(o *operation.Options) { o.Wait = 50 * time.Millisecond })
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	<-entered
	w.call(guest, "POST", "/"+id+"/cancel", "").want(t, 200, "")
	if o := w.becomes(guest, id, poppy.OperationCancelled); o.Confirmation == nil || o.Result.Summary != "Stopped. Nothing was held." {
		t.Errorf("got %+v", o)
	}
}

// O-7-06
func TestCancellingWhatCanNotBeStoppedLeavesItInProgress(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := &performer{
		perform: func(context.Context, operation.Action) (operation.Outcome, error) { <-release; return succeeded(), nil },
		stop:    func(context.Context, operation.Action) error { return errors.New("too late") },
	}
	w := newWorld(t, p, func(o *operation.Options) { o.Wait = 20 * time.Millisecond })
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	for p.count("perform") == 0 {
		time.Sleep(time.Millisecond)
	}
	r := w.call(guest, "POST", "/"+id+"/cancel", "")
	if r.state(t, poppy.OperationInProgress); r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(release)
	w.becomes(guest, id, poppy.OperationSucceeded)
}

// O-7-05: what was confirmed but has not begun is stopped for certain.
func TestAConfirmedActionThatHasNotBegunIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p, func(o *operation.Options) { o.Wait = 10 * time.Millisecond })
	w.stopRun()
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	if o := w.call(guest, "POST", "/"+id+"/cancel", "").state(t, poppy.OperationCancelled); o.Confirmation == nil {
		t.Error("the confirmation is gone")
	}
	w.restarts(p)
	time.Sleep(20 * time.Millisecond)
	if len(p.calls) != 0 {
		t.Fatalf("calls %v", p.calls)
	}
}

// A cancelled operation is not attempted anew, and a stop that was asked for before a crash is asked for again.
func TestACancelSurvivesARestart(t *testing.T) {
	t.Parallel()
	hanging := &performer{perform: func(ctx context.Context, _ operation.Action) (operation.Outcome, error) {
		<-ctx.Done()
		return operation.Outcome{}, ctx.Err()
	}}
	w := newWorld(t, hanging, func(o *operation.Options) { o.Wait, o.Timeout = 10*time.Millisecond, time.Hour })
	id := w.propose(guest, hold()).OperationID
	w.call(guest, "POST", "/"+id+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	for hanging.count("perform") == 0 {
		time.Sleep(time.Millisecond)
	}
	w.call(guest, "POST", "/"+id+"/cancel", "").state(t, poppy.OperationInProgress)
	w.stopRun()
	asked := make(chan struct{})
	var once sync.Once
	p := &performer{
		lookup: func(context.Context, operation.Action) (operation.Outcome, error) {
			<-asked
			return operation.Outcome{Verdict: operation.NotStarted}, nil
		},
		stop: func(context.Context, operation.Action) error { once.Do(func() { close(asked) }); return nil },
	}
	w.restarts(p)
	if o := w.becomes(guest, id, poppy.OperationCancelled); o.Result.Summary != "Cancelled before it was started. Nothing was done." {
		t.Errorf("result %q", o.Result.Summary)
	}
	if p.count("perform") != 0 {
		t.Error("performed after it was cancelled")
	}
}

// plain is a Performer that cannot stop.
type plain struct{ p *performer }

func (p plain) Perform(ctx context.Context, a operation.Action) (operation.Outcome, error) {
	return p.p.Perform(ctx, a)
}

func (p plain) Lookup(ctx context.Context, a operation.Action) (operation.Outcome, error) {
	return p.p.Lookup(ctx, a)
}

// The looks become rarer: nothing polls.
func TestAnUnknownOutcomeIsLookedUpLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "company.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := operation.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		var looks []time.Duration
		var began time.Time
		p := &performer{
			perform: func(context.Context, operation.Action) (operation.Outcome, error) {
				began = time.Now()
				return operation.Outcome{}, errors.New("no answer")
			},
			lookup: func(context.Context, operation.Action) (operation.Outcome, error) {
				looks = append(looks, time.Since(began))
				return operation.Outcome{}, nil
			},
		}
		s := operation.New(operation.Options{Database: db, Hub: new(wake.Hub), Performer: plain{p}, Log: quiet(), Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = s.Run(ctx) })
		defer group.Wait()
		defer cancel()
		var o operation.Tracked
		if err := db.Write(t.Context(), func(tx *database.Tx) error { o, err = s.Propose(tx, guest, hold()); return err }); err != nil {
			t.Fatal(err)
		}
		confirming := time.Now()
		// O-5.2-10: the default wait is a few seconds.
		current, err := s.Confirm(t.Context(), guest, o.OperationID, poppy.Confirm{Revision: 1, ApprovedBy: poppy.ApprovedByUser})
		if took := time.Since(confirming); err != nil || current.State != poppy.OperationInProgress || took != 3*time.Second {
			t.Fatalf("%s after %v, %v", current.State, took, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{1, 3, 7, 15, 31, 63, 127, 255, 511 - 0}
		for i, seconds := range want[:8] {
			if looks[i] != seconds*time.Second {
				t.Errorf("look %d after %v, want %v", i, looks[i], seconds*time.Second)
			}
		}
		if n := len(looks); n > 8+12 {
			t.Errorf("%d looks in an hour", n)
		}
		current, err = s.Get(t.Context(), guest, o.OperationID)
		if err != nil || current.RetryAfter < 2*time.Second || current.RetryAfter > time.Minute {
			t.Errorf("retry after %v, %v", current.RetryAfter, err)
		}
	})
}
