package agentapi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"countersign/broker/access"
	"countersign/broker/internal/wire"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// ClientOptions say whom to call and as whom. Both must be given.
type ClientOptions struct {
	Endpoint access.Endpoint
	Secret   secret.Text
}

// Client calls a broker as one of its clients. Its methods may be called concurrently. The errors of the broker are
// [*operation.Error]; one that does not answer is [operation.Unavailable]. A call whose answer was lost is repeated as it
// was, which is safe since a request ID stands for one operation.
//
// Before its first call, and again after a call that was lost, it compares the contract's digest with its own, see
// [DriftError].
type Client struct {
	wire       *wire.Client
	compatible atomic.Bool // the broker that answers has our contract
}

// NewClient returns a client. It connects when it is first used.
func NewClient(options ClientOptions) *Client {
	return &Client{wire: wire.NewClient(options.Endpoint, options.Secret)}
}

// Close closes the connections that are kept for later calls.
func (c *Client) Close() { c.wire.Close() }

// DriftError says that the broker speaks another contract than this program was built with, whatever their labels say.
type DriftError struct {
	Ours, Theirs string // digests
	Build        string // the broker's build
}

// Error says what to do.
func (e *DriftError) Error() string {
	return fmt.Sprintf("the broker (build %s) has the contract %.19s…, this program has %.19s…: use the same version of both", e.Build, e.Theirs, e.Ours)
}

// Discovery is what a broker tells about itself.
type Discovery struct {
	Contract       string // the contract's label
	ContractDigest string
	Build          string
	// Operations are those that this client could be allowed to submit. Only what is public of a descriptor is filled in.
	Operations []provider.Descriptor
}

// Discover asks the broker what it is and what it offers to this client.
func (c *Client) Discover(ctx context.Context) (Discovery, error) {
	var answer strictjson.Raw
	if _, err := c.wire.Do(ctx, wire.Call{Method: http.MethodGet, Path: discoveryPath}, &answer); err != nil {
		return Discovery{}, explain(err)
	}
	// What tells whether the rest can be understood is read alone first. A label is never evidence (B-discovery-04).
	var identity struct {
		ContractDigest string `json:"contract_digest"`
		Build          string `json:"build_id"`
	}
	if err := strictjson.Unmarshal(answer, &identity); err != nil {
		return Discovery{}, fmt.Errorf("reading the broker's discovery document: %w", err)
	}
	if identity.ContractDigest != ContractDigest() {
		return Discovery{}, &DriftError{Ours: ContractDigest(), Theirs: identity.ContractDigest, Build: identity.Build}
	}
	var document discoveryDocument
	if err := strictjson.Unmarshal(answer, &document); err != nil {
		return Discovery{}, fmt.Errorf("reading the broker's discovery document: %w", err)
	}
	c.compatible.Store(true)
	return Discovery{document.API, document.ContractDigest, document.Build, document.descriptors()}, nil
}

// Submit submits the request; replayed reports that it was submitted before. As in all operations that a client gets, what is
// not for transcripts is empty: target, arguments, reason and rules.
func (c *Client) Submit(ctx context.Context, request operation.Request) (op operation.Operation, replayed bool, err error) {
	var document Document
	header, err := c.call(ctx, wire.Call{Method: http.MethodPost, Path: operationsPath, Body: submission(request)}, &document)
	if err != nil {
		return operation.Operation{}, false, err
	}
	return document.operation(), header.Get(wire.ReplayedHeader) == "true", nil
}

// Get returns an operation.
func (c *Client) Get(ctx context.Context, id string) (operation.Operation, error) {
	return c.operation(ctx, wire.Call{Method: http.MethodGet, Path: operationPath(id)})
}

// List returns a page of this client's operations, see [operation.Service.List].
func (c *Client) List(ctx context.Context, filter operation.Filter, limit int, cursor string) (operation.Page, error) {
	query := url.Values{}
	for name, value := range map[string]string{"idempotency_key": filter.RequestID, "state": string(filter.State), "cursor": cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var document PageDocument
	if _, err := c.call(ctx, wire.Call{Method: http.MethodGet, Path: operationsPath, Query: query}, &document); err != nil {
		return operation.Page{}, err
	}
	return document.page(), nil
}

// Wait waits for a change, see [operation.Service.Wait].
func (c *Client) Wait(ctx context.Context, id string, after int64, timeout time.Duration) (operation.Operation, error) {
	timeout = max(0, min(timeout, operation.MaxWait))
	return c.operation(ctx, wire.Call{
		Method: http.MethodGet,
		Path:   operationPath(id) + "/events",
		Query: url.Values{
			"after_revision": {strconv.FormatInt(after, 10)},
			"wait_seconds":   {strconv.FormatFloat(timeout.Seconds(), 'f', 3, 64)},
		},
		Wait: timeout,
	})
}

// Cancel ends an operation that has not been dispatched.
func (c *Client) Cancel(ctx context.Context, id string) (operation.Operation, error) {
	return c.operation(ctx, wire.Call{Method: http.MethodPost, Path: operationPath(id) + "/cancel"})
}

// Events yields the durable changes of an operation after a revision, as they happen, and ends after the terminal one. A lost
// connection is taken up where it broke. An error is the last thing that is yielded.
func (c *Client) Events(ctx context.Context, id string, after int64) iter.Seq2[operation.Event, error] {
	return func(yield func(operation.Event, error) bool) {
		if err := c.compare(ctx); err != nil {
			yield(operation.Event{}, err)
			return
		}
		last := ""
		if after > 0 {
			last = strconv.FormatInt(after, 10)
		}
		for message, err := range c.wire.Follow(ctx, wire.Call{Method: http.MethodGet, Path: operationPath(id) + "/events"}, last) {
			var document EventDocument
			if err == nil {
				err = strictjson.Unmarshal(message.Data, &document)
			}
			if err != nil {
				yield(operation.Event{}, explain(err))
				return
			}
			if !yield(operation.Event(document), nil) || document.State.Terminal() {
				return
			}
		}
	}
}

func operationPath(id string) string { return operationsPath + "/" + url.PathEscape(id) }

func (c *Client) operation(ctx context.Context, call wire.Call) (operation.Operation, error) {
	var document Document
	if _, err := c.call(ctx, call, &document); err != nil {
		return operation.Operation{}, err
	}
	return document.operation(), nil
}

func (c *Client) call(ctx context.Context, call wire.Call, answer any) (http.Header, error) {
	if err := c.compare(ctx); err != nil {
		return nil, err
	}
	header, err := c.wire.Do(ctx, call, answer)
	if _, lost := errors.AsType[*wire.LostError](err); lost {
		c.compatible.Store(false) // another broker may be there when it answers again
	}
	return header, explain(err)
}

// compare finds out whether the broker has our contract, unless that is known.
func (c *Client) compare(ctx context.Context) error {
	if c.compatible.Load() {
		return nil
	}
	_, err := c.Discover(ctx)
	return err
}

// explain turns the errors of a call into those of the lifecycle.
func explain(err error) error {
	if lost, ok := errors.AsType[*wire.LostError](err); ok {
		return &operation.Error{Code: operation.Unavailable, Message: lost.Error()}
	}
	refused, ok := errors.AsType[*wire.Refusal](err)
	if !ok {
		return err
	}
	e := &operation.Error{Code: operation.Code(refused.Fault.Code), Message: refused.Fault.Message}
	for _, field := range refused.Fault.Fields {
		e.Fields = append(e.Fields, operation.Field(field))
	}
	return e
}
