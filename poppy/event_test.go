package poppy_test

import (
	"testing"

	"countersign/poppy"
)

func TestEventFaults(t *testing.T) {
	t.Parallel()
	const created = `"created_at":"2026-10-08T19:03:00Z"`
	for text, want := range map[string][]string{
		// P-7.5-04
		`{"type":"user_requested",` + created + `,"reason":"a"}`:                                     {"id"},
		`{"id":"a b","type":"user_requested",` + created + `,"reason":"a"}`:                          {"id"},
		`{"id":"a",` + created + `}`:                                                                 {"type"},
		`{"id":"a","type":"user_requested","reason":"a"}`:                                            {"created_at"},
		`{"id":"a","type":"user_requested","created_at":"yesterday","reason":"a"}`:                   {"created_at"},
		`{"id":"a","type":"later","created_at":"yesterday"}`:                                         {"created_at"},
		`{"id":"a","type":"user_requested","created_at":"2026-10-08T12:03:00.5-07:00","reason":"a"}`: nil,
		// P-7.5-05
		`{"id":"a","type":"message",` + created + `}`:                                                  {"message"},
		`{"id":"a","type":"message",` + created + `,"message":"hello"}`:                                {"message"},
		`{"id":"a","type":"message",` + created + `,"message":{"id":"m","sender":"agent","text":"a"}}`: {"message.role"},
		// P-7.7-07
		`{"id":"a","type":"message",` + created + `,"message":{"id":"m","role":"company","text":"a"}}`:               {"message.sender"},
		`{"id":"a","type":"message",` + created + `,"message":{"id":"m","role":"user","sender":"human","text":"a"}}`: nil,
		// Q30: all that is said may be in an extension's field
		`{"id":"a","type":"message",` + created + `,"message":{"id":"m","role":"company","sender":"agent","gift":{}}}`: nil,
		// P-7.7-09
		`{"id":"a","type":"state",` + created + `,"status":"idle"}`:                       {"responder"},
		`{"id":"a","type":"state",` + created + `,"responder":"agent"}`:                   {"status"},
		`{"id":"a","type":"state",` + created + `,"status":"paused","responder":"agent"}`: {"status"},
		`{"id":"a","type":"state",` + created + `,"status":"closed","responder":"human"}`: nil,
		// P-7.11-04 P-7.11-05 P-7.11-06
		`{"id":"a","type":"authorization",` + created + `}`:                                                   {"error"},
		`{"id":"a","type":"authorization",` + created + `,"error":"invalid_token"}`:                           {"error"},
		`{"id":"a","type":"authorization",` + created + `,"error":"sign_in_required"}`:                        nil,
		`{"id":"a","type":"authorization",` + created + `,"error":"insufficient_scope"}`:                      {"scope"},
		`{"id":"a","type":"authorization",` + created + `,"error":"insufficient_scope","scope":"a  b"}`:       {"scope"},
		`{"id":"a","type":"authorization",` + created + `,"error":"insufficient_scope","scope":"poppy:read"}`: nil,
		// P-7.10-10
		`{"id":"a","type":"user_requested",` + created + `}`: {"reason"},
		// P-7.10-15 P-7.10-18
		`{"id":"a","type":"direct_opened",` + created + `}`:                           {"conversation_id"},
		`{"id":"a","type":"direct_closed",` + created + `}`:                           {"conversation_id"},
		`{"id":"a","type":"direct_closed",` + created + `,"conversation_id":"cnv_1"}`: nil,
		`[]`: {""},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			e, err := poppy.ParseEvent([]byte(text))
			wantFields(t, err, want...)
			if err != nil && e.ID != "" {
				t.Error("an event together with an error")
			}
		})
	}
}

// P-7.5-06: an event of an unknown type stays as a cursor, whatever its fields hold.
func TestEventsOfUnknownTypesAreKeptToBeSkipped(t *testing.T) {
	t.Parallel()
	p, err := poppy.ParsePage(load(t, "page.json", "cursor", "evt_c3", "events/2", map[string]any{
		"id": "evt_c3", "type": "payment", "created_at": "2026-10-08T19:03:00Z",
		"message": 5, "status": []any{}, "scope": map[string]any{}, "reason": nil, "amount": 7,
	}))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range p.Events {
		if e.Type.Known() != (i != 2) {
			t.Errorf("event %d of type %s: known is %t", i, e.Type, e.Type.Known())
		}
	}
	if e := p.Events[2]; e.ID != "evt_c3" || e.Type != "payment" || e.CreatedAt.IsZero() || e.Message != nil {
		t.Errorf("got %+v", e)
	}
}

// P-7.6-10
func TestTextDelta(t *testing.T) {
	t.Parallel()
	d, err := poppy.ParseTextDelta([]byte(`{"message_id":"msg_r2Kq","text":"I can do that. "}`))
	if err != nil || d != (poppy.TextDelta{MessageID: "msg_r2Kq", Text: "I can do that. "}) {
		t.Errorf("got %+v, %v", d, err)
	}
	wantSame(t, d, []byte(`{"message_id":"msg_r2Kq","text":"I can do that. "}`))
	for _, text := range []string{`{"text":"a"}`, `{"message_id":"a b","text":"a"}`, `{"message_id":"a","text":5}`, `"a"`} {
		if _, err := poppy.ParseTextDelta([]byte(text)); err == nil {
			t.Errorf("%s accepted", text)
		}
	}
	if poppy.EventType(poppy.EventTextDelta).Known() {
		t.Error("text-delta is an event of the list")
	}
}
