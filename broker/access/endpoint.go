package access

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// Endpoint is where a way in listens. The zero value is none.
type Endpoint struct {
	network string // "unix" or "tcp"
	address string // an absolute path, or IP:port
}

// ParseEndpoint reads unix:///absolute/path or http://IP:port.
func ParseEndpoint(text string) (Endpoint, error) { return Endpoint{}, errors.ErrUnsupported }

// String returns the endpoint as [ParseEndpoint] reads it.
func (e Endpoint) String() string { return "" }

// Loopback reports whether only processes of this machine can reach the endpoint.
func (e Endpoint) Loopback() bool { return false }

// Listen starts to listen. A Unix socket is open to its owner only and replaces one that an ended process left behind; one
// that answers, or anything else at that path, is an error. An address that other machines can reach is an error unless
// network is true, since a secret would travel there in the clear. The caller closes the listener.
func (e Endpoint) Listen(ctx context.Context, network bool) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}

// URL returns the base URL under which a client with [Endpoint.Transport] finds the server, without a slash at its end.
func (e Endpoint) URL() string { return "" }

// Transport returns a transport whose every connection goes to the endpoint. It uses no proxy. A Unix socket that does not
// belong to the user of this process or to root is refused, since the secret would go to a stranger.
func (e Endpoint) Transport() *http.Transport { return nil }
