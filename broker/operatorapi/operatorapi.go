// Package operatorapi is how operators reach the broker over HTTP: the server that shows approvals and takes decisions, and
// the client. It has a listener and secrets of its own, so that no client can approve what it asked for.
package operatorapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"countersign/broker/access"
	"countersign/broker/approval"
	"countersign/broker/operation"
)

// Approvals is what decides, as [approval.Service] has it.
type Approvals interface {
	List(ctx context.Context, filter approval.Filter, limit int, cursor string) (approval.Page, error)
	Get(ctx context.Context, id string) (approval.Approval, error)
	Approve(ctx context.Context, decision approval.Decision) (a approval.Approval, replayed bool, err error)
	Deny(ctx context.Context, decision approval.Decision) (a approval.Approval, replayed bool, err error)
	Watch() (signal <-chan struct{}, cancel func())
}

var _ Approvals = (*approval.Service)(nil)

// Operations shows what is decided about, as [operation.Service] does.
type Operations interface {
	Lookup(ctx context.Context, id string) (operation.Operation, error)
}

// Options are what the server needs. All must be given.
type Options struct {
	Approvals  Approvals
	Operations Operations
	// Operators are those who may decide.
	Operators *access.Callers
	// Clients are those who ask. A secret that is an operator's and a client's is an error.
	Clients *access.Callers
	Log     *slog.Logger
}

// NewHandler returns the server.
func NewHandler(options Options) (http.Handler, error) { return nil, errors.ErrUnsupported }
