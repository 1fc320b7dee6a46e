// Command server is a broker with the demo's operations, for MCP clients that are not ours: over stdio, or with -http over HTTP,
// where it lets in whoever comes, since the conformance suite of MCP cannot send a secret.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/broker"
	"countersign/broker/access"
	"countersign/broker/mcp"
	"countersign/broker/policy"
	"countersign/internal/database"
	"countersign/internal/web"
	"countersign/provider/demo"
)

const client = "foreign"

func main() {
	address := flag.String("http", "", "serve HTTP at this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address string) error {
	directory, err := os.MkdirTemp("", "countersign-mcp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	rules := filepath.Join(directory, "policy.cedar")
	if err := os.WriteFile(rules, []byte(policy.Default()), 0o600); err != nil {
		return err
	}
	engine, err := policy.Load(rules)
	if err != nil {
		return err
	}
	db, err := database.Open(ctx, filepath.Join(directory, "broker.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	effects, err := demo.OpenFile(filepath.Join(directory, "effects"))
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	b, err := broker.New(ctx, broker.Options{DB: db, Policy: engine, Operations: demo.Operations(effects), Now: time.Now, Log: logger})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	newServer := func(clientID string) (*sdk.Server, error) {
		return mcp.NewServer(mcp.Options{
			Operations: mcp.ForClient(b.Operations, clientID), Offered: b.Registry.Descriptors(), Build: "test", Log: logger,
		})
	}
	if address == "" {
		server, err := newServer(client)
		if err != nil {
			return err
		}
		return mcp.ServeStdio(ctx, server)
	}
	return serveHTTP(ctx, address, newServer, logger)
}

func serveHTTP(ctx context.Context, address string, newServer func(string) (*sdk.Server, error), logger *slog.Logger) error {
	secret := access.NewSecret()
	hash, err := access.Hash(secret)
	if err != nil {
		return err
	}
	callers, err := access.NewCallers("test", []access.Caller{{ID: client, Hash: hash}})
	if err != nil {
		return err
	}
	handler, err := mcp.NewHandler(mcp.HandlerOptions{Clients: callers, Server: newServer, Log: logger})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address) //nolint:noctx // for a moment
	if err != nil {
		return err
	}
	return web.Serve(ctx, web.Options{Listener: listener, Log: logger, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+secret.Reveal())
		handler.ServeHTTP(w, r)
	})})
}
