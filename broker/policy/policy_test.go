package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"countersign/broker/policy"
	"countersign/broker/provider"
)

const rules = `
@id("all") permit (principal, action, resource in Family::"a") when { resource.effect == "read" };
@id("writer") permit (principal == Client::"writer", action, resource in Family::"a.b");
@id("not-prod") forbid (principal, action == Action::"run_unattended", resource) when { context has env && context.env == "prod" };
@id("typed") permit (principal, action, resource == Operation::"t.x")
when { context.n > 3 && context.on && context.tags.contains("x") };
`

func parse(t testing.TB, text string) *policy.Engine {
	t.Helper()
	engine, err := policy.Parse("policy.cedar", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func yes(rules ...string) policy.Decision { return policy.Decision{Allowed: true, Rules: rules} }
func no(rules ...string) policy.Decision  { return policy.Decision{Rules: rules} }

func TestExplain(t *testing.T) {
	t.Parallel()
	engine := parse(t, rules)
	for name, c := range map[string]struct {
		client, operation string
		effect            provider.Effect
		facts             provider.Facts
		submit, run       policy.Decision
	}{
		"one rule permits":        {"reader", "a.x", provider.Read, nil, yes("all"), yes("all")},
		"both rules are named":    {"writer", "a.b.x", provider.Read, nil, yes("all", "writer"), yes("all", "writer")},
		"nothing matched":         {"reader", "a.x", provider.Change, nil, no(), no()},
		"a family is whole words": {"writer", "a.bc.x", provider.Change, nil, no(), no()},
		"another client":          {"writer2", "a.b.x", provider.Keyed, nil, no(), no()},
		"deny wins":               {"writer", "a.b.x", provider.Change, provider.Facts{"env": provider.Text("prod")}, yes("writer"), no("not-prod")},
		"typed facts": {"reader", "t.x", provider.Change, provider.Facts{
			"n": provider.Number(4), "on": provider.Flag(true), "tags": provider.Texts{"y", "x"},
		}, yes("typed"), yes("typed")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := policy.Request{ClientID: c.client, Operation: c.operation, Effect: c.effect, Facts: c.facts}
			want := policy.Explanation{Submit: c.submit, RunUnattended: c.run}
			if diff := cmp.Diff(want, engine.Explain(request)); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestARuleThatCannotBeEvaluatedDenies(t *testing.T) {
	t.Parallel()
	engine := parse(t, `@id("open") permit (principal, action, resource);
		@id("guard") forbid (principal, action, resource) when { context.n > 3 };`)
	for name, facts := range map[string]provider.Facts{"missing": nil, "of another type": {"n": provider.Text("9")}} {
		decision := engine.MaySubmit(policy.Request{ClientID: "c", Operation: "a.x", Effect: provider.Read, Facts: facts})
		if decision.Allowed || !cmp.Equal(decision.Rules, []string{"guard"}) || len(decision.Faults) != 1 || !strings.HasPrefix(decision.Faults[0], `rule "guard": `) {
			t.Errorf("%s: %+v", name, decision)
		}
	}
	if !engine.MaySubmit(policy.Request{Facts: provider.Facts{"n": provider.Number(3)}}).Allowed {
		t.Error("the rule that can be evaluated does not forbid")
	}
}

func TestNoRulesDenyEverything(t *testing.T) {
	t.Parallel()
	if d := parse(t, "// nothing").MaySubmit(policy.Request{Operation: "a.x", Effect: provider.Read}); d.Allowed || d.Rules != nil {
		t.Fatalf("%+v", d)
	}
}

func TestABrokenFileIsNotLoadedAndSaysWhere(t *testing.T) {
	t.Parallel()
	const good = "@id(\"good\") permit (principal, action, resource);\n"
	for name, c := range map[string]struct {
		text string
		want []string // parts of the error, which must start with file and line
	}{
		"no semicolon":       {"@id(\"a\") permit (principal, action, resource)\n\n@id(\"b\") forbid (principal, action, resource);", []string{":3: ", "no Cedar"}},
		"open quote":         {good + "@id(\"b\") permit (principal, action, resource) when { context.x == \"a };", []string{":2: ", "not terminated"}},
		"no bytes of text":   {"\x00", []string{":", "no Cedar"}},
		"no id":              {good + "\npermit (principal, action, resource);", []string{":3: ", `@id("a-name")`}},
		"id with a space":    {"@id(\"my rule\") permit (principal, action, resource);", []string{":1: ", `@id("a-name")`}},
		"id twice":           {good + good, []string{":2: ", `"good"`, "its own @id"}},
		"unknown action":     {"@id(\"a\") permit (principal, action == Action::\"execute\", resource);", []string{":1: ", `Action::"execute"`, `"run_unattended"`}},
		"action in a set":    {"@id(\"a\") permit (principal, action in [Action::\"submit\", Action::\"run\"], resource);", []string{`Action::"run"`}},
		"action in group":    {"@id(\"a\") permit (principal, action in Action::\"all\", resource);", []string{`Action::"all"`}},
		"unknown principal":  {"@id(\"a\") permit (principal == User::\"x\", action, resource);", []string{`"User"`, `"Client"`}},
		"principal type":     {"@id(\"a\") permit (principal is User, action, resource);", []string{`"User"`}},
		"principal group":    {"@id(\"a\") permit (principal in Client::\"x\", action, resource);", []string{"no groups"}},
		"unknown resource":   {"@id(\"a\") permit (principal, action, resource == Op::\"x.y\");", []string{`"Op"`, `"Operation"`}},
		"family by ==":       {"@id(\"a\") permit (principal, action, resource == Family::\"x\");", []string{`"Family"`, `"Operation"`}},
		"resource type":      {"@id(\"a\") permit (principal, action, resource is Family);", []string{`"Family"`}},
		"resource is in":     {"@id(\"a\") permit (principal, action, resource is Operation in Group::\"x\");", []string{`"Group"`}},
		"unknown attribute":  {"@id(\"a\") forbid (principal, action, resource) when { resource.owner == \"x\" };", []string{`"owner"`, "context.owner"}},
		"has unknown":        {"@id(\"a\") forbid (principal, action, resource) when { resource has owner };", []string{`"owner"`}},
		"attribute of who":   {"@id(\"a\") forbid (principal, action, resource) when { principal.name == \"x\" };", []string{`"name"`, "as a whole"}},
		"unknown effect":     {"@id(\"a\") forbid (principal, action, resource) when { resource.effect == \"write\" };", []string{`"write"`, "change"}},
		"effect turned":      {"@id(\"a\") forbid (principal, action, resource) unless { \"reads\" != resource.effect };", []string{`"reads"`}},
		"entity in when":     {"@id(\"a\") forbid (principal, action, resource) when { principal == User::\"x\" };", []string{`"User"`}},
		"action in when":     {"@id(\"a\") forbid (principal, action, resource) when { action == Action::\"x\" };", []string{`Action::"x"`}},
		"type in when":       {"@id(\"a\") forbid (principal, action, resource) when { resource is Thing };", []string{`"Thing"`}},
		"type in in when":    {"@id(\"a\") forbid (principal, action, resource) when { resource is Thing in Family::\"a\" };", []string{`"Thing"`}},
		"all faults at once": {"permit (principal, action, resource);\npermit (principal, action, resource == X::\"x\");", []string{":1: ", ":2: ", `"X"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "policy.cedar")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			engine, err := policy.Load(path)
			if err == nil || engine != nil {
				t.Fatal("a broken file must not be loaded")
			}
			for _, part := range append(c.want, path+":") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %q", part, err)
				}
			}
		})
	}
}

func TestWhatIsSoundIsLoaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.cedar")
	text := rules + `@id("more") forbid (principal is Client, action in Action::"submit", resource is Operation in Family::"x")
		unless { [Client::"a"].contains(principal) || resource in [Family::"y", Operation::"z.z"] || resource.effect == context.effect };`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load(path); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Fatal("a missing file must be an error")
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("// comment\n", 1<<17)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load(path); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Fatalf("a huge file: %v", err)
	}
}

func TestDefaultFile(t *testing.T) {
	t.Parallel()
	engine := parse(t, policy.Default())
	for name, c := range map[string]struct {
		operation   string
		effect      provider.Effect
		submit, run policy.Decision
	}{
		"demo reads run":         {"demo.echo", provider.Read, yes("demo-changes-ask", "demo-reads"), yes("demo-reads")},
		"demo changes ask":       {"demo.note.write", provider.Change, yes("demo-changes-ask"), no()},
		"company reads run":      {"company.discover", provider.Read, yes("company-reads"), yes("company-reads")},
		"conversations run":      {"company.conversation.say", provider.Change, yes("company-conversations"), yes("company-conversations")},
		"confirmations ask":      {"company.operation.confirm", provider.Keyed, yes("company-operations-ask"), no()},
		"other changes are not":  {"company.feedback.send", provider.Change, no(), no()},
		"other providers either": {"git.push", provider.Read, no(), no()},
	} {
		got := engine.Explain(policy.Request{ClientID: "assistant", Operation: c.operation, Effect: c.effect})
		if diff := cmp.Diff(policy.Explanation{Submit: c.submit, RunUnattended: c.run}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// The example at the end must work for whoever takes the comment marks away.
	example := policy.Default()[strings.Index(policy.Default(), `// @id("no-purchases-at-night")`):]
	engine = parse(t, policy.Default()+strings.ReplaceAll(example, "// ", ""))
	d := engine.MaySubmit(policy.Request{ClientID: "night-shift", Operation: "company.operation.confirm", Effect: provider.Keyed})
	if diff := cmp.Diff(no("no-purchases-at-night"), d); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkExplain(b *testing.B) {
	engine := parse(b, policy.Default())
	for b.Loop() {
		engine.Explain(policy.Request{
			ClientID: "assistant", Operation: "company.conversation.say", Effect: provider.Change,
			Facts: provider.Facts{"company": provider.Text("outdoor.example")},
		})
	}
}

func TestCouldSubmitIgnoresFactsAndNothingElse(t *testing.T) {
	t.Parallel()
	engine, err := policy.Parse("test", []byte(`
@id("one-company") permit (principal == Client::"a", action == Action::"submit", resource in Family::"company")
when { context.company == "outdoor.example" };
@id("not-at-night") forbid (principal, action == Action::"submit", resource) when { context has night && context.night };
@id("never-pay") forbid (principal, action == Action::"submit", resource == Operation::"company.pay");
@id("reads") permit (principal == Client::"b", action == Action::"submit", resource) when { resource.effect == "read" };
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		client, operation string
		effect            provider.Effect
		want              bool
	}{
		{"a", "company.discover", provider.Read, true}, // with the right company
		{"a", "company.pay", provider.Change, false},   // whatever the facts
		{"a", "demo.echo", provider.Read, false},
		{"b", "demo.echo", provider.Read, true},
		{"b", "company.send", provider.Keyed, false},
		{"c", "company.discover", provider.Read, false},
	} {
		got, err := engine.CouldSubmit(t.Context(), test.client, test.operation, test.effect)
		if err != nil || got != test.want {
			t.Errorf("%s %s: %v, %v; want %v", test.client, test.operation, got, err, test.want)
		}
	}
}

func TestUnknownNamesWhatNeverMatches(t *testing.T) {
	t.Parallel()
	engine, err := policy.Parse("test", []byte(`
@id("ok") permit (principal == Client::"a", action == Action::"submit", resource in Family::"company.operation");
@id("typo") forbid (principal == Client::"asistant", action, resource in Family::"dmo");
@id("inside") forbid (principal, action, resource) when { principal == Client::"b" || resource == Operation::"company.operation.confirm" };
`))
	if err != nil {
		t.Fatal(err)
	}
	got := engine.Unknown([]string{"a"}, []string{"company.operation.confirm"})
	want := []string{
		`rule "inside" names Client::"b", which this broker does not have`,
		`rule "typo" names Client::"asistant", which this broker does not have`,
		`rule "typo" names Family::"dmo", which this broker does not have`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if unknown := engine.Unknown([]string{"a", "asistant", "b"}, []string{"company.operation.confirm", "dmo.x"}); unknown != nil {
		t.Errorf("all are known now: %v", unknown)
	}
}
