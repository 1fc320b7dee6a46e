package agentapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/broker"
	"countersign/broker/access"
	"countersign/broker/agentapi"
	"countersign/broker/approval"
	"countersign/broker/internal/brokertest"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	operationsPath = "/api/agent/v1/operations"
	discoveryPath  = "/.well-known/unyolo-agent"
)

// bundle is a broker that clients alice and bob reach over a Unix socket.
type bundle struct {
	*broker.Broker
	t        testing.TB
	endpoint access.Endpoint
}

func setup(t testing.TB, operations ...provider.Operation) *bundle {
	t.Helper()
	if operations == nil {
		operations = []provider.Operation{brokertest.Operation{Name: "free.act"}, brokertest.Operation{Name: "asked.act"}, brokertest.Operation{Name: "denied.act"}}
	}
	b := brokertest.Start(t, operations...)
	return &bundle{b, t, brokertest.Serve(t, handler(t, b))}
}

func handler(t testing.TB, b *broker.Broker) http.Handler {
	return agentapi.NewHandler(agentapi.Options{
		Operations: b.Operations,
		Clients:    brokertest.Callers(t, "alice", "bob"),
		Offered: func(clientID string) []provider.Descriptor {
			if clientID == "bob" {
				return nil
			}
			return b.Registry.Descriptors()
		},
		Build: "test-build",
		Log:   slog.New(slog.DiscardHandler),
	})
}

func (b *bundle) client(id string) *agentapi.Client {
	c := agentapi.NewClient(agentapi.ClientOptions{Endpoint: b.endpoint, Secret: brokertest.Secret(id)})
	b.t.Cleanup(c.Close)
	return c
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code returns the code of an error answer.
func (a answer) code() string {
	var document struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = strictjson.Unmarshal(a.body, &document)
	return document.Error.Code
}

// send sends a request as a client, or without a secret if that is empty.
func (b *bundle) send(client, method, target, body string, header ...string) answer {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.endpoint.URL()+target, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if client != "" {
		request.Header.Set("Authorization", "Bearer "+brokertest.Secret(client).Reveal())
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
	return answer{response.StatusCode, response.Header, data}
}

func submission(requestID, name, text string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"operation":%q,"target":{"place":"here"},"arguments":{"text":%q},"reason":"because"}`, requestID, name, text)
}

func request(requestID, name, text string) operation.Request {
	return operation.Request{
		RequestID: requestID, Operation: name, Reason: "because",
		Target: strictjson.Raw(`{"place":"here"}`), Arguments: strictjson.Raw(fmt.Sprintf(`{"text":%q}`, text)),
	}
}

func decode(t *testing.T, a answer) agentapi.Document {
	t.Helper()
	var document agentapi.Document
	if err := strictjson.UnmarshalClosed(a.body, &document); err != nil {
		t.Fatalf("%v: %d %s", err, a.status, a.body)
	}
	return document
}

func TestSubmitAnswersAtOnceWithWhatIsSafeToShow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := setup(t, brokertest.Operation{Name: "free.slow", Do: func(ctx context.Context, _ provider.Dispatch) provider.Outcome {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return provider.Succeeded(map[string]string{"value": "fine"})
	}}, brokertest.Operation{Name: "asked.act"})
	defer close(release)
	for _, name := range []string{"free.slow", "asked.act"} {
		start := time.Now()
		a := b.send("alice", "POST", operationsPath, submission("req-"+name, name, "MARKER-argument"))
		// B-submit-01, B-submit-03, B-routes-03
		if a.status != http.StatusAccepted || time.Since(start) > time.Second {
			t.Errorf("%s: %d after %s: %s", name, a.status, time.Since(start), a.body)
		}
		d := decode(t, a)
		// B-submit-02, B-handles-02
		if d.ID == "" || d.RequestID != "req-"+name || d.ClientID != "alice" || d.Operation != name || d.State.Terminal() || d.Revision < 1 ||
			d.CreatedAt.IsZero() || d.UpdatedAt.IsZero() || d.Presentation.Title == "" || d.API != agentapi.ContractName {
			t.Errorf("got %+v", d)
		}
		for _, private := range []string{"MARKER", "here", "because"} {
			if bytes.Contains(a.body, []byte(private)) {
				t.Errorf("the answer repeats the request: %s", a.body)
			}
		}
		if a.header.Get("Location") != operationsPath+"/"+d.ID || a.header.Get("Retry-After") == "" {
			t.Errorf("a client is not told where and when to look: %v", a.header)
		}
	}
}

func TestSubmitAgainReturnsTheSameOperation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.send("alice", "POST", operationsPath, submission("r1", "asked.act", "x"))
	again := b.send("alice", "POST", operationsPath, submission("r1", "asked.act", "x"))
	// B-handles-05
	if again.status != http.StatusOK || decode(t, again).ID != decode(t, first).ID || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("got %d %s", again.status, again.body)
	}
	if first.header.Get("Idempotency-Replayed") != "" {
		t.Error("the first answer says that it is a repetition")
	}
	// Members in another order and other white space are the same request.
	spelled := b.send("alice", "POST", operationsPath, `{ "reason":"because","arguments":{"text":"x"}, "target":{"place":"here"},"operation":"asked.act","idempotency_key":"r1"}`)
	if spelled.status != http.StatusOK || decode(t, spelled).ID != decode(t, first).ID {
		t.Errorf("got %d %s", spelled.status, spelled.body)
	}
	for name, body := range map[string]string{
		"other arguments": submission("r1", "asked.act", "y"),
		"other operation": submission("r1", "free.act", "x"),
		"other target":    strings.Replace(submission("r1", "asked.act", "x"), "here", "there", 1),
		"other reason":    strings.Replace(submission("r1", "asked.act", "x"), "because", "for fun", 1),
	} {
		a := b.send("alice", "POST", operationsPath, body)
		// B-handles-06
		if a.status != http.StatusConflict || a.code() != "request_id_conflict" || len(a.body) > 600 || bytes.Contains(a.body, []byte("here")) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// B-handles-07
	page, err := b.client("alice").List(t.Context(), operation.Filter{}, 0, "")
	if err != nil || len(page.Operations) != 1 {
		t.Errorf("after the conflicts there are %v, %v", page, err)
	}
	// The same request ID of another client is another request.
	if other := b.send("bob", "POST", operationsPath, submission("r1", "asked.act", "x")); other.status != http.StatusAccepted || decode(t, other).ID == decode(t, first).ID {
		t.Errorf("got %d %s", other.status, other.body)
	}
}

func TestEveryOutcomeIsOneLifecycle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := b.client("alice")
	// B-auth-01: one way to submit, and the state names the outcome.
	for name, want := range map[string]operation.State{"free.act": operation.Succeeded, "asked.act": operation.Succeeded, "denied.act": operation.Denied} {
		op, _, err := alice.Submit(t.Context(), request("r-"+name, name, "x"))
		if err != nil {
			t.Fatal(err)
		}
		if op.State == operation.Pending {
			decision := approval.Decision{ApprovalID: op.ApprovalID, ExpectedRevision: 1, Key: "k", OperatorID: "root"}
			if _, _, err := b.Approvals.Approve(t.Context(), decision); err != nil {
				t.Fatal(err)
			}
		}
		if asked := op.ApprovalID != ""; asked != (name == "asked.act") {
			t.Errorf("%s: approval %q", name, op.ApprovalID)
		}
		for !op.State.Terminal() {
			if op, err = alice.Wait(t.Context(), op.ID, op.Revision, operation.MaxWait); err != nil {
				t.Fatal(err)
			}
		}
		if op.State != want || op.TerminalAt.IsZero() || (want == operation.Denied) != (op.Error != nil) {
			t.Errorf("%s: %+v", name, op)
		}
	}
	// A submission that ends at once is answered with 200.
	if a := b.send("alice", "POST", operationsPath, submission("r2", "denied.act", "x")); a.status != http.StatusOK || a.header.Get("Location") != "" {
		t.Errorf("got %d %v", a.status, a.header)
	}
}

func TestGetAndCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := decode(t, b.send("alice", "POST", operationsPath, submission("r1", "asked.act", "x")))
	// B-routes-04
	if a := b.send("alice", "GET", operationsPath+"/"+d.ID, ""); a.status != http.StatusOK || decode(t, a).ID != d.ID {
		t.Errorf("got %d %s", a.status, a.body)
	}
	// B-routes-06, B-auth-15
	if a := b.send("alice", "POST", operationsPath+"/"+d.ID+"/cancel", ""); a.status != http.StatusOK || decode(t, a).State != operation.Canceled {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := b.send("alice", "POST", operationsPath+"/"+d.ID+"/cancel", ""); a.status != http.StatusOK || decode(t, a).State != operation.Canceled {
		t.Errorf("canceled again: %d %s", a.status, a.body)
	}
}

func TestCancelOfWhatIsExecutingIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	b := setup(t, brokertest.Operation{Name: "free.slow", Do: func(context.Context, provider.Dispatch) provider.Outcome {
		close(started)
		<-release
		return provider.Succeeded(map[string]bool{"done": true})
	}})
	d := decode(t, b.send("alice", "POST", operationsPath, submission("r1", "free.slow", "x")))
	<-started
	start := time.Now()
	a := b.send("alice", "POST", operationsPath+"/"+d.ID+"/cancel", "")
	close(release)
	if a.status != http.StatusConflict || a.code() != "operation_not_cancelable" || time.Since(start) > 2*time.Second {
		t.Errorf("got %d %s after %s", a.status, a.body, time.Since(start))
	}
}

func TestClientsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := decode(t, b.send("alice", "POST", operationsPath, submission("r1", "asked.act", "x")))
	// B-routes-04, B-routes-05, B-auth-15, B-handles-01: another client's ID, and a request ID in place of an operation ID.
	for _, id := range []string{d.ID, "r1"} {
		client := "bob"
		if id == "r1" {
			client = "alice"
		}
		for _, call := range [][2]string{{"GET", ""}, {"GET", "/events"}, {"GET", "/events?after_revision=99&wait_seconds=25"}, {"POST", "/cancel"}} {
			if a := b.send(client, call[0], operationsPath+"/"+id+call[1], ""); a.status != http.StatusNotFound || a.code() != "not_found" {
				t.Errorf("%s %s%s as %s: %d %s", call[0], id, call[1], client, a.status, a.body)
			}
		}
		if a := b.send(client, "GET", operationsPath+"/"+id+"/events", "", "Accept", "text/event-stream"); a.status != http.StatusNotFound {
			t.Errorf("stream of %s as %s: %d %s", id, client, a.status, a.body)
		}
	}
	if a := b.send("alice", "GET", operationsPath+"/"+d.ID, ""); decode(t, a).State != operation.Pending {
		t.Errorf("another client's cancel took effect: %s", a.body)
	}
	// B-mcp-09 as the HTTP surface has it.
	for _, query := range []string{"", "?idempotency_key=r1"} {
		var page agentapi.PageDocument
		a := b.send("bob", "GET", operationsPath+query, "")
		if err := strictjson.UnmarshalClosed(a.body, &page); err != nil || len(page.Operations) != 0 {
			t.Errorf("%q: %s, %v", query, a.body, err)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice, bob := b.client("alice"), b.client("bob")
	const count = 60
	for i := range count {
		if _, _, err := alice.Submit(t.Context(), request(fmt.Sprintf("r-%d", i), "asked.act", "x")); err != nil {
			t.Fatal(err)
		}
	}
	for asked, want := range map[int]int{0: 20, 1: 1, 50: 50, 51: 50, 1000: 50} {
		if page, err := alice.List(t.Context(), operation.Filter{}, asked, ""); err != nil || len(page.Operations) != want || page.Next == "" {
			t.Errorf("limit %d: %d operations, %v", asked, len(page.Operations), err)
		}
	}
	seen := map[string]bool{}
	var cursor string
	for {
		page, err := alice.List(t.Context(), operation.Filter{State: operation.Pending}, 25, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Operations {
			if seen[item.RequestID] {
				t.Errorf("%s comes twice", item.RequestID)
			}
			seen[item.RequestID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		if _, err := bob.List(t.Context(), operation.Filter{State: operation.Pending}, 25, cursor); code(err) != operation.InvalidRequest {
			t.Errorf("another client's cursor: %v", err)
		}
		if _, err := alice.List(t.Context(), operation.Filter{}, 25, cursor); code(err) != operation.InvalidRequest {
			t.Errorf("a cursor of another filter: %v", err)
		}
	}
	if len(seen) != count {
		t.Errorf("paging shows %d of %d", len(seen), count)
	}
	if page, err := alice.List(t.Context(), operation.Filter{RequestID: "r-7"}, 0, ""); err != nil || len(page.Operations) != 1 || page.Operations[0].RequestID != "r-7" {
		t.Errorf("got %v, %v", page, err)
	}
}

func code(err error) operation.Code {
	refused, _ := errors.AsType[*operation.Error](err)
	if refused == nil {
		return ""
	}
	return refused.Code
}

func TestLongPollEndsWithTheNextChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := b.client("alice")
	op, _, err := alice.Submit(t.Context(), request("r1", "asked.act", "x"))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if same, err := alice.Wait(t.Context(), op.ID, op.Revision, 300*time.Millisecond); err != nil || same.Revision != op.Revision || time.Since(start) < 300*time.Millisecond {
		t.Errorf("at the end of its time a wait returned %+v, %v after %s", same, err, time.Since(start))
	}
	changed := make(chan operation.Operation, 1)
	go func() {
		op, err := alice.Wait(t.Context(), op.ID, op.Revision, operation.MaxWait)
		if err != nil {
			t.Error(err)
		}
		changed <- op
	}()
	time.Sleep(50 * time.Millisecond)
	if _, err := alice.Cancel(t.Context(), op.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case op := <-changed:
		if op.State != operation.Canceled {
			t.Errorf("got %s", op.State)
		}
	case <-time.After(5 * time.Second):
		t.Error("the change did not end the wait")
	}
	// What is terminal is not waited for.
	start = time.Now()
	if _, err := alice.Wait(t.Context(), op.ID, 99, operation.MaxWait); err != nil || time.Since(start) > time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
}

// B-routes-05
func TestEventsTellEveryDurableChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := b.client("alice")
	op, _, err := alice.Submit(t.Context(), request("r1", "asked.act", "x"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []operation.Kind
	for event, err := range alice.Events(t.Context(), op.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, event.Kind)
		if strings.Contains(event.Actor, ":") {
			t.Errorf("the event names its actor: %s", event.Actor)
		}
		if event.Kind == operation.EventSubmitted { // so that the rest happens while the stream is open
			decision := approval.Decision{ApprovalID: op.ApprovalID, ExpectedRevision: 1, Key: "k", OperatorID: "root"}
			if _, _, err := b.Approvals.Approve(t.Context(), decision); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := fmt.Sprint(kinds); got != "[submitted approved dispatched succeeded]" {
		t.Errorf("got %s", got)
	}
	// After a revision, and after the end.
	kinds = nil
	for event, err := range alice.Events(t.Context(), op.ID, 2) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, event.Kind)
	}
	if got := fmt.Sprint(kinds); got != "[dispatched succeeded]" {
		t.Errorf("after revision 2: %s", got)
	}
	for event, err := range alice.Events(t.Context(), op.ID, 4) {
		t.Errorf("after the end: %v, %v", event, err)
	}
}

func TestEventStreamOnTheWire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := decode(t, b.send("alice", "POST", operationsPath, submission("r1", "denied.act", "x")))
	a := b.send("alice", "GET", operationsPath+"/"+d.ID+"/events", "", "Accept", "text/event-stream")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %d %v", a.status, a.header)
	}
	lines := bufio.NewScanner(bytes.NewReader(a.body))
	lines.Scan()
	if lines.Text() != "id: 1" {
		t.Errorf("got %q", a.body)
	}
	// A reader that has lost its connection says what it has seen, whatever its URL says.
	if a := b.send("alice", "GET", operationsPath+"/"+d.ID+"/events?after_revision=0", "", "Accept", "text/event-stream", "Last-Event-ID", "1"); a.status != http.StatusNoContent || len(a.body) != 0 {
		t.Errorf("got %d %q", a.status, a.body)
	}
}

func TestStoppingServerEndsWaits(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t, brokertest.Operation{Name: "asked.act"})
	op, _, err := b.Operations.Submit(t.Context(), "alice", request("r1", "asked.act", "x"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := brokertest.Serve(t, http.NotFoundHandler()) // for a free address
	other, err := access.ParseEndpoint(endpoint.String() + "2")
	if err != nil {
		t.Fatal(err)
	}
	stop := brokertest.ServeAt(t, other, handler(t, b))
	client := agentapi.NewClient(agentapi.ClientOptions{Endpoint: other, Secret: brokertest.Secret("alice")})
	defer client.Close()
	if _, err := client.Get(t.Context(), op.ID); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		same, err := client.Wait(t.Context(), op.ID, op.Revision, operation.MaxWait)
		if err == nil && same.Revision != op.Revision {
			err = fmt.Errorf("got %+v", same)
		}
		waited <- err
	}()
	streamed := make(chan error, 1)
	go func() {
		var last error
		for _, err := range client.Events(t.Context(), op.ID, op.Revision) {
			last = err
		}
		streamed <- last
	}()
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	stop()
	if err := <-waited; err != nil {
		t.Errorf("the wait ended with %v", err)
	}
	if err := <-streamed; code(err) != operation.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	if time.Since(start) > 5*time.Second {
		t.Errorf("stopping took %s", time.Since(start))
	}
}

func TestWaitsOfOneClientAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := decode(t, b.send("alice", "POST", operationsPath, submission("r1", "asked.act", "x")))
	waitPath := operationsPath + "/" + d.ID + "/events?after_revision=1"
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	hold := func() {
		transport := b.endpoint.Transport()
		defer transport.CloseIdleConnections()
		for ctx.Err() == nil { // again, if the probe below took the place
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.endpoint.URL()+waitPath, nil)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Authorization", "Bearer "+brokertest.Secret("alice").Reveal())
			if response, err := transport.RoundTrip(request); err == nil {
				response.Body.Close()
			}
		}
	}
	for range 64 {
		waiting.Go(hold)
	}
	var a answer
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if a = b.send("alice", "GET", waitPath+"&wait_seconds=0", ""); a.status != http.StatusOK {
			break
		}
	}
	if a.status != http.StatusTooManyRequests || a.code() != "too_many_waiting" || a.header.Get("Retry-After") == "" {
		t.Errorf("the 65th wait: %d %s", a.status, a.body)
	}
	// Everything else stays available.
	if a := b.send("alice", "POST", operationsPath+"/"+d.ID+"/cancel", ""); a.status != http.StatusOK {
		t.Errorf("cancel: %d %s", a.status, a.body)
	}
	cancel()
	waiting.Wait()
}
