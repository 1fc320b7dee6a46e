// Package operatorapi is how operators reach the broker over HTTP: the server that shows approvals and takes decisions, and
// the client.
//
// It has a listener and secrets of its own, so that no client can approve what it asked for. Nothing here cancels an operation:
// that is its requester's to do, and an operator denies.
package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"countersign/broker/access"
	"countersign/broker/approval"
	"countersign/broker/internal/wire"
	"countersign/broker/operation"
	"countersign/internal/web"
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

var _ Operations = (*operation.Service)(nil)

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

type server struct {
	Options
	waiting *wire.Places
}

const approvalsPath = "/api/operator/v1/approvals"

// NewHandler returns the server.
func NewHandler(options Options) (http.Handler, error) {
	if id := options.Operators.Shared(options.Clients); id != "" {
		return nil, fmt.Errorf("operator %s has the secret of a client, who could approve what it asked for: give the operator another secret", id)
	}
	s := &server{options, wire.NewPlaces(maxWaiting)}
	mux := web.NewMux(web.MuxOptions{Log: options.Log, ErrorBody: wire.ErrorBody})
	mux.Handle("GET /healthz", wire.Healthy)
	mux.Handle("GET "+approvalsPath, s.operator(s.list))
	mux.Handle("GET "+approvalsPath+"/{id}", s.operator(s.get))
	mux.Handle("POST "+approvalsPath+"/{id}/approve", s.operator(s.decide(options.Approvals.Approve)))
	mux.Handle("POST "+approvalsPath+"/{id}/deny", s.operator(s.decide(options.Approvals.Deny)))
	return wire.Private(mux), nil
}

// operator authenticates and answers refusals as this surface does.
func (s *server) operator(handle func(w http.ResponseWriter, r *http.Request, operatorID string) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		operatorID, err := wire.Authenticate(s.Operators, r)
		if err != nil {
			return err
		}
		return refusal(handle(w, r, operatorID))
	}
}

// statuses is what each refusal travels as. What is not here is 500.
var statuses = map[approval.Code]int{
	approval.InvalidRequest:   http.StatusBadRequest,
	approval.NotFound:         http.StatusNotFound,
	approval.RevisionConflict: http.StatusConflict,
	approval.KeyConflict:      http.StatusConflict,
}

// refusal turns a refusal into its answer and leaves any other error as it is.
func refusal(err error) error {
	refused, ok := errors.AsType[*approval.Error](err)
	if !ok {
		return err
	}
	status, known := statuses[refused.Code]
	if !known {
		return err
	}
	return wire.Refuse(status, wire.Fault{Code: string(refused.Code), Message: refused.Message})
}
