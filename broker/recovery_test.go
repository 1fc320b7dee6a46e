package broker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/broker"
	"countersign/broker/operation"
	"countersign/broker/provider"
)

// B-ambiguous-01 B-ambiguous-03
func TestAnUnknownOutcomeIsLookedUpAndNeverRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for name, c := range map[string]struct {
		operation string
		state     operation.State
		code      string
		detail    string
	}{
		"found":            {"demo.vanish", operation.Succeeded, "", "found by looking it up"},
		"cannot be proven": {"demo.vanish_for_good", operation.Failed, operation.CodeOutcomeUnknown, operation.CodeOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request("r-"+strings.ReplaceAll(name, " ", "-"), c.operation, `{}`, `{"milliseconds":10}`)
			op := b.submit("free", r)
			done := b.finish("free", op.ID)
			if done.State != c.state || b.effects(op.ID) != 1 || (c.code != "") != (done.Error != nil) {
				t.Fatalf("%+v, %d effects", done, b.effects(op.ID))
			}
			if done.Error != nil && (done.Error.Code != c.code || !strings.Contains(done.Error.Message, "new request ID")) {
				t.Errorf("%+v", done.Error)
			}
			events, err := b.Operations.Events(t.Context(), "free", op.ID, 2)
			if err != nil || len(events) != 1 || events[0].Detail != c.detail {
				t.Errorf("%+v, %v", events, err)
			}
			if again := b.submit("free", r); again.ID != op.ID || b.effects(op.ID) != 1 {
				t.Errorf("%+v", again)
			}
		})
	}
}

// interrupted offers an operation that never answers before its process ends, and then as told. It counts its calls.
func interrupted(effect provider.Effect, calls *atomic.Int64, then provider.Outcome) custom {
	return custom{name: "test.interrupted", effect: effect, execute: func(ctx context.Context, _ provider.Dispatch) provider.Outcome {
		if calls.Add(1) > 1 {
			return then
		}
		<-ctx.Done()
		return provider.Unknown(ctx.Err())
	}}
}

// B-recover-02 B-ambiguous-02
func TestTheNextProcessTakesUpWhatWasInterrupted(t *testing.T) {
	t.Parallel()
	happened := func(context.Context, provider.Dispatch) provider.Outcome {
		return provider.Succeeded(map[string]bool{"found": true})
	}
	ran := provider.Succeeded(map[string]bool{"ran": true})
	refused := provider.Refused("gone", "There is no such thing.")
	for name, c := range map[string]struct {
		effect    provider.Effect
		then      provider.Outcome // of the second call
		reconcile func(context.Context, provider.Dispatch) provider.Outcome
		calls     int64
		state     operation.State
		end       string // the result or the code
	}{
		"a read runs again":           {provider.Read, ran, nil, 2, operation.Succeeded, `{"ran":true}`},
		"a keyed change runs again":   {provider.Keyed, ran, nil, 2, operation.Succeeded, `{"ran":true}`},
		"a read that is refused then": {provider.Read, refused, nil, 2, operation.Failed, "gone"},
		// The first call may have taken effect before what it needs was gone.
		"a keyed change that is refused then":              {provider.Keyed, refused, nil, 2, operation.Failed, operation.CodeOutcomeUnknown},
		"a keyed change that is refused then and is found": {provider.Keyed, refused, happened, 2, operation.Succeeded, `{"found":true}`},
		"a change that is found succeeded":                 {provider.Change, ran, happened, 1, operation.Succeeded, `{"found":true}`},
		"a change that is not found": {provider.Change, ran, func(context.Context, provider.Dispatch) provider.Outcome {
			return provider.Refused("no_effect", "Nothing there.")
		}, 1, operation.Failed, operation.CodeNotPerformed},
		// What failed may have changed something, so it is not said to have had no effect.
		"a change that failed": {provider.Change, ran, func(context.Context, provider.Dispatch) provider.Outcome {
			return provider.Failed("stopped", "One of two was sent.")
		}, 1, operation.Failed, "stopped"},
		"a keyed change that failed then":  {provider.Keyed, provider.Failed("stopped", "One of two was sent."), nil, 2, operation.Failed, "stopped"},
		"a change that nobody can look up": {provider.Change, ran, nil, 1, operation.Failed, operation.CodeOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			var offered provider.Operation = interrupted(c.effect, &calls, c.then)
			if c.reconcile != nil {
				l := lookable{interrupted(c.effect, &calls, c.then)}
				l.reconcile = c.reconcile
				offered = l
			}
			b := build(t, filepath.Join(t.TempDir(), "broker.db"), offer(offered))
			stop := b.start()
			op := b.submit("free", request("r1", "test.interrupted", `{}`, `{}`))
			waiting := b.submit("asked", note("r2", "x"))
			b.await("free", op.ID, operation.Executing)
			stop()
			if left, err := b.Operations.Get(t.Context(), "free", op.ID); err != nil || left.State != operation.Executing {
				t.Fatalf("stopping must not invent an outcome: %+v, %v", left, err)
			}
			approvedWhileStopped := b.approve(waiting)
			b.again(nil)
			done := b.finish("free", op.ID)
			end := string(done.Result)
			if done.Error != nil {
				end = done.Error.Code
			}
			if calls.Load() != c.calls || done.State != c.state || end != c.end {
				t.Fatalf("%d calls, %+v %s", calls.Load(), done, end)
			}
			if got := b.finish("asked", waiting.ID); got.State != operation.Succeeded || b.effects(waiting.ID) != 1 || approvedWhileStopped.OperationID != waiting.ID {
				t.Fatalf("what was approved and not dispatched must run: %+v", got)
			}
		})
	}
}

func TestAnOperationThatIsOfferedNoMoreEndsTruthfully(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	b := build(t, filepath.Join(t.TempDir(), "broker.db"), offer(interrupted(provider.Keyed, &calls, provider.Outcome{})))
	stop := b.start()
	dispatched := b.submit("free", request("r1", "test.interrupted", `{}`, `{}`))
	b.await("free", dispatched.ID, operation.Executing)
	approved := b.submit("asked", request("r2", "test.interrupted", `{}`, `{}`))
	stop()
	b.approve(approved)
	b.again(func(options *broker.Options) { options.Operations = nil })
	if done := b.finish("free", dispatched.ID); done.State != operation.Failed || done.Error.Code != operation.CodeOutcomeUnknown {
		t.Errorf("%+v", done)
	}
	if done := b.finish("asked", approved.ID); done.State != operation.Failed || done.Error.Code != operation.CodePlanInvalid {
		t.Errorf("%+v", done)
	}
	if again, replayed, err := b.Operations.Submit(t.Context(), "free", request("r1", "test.interrupted", `{}`, `{}`)); err != nil || !replayed || again.ID != dispatched.ID {
		t.Errorf("a replay must not need the provider: %+v, %v", again, err)
	}
}

func TestAReadWithoutAnAnswerChangedNothing(t *testing.T) {
	t.Parallel()
	for name, execute := range map[string]func(context.Context, provider.Dispatch) provider.Outcome{
		"unknown": func(context.Context, provider.Dispatch) provider.Outcome {
			return provider.Unknown(errors.New("connection reset"))
		},
		"panic": func(context.Context, provider.Dispatch) provider.Outcome { panic("MARK") },
	} {
		b := setup(t, offer(custom{name: "test.read", effect: provider.Read, execute: execute}))
		done := b.finish("free", b.submit("free", request("r1", "test.read", `{}`, `{}`)).ID)
		if done.State != operation.Failed || done.Error.Code != operation.CodeProviderUnavailable || strings.Contains(done.Error.Message, "MARK") {
			t.Errorf("%s: %+v", name, done.Error)
		}
	}
}

func TestALookUpIsRepeatedBeforeItIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for answers, want := range map[int64]operation.State{3: operation.Succeeded, 4: operation.Failed} {
			var asked, called atomic.Int64
			l := lookable{custom{name: "test.vanish", effect: provider.Change, execute: func(context.Context, provider.Dispatch) provider.Outcome {
				called.Add(1)
				return provider.Unknown(errors.New("timeout"))
			}, reconcile: func(context.Context, provider.Dispatch) provider.Outcome {
				switch asked.Add(1) {
				case answers:
					return provider.Succeeded(nil)
				case 1:
					panic("a look-up may fail in any way")
				}
				return provider.Unknown(errors.New("still away"))
			}}}
			func() {
				b := build(t, filepath.Join(t.TempDir(), "broker.db"), offer(l))
				defer b.start()()
				start := time.Now()
				done := b.finish("free", b.submit("free", request("r1", "test.vanish", `{}`, `{}`)).ID)
				if done.State != want || called.Load() != 1 || asked.Load() != 3 || time.Since(start) != 6*time.Second {
					t.Errorf("%+v after %v: %d calls, %d look-ups", done, time.Since(start), called.Load(), asked.Load())
				}
			}()
		}
	})
}

func TestATimeoutEndsAHangingCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := build(t, filepath.Join(t.TempDir(), "broker.db"), nil)
		defer b.start()()
		op := b.submit("free", request("r1", "demo.hang", `{}`, `{"milliseconds":600000}`))
		start := time.Now()
		done := b.finish("free", op.ID)
		if took := time.Since(start); took != provider.DefaultTimeout || done.State != operation.Failed || done.Error.Code != operation.CodeNotPerformed || b.effects(op.ID) != 0 {
			t.Fatalf("%+v after %v", done, took)
		}
	})
}

func TestApprovalsExpireWithoutPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		soon := time.Now().Add(10 * time.Minute)
		b := build(t, filepath.Join(t.TempDir(), "broker.db"), offer(custom{
			name: "test.soon", effect: provider.Change,
			resolve: func(context.Context, provider.Call) (provider.Plan, error) {
				return provider.Plan{Content: []byte(`{}`), ExpiresAt: soon}, nil
			},
		}))
		stop := b.start()
		start := time.Now()
		var ids []string
		for i := range 60 { // more than a batch
			ids = append(ids, b.submit("asked", note(fmt.Sprint("r", i), "x")).ID)
		}
		quick := b.submit("asked", request("quick", "test.soon", `{}`, `{}`))
		if done := b.finish("asked", quick.ID); done.State != operation.Expired || done.Error.Code != operation.CodeApprovalExpired || !time.Now().Equal(soon) {
			t.Fatalf("%+v at %v", done, time.Now())
		}
		if _, _, err := b.Approvals.Approve(t.Context(), decision(quick)); err == nil {
			t.Error("an expired approval was approved")
		}
		b.wantHistory("asked", quick.ID, "1 submitted pending client:asked", "2 expired expired broker")
		for _, id := range ids {
			if done := b.finish("asked", id); done.State != operation.Expired || time.Since(start) != time.Hour {
				t.Fatalf("%+v after %v", done, time.Since(start))
			}
		}
		// What became due while no process ran expires at once, and cannot be approved before that.
		late := b.submit("asked", note("late", "x"))
		stop()
		time.Sleep(2 * time.Hour)
		if _, _, err := b.Approvals.Approve(t.Context(), decision(late)); err == nil {
			t.Error("approved after its time")
		}
		defer b.again(nil)()
		if done := b.finish("asked", late.ID); done.State != operation.Expired {
			t.Fatalf("%+v", done)
		}
	})
}

// What a provider says about time may be anything, and must not keep the approvals of others from expiring.
func TestAPlanThatWasOverLongAgoExpiresAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, past := range []time.Time{time.Unix(0, 0), time.UnixMilli(-1), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)} {
		ends := []time.Time{past, time.Now().Add(50 * time.Millisecond)}
		b := setup(t, offer(custom{
			name: "test.past", effect: provider.Change,
			resolve: func(_ context.Context, call provider.Call) (provider.Plan, error) {
				return provider.Plan{Content: call.Target, ExpiresAt: ends[strings.Count(string(call.Target), "late")]}, nil
			},
			execute: func(context.Context, provider.Dispatch) provider.Outcome { return provider.Succeeded(nil) },
		}))
		over := b.submit("asked", request("r1", "test.past", `{}`, `{}`))
		other := b.submit("asked", request("r2", "test.past", `{"text":"late"}`, `{}`))
		for _, id := range []string{over.ID, other.ID} {
			if op, err := b.Operations.Wait(t.Context(), "asked", id, 1, 5*time.Second); err != nil || op.State != operation.Expired {
				t.Errorf("%v: %+v, %v", past, op.State, err)
			}
		}
	}
}
