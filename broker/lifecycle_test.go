package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"countersign/broker"
	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/strictjson"
)

// code returns the code of a refusal, "" for none.
func code(err error) operation.Code {
	refused, ok := errors.AsType[*operation.Error](err)
	if !ok {
		return ""
	}
	return refused.Code
}

// history returns what happened, as "revision kind state actor".
func (b *bundle) history(client, id string) []string {
	b.t.Helper()
	events, err := b.Operations.Events(b.t.Context(), client, id, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	var lines []string
	for _, e := range events {
		lines = append(lines, fmt.Sprintf("%d %s %s %s", e.Revision, e.Kind, e.State, e.Actor))
	}
	return lines
}

func (b *bundle) wantHistory(client, id string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.history(client, id)); diff != "" {
		b.t.Error(diff)
	}
}

func (b *bundle) approvals() []approval.Approval {
	b.t.Helper()
	page, err := b.Approvals.List(b.t.Context(), approval.Filter{}, 50, "")
	if err != nil {
		b.t.Fatal(err)
	}
	return page.Approvals
}

// B-auth-03 B-auth-04 B-auth-05 B-auth-10 B-auth-11
func TestAnAllowedOperationRunsAtOnceWithoutAnApproval(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("free", note("r1", "x"))
	if op.State != operation.Approved || op.Revision != 1 || op.ApprovalID != "" || op.PlanDigest == "" {
		t.Fatalf("%+v", op)
	}
	done := b.finish("free", op.ID)
	if done.State != operation.Succeeded || b.effects(op.ID) != 1 || done.Error != nil || !strings.Contains(string(done.Result), `"text":"x"`) {
		t.Fatalf("%+v", done)
	}
	b.wantHistory("free", op.ID, "1 submitted approved client:free", "2 dispatched executing broker", "3 succeeded succeeded broker")
	if len(b.approvals()) != 0 {
		t.Fatal("an approval was opened")
	}
	want := []operation.Ruling{
		{Question: operation.QuestionSubmit, Allowed: true, Rules: []string{"demo-changes-ask", "free"}},
		{Question: operation.QuestionRunUnattended, Allowed: true, Rules: []string{"free"}},
	}
	if diff := cmp.Diff(want, done.Rulings); diff != "" {
		t.Error(diff)
	}
}

// B-submit-03 B-auth-06 B-auth-17
func TestAPersonDecides(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for name, c := range map[string]struct {
		decide func(context.Context, approval.Decision) (approval.Approval, bool, error)
		state  operation.State
		effect int
		want   []string
	}{
		"approve": {b.Approvals.Approve, operation.Succeeded, 1, []string{
			"1 submitted pending client:asked", "2 approved approved operator:alex", "3 dispatched executing broker", "4 succeeded succeeded broker",
		}},
		"deny": {b.Approvals.Deny, operation.Denied, 0, []string{"1 submitted pending client:asked", "2 denied denied operator:alex"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := b.submit("asked", note("r-"+name, "x"))
			if op.State != operation.Pending || op.ApprovalID == "" {
				t.Fatalf("%+v", op)
			}
			// A replay finds the same operation and opens no second approval.
			if again, replayed, err := b.Operations.Submit(t.Context(), "asked", note("r-"+name, "x")); err != nil || !replayed || again.ApprovalID != op.ApprovalID {
				t.Fatalf("%+v, %v", again, err)
			}
			asked, err := b.Approvals.Get(t.Context(), op.ApprovalID)
			if err != nil || asked.OperationID != op.ID || asked.PlanDigest != op.PlanDigest || asked.State != approval.Pending || asked.Revision != 1 ||
				asked.Presentation.Title != "Write a note" || asked.Presentation.Details[1].Value != "x" || asked.Reason != "testing" {
				t.Fatalf("%+v, %v", asked, err)
			}
			decided, replayed, err := c.decide(t.Context(), decision(op))
			if err != nil || replayed || decided.Revision != 2 || decided.DecidedBy != "alex" || decided.ClosedAt.IsZero() {
				t.Fatalf("%+v, %v", decided, err)
			}
			if done := b.finish("asked", op.ID); done.State != c.state || b.effects(op.ID) != c.effect {
				t.Fatalf("%+v, %d effects", done, b.effects(op.ID))
			}
			b.wantHistory("asked", op.ID, c.want...)
		})
	}
}

// B-auth-09
func TestADeniedOperationIsStoredAndNoProviderHearsOfIt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	b := setup(t, offer(custom{
		name: "demo.spy", effect: provider.Change,
		resolve: func(context.Context, provider.Call) (provider.Plan, error) { calls.Add(1); return provider.Plan{}, nil },
		execute: func(context.Context, provider.Dispatch) provider.Outcome {
			calls.Add(1)
			return provider.Succeeded(nil)
		},
	}, custom{
		name: "other.spy", effect: provider.Read,
		resolve: func(context.Context, provider.Call) (provider.Plan, error) { calls.Add(1); return provider.Plan{}, nil },
		execute: func(context.Context, provider.Dispatch) provider.Outcome {
			calls.Add(1)
			return provider.Succeeded(nil)
		},
	}))
	for name, r := range map[string]operation.Request{
		"nothing permits":        request("r1", "other.spy", `{}`, `{}`),
		"a rule forbids by fact": request("r2", "demo.note.list", `{"notebook":"secret"}`, `{}`),
	} {
		op := b.submit("stranger", r)
		if op.State != operation.Denied || op.Error == nil || op.Error.Code != operation.CodePolicyDenied || op.TerminalAt.IsZero() || op.PlanDigest != "" || op.ApprovalID != "" {
			t.Errorf("%s: %+v", name, op)
		}
		b.wantHistory("stranger", op.ID, "1 submitted denied policy")
		if again, replayed, err := b.Operations.Submit(t.Context(), "stranger", r); err != nil || !replayed || again.ID != op.ID {
			t.Errorf("%s: replay: %+v, %v", name, again, err)
		}
	}
	if calls.Load() != 0 {
		t.Fatalf("the provider was asked %d times", calls.Load())
	}
}

func TestWhatWasResolvedCanDemandAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("free", note("r1", strings.Repeat("x", 101)))
	if op.State != operation.Pending || !cmp.Equal(op.Rulings[1], operation.Ruling{Question: operation.QuestionRunUnattended, Rules: []string{"long-asks"}}) {
		t.Fatalf("%+v", op)
	}
}

// B-handles-05 B-handles-07
func TestConcurrentSubmittersOfOneRequestGetOneOperation(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var (
		mutex sync.Mutex
		ids   = map[string]int{}
		fresh int
		group sync.WaitGroup
	)
	for range 64 {
		group.Go(func() {
			op, replayed, err := b.Operations.Submit(t.Context(), "free", note("r1", "x"))
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				t.Error(err)
			}
			ids[op.ID]++
			if !replayed {
				fresh++
			}
		})
	}
	group.Wait()
	if len(ids) != 1 || fresh != 1 {
		t.Fatalf("%d operations, %d new", len(ids), fresh)
	}
	for id := range ids {
		if b.finish("free", id); b.effects(id) != 1 {
			t.Fatalf("%d effects", b.effects(id))
		}
		// After completion too, in whichever spelling.
		r := operation.Request{RequestID: "r1", Operation: "demo.note.write", Target: strictjson.Raw("{ \"notebook\" : \"w\\u006frk\" }"), Arguments: strictjson.Raw(`{"text":"x"}`), Reason: "testing"}
		if op, replayed, err := b.Operations.Submit(t.Context(), "free", r); err != nil || !replayed || op.ID != id || op.State != operation.Succeeded {
			t.Fatalf("%+v, %v", op, err)
		}
	}
	if op := b.submit("free-too", note("r1", "x")); ids[op.ID] != 0 {
		t.Fatal("request IDs belong to their client")
	}
}

// B-handles-06 B-handles-07
func TestAnotherRequestUnderTheSameIDIsAConflict(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first := b.submit("free", note("r1", "MARK"))
	var fixed string
	for name, r := range map[string]operation.Request{
		"arguments": note("r1", "y"),
		"target":    request("r1", "demo.note.write", `{"notebook":"home"}`, `{"text":"MARK"}`),
		"operation": request("r1", "demo.echo", `{}`, `{"text":"MARK"}`),
		"unknown":   request("r1", "demo.none", `{}`, `{}`),
		"reason":    {RequestID: "r1", Operation: "demo.note.write", Target: strictjson.Raw(`{"notebook":"work"}`), Arguments: strictjson.Raw(`{"text":"MARK"}`), Reason: "another"},
	} {
		_, _, err := b.Operations.Submit(t.Context(), "free", r)
		if code(err) != operation.RequestIDConflict {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if fixed == "" {
			fixed = err.Error()
		}
		if err.Error() != fixed || len(fixed) > 300 || strings.Contains(fixed, "MARK") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.finish("free", first.ID)
	if page, err := b.Operations.List(t.Context(), "free", operation.Filter{}, 0, ""); err != nil || len(page.Operations) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
}

// A replay is recognised by what was submitted, whatever the provider resolves the second time.
func TestAReplayDoesNotDependOnTheProvider(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	b := setup(t, offer(custom{
		name: "test.moving", effect: provider.Change,
		resolve: func(context.Context, provider.Call) (provider.Plan, error) {
			if n.Add(1) > 2 {
				return provider.Plan{}, errors.New("away")
			}
			content, err := provider.NewContent(map[string]int64{"n": n.Load()})
			return provider.Plan{Content: content}, err
		},
		execute: func(_ context.Context, d provider.Dispatch) provider.Outcome { return provider.Succeeded(d.Plan) },
	}))
	op := b.submit("free", request("r1", "test.moving", `{}`, `{}`))
	other := b.submit("free", request("r2", "test.moving", `{}`, `{}`))
	if got := b.finish("free", op.ID); string(got.Result) != `{"n":1}` || got.PlanDigest == other.PlanDigest {
		t.Fatalf("%s", got.Result)
	}
	if again := b.submit("free", request("r1", "test.moving", `{}`, `{}`)); again.ID != op.ID || again.PlanDigest != op.PlanDigest {
		t.Fatalf("%+v", again)
	}
}

// B-handles-01
func TestHandlesAreNotInterchangeable(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("asked", note("r1", "x"))
	for _, handle := range []string{"r1", op.ApprovalID, op.PlanDigest, ""} {
		if _, err := b.Operations.Get(t.Context(), "asked", handle); code(err) != operation.NotFound {
			t.Errorf("get %q: %v", handle, err)
		}
	}
	if _, err := b.Approvals.Get(t.Context(), op.ID); err == nil {
		t.Error("an operation ID found an approval")
	}
	if page, err := b.Operations.List(t.Context(), "asked", operation.Filter{RequestID: op.ID}, 0, ""); err != nil || len(page.Operations) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestInvalidRequestsStoreNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, offer(custom{
		name: "test.gone", effect: provider.Read,
		resolve: func(context.Context, provider.Call) (provider.Plan, error) {
			return provider.Plan{}, &provider.Error{Code: "not_found", Message: "No order ghp_0123456789abcdef here.\x00"}
		},
	}, custom{
		name: "test.away", effect: provider.Read,
		resolve: func(context.Context, provider.Call) (provider.Plan, error) { panic("MARK") },
	}))
	with := func(change func(*operation.Request)) operation.Request {
		r := note("r1", "x")
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		client string
		r      operation.Request
		want   operation.Code
	}{
		"no client":             {"", note("r1", "x"), operation.InvalidRequest},
		"long client":           {strings.Repeat("c", 129), note("r1", "x"), operation.InvalidRequest},
		"client with control":   {"a\nb", note("r1", "x"), operation.InvalidRequest},
		"no request ID":         {"free", note("", "x"), operation.InvalidRequest},
		"odd request ID":        {"free", note("-r", "x"), operation.InvalidRequest},
		"long request ID":       {"free", note(strings.Repeat("r", 129), "x"), operation.InvalidRequest},
		"request ID with break": {"free", note("r1\n", "x"), operation.InvalidRequest},
		"no operation":          {"free", with(func(r *operation.Request) { r.Operation = "" }), operation.InvalidRequest},
		"long operation":        {"free", with(func(r *operation.Request) { r.Operation = strings.Repeat("a", 129) }), operation.InvalidRequest},
		"no reason":             {"free", with(func(r *operation.Request) { r.Reason = " \n" }), operation.InvalidRequest},
		"long reason":           {"free", with(func(r *operation.Request) { r.Reason = strings.Repeat("a", 2001) }), operation.InvalidRequest},
		"reason is no text":     {"free", with(func(r *operation.Request) { r.Reason = "\xff" }), operation.InvalidRequest},
		"no target":             {"free", with(func(r *operation.Request) { r.Target = nil }), operation.InvalidRequest},
		"target is no object":   {"free", with(func(r *operation.Request) { r.Target = strictjson.Raw(`[]`) }), operation.InvalidRequest},
		"member twice":          {"free", with(func(r *operation.Request) { r.Target = strictjson.Raw(`{"notebook":"a","notebook":"b"}`) }), operation.InvalidRequest},
		"large target":          {"free", with(func(r *operation.Request) { r.Target = strictjson.Raw(`{"a":"` + strings.Repeat("x", 16<<10) + `"}`) }), operation.InvalidRequest},
		"large arguments":       {"free", with(func(r *operation.Request) { r.Arguments = strictjson.Raw(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`) }), operation.InvalidRequest},
		"a long place": {"free", with(func(r *operation.Request) {
			r.Arguments = strictjson.Raw(`{"` + strings.Repeat("x", 4000) + `":{"a":1,"a":2}}`)
		}), operation.InvalidRequest},
		"a number that rounds":   {"free", with(func(r *operation.Request) { r.Arguments = strictjson.Raw(`{"n":9007199254740993}`) }), operation.InvalidRequest},
		"unknown operation":      {"free", with(func(r *operation.Request) { r.Operation = "demo.none" }), operation.NotRegistered},
		"target does not fit":    {"free", with(func(r *operation.Request) { r.Target = strictjson.Raw(`{"notebook":"MARK MARK"}`) }), operation.InputInvalid},
		"arguments do not fit":   {"free", with(func(r *operation.Request) { r.Arguments = strictjson.Raw(`{"text":1,"more":"MARK"}`) }), operation.InputInvalid},
		"the provider refuses":   {"free", with(func(r *operation.Request) { *r = request("r1", "test.gone", `{}`, `{}`) }), operation.TargetRefused},
		"the provider is broken": {"free", with(func(r *operation.Request) { *r = request("r1", "test.away", `{}`, `{}`) }), operation.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op, replayed, err := b.Operations.Submit(t.Context(), c.client, c.r)
			if code(err) != c.want || replayed || op.ID != "" {
				t.Fatalf("%+v, %v", op, err)
			}
			refused, _ := errors.AsType[*operation.Error](err)
			if len(refused.Message) > 500 || strings.Contains(refused.Message, "MARK") || strings.Contains(refused.Message, "ghp_") || strings.Contains(refused.Message, "\x00") {
				t.Errorf("%q", refused.Message)
			}
			if (refused.Fields != nil) != (c.want == operation.InputInvalid) || strings.Contains(fmt.Sprint(refused.Fields), "MARK") {
				t.Errorf("%+v", refused.Fields)
			}
			var stored int
			if err := b.db.QueryRow(t.Context(), "SELECT count(*) FROM operation").Scan(&stored); err != nil || stored != 0 {
				t.Errorf("%d stored, %v", stored, err)
			}
		})
	}
}

func TestInvalidFieldsNameTheirPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	_, _, err := b.Operations.Submit(t.Context(), "free", request("r1", "demo.note.write", `{}`, `{"text":1,"more":"x"}`))
	refused, ok := errors.AsType[*operation.Error](err)
	if !ok {
		t.Fatal(err)
	}
	want := []operation.Field{
		{Pointer: "/target", Problem: "lacks notebook"},
		{Pointer: "/arguments/more", Problem: "is not a known member"},
		{Pointer: "/arguments/text", Problem: "must be string"},
	}
	if diff := cmp.Diff(want, refused.Fields); diff != "" {
		t.Error(diff)
	}
}

// B-submit-01
func TestAHangingCallDelaysNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, func(options *broker.Options) { options.MaxExecuting = 4 })
	var hanging []operation.Operation
	for i := range 3 { // all places but one
		start := time.Now()
		op := b.submit("free", request(fmt.Sprint("h", i), "demo.hang", `{}`, `{"milliseconds":600000}`))
		if took := time.Since(start); took > time.Second {
			t.Errorf("submitting took %v", took)
		}
		hanging = append(hanging, op)
	}
	for _, op := range hanging {
		b.await("free", op.ID, operation.Executing)
	}
	for i := range 20 {
		op := b.submit("free", note(fmt.Sprint("n", i), "x"))
		if done := b.finish("free", op.ID); done.State != operation.Succeeded {
			t.Fatalf("%+v", done)
		}
	}
	// Neither canceling nor reading waits for a provider.
	start := time.Now()
	if _, err := b.Operations.Cancel(t.Context(), "free", hanging[0].ID); code(err) != operation.NotCancelable {
		t.Errorf("canceling what executes: %v", err)
	}
	if op, err := b.Operations.Get(t.Context(), "free", hanging[0].ID); err != nil || op.State != operation.Executing {
		t.Errorf("%+v, %v", op, err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("canceling and reading took %v", took)
	}
	// With all places taken, what is approved waits, can be canceled, and is then never executed.
	b.await("free", b.submit("free", request("h3", "demo.hang", `{}`, `{"milliseconds":600000}`)).ID, operation.Executing)
	waiting := b.submit("free", note("w", "x"))
	if op, err := b.Operations.Cancel(t.Context(), "free", waiting.ID); err != nil || op.State != operation.Canceled {
		t.Fatalf("%+v, %v", op, err)
	}
	b.wantHistory("free", waiting.ID, "1 submitted approved client:free", "2 canceled canceled client:free")
}

// B-auth-15 B-auth-16 B-routes-06
func TestCancelBelongsToTheRequester(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("asked", note("r1", "x"))
	for _, stranger := range []string{"free", "operator:alex", "alex", ""} {
		if _, err := b.Operations.Cancel(t.Context(), stranger, op.ID); code(err) != operation.NotFound {
			t.Errorf("%q: %v", stranger, err)
		}
	}
	canceled, err := b.Operations.Cancel(t.Context(), "asked", op.ID)
	if err != nil || canceled.State != operation.Canceled || canceled.Revision != 2 || canceled.TerminalAt.IsZero() {
		t.Fatalf("%+v, %v", canceled, err)
	}
	if again, err := b.Operations.Cancel(t.Context(), "asked", op.ID); err != nil || again.Revision != 2 {
		t.Fatalf("again: %+v, %v", again, err)
	}
	if asked, err := b.Approvals.Get(t.Context(), op.ApprovalID); err != nil || asked.State != approval.Canceled || asked.DecidedBy != "" {
		t.Fatalf("%+v, %v", asked, err)
	}
	if _, _, err := b.Approvals.Approve(t.Context(), decision(op)); err == nil {
		t.Fatal("a canceled operation was approved")
	}
	if b.effects(op.ID) != 0 {
		t.Fatal("it took effect")
	}
	b.wantHistory("asked", op.ID, "1 submitted pending client:asked", "2 canceled canceled client:asked")
}

func TestOperationsBelongToTheirClient(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("free", note("r1", "x"))
	if _, err := b.Operations.Get(t.Context(), "asked", op.ID); code(err) != operation.NotFound {
		t.Errorf("get: %v", err)
	}
	if _, err := b.Operations.Events(t.Context(), "asked", op.ID, 0); code(err) != operation.NotFound { // B-routes-05
		t.Errorf("events: %v", err)
	}
	if _, err := b.Operations.Wait(t.Context(), "asked", op.ID, 0, time.Minute); code(err) != operation.NotFound {
		t.Errorf("wait: %v", err)
	}
	if got, err := b.Operations.Lookup(t.Context(), op.ID); err != nil || got.ClientID != "free" {
		t.Errorf("for operators: %+v, %v", got, err)
	}
}

// B-mcp-03 B-mcp-04
func TestWaitEndsWithTheChangeOrInTime(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("asked", note("r1", "x"))
	start := time.Now()
	got, err := b.Operations.Wait(t.Context(), "asked", op.ID, op.Revision, 30*time.Millisecond)
	if err != nil || got.State != operation.Pending || time.Since(start) < 30*time.Millisecond {
		t.Fatalf("%+v, %v after %v", got, err, time.Since(start))
	}
	type answer struct {
		op  operation.Operation
		err error
	}
	answers := make(chan answer)
	go func() {
		op, err := b.Operations.Wait(context.Background(), "asked", op.ID, op.Revision, time.Hour)
		answers <- answer{op, err}
	}()
	b.approve(op)
	if a := <-answers; a.err != nil || a.op.Revision < 2 {
		t.Fatalf("%+v, %v", a.op, a.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pending := b.submit("asked", note("r2", "x"))
	if _, err := b.Operations.Wait(ctx, "asked", pending.ID, 1, time.Hour); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}

// B-mcp-05 B-mcp-06 B-mcp-07 B-mcp-08 B-mcp-09
func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var want []string // newest first
	for i := range 60 {
		want = append([]string{b.submit("asked", note(fmt.Sprintf("r%d", i), "x")).ID}, want...)
	}
	b.submit("free", note("r7", "x"))
	list := func(client string, filter operation.Filter, limit int, cursor string) operation.Page {
		t.Helper()
		page, err := b.Operations.List(t.Context(), client, filter, limit, cursor)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	for limit, size := range map[int]int{0: 20, 7: 7, 1000: 50, -1: 20} {
		if page := list("asked", operation.Filter{}, limit, ""); len(page.Operations) != size || page.Next == "" {
			t.Errorf("limit %d: %d operations", limit, len(page.Operations))
		}
	}
	var got []string
	cursor := ""
	for {
		page := list("asked", operation.Filter{State: operation.Pending}, 25, cursor)
		for _, op := range page.Operations {
			got = append(got, op.ID)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		if len(got) == 25 { // what is submitted meanwhile neither shifts nor repeats anything
			b.submit("asked", note("late", "x"))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if page := list("asked", operation.Filter{RequestID: "r7"}, 0, ""); len(page.Operations) != 1 || page.Operations[0].ID != want[60-1-7] || page.Next != "" {
		t.Errorf("%+v", page)
	}
	for name, filter := range map[string]operation.Filter{
		"prefix": {RequestID: "r"}, "another state": {RequestID: "r7", State: operation.Failed}, "no such state here": {State: operation.Expired},
	} {
		if page := list("asked", filter, 0, ""); len(page.Operations) != 0 {
			t.Errorf("%s: %+v", name, page)
		}
	}
	if page := list("nobody", operation.Filter{RequestID: "r7"}, 0, ""); len(page.Operations) != 0 {
		t.Errorf("%+v", page)
	}
	next := list("asked", operation.Filter{}, 5, "").Next
	for name, try := range map[string]func() (operation.Page, error){
		"altered": func() (operation.Page, error) {
			return b.Operations.List(t.Context(), "asked", operation.Filter{}, 5, next[:len(next)-2]+"AA")
		},
		"cut": func() (operation.Page, error) {
			return b.Operations.List(t.Context(), "asked", operation.Filter{}, 5, next[:9])
		},
		"another client": func() (operation.Page, error) {
			return b.Operations.List(t.Context(), "free", operation.Filter{}, 5, next)
		},
		"another filter": func() (operation.Page, error) {
			return b.Operations.List(t.Context(), "asked", operation.Filter{State: operation.Pending}, 5, next)
		},
		"unknown state": func() (operation.Page, error) {
			return b.Operations.List(t.Context(), "asked", operation.Filter{State: "done"}, 5, "")
		},
	} {
		if page, err := try(); code(err) != operation.InvalidRequest || len(page.Operations) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEventsContinueAfterARevision(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("free", note("r1", "x"))
	b.finish("free", op.ID)
	events, err := b.Operations.Events(t.Context(), "free", op.ID, 2)
	if err != nil || len(events) != 1 || events[0].Revision != 3 || events[0].At.IsZero() {
		t.Fatalf("%+v, %v", events, err)
	}
	if events, err := b.Operations.Events(t.Context(), "free", op.ID, 3); err != nil || len(events) != 0 {
		t.Fatalf("%+v, %v", events, err)
	}
}

// B-results-04 B-results-05 B-results-07 B-results-08 B-auth-12
func TestWhatAProviderLeaksReachesNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for i, arguments := range []string{`{}`, `{"fail":true}`} {
		op := b.submit("free", request(fmt.Sprint("r", i), "demo.leak", `{}`, arguments))
		done := b.finish("free", op.ID)
		if text := fmt.Sprintf("%+v %s", done, done.Result) + fmt.Sprint(done.Error); strings.Contains(text, "demodemo") {
			t.Errorf("%s", text)
		}
		if arguments == `{}` && (!done.ResultCut || !strings.Contains(string(done.Result), `"name":"color"`)) { // B-results-03
			t.Errorf("%s", done.Result)
		}
		if arguments != `{}` && (done.State != operation.Failed || done.Error.Code != "leaked") {
			t.Errorf("%+v", done)
		}
		var found int
		for _, table := range []string{
			"SELECT count(*) FROM operation WHERE coalesce(result, '') || error_message LIKE '%demodemo%'",
			"SELECT count(*) FROM operation_event WHERE detail LIKE '%demodemo%'",
		} {
			if err := b.db.QueryRow(t.Context(), table).Scan(&found); err != nil || found != 0 {
				t.Errorf("%s: %d, %v", table, found, err)
			}
		}
	}
}

// B-results-02 B-results-09 B-results-11 B-results-12
func TestNoAnswerOfAProviderBlocksTheEnd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("The merge method is disabled. ", 40_000)
	outcomes := map[string]struct {
		outcome provider.Outcome
		state   operation.State
		code    string
		message string // how it begins
		cut     bool
	}{
		"useful refusal":     {provider.Refused("merge_method_disabled", "Squash merging is disabled."), operation.Failed, "merge_method_disabled", "Squash merging is disabled.", false},
		"long message":       {provider.Refused("refused", long), operation.Failed, "refused", "The merge method", false},
		"500 wide runes":     {provider.Refused("refused", strings.Repeat("é", 500)), operation.Failed, "refused", "éé", false},
		"no message":         {provider.Refused("refused", "\x00"), operation.Failed, "refused", "The provider gave no reason.", false},
		"no code":            {provider.Refused("Not A Code", "x"), operation.Failed, operation.CodeProviderError, "x", false},
		"one of our codes":   {provider.Refused(operation.CodeOutcomeUnknown, "x"), operation.Failed, operation.CodeProviderError, "x", false},
		"huge result":        {provider.Succeeded(map[string]string{"a": long}), operation.Succeeded, "", "", true},
		"many elements":      {provider.Succeeded(make([]int, 1<<20)), operation.Succeeded, "", "", true},
		"no result":          {provider.Succeeded(nil), operation.Succeeded, "", "", false},
		"unwritable result":  {provider.Succeeded(func() {}), operation.Succeeded, "", "", true},
		"result is not UTF8": {provider.Succeeded("\xff"), operation.Succeeded, "", "", true},
		"result is not JSON": {provider.Outcome{Verdict: provider.VerdictSucceeded, Result: strictjson.Raw("{")}, operation.Succeeded, "", "", true},
		"zero outcome":       {provider.Outcome{}, operation.Failed, operation.CodeOutcomeUnknown, "It is not known", false},
	}
	var names []string
	for name := range outcomes {
		names = append(names, name)
	}
	slices.Sort(names)
	b := setup(t, offer(custom{
		name: "test.say", effect: provider.Change,
		resolve: func(_ context.Context, call provider.Call) (provider.Plan, error) {
			return provider.Plan{Content: call.Arguments, Presentation: provider.Presentation{Title: long, Summary: long}}, nil
		},
		execute: func(_ context.Context, d provider.Dispatch) provider.Outcome {
			var in struct {
				Text string `json:"text"`
			}
			if err := strictjson.Unmarshal(d.Plan, &in); err != nil {
				return provider.Unknown(err)
			}
			return outcomes[in.Text].outcome
		},
	}))
	for i, name := range names {
		want := outcomes[name]
		op := b.submit("free", request(fmt.Sprint("r", i), "test.say", `{}`, `{"text":"`+name+`"}`))
		if len(op.Title) > 160 || len(op.Summary) > 500 {
			t.Errorf("title %d, summary %d bytes", len(op.Title), len(op.Summary))
		}
		done := b.finish("free", op.ID)
		if done.State != want.state || done.ResultCut != want.cut || len(done.Result) > provider.MaxResult {
			t.Errorf("%s: %+v", name, done)
			continue
		}
		if want.code != "" && (done.Error.Code != want.code || !strings.HasPrefix(done.Error.Message, want.message) || len(done.Error.Message) > 500) {
			t.Errorf("%s: %+v", name, done.Error)
		}
		if want.code == "" && (done.Error != nil || done.Result.Kind() != '{') {
			t.Errorf("%s: %+v %s", name, done.Error, done.Result)
		}
	}
}

func TestATamperedPlanIsNotExecuted(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	op := b.submit("asked", note("r1", "x"))
	err := b.db.Write(t.Context(), func(tx *database.Tx) error {
		_, err := tx.Exec("UPDATE operation_request SET plan = replace(plan, '\"x\"', '\"y\"')")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.approve(op)
	done := b.finish("asked", op.ID)
	if done.State != operation.Failed || done.Error.Code != operation.CodePlanInvalid || b.effects(op.ID) != 0 {
		t.Fatalf("%+v", done)
	}
	b.wantHistory("asked", op.ID, "1 submitted pending client:asked", "2 approved approved operator:alex", "3 failed failed broker")
}
