package agentapi

import (
	"context"
	"errors"
	"iter"
	"time"

	"countersign/broker/access"
	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/internal/secret"
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
// Before its first call it compares the contract's digest with its own, see [DriftError].
type Client struct{}

// NewClient returns a client. It connects when it is first used.
func NewClient(options ClientOptions) *Client { return nil }

// Close closes the connections that are kept for later calls.
func (c *Client) Close() {}

// DriftError says that the broker speaks another contract than this program was built with, whatever their labels say.
type DriftError struct {
	Ours, Theirs string // digests
	Build        string // the broker's build
}

// Error says what to do.
func (e *DriftError) Error() string { return "" }

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
	return Discovery{}, errors.ErrUnsupported
}

// Submit submits the request; replayed reports that it was submitted before. As in all operations that a client gets, what is
// not for transcripts is empty: target, arguments, reason and rules.
func (c *Client) Submit(ctx context.Context, request operation.Request) (op operation.Operation, replayed bool, err error) {
	return operation.Operation{}, false, errors.ErrUnsupported
}

// Get returns an operation.
func (c *Client) Get(ctx context.Context, id string) (operation.Operation, error) {
	return operation.Operation{}, errors.ErrUnsupported
}

// List returns a page of this client's operations, see [operation.Service.List].
func (c *Client) List(ctx context.Context, filter operation.Filter, limit int, cursor string) (operation.Page, error) {
	return operation.Page{}, errors.ErrUnsupported
}

// Wait waits for a change, see [operation.Service.Wait].
func (c *Client) Wait(ctx context.Context, id string, after int64, timeout time.Duration) (operation.Operation, error) {
	return operation.Operation{}, errors.ErrUnsupported
}

// Cancel ends an operation that has not been dispatched.
func (c *Client) Cancel(ctx context.Context, id string) (operation.Operation, error) {
	return operation.Operation{}, errors.ErrUnsupported
}

// Events yields the durable changes of an operation after a revision, as they happen, and ends after the terminal one. A lost
// connection is taken up where it broke. An error is the last thing that is yielded.
func (c *Client) Events(ctx context.Context, id string, after int64) iter.Seq2[operation.Event, error] {
	return func(func(operation.Event, error) bool) {}
}
