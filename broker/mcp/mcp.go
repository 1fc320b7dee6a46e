// Package mcp is Agent Operations V1 as MCP tools: one tool for each operation that a client could be allowed to submit, and
// tools that get, wait for, list and cancel what was submitted.
//
// No tool waits for a person, and waiting is a call of its own that ends after 25 seconds at most, so that no call outlives
// what a host allows. [NewServer] makes the tools of one client; they are served over stdio by a small process that calls the
// Agent API ([ServeStdio]), or by the broker itself over HTTP ([NewHandler]).
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

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
func ForClient(service *operation.Service, clientID string) Operations {
	return forClient{service, clientID}
}

type forClient struct {
	service  *operation.Service
	clientID string
}

func (c forClient) Submit(ctx context.Context, request operation.Request) (operation.Operation, bool, error) {
	return c.service.Submit(ctx, c.clientID, request)
}

func (c forClient) Get(ctx context.Context, id string) (operation.Operation, error) {
	return c.service.Get(ctx, c.clientID, id)
}

func (c forClient) List(ctx context.Context, filter operation.Filter, limit int, cursor string) (operation.Page, error) {
	return c.service.List(ctx, c.clientID, filter, limit, cursor)
}

func (c forClient) Wait(ctx context.Context, id string, after int64, timeout time.Duration) (operation.Operation, error) {
	return c.service.Wait(ctx, c.clientID, id, after, timeout)
}

func (c forClient) Cancel(ctx context.Context, id string) (operation.Operation, error) {
	return c.service.Cancel(ctx, c.clientID, id)
}

// Options are what a server for one client needs. All but Prefix must be given.
type Options struct {
	Operations Operations
	// Offered are the operations that policy could ever let the client submit. Each becomes a tool.
	Offered []provider.Descriptor
	// Prefix stands before the name of each tool: up to 32 letters, digits and _.
	Prefix string
	// Build identifies the program.
	Build string
	Log   *slog.Logger
}

// maxMessage bounds a message from the host, in bytes: a submission at its largest, and what JSON-RPC adds.
const maxMessage = 3 << 20

// listTTL is how long a host may keep the list of tools, in milliseconds. It changes only when the broker is started anew.
const listTTL = 60_000

var toolPrefix = regexp.MustCompile(`^[A-Za-z0-9_]{0,32}$`)

// maxToolName is the longest name that MCP allows.
const maxToolName = 128

// NewServer returns the MCP server of one client. Two operations whose tools would bear one name are an error.
func NewServer(options Options) (*sdk.Server, error) {
	if !toolPrefix.MatchString(options.Prefix) {
		return nil, fmt.Errorf("the tool prefix %q is not up to 32 letters, digits and _", options.Prefix)
	}
	t := tools{options}
	server := sdk.NewServer(&sdk.Implementation{Name: "countersign", Title: "Countersign", Version: options.Build}, &sdk.ServerOptions{
		Instructions: t.instructions(),
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}, // and no logging to clients
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) {
			c.TTLMs, c.CacheScope = listTTL, "private" // each client has tools of its own
		},
	})
	named := map[string]bool{}
	add := func(tool *sdk.Tool, handler sdk.ToolHandler) error {
		if len(tool.Name) > maxToolName {
			return fmt.Errorf("the name of tool %s is longer than %d characters", tool.Name, maxToolName)
		}
		if named[tool.Name] {
			return fmt.Errorf("two tools would have the name %s: rename an operation or choose another prefix", tool.Name)
		}
		named[tool.Name] = true
		server.AddTool(tool, handler)
		return nil
	}
	for _, utility := range t.utilities() {
		if err := add(utility.tool, utility.handler); err != nil {
			return nil, err
		}
	}
	for _, descriptor := range options.Offered {
		tool, err := t.submission(descriptor)
		if err == nil {
			err = add(tool, t.submit(descriptor.Name))
		}
		if err != nil {
			return nil, fmt.Errorf("making the tool of %s: %w", descriptor.Name, err)
		}
	}
	return server, nil
}

// ServeStdio serves a client that started this process, over standard input and output, until it closes them or ctx ends.
func ServeStdio(ctx context.Context, server *sdk.Server) error {
	err := server.Run(ctx, &sdk.StdioTransport{MaxLineLength: maxMessage})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// toolName returns the name of an operation's tool.
func (t tools) toolName(operation string) string {
	return t.Prefix + strings.ReplaceAll(operation, ".", "_")
}
