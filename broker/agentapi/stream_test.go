package agentapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/broker/agentapi"
	"countersign/broker/internal/brokertest"
	"countersign/broker/operation"
)

// slow is a lifecycle with one operation that is canceled after a while.
type slow struct {
	agentapi.Operations
	end time.Time
}

func (s slow) Get(context.Context, string, string) (operation.Operation, error) {
	op := operation.Operation{Item: operation.Item{ID: "op_x", State: operation.Pending, Revision: 1}}
	if !time.Now().Before(s.end) {
		op.State, op.Revision = operation.Canceled, 2
	}
	return op, nil
}

func (s slow) Events(_ context.Context, _, _ string, after int64) ([]operation.Event, error) {
	if after < 2 && !time.Now().Before(s.end) {
		return []operation.Event{{Revision: 2, Kind: operation.EventCanceled, State: operation.Canceled, Actor: "client:alice"}}, nil
	}
	return nil, nil
}

func (s slow) Wait(ctx context.Context, clientID, id string, _ int64, timeout time.Duration) (operation.Operation, error) {
	time.Sleep(min(timeout, time.Until(s.end)))
	return s.Get(ctx, clientID, id)
}

func TestStreamShowsEveryFifteenSecondsThatItStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := agentapi.NewHandler(agentapi.Options{
			Operations: slow{end: time.Now().Add(50 * time.Second)},
			Clients:    brokertest.Callers(t, "alice"),
			Log:        slog.New(slog.DiscardHandler),
		})
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, operationsPath+"/op_x/events?after_revision=1", nil)
		request.Header.Set("Authorization", "Bearer "+brokertest.Secret("alice").Reveal())
		request.Header.Set("Accept", "text/event-stream")
		answer := httptest.NewRecorder()
		start := time.Now()
		handler.ServeHTTP(answer, request)
		if took := time.Since(start); took != 50*time.Second {
			t.Errorf("the stream ended after %s", took)
		}
		beats := strings.Count(answer.Body.String(), ": still here\n\n")
		if beats != 3 || !strings.HasSuffix(answer.Body.String(), "\n\n") || !strings.Contains(answer.Body.String(), "\n\nid: 2\nevent: canceled\ndata: {") {
			t.Errorf("%d beats in %q", beats, answer.Body)
		}
	})
}
