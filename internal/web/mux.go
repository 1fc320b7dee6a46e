package web

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"time"

	"countersign/internal/id"
)

// MuxOptions configures a [Mux].
type MuxOptions struct {
	// Log takes one line per request and what went wrong inside.
	Log *slog.Logger
	// ErrorBody is the form of errors on this surface; nil writes {"error": code}.
	ErrorBody func(*Error) any
}

// Mux is the handler of one surface. It routes by the patterns of [http.ServeMux], gives each request an ID, logs it (never
// its query or headers), turns errors and panics into their JSON form, and answers unknown paths and methods in JSON too.
type Mux struct {
	log       *slog.Logger
	errorBody func(*Error) any
	routes    *http.ServeMux
}

// NewMux returns a Mux without routes.
func NewMux(options MuxOptions) *Mux {
	m := &Mux{log: options.Log, errorBody: options.ErrorBody, routes: http.NewServeMux()}
	if m.errorBody == nil {
		m.errorBody = func(e *Error) any { return errorBody{e.Code} }
	}
	return m
}

// Handle routes pattern to handler. An error that handler returns becomes the answer if it is or wraps an [*Error], and
// {"error":"server_error"} with a log line if not. If the answer has begun, it is broken off instead.
func (m *Mux) Handle(pattern string, handler func(http.ResponseWriter, *http.Request) error) {
	m.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); err != nil {
			m.refuse(w, r, err)
		}
	})
}

// Mount routes pattern to a handler that writes its own errors, such as pages or a library's.
func (m *Mux) Mount(pattern string, handler http.Handler) { m.routes.Handle(pattern, handler) }

// ServeHTTP implements http.Handler.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	requestID := id.New("req")
	w.Header().Set("X-Request-Id", requestID)
	r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, requestID))
	answer := &recorder{ResponseWriter: w}
	defer m.record(answer, r, began)
	defer m.catch(answer, r)
	m.route(answer, r)
}

// route answers paths and methods that have no handler; for OPTIONS that answer is which methods there are.
func (m *Mux) route(w http.ResponseWriter, r *http.Request) {
	handler, pattern := m.routes.Handler(r)
	if pattern != "" {
		m.routes.ServeHTTP(w, r)
		return
	}
	found := &probe{header: make(http.Header)}
	handler.ServeHTTP(found, r)
	allow := found.header.Get("Allow")
	switch {
	case found.status != http.StatusMethodNotAllowed:
		m.refuse(w, r, NotFound())
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allow+", "+http.MethodOptions)
		w.WriteHeader(http.StatusNoContent)
	default:
		m.refuse(w, r, MethodNotAllowed(allow))
	}
}

// record writes the line of the access log: what was asked, without what may be secret in it, and what was answered.
func (m *Mux) record(answer *recorder, r *http.Request, began time.Time) {
	m.log.InfoContext(r.Context(), "request", "request_id", RequestID(r.Context()),
		"method", r.Method, "host", r.Host, "path", r.URL.Path, "remote", r.RemoteAddr,
		"status", answer.status, "bytes", answer.bytes, "duration", time.Since(began))
}

// refuse writes the answer for an error, or breaks off the one that has begun, and logs what the answer does not say.
func (m *Mux) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer, ok := errors.AsType[*Error](err)
	if !ok {
		answer = serverError(err)
	}
	if answer.Cause != nil {
		level := slog.LevelInfo // the client's fault
		if answer.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
			level = slog.LevelError // ours, and not only that the client has gone
		}
		m.log.Log(r.Context(), level, "request refused", "request_id", RequestID(r.Context()), "code", answer.Code, "error", err)
	}
	if begun, ok := w.(*recorder); ok && begun.status != 0 {
		panic(http.ErrAbortHandler) // so that the client sees that what it has is not all
	}
	maps.Copy(w.Header(), answer.Header)
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store")
	}
	body := answer.Body
	if body == nil {
		body = m.errorBody(answer)
	}
	if err := WriteJSON(w, answer.Status, body); err != nil {
		m.log.ErrorContext(r.Context(), "error without a body", "request_id", RequestID(r.Context()), "code", answer.Code, "error", err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// catch turns a panic into an answer and logs it with its stack.
func (m *Mux) catch(w http.ResponseWriter, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler { //nolint:errorlint // a panic's value, not a chain
		panic(cause) // how a handler breaks off a response on purpose
	}
	m.log.ErrorContext(r.Context(), "panic", "request_id", RequestID(r.Context()), "panic", cause, "stack", string(debug.Stack()))
	m.refuse(w, r, serverError(nil))
}

type requestIDKey struct{}

// RequestID returns the ID that [Mux] gave the request, "" without one. It is in the X-Request-Id response header too.
func RequestID(ctx context.Context) string {
	requestID, _ := ctx.Value(requestIDKey{}).(string)
	return requestID
}

// recorder notes what is answered.
type recorder struct {
	http.ResponseWriter
	status int // 0 until the answer has begun
	bytes  int64
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.status = cmp.Or(r.status, http.StatusOK)
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// FlushError implements what [http.ResponseController] flushes with.
func (r *recorder) FlushError() error {
	r.status = cmp.Or(r.status, http.StatusOK)
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Unwrap lets [http.ResponseController] reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// probe takes the answer of ServeMux to a request that it has no handler for.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header            { return p.header }
func (p *probe) Write(data []byte) (int, error) { return len(data), nil }
func (p *probe) WriteHeader(status int)         { p.status = status }
