package conversation_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"countersign/company/conversation"
	"countersign/company/guard"
	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/internal/wake"
	"countersign/poppy"
)

const apology = "company: Sorry, something went wrong on our side and I could not answer that. Please ask again."

func TestWhenTheClerkCanNotAnswerTheCompanySaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]clerk{
		"an error": func(context.Context, conversation.Turn) (conversation.Reply, error) {
			return answers("half"), errors.New("down")
		},
		"a panic": func(context.Context, conversation.Turn) (conversation.Reply, error) { panic("boom") },
		"no time": func(ctx context.Context, _ conversation.Turn) (conversation.Reply, error) {
			<-ctx.Done()
			return conversation.Reply{}, ctx.Err()
		},
		"no message": func(context.Context, conversation.Turn) (conversation.Reply, error) { return answers("first", ""), nil }, // P-7.4-01
		"a message that is too long": func(context.Context, conversation.Turn) (conversation.Reply, error) {
			return answers(strings.Repeat("a", 32_001)), nil
		},
		"an account of somebody signed out": func(context.Context, conversation.Turn) (conversation.Reply, error) {
			r := answers("Your order")
			r.UsedAccount = true
			return r, nil
		},
		"an operation that cannot be": func(context.Context, conversation.Turn) (conversation.Reply, error) {
			return conversation.Reply{Messages: []conversation.Message{{Text: "first"}, {Propose: &operation.Proposal{Key: "k"}}}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			w := newWorld(t, func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
				if calls.Add(1) == 1 {
					return c(ctx, turn)
				}
				return echo(ctx, turn)
			}, func(o *conversation.Options) { o.Timeout = 50 * time.Millisecond })
			id := w.start(guest, "msg_1", "a")
			if got := outline(w.events(guest, id)); got != "user: a\nworking/agent\n"+apology+"\nidle/agent" {
				t.Errorf("got\n%s", got)
			}
			w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_2", "b")).want(t, 202, "")
			if got := outline(w.events(guest, id)); !strings.HasSuffix(got, "company: You said: b\nidle/agent") {
				t.Errorf("afterwards:\n%s", got)
			}
		})
	}
}

func TestWhatIsSaidDuringATurnIsTheNextTurns(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := newWorld(t, func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
		once.Do(func() { close(entered); <-release })
		return echo(ctx, turn)
	})
	id := w.call(guest, "POST", "", text("msg_1", "a")).want(t, 201, "").accepted.ConversationID
	<-entered
	for _, said := range []string{"b", "c"} {
		if r := w.call(guest, "POST", "/"+id+"/messages", text("msg_"+said, said)).want(t, 202, ""); r.accepted.Status != poppy.StatusWorking {
			t.Errorf("status %s", r.accepted.Status)
		}
	}
	close(release)
	if got, want := outline(w.settles(guest, id)), "user: a\nworking/agent\nuser: b\nuser: c\ncompany: You said: a\ncompany: You said: b / c\nidle/agent"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// P-7.12-07
func TestAReplyToAClosedConversationIsDropped(t *testing.T) {
	t.Parallel()
	entered, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
		defer close(returned)
		close(entered)
		<-release
		return propose("hold jacket"), nil
	})
	id := w.call(guest, "POST", "", text("msg_1", "a")).want(t, 201, "").accepted.ConversationID
	<-entered
	w.call(guest, "POST", "/"+id+"/close", "").want(t, 200, "")
	close(release)
	<-returned
	w.stopRun()
	if got := outline(w.events(guest, id)); got != "user: a\nworking/agent\nclosed/agent" {
		t.Errorf("got\n%s", got)
	}
	if list, err := w.operations.Conversation(t.Context(), guest, id, 1); err != nil || len(list) != 0 {
		t.Errorf("operations %v, %v", list, err)
	}
}

// A handoff that finds nobody leaves the turn that is under way alone.
func TestHandoffDuringATurn(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
		close(entered)
		<-release
		return echo(ctx, turn)
	})
	id := w.call(guest, "POST", "", text("msg_1", "a")).want(t, 201, "").accepted.ConversationID
	<-entered
	if r := w.call(guest, "POST", "/"+id+"/handoff", "").want(t, 202, ""); r.accepted.Status != poppy.StatusWorking {
		t.Errorf("status %s", r.accepted.Status)
	}
	close(release)
	if got := outline(w.settles(guest, id)); !strings.HasPrefix(got, "user: a\nworking/agent\nqueued/agent\ncompany: Nobody") || !strings.HasSuffix(got, "working/agent\ncompany: You said: a\nidle/agent") {
		t.Errorf("got\n%s", got)
	}
}

func TestConversationsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := newWorld(t, func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
		if turn.Messages[0].Text == "slow" {
			<-release
		}
		return echo(ctx, turn)
	})
	slow := w.call(guest, "POST", "", text("msg_1", "slow")).want(t, 201, "").accepted.ConversationID
	began := time.Now()
	w.start(otherUser, "msg_1", "quick")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the quick one took %v", took)
	}
	close(release)
	w.settles(guest, slow)
}

func TestAnUnfinishedTurnRunsAgainAfterARestart(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	w := newWorld(t, func(ctx context.Context, _ conversation.Turn) (conversation.Reply, error) {
		close(entered)
		<-ctx.Done()
		return conversation.Reply{}, ctx.Err()
	})
	id := w.call(guest, "POST", "", text("msg_1", "a")).want(t, 201, "").accepted.ConversationID
	<-entered
	w.stopRun()
	if got := outline(w.events(guest, id)); got != "user: a\nworking/agent" {
		t.Errorf("before: got\n%s", got)
	}
	var asker guard.Principal
	w.restart(func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
		asker = turn.Asker
		return echo(ctx, turn)
	})
	w.serve()
	if got := outline(w.settles(guest, id)); got != "user: a\nworking/agent\ncompany: You said: a\nidle/agent" {
		t.Errorf("after: got\n%s", got)
	}
	w.stopRun()
	if asker.SessionID != guest.SessionID || asker.Extensions[poppy.ExtensionOperations] != "1" || asker.UserID != guest.UserID {
		t.Errorf("asker %+v", asker)
	}
}

// The turn's number is a fence: of two services that believe the turn is theirs, the later one writes the reply.
func TestALateReplyWritesNothing(t *testing.T) {
	t.Parallel()
	entered, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(context.Context, conversation.Turn) (conversation.Reply, error) {
		defer close(returned)
		close(entered)
		<-release
		return answers("late"), nil
	})
	id := w.call(guest, "POST", "", text("msg_1", "a")).want(t, 201, "").accepted.ConversationID
	<-entered
	stopFirst := w.stopRun
	w.stopRun = nil // the first one goes on, as a process that was believed dead
	enteredAgain, releaseAgain := make(chan struct{}), make(chan struct{})
	w.restart(func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
		close(enteredAgain)
		<-releaseAgain
		return echo(ctx, turn)
	})
	w.serve()
	<-enteredAgain
	close(release)
	<-returned
	stopFirst()
	if got := outline(w.events(guest, id)); got != "user: a\nworking/agent" {
		t.Errorf("after the late reply: got\n%s", got)
	}
	close(releaseAgain)
	if got := outline(w.settles(guest, id)); got != "user: a\nworking/agent\ncompany: You said: a\nidle/agent" {
		t.Errorf("got\n%s", got)
	}
}

func propose(key string, change ...func(*operation.Proposal)) conversation.Reply {
	p := operation.Proposal{Key: key, Revision: operation.Revision{
		Summary: "Hold the Stormline Insulated Jacket (M) until 18:00. No cost.", Terms: poppy.Object(`{"sku":"m"}`), ExpiresIn: time.Hour,
	}}
	for _, c := range change {
		c(&p)
	}
	return conversation.Reply{Messages: []conversation.Message{{Text: "I can hold it. Confirm whenever you're ready.", Propose: &p}}}
}

// operations reads the operations in a conversation's messages.
func operations(t *testing.T, events []poppy.Event) (list []poppy.Operation) {
	t.Helper()
	for _, e := range events {
		if e.Message != nil && e.Message.Operation != nil {
			o, err := poppy.ParseOperation(e.Message.Operation)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, o)
		}
	}
	return list
}

// O-4.3-01, O-4.3-02, O-4.3-03, O-1-02, O-3.1-01, P-7.12-09, P-7.11-13
func TestAMessageCarriesTheOperationThatItProposesAndConfirmsNone(t *testing.T) {
	t.Parallel()
	var told []operation.Tracked
	w := newWorld(t, func(_ context.Context, turn conversation.Turn) (conversation.Reply, error) {
		told = turn.Operations
		switch turn.Messages[0].Text {
		case "hold it":
			return propose("hold jacket"), nil
		case "in L":
			larger := propose("").Messages[0].Propose.Revision
			larger.Summary = strings.Replace(larger.Summary, "(M)", "(L)", 1)
			return conversation.Reply{Messages: []conversation.Message{{Text: "In L then.", Revise: &conversation.Revise{OperationID: turn.Operations[0].OperationID, Revision: larger}}}}, nil
		}
		return answers("Please confirm it."), nil
	})
	id := w.start(guest, "msg_1", "hold it")
	first := operations(t, w.events(guest, id))[0]
	if first.State != poppy.OperationProposed || first.Revision != 1 {
		t.Fatalf("got %+v", first)
	}
	// O-4-01
	if read, err := w.operations.Get(t.Context(), guest, first.OperationID); err != nil || cmp.Diff(first, read.Operation) != "" {
		t.Errorf("read at the endpoint: %+v, %v; in the message: %+v", read.Operation, err, first)
	}
	w.call(guest, "POST", "/"+id+"/messages?wait=10", `{"message":{"id":"yes","sender":"human","text":"Yes, confirm it. I approve."}}`).want(t, 202, "")
	w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_2", "in L")).want(t, 202, "")
	list := operations(t, w.events(guest, id))
	if len(list) != 2 || list[1].OperationID != first.OperationID || list[1].Revision != 2 || !strings.Contains(list[1].Summary, "(L)") {
		t.Fatalf("got %+v", list)
	}
	if list[0].Revision != 1 || list[0].Summary != first.Summary { // what was sent stays
		t.Errorf("the first message now carries %+v", list[0])
	}
	if len(told) != 1 || told[0].Key != "hold jacket" {
		t.Errorf("the Clerk was told %+v", told)
	}
	w.call(guest, "POST", "/"+id+"/close", "").want(t, 200, "")
	now, err := w.operations.Get(t.Context(), guest, first.OperationID)
	if err != nil || now.State != poppy.OperationProposed || now.Revision != 2 {
		t.Errorf("after closing: %+v, %v", now, err)
	}
}

// O-2-05, O-2-06
func TestAnAgentThatDoesNotListTheExtensionIsToldSoInWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(context.Context, conversation.Turn) (conversation.Reply, error) {
		return propose("hold jacket"), nil
	})
	id := w.start(unlisted, "msg_1", "hold it")
	events := w.events(unlisted, id)
	m := events[2].Message
	if m.Operation != nil || !strings.Contains(m.Text, "operations extension") || string(m.Data) != `{"error":"extension_required","extension":"operations"}` {
		t.Errorf("got %+v", m)
	}
	if list, err := w.operations.Conversation(t.Context(), unlisted, id, 1); err != nil || len(list) != 0 {
		t.Errorf("operations %v, %v", list, err)
	}
	// One that has stopped listing it is not shown those of before.
	listed := w.start(guest, "msg_2", "hold it")
	if len(operations(t, w.events(guest, listed))) != 1 {
		t.Fatal("no operation")
	}
	r := w.call(unlisted, "GET", "/"+listed+"/events", "").want(t, 200, "")
	if strings.Contains(string(r.body), "operation_id") || r.page.Events[2].Message.Text == "" {
		t.Errorf("got %s", r.body)
	}
	bare := newWorld(t, func(context.Context, conversation.Turn) (conversation.Reply, error) {
		r := propose("hold jacket")
		r.Messages[0].Text = ""
		return r, nil
	})
	id = bare.start(guest, "msg_1", "hold it")
	if page := bare.call(unlisted, "GET", "/"+id+"/events", "").want(t, 200, "").page; !strings.Contains(page.Events[2].Message.Text, "extension") {
		t.Errorf("a message that was only an operation: %+v", page.Events[2].Message)
	}
}

// P-7.2-04: an operation that is proposed to somebody signed in is the account's, and so is what tells of it.
func TestAProposalToSomebodySignedInMakesTheConversationTheAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(context.Context, conversation.Turn) (conversation.Reply, error) {
		return propose("hold jacket"), nil
	})
	id := w.start(signedIn, "msg_1", "hold it")
	w.call(guest, "GET", "/"+id+"/events", "").want(t, 403, poppy.ErrSignInRequired)
	signedOut := w.start(guest, "msg_2", "hold it")
	w.call(otherAccount, "GET", "/"+signedOut+"/events", "").want(t, 200, "")
}

// P-7.2-06: while nothing had used an account, Sessions of two accounts could both ask. The first that uses its own decides.
func TestAConversationDoesNotGoFromOneAccountToAnother(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w := newWorld(t, func(context.Context, conversation.Turn) (conversation.Reply, error) {
		once.Do(func() { close(entered); <-release })
		return propose("hold jacket"), nil
	})
	id := w.call(signedIn, "POST", "", text("msg_1", "hold it")).want(t, 201, "").accepted.ConversationID
	<-entered
	w.call(otherAccount, "POST", "/"+id+"/messages", text("msg_2", "hold it for work")).want(t, 202, "")
	close(release)
	events := w.settles(signedIn, id)
	if len(operations(t, events)) != 1 || !strings.HasSuffix(outline(events), apology+"\nidle/agent") {
		t.Errorf("got\n%s", outline(events))
	}
	w.call(otherAccount, "GET", "/"+id+"/events", "").want(t, 403, poppy.ErrSignInRequired)
}

// O-3.2-03: the conversation goes on in another Session, the operation of a signed-out one does not.
func TestTheClerkIsToldTheOperationsThatTheAskerMayUse(t *testing.T) {
	t.Parallel()
	var told int
	w := newWorld(t, func(_ context.Context, turn conversation.Turn) (conversation.Reply, error) {
		told = len(turn.Operations)
		return propose("hold jacket"), nil
	})
	id := w.start(guest, "msg_1", "hold it")
	w.call(otherSession, "POST", "/"+id+"/messages?wait=10", text("msg_2", "hold it")).want(t, 202, "")
	list := operations(t, w.events(guest, id))
	if told != 0 || len(list) != 2 || list[0].OperationID == list[1].OperationID {
		t.Errorf("told of %d, proposed %+v", told, list)
	}
	w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_3", "hold it")).want(t, 202, "")
	if told != 1 {
		t.Errorf("its own Session: told of %d", told)
	}
}

// If an operation changes under a reply, the Clerk is asked again, with the operation as it then is.
func TestARevisionOfWhatIsNoLongerProposedIsThoughtOverAgain(t *testing.T) {
	t.Parallel()
	var w *world
	var calls atomic.Int64
	revise := func(turn conversation.Turn) conversation.Reply {
		return conversation.Reply{Messages: []conversation.Message{
			{Text: "Changed:"},
			{Revise: &conversation.Revise{OperationID: turn.Operations[0].OperationID, Revision: operation.Revision{Summary: "Hold it in L.", ExpiresIn: time.Hour}}},
		}}
	}
	w = newWorld(t, func(_ context.Context, turn conversation.Turn) (conversation.Reply, error) {
		switch turn.Messages[0].Text {
		case "hold it":
			return propose("hold jacket"), nil
		case "always too late":
			return revise(turn), nil
		}
		if calls.Add(1) == 1 {
			if _, err := w.operations.Cancel(t.Context(), guest, turn.Operations[0].OperationID); err != nil {
				t.Error(err)
			}
			return revise(turn), nil
		}
		return answers("It is " + string(turn.Operations[0].State)), nil
	})
	id := w.start(guest, "msg_1", "hold it")
	w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_2", "in L")).want(t, 202, "")
	if got := outline(w.events(guest, id)); !strings.HasSuffix(got, "user: in L\nworking/agent\ncompany: It is cancelled\nidle/agent") {
		t.Errorf("got\n%s", got)
	}
	w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_3", "always too late")).want(t, 202, "")
	if got := outline(w.events(guest, id)); !strings.HasSuffix(got, "user: always too late\nworking/agent\n"+apology+"\nidle/agent") {
		t.Errorf("got\n%s", got)
	}
}

func TestNotesAreKeptForTheNextTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ context.Context, turn conversation.Turn) (conversation.Reply, error) {
		r := answers("notes: " + string(turn.Notes))
		if turn.Messages[0].Text != "keep" {
			r.Notes = strictjson.Raw(`{"last":"` + turn.Messages[0].Text + `"}`)
		}
		return r, nil
	})
	id := w.start(guest, "msg_1", "a")
	for i, said := range []string{"b", "keep", "c"} {
		w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_n"+strconv.Itoa(i), said)).want(t, 202, "")
	}
	var replies []string
	for _, e := range w.events(guest, id) {
		if e.Message != nil && e.Message.Role == poppy.RoleCompany {
			replies = append(replies, e.Message.Text)
		}
	}
	if got, want := strings.Join(replies, "; "), `notes: ; notes: {"last":"a"}; notes: {"last":"b"}; notes: {"last":"b"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// P-7.5-11, P-7.5-12, P-7.5-13, P-7.5-14, P-7.5-15, P-7.5-17
func TestHowLongAReadIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "company.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := conversation.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, db: db}
		w.service = conversation.New(conversation.Options{
			Database: db, Hub: new(wake.Hub), Log: quiet(), Now: time.Now,
			Clerk: clerk(func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
				time.Sleep(8 * time.Second)
				return echo(ctx, turn)
			}),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = w.service.Run(ctx) })
		defer group.Wait()
		defer cancel()
		handler := w.handler()
		do := func(method, place, body string) (poppy.Page, time.Duration) {
			began := time.Now()
			request := httptest.NewRequestWithContext(ctx, method, path+place, strings.NewReader(body))
			asking, err := strictjson.Marshal(guest)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Asking", string(asking))
			request.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code >= 300 {
				t.Fatalf("%d %s", recorder.Code, recorder.Body)
			}
			page, err := poppy.ParsePage(recorder.Body.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			return page, time.Since(began)
		}
		// A message is held until the reply is there, its own event does not count.
		page, took := do("POST", "?wait=20", text("msg_1", "a"))
		if took != 8*time.Second || len(page.Events) != 4 || page.Status != poppy.StatusIdle {
			t.Errorf("a message: %v\n%s", took, outline(page.Events))
		}
		id := page.ConversationID
		// If the reply takes longer than wait, what there is comes.
		page, took = do("POST", "/"+id+"/messages?wait=3&cursor="+page.Cursor, text("msg_2", "b"))
		if took != 3*time.Second || len(page.Events) != 2 || page.Status != poppy.StatusWorking {
			t.Errorf("a message with a short wait: %v\n%s", took, outline(page.Events))
		}
		// A read is held until an event comes.
		if page, took = do("GET", "/"+id+"/events?wait=20&cursor="+page.Cursor, ""); took != 5*time.Second || len(page.Events) != 2 {
			t.Errorf("a read with a reply coming: %v\n%s", took, outline(page.Events))
		}
		cursor := page.Cursor
		for wait, want := range map[string]time.Duration{
			"": 0, "&wait=0": 0, "&wait=7": 7 * time.Second, "&wait=25": 25 * time.Second, "&wait=26": 25 * time.Second,
			"&wait=100000": 25 * time.Second, "&wait=99999999999999999999": 25 * time.Second,
		} {
			page, took = do("GET", "/"+id+"/events?cursor="+cursor+wait, "")
			if took != want || page.Events == nil || len(page.Events) != 0 || page.Cursor != cursor {
				t.Errorf("%q: held %v, want %v; %+v", wait, took, want, page)
			}
		}
		// With an event to return nothing waits.
		if page, took = do("GET", "/"+id+"/events?wait=20", ""); took != 0 || len(page.Events) != 8 {
			t.Errorf("a read from the beginning: %v, %d events", took, len(page.Events))
		}
		// Who hangs up is not waited for.
		gone, hangUp := context.WithTimeout(ctx, time.Second)
		defer hangUp()
		began := time.Now()
		if _, err := w.service.Read(gone, guest, id, cursor, 20*time.Second); err != nil || time.Since(began) != time.Second {
			t.Errorf("hung up: %v after %v", err, time.Since(began))
		}
		// Closing is an event too.
		group.Go(func() {
			time.Sleep(2 * time.Second)
			if _, err := w.service.Close(ctx, guest, id); err != nil {
				t.Error(err)
			}
		})
		if page, took = do("GET", "/"+id+"/events?wait=20&cursor="+cursor, ""); took != 2*time.Second || outline(page.Events) != "closed/agent" {
			t.Errorf("closed meanwhile: %v\n%s", took, outline(page.Events))
		}
		// After it nothing more can come, so nothing waits.
		if page, took = do("GET", "/"+id+"/events?wait=20&cursor="+page.Cursor, ""); took != 0 || len(page.Events) != 0 {
			t.Errorf("closed before: %v\n%s", took, outline(page.Events))
		}
	})
}

// FuzzMessage sends any body to both places that take messages. Whatever comes, the answer is one that the protocol has, and
// what was accepted is accepted again as the same.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"message":{"id":"m","sender":"agent","text":"a","data":{"a":[1.5e3,null]},"context":{"locale":"en"}}}`))
	f.Add([]byte(`{"message":{"id":"m","sender":"human","context":{}},"parent_conversation_id":"cnv_1"}`))
	f.Add([]byte(`{"message":{"id":"m","sender":"agent","text":"\ud800"}}`))
	f.Add([]byte(`{"message":{"id":"m","sender":"agent","data":{"n":1e400,"m":-0}}}`))
	f.Add([]byte(`[`))
	db, err := database.Open(f.Context(), filepath.Join(f.TempDir(), "company.db"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = db.Close() })
	if err := conversation.Migrate(f.Context(), db); err != nil {
		f.Fatal(err)
	}
	w := &world{db: db, service: conversation.New(conversation.Options{Database: db, Hub: new(wake.Hub), Clerk: clerk(echo), Log: quiet(), Now: time.Now})}
	handler := w.handler()
	var users atomic.Int64
	f.Fuzz(func(t *testing.T, body []byte) {
		by := with(guest, func(p *guard.Principal) { p.UserID = "u-" + strconv.FormatInt(users.Add(1), 10) })
		asking, err := strictjson.Marshal(by)
		if err != nil {
			t.Fatal(err)
		}
		post := func(place string, body []byte) (int, string) {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path+place, strings.NewReader(string(body)))
			request.Header.Set("Asking", string(asking))
			request.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			return recorder.Code, recorder.Body.String()
		}
		status, first := post("", body)
		switch status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			return
		case http.StatusNotFound: // a parent_conversation_id
			return
		case http.StatusCreated:
		default:
			t.Fatalf("%d %s", status, first)
		}
		if status, again := post("", body); status != http.StatusCreated || again != first {
			t.Fatalf("again: %d %s, first %s", status, again, first)
		}
		accepted, err := poppy.ParseAccepted([]byte(first))
		if err != nil {
			t.Fatal(err)
		}
		if status, sent := post("/"+accepted.ConversationID+"/messages", body); status != http.StatusConflict {
			t.Fatalf("sent as a later message: %d %s", status, sent)
		}
		page, err := w.service.Read(t.Context(), by, accepted.ConversationID, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		written, err := strictjson.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := poppy.ParsePage(written); err != nil {
			t.Fatalf("a Personal Agent cannot read it back: %v\n%s", err, written)
		}
	})
}
