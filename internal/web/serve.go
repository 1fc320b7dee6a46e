// Package web is what the HTTP servers of all surfaces share: serving and stopping ([Serve]), routing with errors in JSON
// ([Mux]), and reading and writing bodies within bounds ([ReadJSON], [ReadForm], [WriteJSON]).
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options configures [Serve].
type Options struct {
	// Listener accepts the connections. Serve closes it.
	Listener net.Listener
	// Certificate is for HTTPS; nil serves plain HTTP, for a TLS proxy on the same machine.
	Certificate *tls.Certificate
	// Handler answers, as a rule a [Mux]. It must end when the context of its request does.
	Handler http.Handler
	// Log takes what the server itself has to say.
	Log *slog.Logger
	// MaxHeaderBytes bounds the request line and headers; 32 KiB by default.
	MaxHeaderBytes int
	// HeaderTimeout bounds reading them; 10 s by default.
	HeaderTimeout time.Duration
	// BodyTimeout bounds reading the whole request, body included; 30 s by default. The handler may go on after that, and one
	// that takes long uploads sets another read deadline with [http.ResponseController].
	BodyTimeout time.Duration
	// IdleTimeout closes a connection without requests; 90 s by default.
	IdleTimeout time.Duration
	// Grace is how long running requests may take to end after ctx has; 15 s by default.
	Grace time.Duration
}

// Serve answers requests until ctx ends, then lets running ones end within the grace time, cancels the contexts of those that
// did not, and returns when no handler runs any more. The error is nil unless the listener failed.
func Serve(ctx context.Context, options Options) error {
	// Requests outlive ctx by the grace time, so theirs is another one.
	requests, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), stoppingKey{}, ctx.Done()))
	defer cancel()
	handlers := &gate{handler: options.Handler}
	server := &http.Server{
		Handler:           handlers,
		BaseContext:       func(net.Listener) context.Context { return requests },
		MaxHeaderBytes:    cmp.Or(options.MaxHeaderBytes, 32<<10),
		ReadHeaderTimeout: cmp.Or(options.HeaderTimeout, 10*time.Second),
		ReadTimeout:       cmp.Or(options.BodyTimeout, 30*time.Second),
		IdleTimeout:       cmp.Or(options.IdleTimeout, 90*time.Second),
		ErrorLog:          slog.NewLogLogger(options.Log.Handler(), slog.LevelWarn),
		// No WriteTimeout: a long poll or an event stream takes its time.
	}
	ended := make(chan error, 1)
	go func() {
		if options.Certificate == nil {
			ended <- server.Serve(options.Listener)
			return
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*options.Certificate}, MinVersion: tls.VersionTLS12}
		ended <- server.ServeTLS(options.Listener, "", "")
	}()

	var failure error
	select {
	case failure = <-ended:
	case <-ctx.Done():
	}
	grace, done := context.WithTimeout(requests, cmp.Or(options.Grace, 15*time.Second))
	defer done()
	if err := server.Shutdown(grace); err != nil {
		options.Log.Warn("requests did not end in time and are cut off", "error", err)
		cancel()
		_ = server.Close() // there is nobody left to tell
	}
	handlers.close()
	if failure == nil {
		failure = <-ended
	}
	if errors.Is(failure, http.ErrServerClosed) {
		return nil // as it should be
	}
	return fmt.Errorf("serving %s: %w", options.Listener.Addr(), failure)
}

type stoppingKey struct{}

// Stopping returns a channel that is closed when the server of this request begins to stop, so that whoever holds a request
// open (a long poll, an event stream) ends it early. Outside [Serve] it is nil and never closes.
func Stopping(ctx context.Context) <-chan struct{} {
	stopping, _ := ctx.Value(stoppingKey{}).(<-chan struct{})
	return stopping
}

// gate lets requests in until it is closed. Each running handler holds a read lock, so taking the write lock waits for all.
type gate struct {
	handler http.Handler
	running sync.RWMutex
	closed  bool
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.running.RLock()
	defer g.running.RUnlock()
	if !g.closed {
		g.handler.ServeHTTP(w, r)
	}
}

func (g *gate) close() {
	g.running.Lock()
	defer g.running.Unlock()
	g.closed = true
}
