package agentapi_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"countersign/broker/agentapi"
	"countersign/broker/internal/brokertest"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

func TestAuthentication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	routes := [][2]string{
		{"GET", discoveryPath},
		{"GET", "/api/agent/v1/openapi.json"},
		{"POST", operationsPath},
		{"GET", operationsPath},
		{"GET", operationsPath + "/op_x"},
		{"GET", operationsPath + "/op_x/events"},
		{"POST", operationsPath + "/op_x/cancel"},
	}
	for _, route := range routes {
		for name, header := range map[string]string{"missing": "", "wrong": "Bearer " + strings.Repeat("x", 40), "operator": "Bearer " + brokertest.Secret("root").Reveal()} {
			a := b.send("", route[0], route[1], "", "Authorization", header)
			challenge := a.header.Get("WWW-Authenticate")
			// B-auth-16: an operator's secret opens nothing here, cancel least of all.
			if a.status != http.StatusUnauthorized || a.code() != "authentication_failed" || !strings.HasPrefix(challenge, `Bearer realm="`) {
				t.Errorf("%s %s, %s: %d %s, challenge %q", route[0], route[1], name, a.status, a.body, challenge)
			}
			if wrong := strings.Contains(challenge, `error="invalid_token"`); wrong != (name != "missing") {
				t.Errorf("%s %s, %s: challenge %q", route[0], route[1], name, challenge)
			}
		}
	}
	if a := b.send("", "GET", "/healthz", ""); a.status != http.StatusOK || string(a.body) != `{"ok":true}` {
		t.Errorf("health needs a secret: %d %s", a.status, a.body)
	}
}

// Each route, with what is wrong and what that is answered with. None of it may be a 500, and all of it has one form.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := setup(t, brokertest.Operation{Name: "asked.act", Check: func(call provider.Call) error {
		if strings.Contains(string(call.Target), "nowhere") {
			return &provider.Error{Code: "no_place", Message: "There is no such place."}
		}
		if strings.Contains(string(call.Target), "offline") {
			return errors.New("connection to db.internal refused")
		}
		return nil
	}})
	good := submission("r1", "asked.act", "x")
	replace := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	d := decode(t, b.send("alice", "POST", operationsPath, submission("r0", "asked.act", "x")))
	one := operationsPath + "/" + d.ID
	jsonBody := []string{"Content-Type", "application/json"}
	for name, test := range map[string]struct {
		method, target, body string
		header               []string
		status               int
		code                 string
	}{
		"unknown path":             {"GET", "/nothing", "", nil, 404, "not_found"},
		"root":                     {"GET", "/", "", nil, 404, "not_found"},
		"other API version":        {"GET", "/api/agent/v2/operations", "", nil, 404, "not_found"},
		"path with a slash behind": {"GET", operationsPath + "/", "", nil, 404, "not_found"},
		"deeper path":              {"GET", one + "/events/1", "", nil, 404, "not_found"},
		"delete":                   {"DELETE", one, "", nil, 405, "method_not_allowed"},
		"put":                      {"PUT", operationsPath, "", nil, 405, "method_not_allowed"},
		"get of cancel":            {"GET", one + "/cancel", "", nil, 405, "method_not_allowed"},
		"post of discovery":        {"POST", discoveryPath, "", nil, 405, "method_not_allowed"},
		"post of health":           {"POST", "/healthz", "", nil, 405, "method_not_allowed"},
		"odd method":               {"PROPFIND", operationsPath, "", nil, 405, "method_not_allowed"},

		"no body":                     {"POST", operationsPath, "", jsonBody, 400, "invalid_request"},
		"no media type":               {"POST", operationsPath, good, []string{"Content-Type", ""}, 415, "unsupported_media_type"},
		"form":                        {"POST", operationsPath, "a=b", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"},
		"text":                        {"POST", operationsPath, good, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type"},
		"broken media type":           {"POST", operationsPath, good, []string{"Content-Type", ";;"}, 415, "unsupported_media_type"},
		"no JSON":                     {"POST", operationsPath, "{", nil, 400, "invalid_request"},
		"not UTF-8":                   {"POST", operationsPath, replace("because", "\xff"), nil, 400, "invalid_request"},
		"null":                        {"POST", operationsPath, "null", nil, 400, "invalid_request"},
		"array":                       {"POST", operationsPath, "[" + good + "]", nil, 400, "invalid_request"},
		"string":                      {"POST", operationsPath, `"x"`, nil, 400, "invalid_request"},
		"two documents":               {"POST", operationsPath, good + good, nil, 400, "invalid_request"},
		"unknown member":              {"POST", operationsPath, replace(`"reason"`, `"extra":1,"reason"`), nil, 400, "invalid_request"},
		"long unknown member":         {"POST", operationsPath, replace(`"reason"`, `"`+strings.Repeat(`\u001b`, 10_000)+`":1,"reason"`), nil, 400, "invalid_request"},
		"member in another case":      {"POST", operationsPath, replace(`"reason"`, `"Reason"`), nil, 400, "invalid_request"},
		"member twice":                {"POST", operationsPath, replace(`"reason"`, `"reason":"a","reason"`), nil, 400, "invalid_request"},
		"member twice in arguments":   {"POST", operationsPath, replace(`"text":"x"`, `"text":"x","text":"x"`), nil, 400, "invalid_request"},
		"member twice in target":      {"POST", operationsPath, replace(`"place":"here"`, `"place":"here","place":"here"`), nil, 400, "invalid_request"},
		"too deep":                    {"POST", operationsPath, replace(`"text":"x"`, `"text":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)), nil, 400, "invalid_request"},
		"very deep":                   {"POST", operationsPath, strings.Repeat("[", 1<<20), nil, 400, "invalid_request"},
		"too large":                   {"POST", operationsPath, replace(`"x"`, `"`+strings.Repeat("x", 2<<20)+`"`), nil, 413, "request_too_large"},
		"query with a submission":     {"POST", operationsPath + "?dry_run=true", good, nil, 400, "invalid_request"},
		"no request ID":               {"POST", operationsPath, replace(`"idempotency_key":"r1",`, ""), nil, 400, "invalid_request"},
		"empty request ID":            {"POST", operationsPath, replace("r1", ""), nil, 400, "invalid_request"},
		"blanked request ID":          {"POST", operationsPath, replace("r1", "***"), nil, 400, "invalid_request"},
		"request ID with blanks":      {"POST", operationsPath, replace("r1", " r1 "), nil, 400, "invalid_request"},
		"long request ID":             {"POST", operationsPath, replace("r1", strings.Repeat("r", 129)), nil, 400, "invalid_request"},
		"request ID as a number":      {"POST", operationsPath, replace(`"r1"`, "1"), nil, 400, "invalid_request"},
		"request ID null":             {"POST", operationsPath, replace(`"r1"`, "null"), nil, 400, "invalid_request"},
		"no operation":                {"POST", operationsPath, replace(`"operation":"asked.act",`, ""), nil, 400, "invalid_request"},
		"long operation":              {"POST", operationsPath, replace("asked.act", strings.Repeat("a", 129)), nil, 400, "invalid_request"},
		"unknown operation":           {"POST", operationsPath, replace("asked.act", "asked.other"), nil, 400, "operation_not_registered"},
		"no reason":                   {"POST", operationsPath, replace(`,"reason":"because"`, ""), nil, 400, "invalid_request"},
		"empty reason":                {"POST", operationsPath, replace("because", ""), nil, 400, "invalid_request"},
		"long reason":                 {"POST", operationsPath, replace("because", strings.Repeat("b", 2001)), nil, 400, "invalid_request"},
		"no target":                   {"POST", operationsPath, replace(`"target":{"place":"here"},`, ""), nil, 400, "invalid_request"},
		"target null":                 {"POST", operationsPath, replace(`{"place":"here"}`, "null"), nil, 400, "invalid_request"},
		"target array":                {"POST", operationsPath, replace(`{"place":"here"}`, "[]"), nil, 400, "invalid_request"},
		"target string":               {"POST", operationsPath, replace(`{"place":"here"}`, `"{}"`), nil, 400, "invalid_request"},
		"large target":                {"POST", operationsPath, replace("here", strings.Repeat("h", 17<<10)), nil, 400, "invalid_request"},
		"target with many members":    {"POST", operationsPath, replace(`"place":"here"`, members(33)), nil, 400, "operation_input_invalid"},
		"target against the schema":   {"POST", operationsPath, replace(`"place"`, `"plaice"`), nil, 400, "operation_input_invalid"},
		"no arguments":                {"POST", operationsPath, replace(`"arguments":{"text":"x"},`, ""), nil, 400, "invalid_request"},
		"large arguments":             {"POST", operationsPath, replace(`"x"`, `"`+strings.Repeat("x", 1<<20)+`"`), nil, 400, "invalid_request"},
		"arguments with many members": {"POST", operationsPath, replace(`"text":"x"`, members(129)), nil, 400, "operation_input_invalid"},
		"arguments against schema":    {"POST", operationsPath, replace(`"x"`, "1"), nil, 400, "operation_input_invalid"},
		"number that would change":    {"POST", operationsPath, replace(`"text":"x"`, `"text":"x","count":9007199254740993`), nil, 400, "invalid_request"},
		"target that is not there":    {"POST", operationsPath, submissionAt("r2", "nowhere"), nil, 422, "operation_target_refused"},
		"provider that is not there":  {"POST", operationsPath, submissionAt("r3", "offline"), nil, 503, "unavailable"},

		"unknown parameter":            {"GET", operationsPath + "?status=pending", "", nil, 400, "invalid_request"},
		"parameter twice":              {"GET", operationsPath + "?limit=1&limit=2", "", nil, 400, "invalid_request"},
		"parameter without value":      {"GET", operationsPath + "?limit", "", nil, 400, "invalid_request"},
		"empty parameter":              {"GET", operationsPath + "?cursor=", "", nil, 400, "invalid_request"},
		"broken query":                 {"GET", operationsPath + "?limit=%zz", "", nil, 400, "invalid_request"},
		"semicolons":                   {"GET", operationsPath + "?limit=1;state=pending", "", nil, 400, "invalid_request"},
		"limit 0":                      {"GET", operationsPath + "?limit=0", "", nil, 400, "invalid_request"},
		"negative limit":               {"GET", operationsPath + "?limit=-1", "", nil, 400, "invalid_request"},
		"limit with a fraction":        {"GET", operationsPath + "?limit=1.5", "", nil, 400, "invalid_request"},
		"limit beyond integers":        {"GET", operationsPath + "?limit=99999999999999999999", "", nil, 400, "invalid_request"},
		"unknown state":                {"GET", operationsPath + "?state=done", "", nil, 400, "invalid_request"},
		"cursor not of ours":           {"GET", operationsPath + "?cursor=abc", "", nil, 400, "invalid_request"},
		"long cursor":                  {"GET", operationsPath + "?cursor=" + strings.Repeat("a", 4096), "", nil, 400, "invalid_request"},
		"request ID of no one's":       {"GET", operationsPath + "?idempotency_key=***", "", nil, 200, ""},
		"unknown ID":                   {"GET", operationsPath + "/op_unknown", "", nil, 404, "not_found"},
		"long ID":                      {"GET", operationsPath + "/" + strings.Repeat("a", 10_000), "", nil, 404, "not_found"},
		"ID with an escape":            {"GET", operationsPath + "/op%2F..%2Fx", "", nil, 404, "not_found"},
		"ID with a zero byte":          {"GET", operationsPath + "/op%00", "", nil, 404, "not_found"},
		"ID that is not UTF-8":         {"GET", operationsPath + "/%ff", "", nil, 404, "not_found"},
		"query with get":               {"GET", one + "?verbose=1", "", nil, 400, "invalid_request"},
		"query with discovery":         {"GET", discoveryPath + "?all=1", "", nil, 400, "invalid_request"},
		"query with the contract":      {"GET", "/api/agent/v1/openapi.json?x=1", "", nil, 400, "invalid_request"},
		"query with cancel":            {"POST", one + "/cancel?force=1", "", nil, 400, "invalid_request"},
		"cancel of nothing":            {"POST", operationsPath + "/op_unknown/cancel", "", nil, 404, "not_found"},
		"negative revision":            {"GET", one + "/events?after_revision=-1", "", nil, 400, "invalid_request"},
		"revision in words":            {"GET", one + "/events?after_revision=one", "", nil, 400, "invalid_request"},
		"revision beyond integers":     {"GET", one + "/events?after_revision=99999999999999999999", "", nil, 400, "invalid_request"},
		"negative wait":                {"GET", one + "/events?wait_seconds=-1", "", nil, 400, "invalid_request"},
		"wait in words":                {"GET", one + "/events?wait_seconds=soon", "", nil, 400, "invalid_request"},
		"wait of no number":            {"GET", one + "/events?wait_seconds=NaN", "", nil, 400, "invalid_request"},
		"wait with two points":         {"GET", one + "/events?wait_seconds=1.2.3", "", nil, 400, "invalid_request"},
		"wait in hexadecimal":          {"GET", one + "/events?wait_seconds=0x10", "", nil, 400, "invalid_request"},
		"events of nothing":            {"GET", operationsPath + "/op_unknown/events", "", nil, 404, "not_found"},
		"stream of nothing":            {"GET", operationsPath + "/op_unknown/events", "", []string{"Accept", "text/event-stream"}, 404, "not_found"},
		"stream after a broken ID":     {"GET", one + "/events", "", []string{"Accept", "text/event-stream", "Last-Event-ID", "x"}, 400, "invalid_request"},
		"stream after a negative ID":   {"GET", one + "/events", "", []string{"Accept", "text/event-stream", "Last-Event-ID", "-1"}, 400, "invalid_request"},
		"stream with an unknown query": {"GET", one + "/events?cursor=1", "", []string{"Accept", "text/event-stream"}, 400, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := (&bundle{b.Broker, t, b.endpoint}).send("alice", test.method, test.target, test.body, test.header...)
			if a.status != test.status || a.code() != test.code {
				t.Fatalf("got %d %q: %.300s", a.status, a.code(), a.body)
			}
			for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "application/json"} {
				if a.header.Get(name) != want {
					t.Errorf("%s is %q", name, a.header.Get(name))
				}
			}
			if test.status == http.StatusOK {
				return
			}
			var document struct {
				Error struct {
					Code    string `json:"code"`
					Message string `json:"message"`
					Fields  []struct {
						Pointer string `json:"pointer"`
						Problem string `json:"problem"`
					} `json:"fields"`
				} `json:"error"`
			}
			if err := strictjson.UnmarshalClosed(a.body, &document); err != nil || document.Error.Message == "" || len(document.Error.Message) > 500 {
				t.Errorf("not the one form of an error: %v: %s", err, a.body)
			}
			if (test.code == "operation_input_invalid") != (len(document.Error.Fields) > 0) {
				t.Errorf("fields: %s", a.body)
			}
			if test.status == http.StatusMethodNotAllowed && a.header.Get("Allow") == "" {
				t.Error("no Allow header")
			}
			if test.status == http.StatusServiceUnavailable && (a.header.Get("Retry-After") == "" || strings.Contains(string(a.body), "db.internal")) {
				t.Errorf("got %v %s", a.header, a.body)
			}
		})
	}
}

func members(count int) string {
	var list []string
	for i := range count {
		list = append(list, `"m`+strings.Repeat("m", i)+`":1`)
	}
	return strings.Join(list, ",")
}

func submissionAt(requestID, place string) string {
	return strings.Replace(submission(requestID, "asked.act", "x"), "here", place, 1)
}

// broken fails as a lifecycle does whose database is gone.
type broken struct{ agentapi.Operations }

func (broken) Submit(context.Context, string, operation.Request) (operation.Operation, bool, error) {
	return operation.Operation{}, false, errors.New("reading /var/lib/broker.db: disk I/O error")
}

func TestFaultOfOursIsAServerErrorWithoutItsReason(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	endpoint := brokertest.Serve(t, agentapi.NewHandler(agentapi.Options{
		Operations: broken{},
		Clients:    brokertest.Callers(t, "alice"),
		Log:        slog.New(slog.NewTextHandler(&log, nil)),
	}))
	a := (&bundle{nil, t, endpoint}).send("alice", "POST", operationsPath, submission("r1", "asked.act", "x"))
	if a.status != http.StatusInternalServerError || a.code() != "server_error" || strings.Contains(string(a.body), "disk") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if !strings.Contains(log.String(), "disk I/O error") {
		t.Errorf("the log does not say why: %s", &log)
	}
	if strings.Contains(log.String(), "because") || strings.Contains(log.String(), brokertest.Secret("alice").Reveal()) {
		t.Errorf("the log holds the request: %s", &log)
	}
}

// FuzzSubmit checks that no body is answered with anything but a documented status in the one form.
func FuzzSubmit(f *testing.F) {
	b := setup(f)
	f.Add(submission("r1", "asked.act", "x"))
	f.Add(submission("r2", "denied.act", "x"))
	f.Add(`{"idempotency_key":"r3","operation":"free.act","target":{"place":1e400},"arguments":{"text":"\ud800"},"reason":"\u0000"}`)
	f.Add(`{"target":[[[[]]]],"arguments":-0}`)
	f.Fuzz(func(t *testing.T, body string) {
		a := (&bundle{b.Broker, t, b.endpoint}).send("alice", "POST", operationsPath, body, "Content-Type", "application/json")
		switch a.status {
		case 200, 202:
			decode(t, a)
		case 400, 409, 413, 422:
			if a.code() == "" {
				t.Errorf("got %s", a.body)
			}
		default:
			t.Errorf("got %d %s", a.status, a.body)
		}
	})
}
