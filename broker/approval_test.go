package broker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/provider"
)

func approvalCode(err error) approval.Code {
	refused, ok := errors.AsType[*approval.Error](err)
	if !ok {
		return ""
	}
	return refused.Code
}

func TestADecisionIsMadeOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("asked", note("r1", "x"))
	first := b.approve(op)
	b.finish("asked", op.ID)
	if again, replayed, err := b.Approvals.Approve(t.Context(), decision(op)); err != nil || !replayed || !cmp.Equal(first, again) {
		t.Errorf("the same command again: %+v, %v", again, err)
	}
	with := func(change func(*approval.Decision)) approval.Decision {
		d := decision(op)
		change(&d)
		return d
	}
	for name, c := range map[string]struct {
		decide func(context.Context, approval.Decision) (approval.Approval, bool, error)
		d      approval.Decision
		want   approval.Code
	}{
		"the key for the opposite":      {b.Approvals.Deny, decision(op), approval.KeyConflict},
		"the key by another person":     {b.Approvals.Approve, with(func(d *approval.Decision) { d.OperatorID = "kim" }), approval.KeyConflict},
		"the key with another note":     {b.Approvals.Approve, with(func(d *approval.Decision) { d.Note = "x" }), approval.KeyConflict},
		"the key with another revision": {b.Approvals.Approve, with(func(d *approval.Decision) { d.ExpectedRevision = 2 }), approval.KeyConflict},
		"a new key":                     {b.Approvals.Approve, with(func(d *approval.Decision) { d.Key = "k2" }), approval.RevisionConflict},
		"a new key, new revision":       {b.Approvals.Deny, with(func(d *approval.Decision) { d.Key, d.ExpectedRevision = "k2", 2 }), approval.RevisionConflict},
		"no key":                        {b.Approvals.Deny, with(func(d *approval.Decision) { d.Key = "" }), approval.InvalidRequest},
		"a long key":                    {b.Approvals.Deny, with(func(d *approval.Decision) { d.Key = strings.Repeat("k", 201) }), approval.InvalidRequest},
		"no operator":                   {b.Approvals.Deny, with(func(d *approval.Decision) { d.OperatorID = "" }), approval.InvalidRequest},
		"a long note":                   {b.Approvals.Deny, with(func(d *approval.Decision) { d.Note = strings.Repeat("n", 501) }), approval.InvalidRequest},
		"a note that is no text":        {b.Approvals.Deny, with(func(d *approval.Decision) { d.Note = "\xff" }), approval.InvalidRequest},
		"unknown":                       {b.Approvals.Approve, with(func(d *approval.Decision) { d.ApprovalID = "apr_none" }), approval.NotFound},
		"an operation's ID":             {b.Approvals.Approve, with(func(d *approval.Decision) { d.ApprovalID = op.ID }), approval.NotFound},
	} {
		if _, replayed, err := c.decide(t.Context(), c.d); approvalCode(err) != c.want || replayed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.effects(op.ID) != 1 {
		t.Errorf("%d effects", b.effects(op.ID))
	}
}

func TestAWrongRevisionDecidesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("asked", note("r1", "x"))
	d := decision(op)
	d.ExpectedRevision = 2
	if _, _, err := b.Approvals.Approve(t.Context(), d); approvalCode(err) != approval.RevisionConflict {
		t.Fatal(err)
	}
	if got, err := b.Operations.Get(t.Context(), "asked", op.ID); err != nil || got.State != operation.Pending || got.Revision != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	b.approve(op) // a refused command has used up neither its key nor the approval
}

func TestOneOfManyDecisionsAndCancellationsWins(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for round := range 20 {
		op := b.submit("asked", note(fmt.Sprint("r", round), "x"))
		var (
			won   atomic.Int64
			state atomic.Value
			group sync.WaitGroup
		)
		for i := range 8 {
			d := decision(op)
			d.Key = fmt.Sprint("k", i)
			group.Go(func() {
				var err error
				wanted := operation.Canceled
				switch i % 3 {
				case 0:
					_, _, err = b.Approvals.Approve(t.Context(), d)
					wanted = operation.Succeeded
				case 1:
					_, _, err = b.Approvals.Deny(t.Context(), d)
					wanted = operation.Denied
				default:
					var got operation.Operation
					if got, err = b.Operations.Cancel(t.Context(), "asked", op.ID); got.State != operation.Canceled {
						return // it was decided before
					}
				}
				if err == nil {
					if wanted != operation.Canceled || state.CompareAndSwap(nil, wanted) {
						won.Add(1)
						state.Store(wanted)
					}
				}
			})
		}
		group.Wait()
		done := b.finish("asked", op.ID)
		asked, err := b.Approvals.Get(t.Context(), op.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		// An approval can still be followed by a cancellation, before the operation is dispatched.
		approvedThenCanceled := asked.State == approval.Approved && done.State == operation.Canceled
		if !approvedThenCanceled && (won.Load() != 1 || done.State != state.Load()) {
			t.Errorf("%d won, %v; it is %s", won.Load(), state.Load(), done.State)
		}
		if effects := b.effects(op.ID); effects > 1 || (effects == 1) != (done.State == operation.Succeeded) {
			t.Errorf("%s with %d effects", done.State, effects)
		}
	}
}

func TestApprovalsAreListedForOperators(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var want []string
	for i := range 30 {
		op := b.submit("asked", note(fmt.Sprint("r", i), "x"))
		if i%3 == 0 {
			if _, _, err := b.Approvals.Deny(t.Context(), decision(op)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want = append([]string{op.ApprovalID}, want...)
	}
	var got []string
	for cursor := ""; ; {
		page, err := b.Approvals.List(t.Context(), approval.Filter{State: approval.Pending}, 7, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range page.Approvals {
			got = append(got, a.ID)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		if _, err := b.Approvals.List(t.Context(), approval.Filter{State: approval.Denied}, 7, cursor); approvalCode(err) != approval.InvalidRequest {
			t.Fatalf("a cursor of another list: %v", err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if page, err := b.Approvals.List(t.Context(), approval.Filter{}, 0, ""); err != nil || len(page.Approvals) != 20 {
		t.Errorf("%d, %v", len(page.Approvals), err)
	}
	if _, err := b.Approvals.List(t.Context(), approval.Filter{State: "open"}, 0, ""); approvalCode(err) != approval.InvalidRequest {
		t.Errorf("%v", err)
	}
}

func TestWatchersHearOfApprovals(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	changed, cancel := b.Approvals.Watch()
	defer cancel()
	op := b.submit("asked", note("r1", "x"))
	<-changed
	b.approve(op)
	<-changed
	op = b.submit("asked", note("r2", "x"))
	<-changed
	if _, err := b.Operations.Cancel(t.Context(), "asked", op.ID); err != nil {
		t.Fatal(err)
	}
	<-changed
}

// A provider that acts only on a person's word must be able to tell it from a policy's, also after a crash.
func TestAProviderLearnsWhetherAPersonApproved(t *testing.T) {
	t.Parallel()
	seen := make(chan provider.Dispatch, 2)
	spy := custom{name: "test.spy", effect: provider.Keyed, execute: func(ctx context.Context, d provider.Dispatch) provider.Outcome {
		seen <- d
		<-ctx.Done()
		return provider.Unknown(ctx.Err())
	}}
	for client, asked := range map[string]bool{"free": false, "asked": true} {
		b := build(t, filepath.Join(t.TempDir(), "broker.db"), offer(spy))
		stop := b.start()
		op := b.submit(client, request("r1", "test.spy", `{}`, `{}`))
		if asked {
			b.approve(op)
		}
		first := <-seen
		stop()
		stop = b.again(nil)
		second := <-seen
		stop()
		if first.ApprovalID != op.ApprovalID || second.ApprovalID != op.ApprovalID || (op.ApprovalID != "") != asked {
			t.Errorf("%s: %q and %q, want %q", client, first.ApprovalID, second.ApprovalID, op.ApprovalID)
		}
	}
}
