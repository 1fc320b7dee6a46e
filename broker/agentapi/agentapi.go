// Package agentapi is Agent Operations V1 over HTTP: the server that clients submit typed operations to, and the client.
package agentapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"countersign/broker/access"
	"countersign/broker/operation"
	"countersign/broker/provider"
)

// ContractName labels the contract. It is for people: two sides understand each other if their [ContractDigest] is the same.
const ContractName = "countersign/agent-operations/v1"

// Operations is the lifecycle, as [operation.Service] has it.
type Operations interface {
	Submit(ctx context.Context, clientID string, request operation.Request) (op operation.Operation, replayed bool, err error)
	Get(ctx context.Context, clientID, id string) (operation.Operation, error)
	List(ctx context.Context, clientID string, filter operation.Filter, limit int, cursor string) (operation.Page, error)
	Events(ctx context.Context, clientID, id string, after int64) ([]operation.Event, error)
	Wait(ctx context.Context, clientID, id string, after int64, timeout time.Duration) (operation.Operation, error)
	Cancel(ctx context.Context, clientID, id string) (operation.Operation, error)
}

var _ Operations = (*operation.Service)(nil)

// Options are what the server needs. All must be given.
type Options struct {
	Operations Operations
	// Clients are those who may call.
	Clients *access.Callers
	// Offered returns the operations that policy could ever let the client submit.
	Offered func(clientID string) []provider.Descriptor
	// Build identifies the program to its clients, for example its version and revision.
	Build string
	Log   *slog.Logger
}

// NewHandler returns the server.
func NewHandler(options Options) (http.Handler, error) { return nil, errors.ErrUnsupported }
