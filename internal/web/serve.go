// Package web is what the HTTP servers of all surfaces share: serving and stopping, routing with JSON errors, and reading
// and writing bodies within bounds.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Options configures [Serve].
type Options struct {
	// Listener accepts the connections. Serve closes it.
	Listener net.Listener
	// Certificate is for HTTPS; nil serves plain HTTP, for a TLS proxy on the same machine.
	Certificate *tls.Certificate
	// Handler answers, as a rule a [Mux].
	Handler http.Handler
	// Log takes what the server itself has to say.
	Log *slog.Logger
	// MaxHeaderBytes bounds the request line and headers; 32 KiB by default.
	MaxHeaderBytes int
	// HeaderTimeout bounds reading them; 10 s by default.
	HeaderTimeout time.Duration
	// IdleTimeout closes a connection without requests; 90 s by default.
	IdleTimeout time.Duration
	// Grace is how long running requests may take to end after ctx has; 15 s by default.
	Grace time.Duration
}

// Serve answers requests until ctx ends, then lets running ones end within the grace time, cancels the contexts of those that
// did not, and returns when no handler runs any more. The error is nil unless the listener failed.
func Serve(ctx context.Context, options Options) error { return errors.ErrUnsupported }

// Stopping returns a channel that is closed when the server of this request begins to stop, so that whoever holds a request
// open (a long poll, an event stream) ends it early. Outside [Serve] it is nil and never closes.
func Stopping(ctx context.Context) <-chan struct{} { return nil }
