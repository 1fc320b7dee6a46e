package mcp_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/broker/mcp"
	"countersign/broker/operation"
)

// undecided is a lifecycle with one operation that nobody decides.
type undecided struct {
	mcp.Operations
	changes time.Duration // how often it changes without ending
}

func (u undecided) Get(context.Context, string) (operation.Operation, error) {
	return operation.Operation{Item: operation.Item{ID: "op_x", State: operation.Pending, Revision: 1}}, nil
}

func (u undecided) Wait(ctx context.Context, id string, after int64, timeout time.Duration) (operation.Operation, error) {
	op, err := u.Get(ctx, id)
	if u.changes != 0 && u.changes < timeout {
		timeout, op.Revision = u.changes, after+1
	}
	time.Sleep(timeout)
	return op, err
}

func TestWaitTakesTwentyFiveSecondsAtMost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arguments map[string]any
		changes   time.Duration
		want      time.Duration
	}{
		"by default":                    {map[string]any{"id": "op_x"}, 0, 25 * time.Second},                          // B-mcp-02
		"more is asked":                 {map[string]any{"id": "op_x", "timeout_seconds": 60}, 0, 25 * time.Second},   // B-mcp-03
		"much more is asked":            {map[string]any{"id": "op_x", "timeout_seconds": 1e15}, 0, 25 * time.Second}, // B-mcp-03
		"less is asked":                 {map[string]any{"id": "op_x", "timeout_seconds": 3}, 0, 3 * time.Second},
		"nothing is asked":              {map[string]any{"id": "op_x", "timeout_seconds": 0}, 0, 0},
		"it changes and does not end":   {map[string]any{"id": "op_x"}, 7 * time.Second, 25 * time.Second},
		"it changes, and less is asked": {map[string]any{"id": "op_x", "timeout_seconds": 10}, time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, err := mcp.NewServer(mcp.Options{Operations: undecided{changes: test.changes}, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ours, theirs := sdk.NewInMemoryTransports()
				running, err := server.Connect(t.Context(), ours, nil)
				if err != nil {
					t.Fatal(err)
				}
				session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), theirs, nil)
				if err != nil {
					t.Fatal(err)
				}
				b := &bundle{nil, t, session}
				start := time.Now()
				d, r := b.call("operation_wait", test.arguments)
				// B-mcp-04
				if took := time.Since(start); took != test.want || r.isError || d.State != operation.Pending {
					t.Errorf("after %s: %s", took, r.text)
				}
				if err := session.Close(); err != nil {
					t.Error(err)
				}
				if err := running.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
