package script_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/company/conversation"
	"countersign/company/guard"
	"countersign/company/internal/answer"
	"countersign/company/operation"
	"countersign/company/script"
	"countersign/internal/config"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/internal/wake"
	"countersign/internal/web"
	"countersign/poppy"
)

// company runs a Company that a script plays, and returns its URL.
func company(t *testing.T, rules string, work script.Work) string {
	t.Helper()
	db, err := database.Open(t.Context(), filepath.Join(t.TempDir(), "company.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, migrate := range []func(context.Context, *database.DB) error{operation.Migrate, conversation.Migrate} {
		if err := migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	performer, err := script.OpenPerformer(work, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = performer.Close() })
	log, hub := slog.New(slog.DiscardHandler), new(wake.Hub)
	operations := operation.New(operation.Options{Database: db, Hub: hub, Performer: performer, Log: log, Now: time.Now, Wait: time.Second})
	conversations := conversation.New(conversation.Options{Database: db, Hub: hub, Clerk: clerk(t, rules), Operations: operations, Log: log, Now: time.Now})
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for _, run := range []func(context.Context) error{operations.Run, conversations.Run} {
		group.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); group.Wait() })
	mux := web.NewMux(web.MuxOptions{Log: log})
	protect := func(next guard.Handler) guard.Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			by := guard.Principal{
				ClientID: "https://agent.example/agent.json", UserID: "u-1", SessionID: "ses_1",
				Extensions: map[string]string{poppy.ExtensionOperations: poppy.OperationsVersion},
			}
			return answer.Error(next(w, r.WithContext(guard.WithPrincipal(r.Context(), by))), poppy.SurfaceProtocol)
		}
	}
	conversations.Mount(mux, "/poppy/conversations", protect)
	operations.Mount(mux, "/poppy/operations", protect)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// post sends a body and returns the answer.
func post(t *testing.T, url, body string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		t.Fatalf("%d %s, %v", answer.StatusCode, data, err)
	}
	return data
}

// converse sends a message and returns the Company's reply to it.
func converse(t *testing.T, url, conversationID, text string) (reply poppy.Message, id string) {
	t.Helper()
	if conversationID != "" {
		url += "/" + conversationID + "/messages"
	}
	page, err := poppy.ParsePage(post(t, url+"?wait=10", fmt.Sprintf(`{"message":{"id":"msg_%d","sender":"agent","text":%q}}`, len(text), text)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if e.Message != nil && e.Message.Role == poppy.RoleCompany {
			reply = *e.Message
		}
	}
	return reply, page.ConversationID
}

// The story that this project tells: is the jacket there, hold it, rather in another size, confirmed, performed once.
func TestAScriptedCompanyHoldsTheJacketThatWasConfirmedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	url := company(t, jacket, script.Work{Journal: path, Actions: []script.Performance{{
		Action: "hold jacket", Delay: config.Duration(30 * time.Millisecond), Result: "It is held under the name that you gave.", Data: map[string]any{"hold": "h-1"},
	}}})
	conversations, operations := url+"/poppy/conversations", url+"/poppy/operations"

	reply, id := converse(t, conversations, "", "Is the insulated jacket there in medium?")
	if !strings.HasPrefix(reply.Text, "Yes,") {
		t.Fatalf("got %+v", reply)
	}
	reply, _ = converse(t, conversations, id, "Please hold one until tomorrow evening.")
	first, err := poppy.ParseOperation(reply.Operation)
	if err != nil || !strings.Contains(first.Summary, "(M)") || first.URL != "https://outdoor.example/holds/"+first.OperationID {
		t.Fatalf("got %+v, %v", first, err)
	}
	reply, _ = converse(t, conversations, id, "Rather in large, please.")
	second, err := poppy.ParseOperation(reply.Operation)
	if err != nil || second.OperationID != first.OperationID || second.Revision != 2 || !strings.Contains(second.Summary, "(large)") {
		t.Fatalf("got %+v, %v", second, err)
	}

	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			post(t, operations+"/"+first.OperationID+"/confirm", `{"revision":2,"approved_by":"user"}`)
		})
	}
	group.Wait()
	done, err := poppy.ParseOperation(post(t, operations+"/"+first.OperationID+"/confirm", `{"revision":2,"approved_by":"user"}`))
	if err != nil || done.State != poppy.OperationSucceeded || done.Result.Summary != "It is held under the name that you gave." || string(done.Result.Data) != `{"hold":"h-1"}` {
		t.Fatalf("got %+v, %v", done, err)
	}
	// O-6-04: fifty confirmations are one line.
	lines := journal(t, path)
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	var line struct {
		OperationID string       `json:"operation_id"`
		Revision    int64        `json:"revision"`
		Digest      string       `json:"digest"`
		Terms       poppy.Object `json:"terms"`
	}
	if err := strictjson.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	digest, err := second.TermsDigest()
	if err != nil || line.OperationID != first.OperationID || line.Revision != 2 || line.Digest != digest || string(line.Terms) != string(second.Terms) {
		t.Errorf("line %s, %v; the confirmed revision has digest %s", lines[0], err, digest)
	}
	if reply, _ = converse(t, conversations, id, "Thanks!"); reply.Text != "It waits for you at the till." {
		t.Errorf("got %+v", reply)
	}
}
