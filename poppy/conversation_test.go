package poppy_test

import (
	"fmt"
	"strings"
	"testing"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

const start = `{"parent_conversation_id":"cnv_8f3Kd2","message":{"id":"msg_Yq3v8LrT0aWc5NkE","sender":"agent",
	"text":"The jacket is not warm enough.","data":{"order":1042},
	"context":{"locale":"en-US","time_zone":"America/Los_Angeles","user_available":true}}}`

// P-7.3-01 P-7.10-03 P-7.4-05 P-7.4-06 P-7.4-07 P-7.4-12
func TestStartRequestIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	r, err := poppy.ParseStartRequest([]byte(start))
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, r, []byte(start))
	available, said := r.Message.Context.UserAvailable()
	if r.Message.Context.Locale() != "en-US" || r.Message.Context.TimeZone() != "America/Los_Angeles" || !available || !said {
		t.Errorf("got %s", r.Message.Context)
	}
}

func TestMessageFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  string // "" for accepted
	}{
		// P-7.2-07
		"no id":      {[]any{"message/id", gone}, "message.id"},
		"bad id":     {[]any{"message/id", "msg.1"}, "message.id"},
		"long id":    {[]any{"message/id", strings.Repeat("a", 257)}, "message.id"},
		"bad parent": {[]any{"parent_conversation_id", "a/b"}, "parent_conversation_id"},
		"no parent":  {[]any{"parent_conversation_id", gone}, ""},
		// P-7.8-01
		"no sender":      {[]any{"message/sender", gone}, "message.sender"},
		"another sender": {[]any{"message/sender", "user"}, "message.sender"},
		"a human":        {[]any{"message/sender", "human"}, ""},
		// P-7.4-01
		"nothing said":                    {[]any{"message/text", gone, "message/data", gone, "message/context", gone}, "message"},
		"nothing said, and a field of it": {[]any{"message/text", gone, "message/data", gone, "message/context", gone, "message/x", 1}, "message"},
		"only nulls":                      {[]any{"message/text", nil, "message/data", nil, "message/context", nil}, "message"},
		"only text":                       {[]any{"message/data", gone, "message/context", gone}, ""},
		"only data":                       {[]any{"message/text", gone, "message/context", gone}, ""},
		"only empty data":                 {[]any{"message/text", gone, "message/data", map[string]any{}, "message/context", gone}, ""},
		// P-7.4-14
		"only context": {[]any{"message/text", gone, "message/data", gone}, ""},
		// Q20
		"only an empty context": {[]any{"message/text", gone, "message/data", gone, "message/context", map[string]any{}}, ""},
		// Q19
		"empty text alone":          {[]any{"message/text", "", "message/data", gone, "message/context", gone}, "message"},
		"empty text beside context": {[]any{"message/text", "", "message/data", gone}, ""},
		"blank text":                {[]any{"message/text", " ", "message/data", gone, "message/context", gone}, ""},
		"text is a number":          {[]any{"message/text", 5}, "message.text"},
		"data is a list":            {[]any{"message/data", []any{1}}, "message.data"},
		"data is a text":            {[]any{"message/data", "{}"}, "message.data"},
		"context is a list":         {[]any{"message/context", []any{}}, "message.context"},
		// P-7.4-04 P-7.4-05 P-7.4-06 P-7.4-07
		"locale a number":       {[]any{"message/context/locale", 1}, "message.context.locale"},
		"locale a sentence":     {[]any{"message/context/locale", "US English"}, "message.context.locale"},
		"locale empty":          {[]any{"message/context/locale", ""}, "message.context.locale"},
		"locale with a script":  {[]any{"message/context/locale", "zh-Hant-TW-x-private"}, ""},
		"locale of a digit":     {[]any{"message/context/locale", "1-US"}, "message.context.locale"},
		"locale, 8 letters":     {[]any{"message/context/locale", "abcdefgh-US"}, ""},
		"locale, 9 letters":     {[]any{"message/context/locale", "abcdefghi-US"}, "message.context.locale"},
		"locale, no subtag":     {[]any{"message/context/locale", "en-"}, "message.context.locale"},
		"locale too long":       {[]any{"message/context/locale", "en" + strings.Repeat("-abcdefg", 8)}, "message.context.locale"},
		"time zone empty":       {[]any{"message/context/time_zone", ""}, "message.context.time_zone"},
		"time zone a path":      {[]any{"message/context/time_zone", "/etc/passwd"}, "message.context.time_zone"},
		"time zone unfinished":  {[]any{"message/context/time_zone", "America/"}, "message.context.time_zone"},
		"time zone with spaces": {[]any{"message/context/time_zone", "Pacific Time"}, "message.context.time_zone"},
		"time zone too long":    {[]any{"message/context/time_zone", strings.Repeat("a", 65)}, "message.context.time_zone"},
		"locale underscored":    {[]any{"message/context/locale", "en_US"}, "message.context.locale"},
		"time zone a number":    {[]any{"message/context/time_zone", -8}, "message.context.time_zone"},
		"time zone an offset":   {[]any{"message/context/time_zone", "-08:00"}, "message.context.time_zone"},
		"time zone of one word": {[]any{"message/context/time_zone", "UTC"}, ""},
		"time zone with a sign": {[]any{"message/context/time_zone", "Etc/GMT+8"}, ""},
		"available a text":      {[]any{"message/context/user_available", "true"}, "message.context.user_available"},
		"available null":        {[]any{"message/context/user_available", nil}, "message.context.user_available"},
		// P-7.4-08
		"other context": {[]any{"message/context/units", []any{"metric"}}, ""},
		// P-3.3-08
		"other fields": {[]any{"message/attachments", []any{}, "x", 1}, ""},
		"no message":   {[]any{"message", gone}, "message.id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := edit(t, []byte(start), test.edits...)
			r, err := poppy.ParseStartRequest(data)
			if test.want == "" {
				wantFields(t, err)
				return
			}
			if got := fields(t, err); len(got) == 0 || got[0] != test.want {
				t.Errorf("got %q, want %q first", got, test.want)
			}
			if r.Message.ID != "" {
				t.Error("a message together with an error")
			}
			if test.want != "parent_conversation_id" { // which is no field of a later message
				if _, err := poppy.ParseSendRequest(data); err == nil {
					t.Error("accepted as a later message")
				}
			}
		})
	}
	if _, err := poppy.ParseStartRequest([]byte(`{"message":{"id":"a","sender":"agent","text":"` + strings.Repeat("a", poppy.MaxMessageBytes) + `"}}`)); err == nil {
		t.Error("no bound")
	}
}

// Q8: which side a message came from is known from the token; only the Company proposes operations.
func TestReceivedMessageHasNoRoleAndOperation(t *testing.T) {
	t.Parallel()
	data := edit(t, []byte(start), "message/role", "company", "message/operation", map[string]any{"operation_id": "a"})
	first, err := poppy.ParseStartRequest(data)
	if err != nil || first.Message.Role != "" || first.Message.Operation != nil {
		t.Errorf("got %+v, %v", first.Message, err)
	}
	later, err := poppy.ParseSendRequest(data)
	if err != nil || later.Message.Role != "" || later.Message.Operation != nil {
		t.Errorf("got %+v, %v", later.Message, err)
	}
}

// Section 7.3: what counts as the same content.
func TestDigestTellsARetryFromAnotherMessage(t *testing.T) {
	t.Parallel()
	digest := func(edits ...any) string {
		t.Helper()
		r, err := poppy.ParseStartRequest(edit(t, []byte(start), edits...))
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := digest()
	for name, edits := range map[string][]any{
		"again":         nil,
		"role":          {"message/role", "user"},
		"unknown field": {"message/x", 1, "x", 2},
	} {
		if digest(edits...) != first {
			t.Errorf("%s makes it another message", name)
		}
	}
	reordered, err := poppy.ParseStartRequest([]byte(`{"message":{"context":{"user_available":true,"time_zone":"America\/Los_Angeles","locale":"en-US"},
		"data":{"order":1042.0},"text":"The jacket is not warm \u0065nough.","sender":"agent","id":"msg_Yq3v8LrT0aWc5NkE"},"parent_conversation_id":"cnv_8f3Kd2"}`))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := reordered.Digest(); err != nil || d != first {
		t.Errorf("another spelling makes it another message: %v", err)
	}
	for name, edits := range map[string][]any{
		"text":       {"message/text", "The jacket is not warm enough!"},
		"no text":    {"message/text", gone},
		"data":       {"message/data/order", 1043},
		"empty data": {"message/data", map[string]any{}},
		"no data":    {"message/data", gone},
		"sender":     {"message/sender", "human"},
		"context":    {"message/context/user_available", false},
		"no context": {"message/context", gone},
		"parent":     {"parent_conversation_id", "cnv_other"},
		"no parent":  {"parent_conversation_id", gone},
		"id":         {"message/id", "msg_other"},
	} {
		if digest(edits...) == first {
			t.Errorf("%s does not count", name)
		}
	}
	for _, field := range []string{"message/data/order", "message/context/order"} {
		long := digest(field, strictjson.Raw("1234567890123456789"))
		if digest(field, strictjson.Raw("1234567890123456788")) == long {
			t.Errorf("the last of 19 digits of %s does not count", field)
		}
		if digest(field, strictjson.Raw("1234567890123456789")) != long {
			t.Errorf("a number of 19 digits in %s makes a retry another message", field)
		}
	}
	later, err := poppy.ParseSendRequest([]byte(start))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{first: "start"}
	for _, conversation := range []string{"cnv_8f3Kd2", "cnv_other"} {
		d, err := later.Digest(conversation)
		if err != nil || seen[d] != "" {
			t.Errorf("%s has the digest of %s, %v", conversation, seen[d], err)
		}
		seen[d] = conversation
	}
}

// P-7.4-13
func TestContextUpdated(t *testing.T) {
	t.Parallel()
	r, err := poppy.ParseStartRequest([]byte(start))
	if err != nil {
		t.Fatal(err)
	}
	before := r.Message.Context
	after := before.Updated(poppy.Context{"user_available": strictjson.Raw("false"), "units": strictjson.Raw(`"metric"`)})
	wantSame(t, after, []byte(`{"locale":"en-US","time_zone":"America/Los_Angeles","user_available":false,"units":"metric"}`))
	wantSame(t, before, []byte(`{"locale":"en-US","time_zone":"America/Los_Angeles","user_available":true}`))
	wantSame(t, before.Updated(nil), []byte(`{"locale":"en-US","time_zone":"America/Los_Angeles","user_available":true}`))
	var none poppy.Context
	wantSame(t, none.Updated(poppy.Context{}), []byte(`{}`))
	if _, said := none.UserAvailable(); said || none.Locale() != "" {
		t.Error("no context says something")
	}
}

// P-7.4-14
func TestOnlyContextSaysNothing(t *testing.T) {
	t.Parallel()
	if (poppy.Message{Context: poppy.Context{}}).SaysSomething() || !(poppy.Message{Text: "a"}).SaysSomething() || !(poppy.Message{Data: poppy.Object("{}")}).SaysSomething() {
		t.Error("got it wrong")
	}
}

// P-7.4-15 P-7.4-16 P-7.7-07 P-7.7-08, Q30
func TestCompanyMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*poppy.Message)
		want   []string
	}{
		"as it should be":       {func(*poppy.Message) {}, nil},
		"by a person":           {func(m *poppy.Message) { m.Sender = poppy.SenderHuman }, nil},
		"no sender":             {func(m *poppy.Message) { m.Sender = "" }, []string{"sender"}},
		"no role":               {func(m *poppy.Message) { m.Role = "" }, []string{"role"}},
		"the other role":        {func(m *poppy.Message) { m.Role = poppy.RoleUser }, []string{"role"}},
		"context":               {func(m *poppy.Message) { m.Context = poppy.Context{} }, []string{"context"}},
		"nothing":               {func(m *poppy.Message) { m.Text = "" }, []string{""}},
		"only data":             {func(m *poppy.Message) { m.Text, m.Data = "", poppy.Object("{}") }, nil},
		"only an operation":     {func(m *poppy.Message) { m.Text, m.Operation = "", strictjson.Raw("{}") }, nil},
		"an operation of null":  {func(m *poppy.Message) { m.Text, m.Operation = "", strictjson.Raw("null") }, []string{""}},
		"an ID of another form": {func(m *poppy.Message) { m.ID = "a b" }, []string{"id"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := poppy.Message{ID: "msg_1", Role: poppy.RoleCompany, Sender: poppy.SenderAgent, Text: "Hello"}
			test.change(&m)
			wantFields(t, m.ValidateFromCompany(), test.want...)
		})
	}
}

// P-7.7-02
func TestAccepted(t *testing.T) {
	t.Parallel()
	const text = `{"conversation_id":"cnv_8f3Kd2","status":"working","responder":"agent"}`
	a, err := poppy.ParseAccepted([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, a, []byte(text))
	for text, want := range map[string][]string{
		`{"status":"idle","responder":"human"}`:                         nil, // Q17
		`{"status":"queued","responder":"agent","x":1}`:                 nil,
		`{"status":"closed","responder":"human"}`:                       nil,
		`{"conversation_id":"a b","status":"idle","responder":"agent"}`: {"conversation_id"},
		`{"conversation_id":"a","responder":"agent"}`:                   {"status"},
		`{"conversation_id":"a","status":"busy","responder":"agent"}`:   {"status"},
		`{"conversation_id":"a","status":"idle"}`:                       {"responder"},
		`{"conversation_id":"a","status":"idle","responder":"bot"}`:     {"responder"},
		// P-7.7-05
		`{"conversation_id":"a","status":"queued","responder":"human"}`: {"responder"},
	} {
		_, err := poppy.ParseAccepted([]byte(text))
		t.Log(text)
		wantFields(t, err, want...)
	}
}

// P-7.5-05 P-7.5-16
func TestPageIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	p, err := poppy.ParsePage(load(t, "page.json"))
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, p, load(t, "page.json"))
	if len(p.Events) != 8 || p.Status != poppy.StatusIdle || p.Responder != poppy.ResponderHuman || p.HasMore {
		t.Errorf("got %+v", p)
	}
	// An empty page has every member too, and its list is not null.
	wantSame(t, poppy.Page{ConversationID: "a", Cursor: "b", State: poppy.State{Status: "idle", Responder: "agent"}},
		[]byte(`{"conversation_id":"a","events":[],"cursor":"b","has_more":false,"status":"idle","responder":"agent"}`))
}

func TestPageFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		// P-7.5-16
		"no conversation": {[]any{"conversation_id", gone}, []string{"conversation_id"}},
		"no events":       {[]any{"events", gone}, []string{"events"}},
		"no cursor":       {[]any{"cursor", gone}, []string{"cursor"}},
		"no status":       {[]any{"status", gone}, []string{"status"}},
		"no responder":    {[]any{"responder", gone}, []string{"responder"}},
		// section 7.5
		"empty, at a cursor":     {[]any{"events", []any{}}, nil},
		"empty, from the start":  {[]any{"events", []any{}, "cursor", gone}, nil},
		"a fault in an event":    {[]any{"events/2/scope", gone, "events/7/status", "x"}, []string{"events[2].scope", "events[7].status"}},
		"a fault in its message": {[]any{"events/1/message/sender", gone}, []string{"events[1].message.sender"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := poppy.ParsePage(load(t, "page.json", test.edits...))
			wantFields(t, err, test.want...)
		})
	}
	var many strings.Builder
	for range 2000 {
		many.WriteString(`{},`)
	}
	_, err := poppy.ParsePage(fmt.Appendf(nil, `{"events":[%s{}]}`, many.String()))
	if got := fields(t, err); len(got) != 100 {
		t.Errorf("%d problems of one page, want no more than 100", len(got))
	}
}
