package script_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/company/operation"
	"countersign/company/script"
	"countersign/internal/config"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func now() time.Time { return time.Date(2026, 10, 8, 19, 0, 0, 0, time.UTC) }

var action = operation.Action{
	OperationID: "op_1", Attempt: 1, Key: "hold jacket", Revision: 2, Digest: "d1", Summary: "Hold it.", Terms: poppy.Object(`{"sku":"m"}`),
}

func open(t *testing.T, path string, actions ...script.Performance) *script.Performer {
	t.Helper()
	p, err := script.OpenPerformer(script.Work{Journal: path, Actions: actions}, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func journal(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func TestAnActionIsOneLineOfTheJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	p := open(t, path)
	if before, err := p.Lookup(t.Context(), action); err != nil || before.Verdict != operation.NotStarted {
		t.Fatalf("before: %+v, %v", before, err)
	}
	outcome, err := p.Perform(t.Context(), action)
	if err != nil || outcome.Verdict != operation.Succeeded || outcome.Result.Summary != "Done. Hold it." {
		t.Fatalf("got %+v, %v", outcome, err)
	}
	want := `{"operation_id":"op_1","revision":2,"digest":"d1","terms":{"sku":"m"},"time":"2026-10-08T19:00:00Z","outcome":"succeeded"}`
	if lines := journal(t, path); len(lines) != 1 || lines[0] != want {
		t.Errorf("journal %q, want %s", lines, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again := open(t, path); again != nil { // as after a restart
		if found, err := again.Lookup(t.Context(), action); err != nil || found.Verdict != operation.Succeeded {
			t.Errorf("after a restart: %+v, %v", found, err)
		}
	}
	// Nothing hides that it was called twice: that is what a test looks for.
	if _, err := p.Perform(t.Context(), action); err != nil || len(journal(t, path)) != 2 {
		t.Errorf("called twice: %q, %v", journal(t, path), err)
	}
}

func TestHowAnActionEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	p := open(t, path,
		script.Performance{Action: "fails", Ends: script.Fails, Result: "The label was printed."},
		script.Performance{Action: "errs", Ends: script.Errs},
		script.Performance{Action: "hangs", Ends: script.Hangs},
		script.Performance{Action: "slow", Delay: config.Duration(50 * time.Millisecond)},
		script.Performance{Result: "As always.", Data: map[string]any{"n": 1}},
	)
	do := func(key string, timeout time.Duration) (operation.Outcome, operation.Action, error) {
		a := action
		a.Key, a.OperationID = key, "op_"+key
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		outcome, err := p.Perform(ctx, a)
		return outcome, a, err
	}
	lookup := func(a operation.Action) operation.Outcome {
		found, err := p.Lookup(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}

	if outcome, a, err := do("other", time.Minute); err != nil || outcome.Result.Summary != "As always." || string(outcome.Result.Data) != `{"n":1}` || lookup(a).Verdict != operation.Succeeded {
		t.Errorf("any other action: %+v, %v", outcome, err)
	}
	if outcome, a, err := do("fails", time.Minute); err != nil || outcome.Verdict != operation.Failed || outcome.Result.Summary != "The label was printed." || lookup(a).Verdict != operation.Failed {
		t.Errorf("fails: %+v, %v", outcome, err)
	}
	if outcome, a, err := do("errs", time.Minute); err == nil || outcome.Verdict != operation.Unknown || lookup(a).Verdict != operation.Succeeded {
		t.Errorf("errs: %+v, %v", outcome, err)
	}
	// What takes longer than the call goes on, and is found afterwards.
	outcome, slow, err := do("slow", time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || outcome.Verdict != operation.Unknown || lookup(slow).Verdict != operation.Unknown {
		t.Errorf("slow: %+v, %v", outcome, err)
	}
	for lookup(slow).Verdict == operation.Unknown {
		time.Sleep(time.Millisecond)
	}
	if found := lookup(slow); found.Verdict != operation.Succeeded {
		t.Errorf("slow, afterwards: %+v", found)
	}
	// What hangs has no outcome until it is stopped.
	_, hangs, err := do("hangs", time.Millisecond)
	if err == nil || lookup(hangs).Verdict != operation.Unknown {
		t.Errorf("hangs: %v", err)
	}
	for range 2 {
		if err := p.Stop(t.Context(), hangs); err != nil {
			t.Error(err)
		}
	}
	for lookup(hangs).Verdict == operation.Unknown {
		time.Sleep(time.Millisecond)
	}
	if found := lookup(hangs); found.Verdict != operation.Stopped || found.Result.Summary == "" {
		t.Errorf("hangs, stopped: %+v", found)
	}
	if n := len(journal(t, path)); n != 4 {
		t.Errorf("%d lines; those that hang have none", n)
	}
	// An action that was stopped before it began, as after a restart, has no effect.
	early := action
	early.OperationID = "op_early"
	if err := p.Stop(t.Context(), early); err != nil {
		t.Error(err)
	}
	if outcome, err := p.Perform(t.Context(), early); err != nil || outcome.Verdict != operation.Stopped {
		t.Errorf("stopped before it began: %+v, %v", outcome, err)
	}
}

func TestStopAndEffectExcludeEachOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	p := open(t, path, script.Performance{Delay: config.Duration(time.Microsecond)})
	var group sync.WaitGroup
	for i := range 100 {
		a := action
		a.OperationID = "op_" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		group.Go(func() {
			outcome, err := p.Perform(t.Context(), a)
			if found, lookupErr := p.Lookup(t.Context(), a); err != nil || lookupErr != nil || found.Verdict != outcome.Verdict {
				t.Errorf("%+v, then %+v; %v, %v", outcome, found, err, lookupErr)
			}
		})
		group.Go(func() { _ = p.Stop(t.Context(), a) })
	}
	group.Wait()
}

func TestAJournalIsReadAsFarAsItIsWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	whole, err := strictjson.Marshal(map[string]any{"operation_id": "op_1", "outcome": "succeeded", "revision": 1})
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(string(whole) + "\n" + `{"operation_id":"op_2","outc`)
	p := open(t, path)
	second := action
	second.OperationID = "op_2"
	if found, err := p.Lookup(t.Context(), second); err != nil || found.Verdict != operation.NotStarted {
		t.Errorf("a line that was cut off: %+v, %v", found, err)
	}
	if _, err := p.Perform(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if lines := journal(t, path); len(lines) != 2 || lines[0] != string(whole) || !strings.HasPrefix(lines[1], `{"operation_id":"op_2","revision":2`) {
		t.Errorf("journal %q", lines)
	}
	// What others add is found too.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strings.Replace(string(whole), "op_1", "op_3", 1) + "\n"); err != nil {
		t.Fatal(err)
	}
	third := action
	third.OperationID = "op_3"
	if found, err := p.Lookup(t.Context(), third); err != nil || found.Verdict != operation.Succeeded {
		t.Errorf("added by others: %+v, %v", found, err)
	}
	if _, err := file.WriteString("not JSON\n"); err != nil {
		t.Fatal(err)
	}
	if found, err := p.Lookup(t.Context(), third); err == nil || found.Verdict != operation.Unknown {
		t.Errorf("from a damaged journal: %+v, %v", found, err)
	}
	if _, err := script.OpenPerformer(script.Work{Journal: path}, now); err == nil {
		t.Error("a damaged journal was opened")
	}
}

func TestMistakesInWorkNameTheirField(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	for field, work := range map[string]script.Work{
		"journal":          {},
		"action[0].delay":  {Journal: path, Actions: []script.Performance{{Delay: -1}}},
		"action[0].ends":   {Journal: path, Actions: []script.Performance{{Ends: "explode"}}},
		"action[1].result": {Journal: path, Actions: []script.Performance{{}, {Ends: script.Fails}}},
		"action[0].data":   {Journal: path, Actions: []script.Performance{{Data: map[string]any{"f": func() {}}}}},
	} {
		if p, err := script.OpenPerformer(work, now); p != nil || err == nil || !strings.HasPrefix(err.Error(), field+" ") {
			t.Errorf("got %v, want a problem with %s", err, field)
		}
	}
	if _, err := script.OpenPerformer(script.Work{Journal: t.TempDir()}, now); err == nil {
		t.Error("a folder was opened as a journal")
	}
}
