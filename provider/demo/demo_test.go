package demo_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"countersign/broker/provider"
	"countersign/internal/strictjson"
	"countersign/provider/demo"
)

// open returns the registry of a demo and the path of its file.
func open(t testing.TB) (*provider.Registry, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "effects.jsonl")
	file, err := demo.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	registry, err := provider.NewRegistry(demo.Operations(file)...)
	if err != nil {
		t.Fatal(err)
	}
	return registry, path
}

// run resolves and executes a request as the broker would.
func run(t testing.TB, registry *provider.Registry, id, name, target, arguments string) provider.Outcome {
	t.Helper()
	operation, d, ok := registry.Find(name)
	if !ok {
		t.Fatalf("%s is not offered", name)
	}
	for schema, document := range map[*provider.Schema]string{d.Target: target, d.Arguments: arguments} {
		if faults, err := schema.Validate(strictjson.Raw(document)); err != nil || faults != nil {
			t.Fatalf("%s: %v, %v", document, faults, err)
		}
	}
	plan, err := operation.Resolve(t.Context(), provider.Call{ClientID: "c", Operation: name, Target: strictjson.Raw(target), Arguments: strictjson.Raw(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	return operation.Execute(t.Context(), provider.Dispatch{OperationID: id, ClientID: "c", Operation: name, Plan: plan.Content})
}

func count(t testing.TB, path, id string) (n int) {
	t.Helper()
	effects, err := demo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, effect := range effects {
		if effect.OperationID == id {
			n++
		}
	}
	return n
}

func TestOperations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		operation, target, arguments string
		verdict                      provider.Verdict
		result                       string // or code of a refusal
		effects                      int    // after executing twice
	}{
		"echo":            {"demo.echo", `{}`, `{"text":"x"}`, provider.VerdictSucceeded, `{"text":"x"}`, 0},
		"note":            {"demo.note.write", `{"notebook":"work"}`, `{"text":"x"}`, provider.VerdictSucceeded, `{"notebook":"work","operation":"demo.note.write","operation_id":"op","text":"x"}`, 2},
		"counter":         {"demo.counter.set", `{"notebook":"work"}`, `{"value":3}`, provider.VerdictSucceeded, `{"notebook":"work","operation":"demo.counter.set","operation_id":"op","value":3}`, 1},
		"fail":            {"demo.fail", `{}`, `{"code":"no_stock","message":"Sold out."}`, provider.VerdictRefused, `no_stock`, 0},
		"hang":            {"demo.hang", `{}`, `{"milliseconds":1}`, provider.VerdictSucceeded, `{"operation":"demo.hang","operation_id":"op"}`, 2},
		"vanish":          {"demo.vanish", `{}`, `{"milliseconds":1}`, provider.VerdictUnknown, ``, 2},
		"vanish for good": {"demo.vanish_for_good", `{}`, `{"milliseconds":0}`, provider.VerdictUnknown, ``, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry, path := open(t)
			for range 2 {
				outcome := run(t, registry, "op", c.operation, c.target, c.arguments)
				if outcome.Verdict != c.verdict || string(outcome.Result)+outcome.Code != c.result {
					t.Fatalf("%+v %s", outcome, outcome.Result)
				}
			}
			if n := count(t, path, "op"); n != c.effects {
				t.Fatalf("%d effects, want %d", n, c.effects)
			}
			operation, _, _ := registry.Find(c.operation)
			reconciler, ok := operation.(provider.Reconciler)
			if !ok {
				return
			}
			if found := reconciler.Reconcile(t.Context(), provider.Dispatch{OperationID: "op"}); found.Verdict != provider.VerdictSucceeded {
				t.Fatalf("looked up: %+v", found)
			}
			if found := reconciler.Reconcile(t.Context(), provider.Dispatch{OperationID: "other"}); found.Verdict != provider.VerdictRefused {
				t.Fatalf("another looked up: %+v", found)
			}
		})
	}
}

func TestNotesAreListedAfterAnotherStart(t *testing.T) {
	t.Parallel()
	registry, path := open(t)
	run(t, registry, "1", "demo.note.write", `{"notebook":"a"}`, `{"text":"first"}`)
	run(t, registry, "2", "demo.note.write", `{"notebook":"b"}`, `{"text":"other"}`)
	run(t, registry, "3", "demo.note.write", `{"notebook":"a"}`, `{"text":"second"}`)
	file, err := demo.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	again, err := provider.NewRegistry(demo.Operations(file)...)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, again, "4", "demo.note.list", `{"notebook":"a"}`, `{}`); string(got.Result) != `{"notes":["first","second"]}` {
		t.Fatalf("%s", got.Result)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
}

func TestHangEndsWithItsContextAndDoesNothing(t *testing.T) {
	t.Parallel()
	registry, path := open(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		operation, _, _ := registry.Find("demo.hang")
		if outcome := operation.Execute(ctx, provider.Dispatch{OperationID: "op", Plan: strictjson.Raw(`{"milliseconds":600000}`)}); outcome.Verdict != provider.VerdictUnknown {
			t.Fatalf("%+v", outcome)
		}
	})
	if n := count(t, path, "op"); n != 0 {
		t.Fatalf("%d effects", n)
	}
}

func TestNoLeakedCredentialSurvivesTheContract(t *testing.T) {
	t.Parallel()
	registry, _ := open(t)
	_, d, _ := registry.Find("demo.leak")
	result, cut := provider.Project(run(t, registry, "1", "demo.leak", `{}`, `{}`).Result, d.PublicNames)
	if !cut || strings.Contains(string(result), "demodemo") || !strings.Contains(string(result), `"name":"color"`) {
		t.Errorf("%s", result)
	}
	message := provider.Sanitize(run(t, registry, "2", "demo.leak", `{}`, `{"fail":true}`).Message, 500)
	if strings.Contains(message, "demodemo") || strings.ContainsAny(message, "\x00\x1b") || !strings.HasPrefix(message, "The demo said: ") {
		t.Errorf("%s", message)
	}
}

func TestPlansSayWhatIsShownAndDecided(t *testing.T) {
	t.Parallel()
	registry, _ := open(t)
	operation, _, _ := registry.Find("demo.note.write")
	call := provider.Call{Target: strictjson.Raw(`{"notebook":"work"}`), Arguments: strictjson.Raw(`{"text":"buy milk"}`)}
	if diff := cmp.Diff(provider.Facts{"notebook": provider.Text("work")}, operation.Facts(call)); diff != "" {
		t.Error(diff)
	}
	plan, err := operation.Resolve(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	want := provider.Plan{
		Content: strictjson.Raw(`{"notebook":"work","text":"buy milk"}`),
		Presentation: provider.Presentation{
			Title: "Write a note", Summary: `Add one note to the notebook "work".`,
			Details: []provider.Detail{{Label: "Notebook", Value: "work"}, {Label: "Text", Value: "buy milk"}},
		},
		Facts: provider.Facts{"length": provider.Number(8)},
	}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Error(diff)
	}
	for _, d := range registry.Descriptors() { // schemas are compiled when first used: here
		for _, schema := range []*provider.Schema{d.Target, d.Arguments} {
			if _, err := schema.Validate(strictjson.Raw(`{}`)); err != nil {
				t.Errorf("%s: %v", d.Name, err)
			}
		}
	}
}

func TestABrokenFileIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "effects.jsonl")
	if err := os.WriteFile(path, []byte("{}\n{\"operation_id\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := demo.OpenFile(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Fatalf("%v", err)
	}
}
