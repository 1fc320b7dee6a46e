// Package agentapi is Agent Operations V1 over HTTP: the server that clients submit typed operations to, and the client.
//
// Clients authenticate with a secret of their own and see their own operations only. What they see is made for transcripts:
// no answer repeats a request's target, arguments or reason. [Contract] describes the surface, and its digest in the
// discovery document tells a client whether it was built for this one.
package agentapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"countersign/broker/access"
	"countersign/broker/internal/wire"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/web"
)

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

type server struct {
	Options
	waiting *wire.Places
}

// The routes that clients need to know.
const (
	discoveryPath  = "/.well-known/unyolo-agent"
	contractPath   = "/api/agent/v1/openapi.json"
	operationsPath = "/api/agent/v1/operations"
)

// NewHandler returns the server.
func NewHandler(options Options) http.Handler {
	s := &server{options, wire.NewPlaces(maxWaiting)}
	mux := web.NewMux(web.MuxOptions{Log: options.Log, ErrorBody: wire.ErrorBody})
	mux.Handle("GET /healthz", wire.Healthy)
	mux.Handle("GET "+discoveryPath, s.client(s.discover))
	mux.Handle("GET "+contractPath, s.client(s.contract))
	mux.Handle("POST "+operationsPath, s.client(s.submit))
	mux.Handle("GET "+operationsPath, s.client(s.list))
	mux.Handle("GET "+operationsPath+"/{id}", s.client(s.get))
	mux.Handle("GET "+operationsPath+"/{id}/events", s.client(s.events))
	mux.Handle("POST "+operationsPath+"/{id}/cancel", s.client(s.cancel))
	return wire.Private(mux)
}

// client authenticates and answers refusals of the lifecycle as this surface does.
func (s *server) client(handle func(w http.ResponseWriter, r *http.Request, clientID string) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		clientID, err := wire.Authenticate(s.Clients, r)
		if err != nil {
			return err
		}
		return refusal(handle(w, r, clientID))
	}
}

// statuses is what each refusal of the lifecycle travels as. What is not here is 500.
var statuses = map[operation.Code]int{
	operation.InvalidRequest:    http.StatusBadRequest,
	operation.NotFound:          http.StatusNotFound,
	operation.RequestIDConflict: http.StatusConflict,
	operation.NotCancelable:     http.StatusConflict,
	operation.NotRegistered:     http.StatusBadRequest,
	operation.InputInvalid:      http.StatusBadRequest,
	operation.TargetRefused:     http.StatusUnprocessableEntity,
	operation.Unavailable:       http.StatusServiceUnavailable,
}

// refusal turns a refusal of the lifecycle into its answer and leaves any other error as it is.
func refusal(err error) error {
	refused, ok := errors.AsType[*operation.Error](err)
	if !ok {
		return err
	}
	status, known := statuses[refused.Code]
	if !known {
		return err
	}
	fault := wire.Fault{Code: string(refused.Code), Message: refused.Message}
	for _, field := range refused.Fields {
		fault.Fields = append(fault.Fields, wire.Field{Pointer: field.Pointer, Problem: field.Problem})
	}
	answer := wire.Refuse(status, fault)
	answer.Cause = refused.Unwrap()
	if refused.Code == operation.Unavailable {
		answer.Header = http.Header{"Retry-After": {"1"}}
	}
	return answer
}
