// Package mcp is Agent Operations V1 as MCP tools: one tool for each operation that a client could be allowed to submit, and
// tools that get, wait for, list and cancel what was submitted.
package mcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/broker/access"
	"countersign/broker/operation"
	"countersign/broker/provider"
)

// Operations is the lifecycle for one client. The Agent API's client is one; [ForClient] makes one within the broker.
type Operations interface {
	Submit(ctx context.Context, request operation.Request) (op operation.Operation, replayed bool, err error)
	Get(ctx context.Context, id string) (operation.Operation, error)
	List(ctx context.Context, filter operation.Filter, limit int, cursor string) (operation.Page, error)
	Wait(ctx context.Context, id string, after int64, timeout time.Duration) (operation.Operation, error)
	Cancel(ctx context.Context, id string) (operation.Operation, error)
}

// ForClient returns the lifecycle as one client sees it.
func ForClient(service *operation.Service, clientID string) Operations { return nil }

// Options are what a server for one client needs.
type Options struct {
	Operations Operations
	// Offered are the operations that policy could ever let the client submit. Each becomes a tool.
	Offered []provider.Descriptor
	// Prefix stands before the name of each tool: up to 32 letters, digits and _. It may be empty.
	Prefix string
	// Build identifies the program.
	Build string
	Log   *slog.Logger
}

// NewServer returns the MCP server of one client. Two operations whose tools would bear one name are an error.
func NewServer(options Options) (*sdk.Server, error) { return nil, errors.ErrUnsupported }

// ServeStdio serves a client that started this process, over standard input and output, until it closes them or ctx ends.
func ServeStdio(ctx context.Context, server *sdk.Server) error { return errors.ErrUnsupported }

// HandlerOptions are what serving over HTTP needs.
type HandlerOptions struct {
	// Clients are those who may call, by the same secrets as at the Agent API.
	Clients *access.Callers
	// Server returns the server of a client. It is called once for each client.
	Server func(clientID string) (*sdk.Server, error)
	Log    *slog.Logger
}

// NewHandler returns the Streamable HTTP endpoint for all clients.
func NewHandler(options HandlerOptions) (http.Handler, error) { return nil, errors.ErrUnsupported }
