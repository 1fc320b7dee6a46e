package conversation_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"countersign/company/conversation"
	"countersign/company/guard"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// P-7.3-01, P-7.3-02, P-7.3-03, P-7.5-01, P-7.5-03, P-7.5-04, P-7.5-05, P-7.5-08, P-7.5-16, P-7.4-15, P-7.4-16, P-7.7-02, P-7.7-03,
// P-7.7-07, P-7.7-09, P-7.2-07, P-7.2-08, P-7.2-09, P-7.11-01
func TestAConversationIsTheOrderedListOfWhatBothSidesSaidAndDid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	first := w.call(guest, "POST", "", `{"conversation_id":"cnv_mine","message":{"id":"msg_1","sender":"agent","role":"company","text":"Is it there?","data":{"sku":"m"}}}`).
		want(t, http.StatusCreated, "").accepted
	if first.Status != poppy.StatusWorking || first.Responder != poppy.ResponderAgent || first.ConversationID == "cnv_mine" {
		t.Fatalf("got %+v", first)
	}
	w.settles(guest, first.ConversationID)
	second := w.call(guest, "POST", "/"+first.ConversationID+"/messages", `{"message":{"id":"msg_2","sender":"human","text":"In medium, please."}}`).
		want(t, http.StatusAccepted, "").accepted
	if second != first {
		t.Errorf("second %+v, want the same fields as %+v", second, first)
	}
	events := w.settles(guest, first.ConversationID)
	want := "user: Is it there?\nworking/agent\ncompany: You said: Is it there?\nidle/agent\n" +
		"user: In medium, please.\nworking/agent\ncompany: You said: In medium, please.\nidle/agent"
	if got := outline(events); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	prefixed := regexp.MustCompile(`^(cnv|evt|msg)_[A-Za-z0-9_-]{1,250}$`)
	ids := map[string]bool{}
	for i, e := range events {
		if !prefixed.MatchString(e.ID) || ids[e.ID] || time.Since(e.CreatedAt.Time).Abs() > time.Minute {
			t.Errorf("event %+v", e)
		}
		ids[e.ID] = true
		if e.Message != nil && e.Message.Role == poppy.RoleCompany && (e.Message.Sender != poppy.SenderAgent || !prefixed.MatchString(e.Message.ID) || e.Message.Context != nil) {
			t.Errorf("event %d: %+v", i, e.Message)
		}
	}
	mine := events[0].Message
	if mine.ID != "msg_1" || mine.Sender != poppy.SenderAgent || string(mine.Data) != `{"sku":"m"}` || mine.Role != poppy.RoleUser { // Q8
		t.Errorf("the agent's own message: %+v", mine)
	}
	if events[4].Message.Sender != poppy.SenderHuman {
		t.Errorf("the User's own words: %+v", events[4].Message)
	}
	if again := w.events(guest, first.ConversationID); cmp.Diff(events, again) != "" {
		t.Error("two reads differ")
	}
}

// P-7.3-06, P-7.3-08, P-7.3-09
func TestAMessageThatComesAgainIsAnsweredAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	started := w.call(guest, "POST", "", `{"message":{"id":"msg_1","sender":"agent","text":"a","data":{"x":1,"y":[2]},"context":{"locale":"en-US"}}}`).want(t, 201, "")
	id := started.accepted.ConversationID
	w.settles(guest, id)
	sent := w.call(guest, "POST", "/"+id+"/messages", text("msg_2", "b")).want(t, 202, "")
	before := w.settles(guest, id)
	other := w.start(guest, "msg_other", "elsewhere")

	const same = `{"message":{"context":{"locale":"en-US"},"data":{"y":[2.0],"x":1},"text":"\u0061","sender":"agent","id":"msg_1","role":"company","new":true}}`
	for name, test := range map[string]struct {
		by          guard.Principal
		place, body string
		want        response // nothing: message_id_conflict
	}{
		"the same, spelled otherwise":         {guest, "", same, started},
		"from another Session":                {otherSession, "", same, started},
		"from another Session, signed in":     {signedIn, "", same, started},
		"a later message":                     {guest, "/" + id + "/messages", text("msg_2", "b"), sent},
		"another text":                        {guest, "", text("msg_1", "b"), response{}},
		"another sender":                      {guest, "", strings.Replace(same, `"sender":"agent"`, `"sender":"human"`, 1), response{}},
		"other data":                          {guest, "", strings.Replace(same, `"x":1`, `"x":2`, 1), response{}},
		"no data":                             {guest, "", strings.Replace(same, `"data":{"y":[2.0],"x":1},`, ``, 1), response{}},
		"another context":                     {guest, "", strings.Replace(same, `en-US`, `de-DE`, 1), response{}},
		"a first message sent later":          {guest, "/" + id + "/messages", same, response{}},
		"a later message sent as a first":     {guest, "", text("msg_2", "b"), response{}},
		"a later one in another conversation": {guest, "/" + other + "/messages", text("msg_2", "b"), response{}},
	} {
		for _, closed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, closed %v", name, closed), func(t *testing.T) {
				if closed {
					w.call(guest, "POST", "/"+id+"/close", "").want(t, 200, "")
				}
				r := w.call(test.by, "POST", test.place, test.body)
				if test.want.status == 0 {
					r.want(t, http.StatusConflict, poppy.ErrMessageIDConflict)
				} else if r.want(t, test.want.status, ""); string(r.body) != string(test.want.body) {
					t.Errorf("got %s, want %s", r.body, test.want.body)
				}
				events := w.events(guest, id)
				if len(events) > len(before)+1 || outline(events[:len(before)]) != outline(before) {
					t.Errorf("events were added:\n%s", outline(events))
				}
			})
		}
	}
	// The ID is the User's: another User's message with it is another message.
	if r := w.call(otherUser, "POST", "", same).want(t, 201, ""); r.accepted.ConversationID == id {
		t.Error("another User was given the conversation")
	}
}

// P-7.3-07
func TestAFirstMessageSentManyTimesAtOnceStartsOneConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	var mutex sync.Mutex
	found := map[string]int{}
	var group sync.WaitGroup
	for i := range 50 {
		by := with(guest, func(p *guard.Principal) { p.SessionID = "ses_" + strconv.Itoa(i) })
		group.Go(func() {
			r, err := w.try(by, "POST", "", text("msg_1", "Is it there?"))
			if err != nil || r.status != http.StatusCreated {
				t.Errorf("%d %s, %v", r.status, r.body, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			found[r.accepted.ConversationID]++
		})
	}
	group.Wait()
	if len(found) != 1 {
		t.Fatalf("conversations %v", found)
	}
	for id := range found {
		if got := outline(w.settles(guest, id)); got != "user: Is it there?\nworking/agent\ncompany: You said: Is it there?\nidle/agent" {
			t.Errorf("got\n%s", got)
		}
	}
	var n int
	if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM conversation`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d conversations are kept, %v", n, err)
	}
}

// P-7.3-11, P-7.3-12, P-7.3-13, P-7.5-16
func TestAMessageWithWaitIsAnsweredWithTheReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	first := w.call(guest, "POST", "?wait=10", text("msg_1", "a")).want(t, 201, "").page
	id := first.ConversationID
	if got, want := outline(first.Events), "user: a\nworking/agent\ncompany: You said: a\nidle/agent"; got != want || first.Status != poppy.StatusIdle {
		t.Fatalf("got\n%s\n%s", got, first.Status)
	}
	second := w.call(guest, "POST", "/"+id+"/messages?wait=10&cursor="+first.Cursor, text("msg_2", "b")).want(t, 202, "").page
	if got, want := outline(second.Events), "user: b\nworking/agent\ncompany: You said: b\nidle/agent"; got != want {
		t.Errorf("from a cursor: got\n%s", got)
	}
	// Without a cursor it reads from the start.
	third := w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_3", "c")).want(t, 202, "").page
	if len(third.Events) != 12 || third.Events[0].ID != first.Events[0].ID {
		t.Errorf("without a cursor: got\n%s", outline(third.Events))
	}
	// So does a retry, whose reply is there already.
	if again := w.call(guest, "POST", "?wait=10", text("msg_1", "a")).want(t, 201, "").page; len(again.Events) != 12 {
		t.Errorf("again: got\n%s", outline(again.Events))
	}
	// wait=0 asks for a read too, a cursor alone does not (Q15).
	if r := w.call(guest, "POST", "/"+id+"/messages?wait=0", text("msg_4", "d")).want(t, 202, ""); len(r.page.Events) < 13 {
		t.Errorf("wait=0: %s", r.body)
	}
	if r := w.call(guest, "POST", "/"+id+"/messages?cursor="+first.Cursor, text("msg_5", "e")).want(t, 202, ""); r.accepted.ConversationID != id {
		t.Errorf("cursor alone: %s", r.body)
	}
	// A message that says nothing has no reply to wait for.
	w.settles(guest, id)
	began := time.Now()
	w.call(guest, "POST", "/"+id+"/messages?wait=10", `{"message":{"id":"msg_6","sender":"agent","context":{}}}`).want(t, 202, "")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a message with only context was held for %v", took)
	}
}

// P-7.4-01, P-7.2-07, P-7.2-11, P-7.13-02
func TestMessagesThatAreRefusedAndWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id := w.start(guest, "msg_0", "hello")
	before := len(w.events(guest, id))
	message := func(members string) string { return `{"message":{` + members + `}}` }
	long := strings.Repeat("é", 32_000)
	for name, test := range map[string]struct {
		body   string
		status int
		code   poppy.ErrorCode
	}{
		"nothing":                      {``, 415, "unsupported_media_type"},
		"no JSON":                      {`hello`, 400, poppy.ErrInvalidRequest},
		"an array":                     {`[]`, 400, poppy.ErrInvalidRequest},
		"no message":                   {`{}`, 400, poppy.ErrInvalidRequest},
		"a message that is null":       {`{"message":null}`, 400, poppy.ErrInvalidRequest},
		"a message that is a text":     {`{"message":"hello"}`, 400, poppy.ErrInvalidRequest},
		"only id and sender":           {message(`"id":"m","sender":"agent"`), 400, poppy.ErrInvalidRequest},
		"an empty text alone":          {message(`"id":"m","sender":"agent","text":""`), 400, poppy.ErrInvalidRequest}, // Q19
		"nulls alone":                  {message(`"id":"m","sender":"agent","data":null,"context":null`), 400, poppy.ErrInvalidRequest},
		"no id":                        {message(`"sender":"agent","text":"a"`), 400, poppy.ErrInvalidRequest},
		"an empty id":                  {message(`"id":"","sender":"agent","text":"a"`), 400, poppy.ErrInvalidRequest},
		"an id that is too long":       {message(`"id":"` + strings.Repeat("m", 257) + `","sender":"agent","text":"a"`), 400, poppy.ErrInvalidRequest},
		"an id with other letters":     {message(`"id":"m=1","sender":"agent","text":"a"`), 400, poppy.ErrInvalidRequest},
		"an id with a dot":             {message(`"id":"m.1","sender":"agent","text":"a"`), 400, poppy.ErrInvalidRequest},
		"an id with a line break":      {message(`"id":"m\n","sender":"agent","text":"a"`), 400, poppy.ErrInvalidRequest},
		"no sender":                    {message(`"id":"m","text":"a"`), 400, poppy.ErrInvalidRequest},
		"an unknown sender":            {message(`"id":"m","sender":"robot","text":"a"`), 400, poppy.ErrInvalidRequest},
		"a text that is a number":      {message(`"id":"m","sender":"agent","text":1`), 400, poppy.ErrInvalidRequest},
		"a text that is too long":      {message(`"id":"m","sender":"agent","text":"` + long + `e"`), 400, poppy.ErrInvalidRequest},
		"data that is a list":          {message(`"id":"m","sender":"agent","data":[]`), 400, poppy.ErrInvalidRequest},
		"data that is too long":        {message(`"id":"m","sender":"agent","data":{"a":"` + strings.Repeat("a", 64<<10) + `"}`), 400, poppy.ErrInvalidRequest},
		"data that is nested too deep": {message(`"id":"m","sender":"agent","data":{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`), 400, poppy.ErrInvalidRequest},
		"a context that is a list":     {message(`"id":"m","sender":"agent","context":[]`), 400, poppy.ErrInvalidRequest},
		"a context that is too long":   {message(`"id":"m","sender":"agent","context":{"a":"` + strings.Repeat("a", 64<<10) + `"}`), 400, poppy.ErrInvalidRequest},
		"a locale of another form":     {message(`"id":"m","sender":"agent","context":{"locale":5}`), 400, poppy.ErrInvalidRequest},
		"availability of another form": {message(`"id":"m","sender":"agent","context":{"user_available":"yes"}`), 400, poppy.ErrInvalidRequest},
		"a member twice":               {message(`"id":"m","id":"n","sender":"agent","text":"a"`), 400, poppy.ErrInvalidRequest},
		"a body that is not UTF-8":     {message("\"id\":\"m\",\"sender\":\"agent\",\"text\":\"\xff\""), 400, poppy.ErrInvalidRequest},
		"a body that is too long":      {message(`"id":"m","sender":"agent","text":"a"`) + strings.Repeat(" ", 256<<10), 413, "request_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, place := range []string{"", "/" + id + "/messages"} {
				w.call(guest, "POST", place, test.body).want(t, test.status, test.code)
			}
		})
	}
	if after := len(w.events(guest, id)); after != before {
		t.Errorf("%d events were added", after-before)
	}
	for name, members := range map[string]string{
		"the longest id and a text of the longest": `"id":"` + strings.Repeat("-", 256) + `","sender":"human","text":"` + long + `"`,
		"the shortest id":                          `"id":"_","sender":"agent","text":"a"`,
		"data alone":                               `"id":"m1","sender":"agent","data":{}`,
		"an empty context alone":                   `"id":"m2","sender":"agent","context":{}`, // Q20
		"blank text":                               `"id":"m3","sender":"agent","text":" "`,   // Q19
		"unknown members":                          `"id":"m4","sender":"agent","text":"a","operation":{"x":1},"attachments":[]`,
	} {
		t.Run(name, func(t *testing.T) {
			w.call(guest, "POST", "/"+id+"/messages", message(members)).want(t, 202, "")
		})
	}
	for _, e := range w.settles(guest, id) {
		if e.Message != nil && e.Message.Operation != nil {
			t.Error("an operation of the Personal Agent was kept")
		}
	}
}

// P-7.4-03, P-7.4-08, P-7.4-09, P-7.4-12, P-7.4-13, P-7.4-14
func TestContextIsMergedAndGivenToTheClerk(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	var turns []conversation.Turn
	w := newWorld(t, func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
		mutex.Lock()
		defer mutex.Unlock()
		turns = append(turns, turn)
		return echo(ctx, turn)
	})
	id := w.call(guest, "POST", "?wait=10", `{"message":{"id":"m1","sender":"agent","text":"a","context":{"locale":"en-US","user_available":true,"needs":["ramp"]}}}`).
		want(t, 201, "").page.ConversationID
	r := w.call(guest, "POST", "/"+id+"/messages", `{"message":{"id":"m2","sender":"agent","context":{"user_available":false}}}`).want(t, 202, "")
	if r.accepted.Status != poppy.StatusIdle {
		t.Errorf("a message with only context: status %s", r.accepted.Status)
	}
	w.call(guest, "POST", "/"+id+"/messages?wait=10", text("m3", "b")).want(t, 202, "")
	mutex.Lock()
	defer mutex.Unlock()
	if len(turns) != 2 {
		t.Fatalf("%d turns, want 2: a message with only context has none", len(turns))
	}
	merged, err := strictjson.Marshal(turns[1].Context)
	if want := `{"locale":"en-US","needs":["ramp"],"user_available":false}`; err != nil || string(merged) != want {
		t.Errorf("context %s, want %s", merged, want)
	}
	if m := turns[1].Messages; len(m) != 1 || m[0].ID != "m3" {
		t.Errorf("messages %+v", m)
	}
	events := w.events(guest, id)
	if got := outline(events); got != "user: a\nworking/agent\ncompany: You said: a\nidle/agent\nuser: \nuser: b\nworking/agent\ncompany: You said: b\nidle/agent" {
		t.Errorf("got\n%s", got)
	}
	if said := events[4].Message.Context; len(said) != 1 || string(said["user_available"]) != "false" { // Q21
		t.Errorf("context in the event: %v", said)
	}
	// What is merged has a bound of its own.
	for i := range 3 {
		body := fmt.Sprintf(`{"message":{"id":"big%d","sender":"agent","context":{"k%d":"%s"}}}`, i, i, strings.Repeat("a", 30<<10))
		if i < 2 {
			w.call(guest, "POST", "/"+id+"/messages", body).want(t, 202, "")
		} else {
			w.call(guest, "POST", "/"+id+"/messages", body).want(t, 400, poppy.ErrInvalidRequest)
		}
	}
}

// P-7.5-07, P-7.5-17, P-7.5-14, P-7.5-15, P-7.6-03
func TestEveryEventIsACursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id := w.start(guest, "msg_1", "a")
	events := w.events(guest, id)
	for i, e := range events {
		page := w.call(guest, "GET", "/"+id+"/events?cursor="+e.ID, "").want(t, 200, "").page
		if diff := cmp.Diff(events[i+1:], page.Events); diff != "" {
			t.Errorf("after event %d (-want +got):\n%s", i, diff)
		}
		if page.Cursor != events[len(events)-1].ID || page.HasMore {
			t.Errorf("after event %d: cursor %s", i, page.Cursor)
		}
	}
	last := events[len(events)-1].ID
	r := w.call(guest, "GET", "/"+id+"/events?cursor="+last, "").want(t, 200, "")
	if want := fmt.Sprintf(`{"conversation_id":%q,"events":[],"cursor":%q,"has_more":false,"status":"idle","responder":"agent"}`, id, last); string(r.body) != want {
		t.Errorf("got %s, want %s", r.body, want)
	}
}

// P-7.6-08
func TestTheLastEventIDOfAStreamBeatsTheCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id := w.start(guest, "msg_1", "a")
	events := w.events(guest, id)
	asking, err := strictjson.Marshal(guest)
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"/"+id+"/events?cursor="+events[0].ID, nil)
	request.Header.Set("Asking", string(asking))
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Last-Event-ID", events[2].ID)
	recorder := httptest.NewRecorder()
	w.handler().ServeHTTP(recorder, request)
	page, err := poppy.ParsePage(recorder.Body.Bytes())
	if err != nil {
		t.Fatalf("%d %s: %v", recorder.Code, recorder.Body, err)
	}
	if diff := cmp.Diff(events[3:], page.Events); diff != "" {
		t.Errorf("after the last event (-want +got):\n%s", diff)
	}
}

// P-7.5-16
func TestALongConversationIsReadInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id := w.start(guest, "first", "a")
	for i := range 130 {
		w.call(guest, "POST", "/"+id+"/messages", fmt.Sprintf(`{"message":{"id":"c%d","sender":"agent","context":{"n":%d}}}`, i, i)).want(t, 202, "")
	}
	for i := range 9 { // more than a page by their length
		w.call(guest, "POST", "/"+id+"/messages", fmt.Sprintf(`{"message":{"id":"d%d","sender":"agent","context":{},"text":"%s","data":{"a":"%s"}}}`, i,
			strings.Repeat("€", 32_000), strings.Repeat("a", 60<<10))).want(t, 202, "")
		w.settles(guest, id)
	}
	seen, cursor, pages := map[string]bool{}, "", 0
	for {
		r := w.call(guest, "GET", "/"+id+"/events?cursor="+cursor, "").want(t, 200, "")
		pages++
		if len(r.page.Events) == 0 || len(r.page.Events) > 100 || len(r.body) > 2<<20 || r.page.Cursor != r.page.Events[len(r.page.Events)-1].ID {
			t.Fatalf("page %d: %d events, %d bytes, cursor %s", pages, len(r.page.Events), len(r.body), r.page.Cursor)
		}
		for _, e := range r.page.Events {
			if seen[e.ID] {
				t.Fatalf("%s twice", e.ID)
			}
			seen[e.ID] = true
		}
		cursor = r.page.Cursor
		if !r.page.HasMore {
			break
		}
	}
	if len(seen) != 4+130+9*4 || pages < 3 {
		t.Errorf("%d events in %d pages", len(seen), pages)
	}
}

// P-7.5-21, P-7.5-10, P-7.13-02
func TestReadsThatAreRefusedAndWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id, other := w.start(guest, "msg_1", "a"), w.start(guest, "msg_2", "b")
	events := w.events(guest, id)
	foreign := w.events(guest, other)[0].ID
	// As if the first two events were not kept any more.
	if err := w.db.Write(t.Context(), func(tx *database.Tx) error {
		if _, err := tx.Exec(`UPDATE event SET content = NULL WHERE conversation_id = ? AND seq <= 2`, id); err != nil {
			return err
		}
		_, err := tx.Exec(`UPDATE conversation SET first_seq = 3 WHERE conversation_id = ?`, id)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]struct {
		status int
		code   poppy.ErrorCode
	}{
		"cursor=evt_UNKNOWN":                  {400, poppy.ErrInvalidCursor}, // Q3
		"cursor=" + foreign:                   {400, poppy.ErrInvalidCursor},
		"cursor=" + strings.Repeat("a", 4000): {400, poppy.ErrInvalidCursor},
		"cursor=%00'--":                       {400, poppy.ErrInvalidCursor},
		"cursor=" + events[0].ID:              {410, poppy.ErrCursorExpired}, // Q5
		"cursor=" + events[1].ID:              {200, ""},                     // nothing after it is missing
		"cursor=":                             {200, ""},
		"cursor=a&cursor=b":                   {400, poppy.ErrInvalidRequest},
		"wait=1&wait=2":                       {400, poppy.ErrInvalidRequest},
		"wait=":                               {400, poppy.ErrInvalidRequest}, // Q14
		"wait=-1":                             {400, poppy.ErrInvalidRequest},
		"wait=1.5":                            {400, poppy.ErrInvalidRequest},
		"wait=abc":                            {400, poppy.ErrInvalidRequest},
		"wait=%2B5":                           {400, poppy.ErrInvalidRequest},
		"wait=1e3":                            {400, poppy.ErrInvalidRequest},
		"wait=%zz":                            {400, poppy.ErrInvalidRequest},
		"wait=0":                              {200, ""},
		"wait=00":                             {200, ""},
		"wait=99999999999999999999999999":     {200, ""}, // P-7.5-13: there is an event, so it is not held either
		"other=1&x=%20":                       {200, ""},
	} {
		w.call(guest, "GET", "/"+id+"/events?"+query, "").want(t, want.status, want.code)
		if strings.HasPrefix(query, "wait") && want.status == 400 {
			w.call(guest, "POST", "?"+query, text("msg_new", "a")).want(t, want.status, want.code)
		}
	}
	// From the beginning is from the first that is kept.
	if got := w.events(guest, id); cmp.Diff(events[2:], got) != "" {
		t.Errorf("from the beginning:\n%s", outline(got))
	}
	for _, unknown := range []string{"cnv_UNKNOWN", "a.b", "a%20b", "%00", strings.Repeat("c", 3000)} {
		w.call(guest, "GET", "/"+unknown+"/events", "").want(t, 404, poppy.ErrConversationNotFound)
		w.call(guest, "POST", "/"+unknown+"/messages", text("msg_new", "a")).want(t, 404, poppy.ErrConversationNotFound)
		w.call(guest, "POST", "/"+unknown+"/close", "").want(t, 404, poppy.ErrConversationNotFound)
		w.call(guest, "POST", "/"+unknown+"/handoff", "").want(t, 404, poppy.ErrConversationNotFound)
	}
	w.call(guest, "GET", "", "").want(t, 405, "method_not_allowed")
	w.call(guest, "DELETE", "/"+id+"/events", "").want(t, 405, "method_not_allowed")
	w.call(guest, "GET", "/"+id, "").want(t, 404, "not_found")
}

// P-7.2-03, P-7.2-05, P-7.2-06, P-7.2-04, P-7.11-10, P-7.11-11, P-7.11-14
func TestWhoCanUseAConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ context.Context, turn conversation.Turn) (conversation.Reply, error) {
		r := answers("Your order ships today.")
		r.UsedAccount = turn.Asker.SignedIn()
		return r, nil
	})
	plain, owned := w.start(guest, "msg_1", "a"), w.start(signedIn, "msg_2", "Where is my order?")
	number := 0
	check := func(name string, by guard.Principal, id string, status int, code poppy.ErrorCode) {
		t.Run(name, func(t *testing.T) {
			number++
			message := text("msg_u"+strconv.Itoa(number), "again")
			for _, call := range [][3]string{{"GET", "/events", ""}, {"POST", "/messages", message}, {"POST", "/messages?wait=5", message}, {"POST", "/handoff", "{}"}, {"POST", "/close", "{}"}} {
				r := w.call(by, call[0], "/"+id+call[1], call[2])
				if status == 0 {
					if r.status >= 300 {
						t.Errorf("%v: %d %s", call, r.status, r.body)
					}
					if call[1] == "/messages?wait=5" {
						return // handing off and closing are for others to try
					}
					continue
				}
				r.want(t, status, code)
				if strings.Contains(string(r.body), "order") {
					t.Errorf("%v tells what was said: %s", call, r.body)
				}
				if challenge := r.header.Get("WWW-Authenticate"); (code == poppy.ErrSignInRequired) != (challenge != "") {
					t.Errorf("%v: WWW-Authenticate %q", call, challenge)
				}
			}
		})
	}
	check("the Session that started it", guest, plain, 0, "")
	check("another Session", otherSession, plain, 0, "")
	check("another User", otherUser, plain, 404, poppy.ErrConversationNotFound)
	check("another Personal Agent", otherAgent, plain, 404, poppy.ErrConversationNotFound)
	check("the account", with(signedIn, func(p *guard.Principal) { p.SessionID = "ses_9" }), owned, 0, "")
	check("the account, another User", otherUser, owned, 404, poppy.ErrConversationNotFound) // Q32
	check("the account, another Personal Agent", otherAgent, owned, 404, poppy.ErrConversationNotFound)
	check("signed out", guest, owned, 403, poppy.ErrSignInRequired)
	check("another account", otherAccount, owned, 403, poppy.ErrSignInRequired) // Q31
	// P-7.11-14: a retry reads too.
	w.call(guest, "POST", "", text("msg_2", "Where is my order?")).want(t, 403, poppy.ErrSignInRequired)
	w.call(signedIn, "POST", "", text("msg_2", "Where is my order?")).want(t, 201, "")
}

// A reader that was let in waits; by the time there is something to read the conversation belongs to an account.
func TestAWaitingReaderIsAskedAgainWhoItIs(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := newWorld(t, func(_ context.Context, turn conversation.Turn) (conversation.Reply, error) {
		if len(turn.Notes) == 0 {
			return conversation.Reply{Notes: strictjson.Raw(`1`)}, nil
		}
		<-release
		r := answers("Your order ships today.")
		r.UsedAccount = true
		return r, nil
	})
	id := w.start(guest, "msg_1", "a")
	w.call(signedIn, "POST", "/"+id+"/messages", text("msg_2", "Where is my order?")).want(t, 202, "")
	events := w.events(guest, id)
	answered := make(chan response)
	go func() {
		r, err := w.try(guest, "GET", "/"+id+"/events?wait=10&cursor="+events[len(events)-1].ID, "")
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	time.Sleep(20 * time.Millisecond)
	close(release)
	if r := <-answered; r.status != 403 || strings.Contains(string(r.body), "order") {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

// P-7.12-02, P-7.12-04, P-7.12-05, P-7.12-07, P-7.12-08
func TestClosing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id := w.start(guest, "msg_1", "a")
	for i, body := range []string{`{}`, ``, `{"reason":"done"}`} { // Q16
		r := w.call(guest, "POST", "/"+id+"/close", body).want(t, 200, "")
		if want := fmt.Sprintf(`{"conversation_id":%q,"status":"closed","responder":"agent"}`, id); string(r.body) != want {
			t.Errorf("close %d: %s, want %s", i, r.body, want)
		}
	}
	for _, body := range []string{`[]`, `close`, `"x"`, `null`} {
		w.call(guest, "POST", "/"+id+"/close", body).want(t, 400, poppy.ErrInvalidRequest)
		w.call(guest, "POST", "/"+id+"/handoff", body).want(t, 400, poppy.ErrInvalidRequest)
	}
	w.call(guest, "POST", "/"+id+"/messages", text("msg_2", "b")).want(t, 409, poppy.ErrConversationClosed)
	w.call(guest, "POST", "/"+id+"/messages", `{"message":{"id":"msg_3","sender":"agent","context":{}}}`).want(t, 409, poppy.ErrConversationClosed)
	w.call(guest, "POST", "/"+id+"/handoff", "{}").want(t, 409, poppy.ErrConversationClosed)
	page := w.call(guest, "GET", "/"+id+"/events", "").want(t, 200, "").page
	if got := outline(page.Events); got != "user: a\nworking/agent\ncompany: You said: a\nidle/agent\nclosed/agent" || page.Status != poppy.StatusClosed {
		t.Errorf("got\n%s\n%s", got, page.Status)
	}
}

// P-7.9-02, P-7.9-03, P-7.9-05, P-7.7-03, P-7.7-05
func TestHandoffSaysThatNobodyIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id := w.start(guest, "msg_1", "a")
	r := w.call(guest, "POST", "/"+id+"/handoff", `{}`).want(t, 202, "")
	if want := fmt.Sprintf(`{"conversation_id":%q,"status":"idle","responder":"agent"}`, id); string(r.body) != want {
		t.Errorf("got %s, want %s", r.body, want)
	}
	events := w.events(guest, id)
	if got := outline(events[4:]); !strings.HasPrefix(got, "queued/agent\ncompany: Nobody is available") || !strings.HasSuffix(got, "\nidle/agent") || len(events) != 7 {
		t.Errorf("got\n%s", got)
	}
	w.call(guest, "POST", "/"+id+"/messages?wait=10", text("msg_2", "b")).want(t, 202, "")
	if got := w.events(guest, id); !strings.HasSuffix(outline(got), "company: You said: b\nidle/agent") {
		t.Errorf("afterwards:\n%s", outline(got))
	}
}

// Direct Conversations are not offered: refused, not ignored.
func TestADirectConversationIsNotStartedAsAnOrdinaryOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	id := w.start(guest, "msg_1", "a")
	w.call(guest, "POST", "", `{"parent_conversation_id":"`+id+`","message":{"id":"m","sender":"human","text":"Hi"}}`).want(t, 404, poppy.ErrConversationNotFound)
	w.call(guest, "POST", "", `{"parent_conversation_id":"a b","message":{"id":"m","sender":"human","text":"Hi"}}`).want(t, 400, poppy.ErrInvalidRequest)
}

func TestOneUserCanNotSendWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, func(o *conversation.Options) { o.MessagesPerMinute = 3 })
	id := w.start(guest, "msg_1", "a")
	for i := range 2 {
		w.call(otherSession, "POST", "/"+id+"/messages", text("msg_b"+strconv.Itoa(i), "b")).want(t, 202, "")
	}
	r := w.call(guest, "POST", "/"+id+"/messages", text("msg_c", "c")).want(t, 429, poppy.ErrRateLimited)
	if seconds, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 || string(r.body) != `{"error":"rate_limited"}` {
		t.Errorf("Retry-After %q, %s", r.header.Get("Retry-After"), r.body)
	}
	w.call(guest, "POST", "", text("msg_1", "a")).want(t, 201, "") // a retry is free
	w.start(otherUser, "msg_1", "a")
	w.call(guest, "GET", "/"+id+"/events", "").want(t, 200, "")
}
