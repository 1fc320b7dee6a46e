package web

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// MuxOptions configures a [Mux].
type MuxOptions struct {
	// Log takes one line per request and what went wrong inside.
	Log *slog.Logger
	// ErrorBody is the form of errors on this surface; nil writes {"error": code}.
	ErrorBody func(*Error) any
	// BodyTimeout bounds how long a client may take to send a body; 30 s by default. A handler that takes long uploads
	// sets its own read deadline with http.ResponseController.
	BodyTimeout time.Duration
}

// Mux is the handler of one surface. It routes by the patterns of [http.ServeMux], gives each request an ID, logs it (never
// its query or headers), turns errors and panics into their JSON form, and answers unknown paths and methods in JSON too.
type Mux struct{}

// NewMux returns a Mux without routes.
func NewMux(options MuxOptions) *Mux { return &Mux{} }

// Handle routes pattern to handler. An error that handler returns, before it has written anything, becomes the answer if it
// is or wraps an [*Error], and {"error":"server_error"} with a log line if not.
func (m *Mux) Handle(pattern string, handler func(http.ResponseWriter, *http.Request) error) {}

// Mount routes pattern to a handler that writes its own errors, such as pages or a library's.
func (m *Mux) Mount(pattern string, handler http.Handler) {}

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {}

// RequestID returns the ID that [Mux] gave the request, "" without one. It is in the X-Request-Id response header too.
func RequestID(ctx context.Context) string { return "" }
