package operatorapi_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/broker"
	"countersign/broker/access"
	"countersign/broker/approval"
	"countersign/broker/internal/brokertest"
	"countersign/broker/operation"
	"countersign/broker/operatorapi"
	"countersign/internal/strictjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const approvalsPath = "/api/operator/v1/approvals"

// bundle is a broker that operators root and night reach over a Unix socket.
type bundle struct {
	*broker.Broker
	t        testing.TB
	endpoint access.Endpoint
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := brokertest.Start(t, brokertest.Operation{Name: "asked.act"})
	handler, err := operatorapi.NewHandler(operatorapi.Options{
		Approvals:  b.Approvals,
		Operations: b.Operations,
		Operators:  brokertest.Callers(t, "root", "night"),
		Clients:    brokertest.Callers(t, "alice"),
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{b, t, brokertest.Serve(t, handler)}
}

func (b *bundle) client(id string) *operatorapi.Client {
	c := operatorapi.NewClient(operatorapi.ClientOptions{Endpoint: b.endpoint, Secret: brokertest.Secret(id)})
	b.t.Cleanup(c.Close)
	return c
}

// submit submits an operation as client alice, which asks for an approval.
func (b *bundle) submit(requestID string) operation.Operation {
	b.t.Helper()
	op, _, err := b.Operations.Submit(b.t.Context(), "alice", operation.Request{
		RequestID: requestID, Operation: "asked.act", Reason: "for a test",
		Target: strictjson.Raw(`{"place":"here"}`), Arguments: strictjson.Raw(`{"text":"the exact text"}`),
	})
	if err != nil || op.ApprovalID == "" {
		b.t.Fatal(op, err)
	}
	return op
}

func (b *bundle) state(op operation.Operation) operation.State {
	b.t.Helper()
	now, err := b.Operations.Lookup(b.t.Context(), op.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return now.State
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) code() string {
	var document struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = strictjson.Unmarshal([]byte(a.body), &document)
	return document.Error.Code
}

func (b *bundle) send(caller, method, target, body string, header ...string) answer {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.endpoint.URL()+target, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if caller != "" {
		request.Header.Set("Authorization", "Bearer "+brokertest.Secret(caller).Reveal())
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	transport := b.endpoint.Transport()
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(data)}
}

func TestOperatorSeesTheExactTerms(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op := b.submit("r1")
	root := b.client("root")
	page, err := root.List(t.Context(), approval.Filter{State: approval.Pending}, 0, "")
	if err != nil || len(page.Approvals) != 1 || page.Approvals[0].ID != op.ApprovalID || page.Approvals[0].Reason != "for a test" {
		t.Fatalf("got %+v, %v", page, err)
	}
	a, terms, err := root.Get(t.Context(), op.ApprovalID)
	if err != nil {
		t.Fatal(err)
	}
	if a.ClientID != "alice" || a.OperationID != op.ID || a.PlanDigest != op.PlanDigest || a.Presentation.Title == "" || a.ExpiresAt.Before(a.CreatedAt) {
		t.Errorf("got %+v", a)
	}
	if string(terms.Target) != `{"place":"here"}` || string(terms.Arguments) != `{"text":"the exact text"}` || terms.Effect != "change" || len(terms.Rulings) == 0 {
		t.Errorf("got %+v", terms)
	}
	// A list does not carry what may be large.
	if list := b.send("root", "GET", approvalsPath, ""); strings.Contains(list.body, "exact text") {
		t.Errorf("got %s", list.body)
	}
}

func TestApproveAndDeny(t *testing.T) {
	t.Parallel()
	b := setup(t)
	approved, denied := b.submit("r1"), b.submit("r2")
	root := b.client("root")
	a, replayed, err := root.Approve(t.Context(), approval.Decision{ApprovalID: approved.ApprovalID, ExpectedRevision: 1, Key: "k1", Note: "fine", OperatorID: "somebody else"})
	if err != nil || replayed || a.State != approval.Approved || a.DecidedBy != "root" || a.Note != "fine" || a.Revision != 2 {
		t.Errorf("got %+v, %v, %v", a, replayed, err)
	}
	a, replayed, err = root.Approve(t.Context(), approval.Decision{ApprovalID: approved.ApprovalID, ExpectedRevision: 1, Key: "k1", Note: "fine"})
	if err != nil || !replayed || a.State != approval.Approved {
		t.Errorf("again: %+v, %v, %v", a, replayed, err)
	}
	_, _, err = root.Deny(t.Context(), approval.Decision{ApprovalID: approved.ApprovalID, ExpectedRevision: 1, Key: "k1", Note: "fine"})
	if refused, ok := errors.AsType[*approval.Error](err); !ok || refused.Code != approval.KeyConflict {
		t.Errorf("another decision under the same key: %v", err)
	}
	// B-auth-17
	if _, _, err := b.client("night").Deny(t.Context(), approval.Decision{ApprovalID: denied.ApprovalID, ExpectedRevision: 1, Key: "k2"}); err != nil || b.state(denied) != operation.Denied {
		t.Errorf("%v, %s", err, b.state(denied))
	}
	op, err := b.Operations.Wait(t.Context(), "alice", approved.ID, 3, operation.MaxWait)
	if err != nil || op.State != operation.Succeeded {
		t.Errorf("the approved operation is %s, %v", op.State, err)
	}
}

func TestConflictCarriesTheApprovalAsItIsNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op := b.submit("r1")
	if _, err := b.Operations.Cancel(t.Context(), "alice", op.ID); err != nil {
		t.Fatal(err)
	}
	_, _, err := b.client("root").Approve(t.Context(), approval.Decision{ApprovalID: op.ApprovalID, ExpectedRevision: 1, Key: "k1"})
	conflict, ok := errors.AsType[*operatorapi.Conflict](err)
	if !ok || conflict.Current.State != approval.Canceled || conflict.Current.ID != op.ApprovalID || conflict.Message == "" {
		t.Errorf("got %v", err)
	}
	if b.state(op) != operation.Canceled {
		t.Errorf("the operation is %s", b.state(op))
	}
}

// B-auth-16
func TestOperatorCannotCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op := b.submit("r1")
	for _, path := range []string{approvalsPath + "/" + op.ApprovalID + "/cancel", "/api/agent/v1/operations/" + op.ID + "/cancel", "/api/operator/v1/operations/" + op.ID + "/cancel"} {
		if a := b.send("root", "POST", path, "{}"); a.status != http.StatusNotFound || a.code() != "not_found" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if b.state(op) != operation.Pending {
		t.Errorf("the operation is %s", b.state(op))
	}
}

func TestClientsSecretOpensNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op := b.submit("r1")
	for _, caller := range []string{"", "alice"} {
		for _, call := range [][2]string{
			{"GET", approvalsPath},
			{"GET", approvalsPath + "/" + op.ApprovalID},
			{"POST", approvalsPath + "/" + op.ApprovalID + "/approve"},
			{"POST", approvalsPath + "/" + op.ApprovalID + "/deny"},
		} {
			a := b.send(caller, call[0], call[1], `{"expected_revision":1,"idempotency_key":"k"}`)
			if a.status != http.StatusUnauthorized || a.code() != "authentication_failed" || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s as %q: %d %s", call[0], call[1], caller, a.status, a.body)
			}
		}
	}
	if b.state(op) != operation.Pending {
		t.Errorf("the operation is %s", b.state(op))
	}
	if a := b.send("", "GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("health needs a secret: %d", a.status)
	}
}

func TestOperatorWithAClientsSecretIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash, err := access.Hash(brokertest.Secret("alice"))
	if err != nil {
		t.Fatal(err)
	}
	operators, err := access.NewCallers("operators", []access.Caller{{ID: "root", Hash: hash}})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := operatorapi.NewHandler(operatorapi.Options{
		Approvals: b.Approvals, Operations: b.Operations, Operators: operators, Clients: brokertest.Callers(t, "alice"), Log: slog.New(slog.DiscardHandler),
	})
	if err == nil || handler != nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("got %v, %v", handler, err)
	}
}

func TestWatchShowsEveryChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	root := b.client("root")
	var op operation.Operation
	step := 0
	for page, err := range root.Watch(t.Context(), approval.Filter{State: approval.Pending}) {
		if err != nil {
			t.Fatal(err)
		}
		switch step {
		case 0:
			if len(page.Approvals) != 0 {
				t.Fatalf("at first: %+v", page)
			}
			op = b.submit("r1")
		case 1:
			if len(page.Approvals) != 1 || page.Approvals[0].ID != op.ApprovalID {
				t.Fatalf("after a submission: %+v", page)
			}
			if _, _, err := root.Deny(t.Context(), approval.Decision{ApprovalID: op.ApprovalID, ExpectedRevision: 1, Key: "k"}); err != nil {
				t.Fatal(err)
			}
		case 2:
			if len(page.Approvals) != 0 {
				t.Fatalf("after the decision: %+v", page)
			}
			return
		}
		step++
	}
	t.Error("the watch ended")
}

func TestLongPollWaitsForAnotherList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.send("root", "GET", approvalsPath, "")
	tag := first.header.Get("ETag")
	start := time.Now()
	same := b.send("root", "GET", approvalsPath+"?wait_seconds=0.3", "", "If-None-Match", tag)
	if same.status != http.StatusNotModified || same.body != "" || time.Since(start) < 300*time.Millisecond {
		t.Errorf("got %d %q after %s", same.status, same.body, time.Since(start))
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		b.submit("r1")
	}()
	start = time.Now()
	changed := b.send("root", "GET", approvalsPath+"?wait_seconds=25", "", "If-None-Match", tag)
	if changed.status != http.StatusOK || changed.header.Get("ETag") == tag || !strings.Contains(changed.body, "asked.act") || time.Since(start) > 5*time.Second {
		t.Errorf("got %d %q after %s", changed.status, changed.body, time.Since(start))
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const count = 45
	for i := range count {
		b.submit(fmt.Sprintf("r-%d", i))
	}
	seen, cursor := map[string]bool{}, ""
	for {
		page, err := b.client("root").List(t.Context(), approval.Filter{}, 0, cursor)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Approvals) > 20 {
			t.Errorf("%d on a page by default", len(page.Approvals))
		}
		for _, a := range page.Approvals {
			seen[a.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != count {
		t.Errorf("paging shows %d of %d", len(seen), count)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := approvalsPath + "/" + b.submit("r1").ApprovalID
	good := `{"expected_revision":1,"idempotency_key":"k1"}`
	for name, test := range map[string]struct {
		method, target, body string
		header               []string
		status               int
		code                 string
	}{
		"unknown path":           {"GET", "/api/operator/v1/requests", "", nil, 404, "not_found"},
		"agent's path":           {"GET", "/api/agent/v1/operations", "", nil, 404, "not_found"},
		"wrong method":           {"DELETE", one, "", nil, 405, "method_not_allowed"},
		"get of a decision":      {"GET", one + "/approve", "", nil, 405, "method_not_allowed"},
		"unknown parameter":      {"GET", approvalsPath + "?status=pending", "", nil, 400, "invalid_request"},
		"parameter twice":        {"GET", approvalsPath + "?state=pending&state=denied", "", nil, 400, "invalid_request"},
		"unknown state":          {"GET", approvalsPath + "?state=open", "", nil, 400, "invalid_request"},
		"limit 0":                {"GET", approvalsPath + "?limit=0", "", nil, 400, "invalid_request"},
		"cursor not of ours":     {"GET", approvalsPath + "?cursor=x", "", nil, 400, "invalid_request"},
		"wait in words":          {"GET", approvalsPath + "?wait_seconds=long", "", nil, 400, "invalid_request"},
		"stream of no list":      {"GET", approvalsPath + "?state=open", "", []string{"Accept", "text/event-stream"}, 400, "invalid_request"},
		"unknown approval":       {"GET", approvalsPath + "/apr_x", "", nil, 404, "not_found"},
		"ID that is not UTF-8":   {"GET", approvalsPath + "/%ff", "", nil, 404, "not_found"},
		"decision on nothing":    {"POST", approvalsPath + "/apr_x/approve", good, nil, 404, "not_found"},
		"query with a decision":  {"POST", one + "/approve?force=1", good, nil, 400, "invalid_request"},
		"no body":                {"POST", one + "/approve", "", []string{"Content-Type", "application/json"}, 400, "invalid_request"},
		"form":                   {"POST", one + "/approve", good, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type"},
		"too large":              {"POST", one + "/approve", `{"note":"` + strings.Repeat("x", 20<<10) + `"}`, nil, 413, "request_too_large"},
		"null":                   {"POST", one + "/approve", "null", nil, 400, "invalid_request"},
		"no revision":            {"POST", one + "/approve", `{"idempotency_key":"k1"}`, nil, 409, "revision_conflict"},
		"another revision":       {"POST", one + "/approve", `{"expected_revision":2,"idempotency_key":"k1"}`, nil, 409, "revision_conflict"},
		"revision in words":      {"POST", one + "/approve", `{"expected_revision":"1","idempotency_key":"k1"}`, nil, 400, "invalid_request"},
		"no key":                 {"POST", one + "/approve", `{"expected_revision":1}`, nil, 400, "invalid_request"},
		"long key":               {"POST", one + "/approve", `{"expected_revision":1,"idempotency_key":"` + strings.Repeat("k", 201) + `"}`, nil, 400, "invalid_request"},
		"long note":              {"POST", one + "/deny", `{"expected_revision":1,"idempotency_key":"k1","note":"` + strings.Repeat("n", 501) + `"}`, nil, 400, "invalid_request"},
		"operator in the body":   {"POST", one + "/deny", `{"expected_revision":1,"idempotency_key":"k1","operator":"root"}`, nil, 400, "invalid_request"},
		"member twice":           {"POST", one + "/deny", `{"expected_revision":1,"expected_revision":1,"idempotency_key":"k1"}`, nil, 400, "invalid_request"},
		"data behind the member": {"POST", one + "/deny", good + "x", nil, 400, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := (&bundle{b.Broker, t, b.endpoint}).send("root", test.method, test.target, test.body, test.header...)
			if a.status != test.status || a.code() != test.code {
				t.Fatalf("got %d %q: %.300s", a.status, a.code(), a.body)
			}
			if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("got %v", a.header)
			}
			var document struct {
				Error struct {
					Code    string                `json:"code"`
					Message string                `json:"message"`
					Current *operatorapi.Document `json:"current"`
				} `json:"error"`
			}
			if err := strictjson.UnmarshalClosed([]byte(a.body), &document); err != nil || document.Error.Message == "" {
				t.Errorf("not the one form of an error: %v: %s", err, a.body)
			}
			if (document.Error.Current != nil) != (test.code == "revision_conflict") {
				t.Errorf("current item: %s", a.body)
			}
		})
	}
}
