package script_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"countersign/company/conversation"
	"countersign/company/operation"
	"countersign/company/script"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// jacket is the story: is the jacket there, hold it, rather in another size.
const jacket = `
time_zone = "America/Los_Angeles"

[default]
text = "I can tell you what is in the store, and hold it for you."

[[rule]]
name = "ask"
phrases = ["Insulated Jacket", "medium"]
text = "Yes, the Stormline Insulated Jacket is there in medium. Shall I hold it until tomorrow evening?"
data = { sku = "stormline-insulated-m", left = 2 }

[[rule]]
name = "hold"
after = "ask"
pattern = '\bhold\b'
text = "I can hold it until {tomorrow_words}, 18:00. Confirm whenever you're ready."
[rule.propose]
action = "hold jacket"
summary = "Hold the Stormline Insulated Jacket (M) at the store in Riverside until {tomorrow_words}, 18:00. No cost."
terms = { sku = "stormline-insulated-m", until = "{tomorrow 18:00}", day = "{tomorrow}" }
expires_in = "30m"
url = "https://outdoor.example/holds/{operation_id}"

[[rule]]
pattern = 'rather (in )?(?P<size>small|large)'
text = "Here it is in {size}."
[rule.revise]
action = "hold jacket"
summary = "Hold the Stormline Insulated Jacket ({size}) at the store in Riverside until {tomorrow_words}, 18:00. No cost."
terms = { size = "{size}", until = "{tomorrow 18:00}" }

[[rule]]
phrases = ["thank"]
while = { action = "hold jacket", state = "succeeded" }
text = "It waits for you at the till."
`

func clerk(t *testing.T, text string) *script.Clerk {
	t.Helper()
	var rules script.Rules
	if err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&rules); err != nil {
		t.Fatal(err)
	}
	c, err := script.NewClerk(rules)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func say(texts ...string) (messages []poppy.Message) {
	for _, text := range texts {
		messages = append(messages, poppy.Message{ID: "msg_1", Role: poppy.RoleUser, Sender: poppy.SenderAgent, Text: text})
	}
	return messages
}

func reply(t *testing.T, c *script.Clerk, turn conversation.Turn) conversation.Reply {
	t.Helper()
	r, err := c.Reply(t.Context(), turn)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// It is the evening of 8 October in California, the 9th in UTC.
var evening = time.Date(2026, 10, 9, 3, 0, 0, 0, time.UTC)

func TestTheStoryOfTheJacket(t *testing.T) {
	t.Parallel()
	c := clerk(t, jacket)
	first := reply(t, c, conversation.Turn{Now: evening, Messages: say("Do you have the stormline INSULATED   jacket in Medium?")})
	if m := first.Messages; len(m) != 1 || !strings.HasPrefix(m[0].Text, "Yes,") || string(m[0].Data) != `{"left":2,"sku":"stormline-insulated-m"}` || m[0].Propose != nil {
		t.Fatalf("got %+v", m)
	}
	second := reply(t, c, conversation.Turn{Now: evening, Messages: say("Please hold one."), Notes: first.Notes})
	want := operation.Proposal{Key: "hold jacket", Revision: operation.Revision{
		Summary:   "Hold the Stormline Insulated Jacket (M) at the store in Riverside until Friday, 9 October 2026, 18:00. No cost.",
		Terms:     poppy.Object(`{"day":"2026-10-09","sku":"stormline-insulated-m","until":"2026-10-09T18:00:00-07:00"}`),
		ExpiresIn: 30 * time.Minute, URL: "https://outdoor.example/holds/{operation_id}",
	}}
	if diff := cmp.Diff(&want, second.Messages[0].Propose); diff != "" {
		t.Errorf("proposal (-want +got):\n%s", diff)
	}
	open := operation.Tracked{Key: "hold jacket", Operation: poppy.Operation{OperationID: "op_1", State: poppy.OperationProposed}}
	third := reply(t, c, conversation.Turn{Now: evening, Messages: say("I'd RATHER in Large"), Notes: second.Notes, Operations: []operation.Tracked{open}})
	if m := third.Messages[0]; m.Text != "Here it is in Large." || m.Revise == nil || m.Revise.OperationID != "op_1" ||
		string(m.Revise.Terms) != `{"size":"Large","until":"2026-10-09T18:00:00-07:00"}` || m.Revise.ExpiresIn != 30*time.Minute || m.Revise.URL != want.URL {
		t.Errorf("got %+v, revision %+v", m, m.Revise)
	}
	// The time zone is the User's when they name one.
	berlin := poppy.Context{"time_zone": strictjson.Raw(`"Europe/Berlin"`)}
	if m := reply(t, c, conversation.Turn{Now: evening, Context: berlin, Messages: say("hold it"), Notes: first.Notes}).Messages[0]; !strings.Contains(string(m.Propose.Terms), `"2026-10-10T18:00:00+02:00"`) {
		t.Errorf("terms %s", m.Propose.Terms)
	}
	odd := poppy.Context{"time_zone": strictjson.Raw(`"Local"`)}
	if m := reply(t, c, conversation.Turn{Now: evening, Context: odd, Messages: say("hold it"), Notes: first.Notes}).Messages[0]; !strings.Contains(string(m.Propose.Terms), `-07:00`) {
		t.Errorf("terms %s", m.Propose.Terms)
	}
}

func TestARuleFitsOnlyWhenAllOfItDoes(t *testing.T) {
	t.Parallel()
	c := clerk(t, jacket)
	tracked := func(state poppy.OperationState) []operation.Tracked {
		return []operation.Tracked{
			{Key: "other", Operation: poppy.Operation{State: poppy.OperationProposed}},
			{Key: "hold jacket", Operation: poppy.Operation{State: state}},
			{Key: "hold jacket", Operation: poppy.Operation{State: poppy.OperationProposed}}, // an older one
		}
	}
	const none = "I can tell you"
	for name, test := range map[string]struct {
		text       string
		operations []operation.Tracked
		want       string
	}{
		"all phrases":                       {"insulated jacket, medium", nil, "Yes,"},
		"one phrase of two":                 {"insulated jacket", nil, none},
		"spelled otherwise in Unicode":      {"ｉｎｓｕｌａｔｅｄ ｊａｃｋｅｔ ｍｅｄｉｕｍ", nil, "Yes,"},
		"before the rule that must precede": {"hold it", nil, none},
		"a part of a word":                  {"threshold", nil, none},
		"revising what is proposed":         {"rather large", tracked(poppy.OperationProposed), "Here it is"},
		"revising what is in progress":      {"rather large", tracked(poppy.OperationInProgress), none},
		"revising nothing":                  {"rather large", nil, none},
		"while it is so":                    {"Thanks!", tracked(poppy.OperationSucceeded), "It waits"},
		"while it is not so":                {"Thanks!", tracked(poppy.OperationFailed), none},
		"nothing":                           {"", nil, none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := say(test.text)
			messages[0].Data = poppy.Object(`{}`)
			if m := reply(t, c, conversation.Turn{Now: evening, Messages: messages, Operations: test.operations}).Messages[0]; !strings.HasPrefix(m.Text, test.want) {
				t.Errorf("%q: %q, want %q", test.text, m.Text, test.want)
			}
		})
	}
}

func TestEachMessageIsAnswered(t *testing.T) {
	t.Parallel()
	c := clerk(t, jacket)
	r := reply(t, c, conversation.Turn{Now: evening, Messages: say("insulated jacket in medium?", "please hold it")})
	if len(r.Messages) != 2 || r.Messages[1].Propose == nil {
		t.Fatalf("got %+v", r.Messages)
	}
	if string(r.Notes) != `{"answered":["ask","hold"]}` {
		t.Errorf("notes %s", r.Notes)
	}
}

func TestTheClerkThinksAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	c := clerk(t, "default = { text = \"Hm.\", think_for = \"90s\" }")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		reply(t, c, conversation.Turn{Messages: say("?")})
		if took := time.Since(began); took != 90*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestMistakesInRulesNameTheirField(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ rules, field string }{
		"no default":                   {``, "default.text"},
		"time zone":                    {`time_zone = "Mars/Olympus"`, "time_zone"},
		"time zone of the machine":     {`time_zone = "Local"`, "time_zone"},
		"empty phrase":                 {"[[rule]]\nphrases = [\" \"]\ntext = \"a\"", "rule[0].phrases[0]"},
		"pattern":                      {"[[rule]]\npattern = \"(\"\ntext = \"a\"", "rule[0].pattern"},
		"long pattern":                 {"[[rule]]\npattern = \"" + strings.Repeat("a", 1001) + "\"\ntext = \"a\"", "rule[0].pattern"},
		"says nothing":                 {"[[rule]]\nphrases = [\"a\"]", "rule[0].text"},
		"two of a name":                {"[[rule]]\nname = \"a\"\ntext = \"a\"\n[[rule]]\nname = \"a\"\ntext = \"a\"", "rule[1].name"},
		"after what is not there":      {"[[rule]]\nafter = \"b\"\ntext = \"a\"", "rule[0].after"},
		"while of an unknown action":   {"[[rule]]\nwhile = { action = \"x\", state = \"proposed\" }\ntext = \"a\"", "rule[0].while.action"},
		"while of an unknown state":    {"[[rule]]\nwhile = { action = \"x\", state = \"open\" }\ntext = \"a\"", "rule[0].while.state"},
		"unknown value":                {"[[rule]]\ntext = \"{yesterday}\"", "rule[0].text"},
		"unknown value in data":        {"[[rule]]\ndata = { a = [ { b = \"{size}\" } ] }", "rule[0].data"},
		"impossible hour":              {"[[rule]]\ntext = \"{today 25:00}\"", "rule[0].text"},
		"hour of a day in words":       {"[[rule]]\ntext = \"{today_words 10:00}\"", "rule[0].text"},
		"group of another rule":        {"[[rule]]\npattern = \"(?P<size>x)\"\ntext = \"a\"\n[[rule]]\ntext = \"{size}\"", "rule[1].text"},
		"thinks backwards":             {"[[rule]]\ntext = \"a\"\nthink_for = \"-1s\"", "rule[0].think_for"},
		"no action":                    {"[[rule]]\n[rule.propose]\nsummary = \"s\"", "rule[0].propose.action"},
		"no summary":                   {"[[rule]]\n[rule.propose]\naction = \"a\"", "rule[0].propose.summary"},
		"unknown value in terms":       {"[[rule]]\n[rule.propose]\naction = \"a\"\nsummary = \"s\"\nterms = { a = \"{b}\" }", "rule[0].propose.terms"},
		"expires at once":              {"[[rule]]\n[rule.propose]\naction = \"a\"\nsummary = \"s\"\nexpires_in = \"1ms\"", "rule[0].propose.expires_in"},
		"scope":                        {"[[rule]]\n[rule.propose]\naction = \"a\"\nsummary = \"s\"\nscopes = [\"a b\"]", "rule[0].propose.scopes[0]"},
		"page":                         {"[[rule]]\n[rule.propose]\naction = \"a\"\nsummary = \"s\"\nurl = \"http://outdoor.example/\"", "rule[0].propose.url"},
		"revises what is not proposed": {"[[rule]]\n[rule.revise]\naction = \"a\"\nsummary = \"s\"", "rule[0].revise.action"},
		"proposes and revises":         {"[[rule]]\n[rule.propose]\naction = \"a\"\nsummary = \"s\"\n[rule.revise]\naction = \"a\"", "rule[0].revise"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := test.rules
			if name != "no default" {
				text = strings.Replace("default = { text = \"d\" }\n"+text, "\n[[rule]]", "\n\n[[rule]]", 1)
			}
			var rules script.Rules
			if err := toml.Unmarshal([]byte(text), &rules); err != nil {
				t.Fatal(err)
			}
			c, err := script.NewClerk(rules)
			problem, ok := errors.AsType[script.Problem](err)
			if !ok || c != nil {
				t.Fatalf("got %v, want a problem with %s", err, test.field)
			}
			if !strings.Contains(err.Error(), test.field+" ") {
				t.Errorf("got %v, want a problem with %s", err, test.field)
			}
			if problem.What == "" {
				t.Error("it does not say what is wrong")
			}
		})
	}
}
