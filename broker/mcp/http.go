package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/broker/access"
	"countersign/broker/internal/wire"
	"countersign/internal/web"
)

// Path is where [NewHandler] serves.
const Path = "/mcp"

// maxRequests is how many requests of one client may be under way at once. Most of them wait.
const maxRequests = 64

// HandlerOptions are what serving over HTTP needs. All must be given.
type HandlerOptions struct {
	// Clients are those who may call, by the same secrets as at the Agent API.
	Clients *access.Callers
	// Server returns the server of a client. It is called once for each client.
	Server func(clientID string) (*sdk.Server, error)
	Log    *slog.Logger
}

// NewHandler returns the Streamable HTTP endpoint for all clients, at [Path].
//
// It keeps no sessions: everything that lasts is an operation, so a client is only its secret, and any protocol version of MCP
// can be spoken, the ones without sessions too.
func NewHandler(options HandlerOptions) (http.Handler, error) {
	servers := make(map[string]*sdk.Server)
	for _, id := range options.Clients.IDs() {
		server, err := options.Server(id)
		if err != nil {
			return nil, fmt.Errorf("making the MCP server of client %s: %w", id, err)
		}
		servers[id] = server
	}
	// It refuses by itself a Host that is not loopback on a loopback address, which is how a web page would rebind a name.
	transport := sdk.NewStreamableHTTPHandler(
		func(r *http.Request) *sdk.Server { return servers[clientOf(r.Context())] },
		&sdk.StreamableHTTPOptions{
			Stateless:                    true,
			JSONResponse:                 true,
			MaxRequestBodyBytes:          maxMessage,
			PropagateRequestCancellation: true,
			Logger:                       options.Log,
		},
	)
	origins := http.NewCrossOriginProtection()
	places := wire.NewPlaces(maxRequests)
	mux := web.NewMux(web.MuxOptions{Log: options.Log, ErrorBody: wire.ErrorBody})
	mux.Handle(Path, func(w http.ResponseWriter, r *http.Request) error {
		if err := origins.Check(r); err != nil {
			return wire.Refuse(http.StatusForbidden, wire.Fault{Code: "cross_origin", Message: "A web page of another origin may not call this."})
		}
		clientID, err := wire.Authenticate(options.Clients, r)
		if err != nil {
			return err
		}
		leave, err := places.Enter(clientID)
		if err != nil {
			return err
		}
		defer leave()
		r = r.WithContext(context.WithValue(r.Context(), clientKey{}, clientID))
		body := bufio.NewReader(r.Body)
		if isBatch(body) {
			return wire.Invalid("Send one message at a time: a batch is not taken.")
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{body, r.Body}
		transport.ServeHTTP(w, r)
		return nil
	})
	return wire.Private(mux), nil
}

// isBatch tells whether a body is a JSON-RPC batch, which MCP has no more since 2025-06-18. The transport would still take one,
// and the answers to many small messages together fill the memory.
func isBatch(body *bufio.Reader) bool {
	for {
		next, err := body.ReadByte()
		switch {
		case err != nil: // whoever reads on finds it too
			return false
		case next == ' ' || next == '\t' || next == '\r' || next == '\n':
		default:
			return body.UnreadByte() == nil && next == '['
		}
	}
}

type clientKey struct{}

func clientOf(ctx context.Context) string {
	id, _ := ctx.Value(clientKey{}).(string)
	return id
}
