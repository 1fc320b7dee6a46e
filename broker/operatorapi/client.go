package operatorapi

import (
	"context"
	"errors"
	"iter"

	"countersign/broker/access"
	"countersign/broker/approval"
	"countersign/broker/provider"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// ClientOptions say whom to call and as whom. Both must be given.
type ClientOptions struct {
	Endpoint access.Endpoint
	Secret   secret.Text
}

// Client calls a broker as one of its operators. Its methods may be called concurrently. The errors of the broker are
// [*approval.Error] or a [*Conflict]. A call whose answer was lost is repeated as it was, which is safe since a key stands for
// one decision.
type Client struct{}

// NewClient returns a client. It connects when it is first used.
func NewClient(options ClientOptions) *Client { return nil }

// Close closes the connections that are kept for later calls.
func (c *Client) Close() {}

// Item is an approval with the exact terms of the operation that it is about.
type Item struct {
	approval.Approval
	Effect            provider.Effect
	Target, Arguments strictjson.Raw // as the client submitted them, in canonical form
	Rules             []string       // the policy rules that asked for a person
}

// Conflict says that the approval was decided or closed since the operator looked.
type Conflict struct {
	Current approval.Approval // as it is now
}

// Error says what to do.
func (e *Conflict) Error() string { return "" }

// List returns a page of approvals, see [approval.Service.List].
func (c *Client) List(ctx context.Context, filter approval.Filter, limit int, cursor string) (approval.Page, error) {
	return approval.Page{}, errors.ErrUnsupported
}

// Get returns an approval with its terms.
func (c *Client) Get(ctx context.Context, id string) (Item, error) {
	return Item{}, errors.ErrUnsupported
}

// Approve approves; the decision's operator is whoever has the secret. replayed reports that this very command was carried
// out before.
func (c *Client) Approve(ctx context.Context, decision approval.Decision) (a approval.Approval, replayed bool, err error) {
	return approval.Approval{}, false, errors.ErrUnsupported
}

// Deny denies, see [Client.Approve].
func (c *Client) Deny(ctx context.Context, decision approval.Decision) (a approval.Approval, replayed bool, err error) {
	return approval.Approval{}, false, errors.ErrUnsupported
}

// Watch yields the newest page of approvals at once and again whenever it has changed. A lost connection is taken up again. An
// error is the last thing that is yielded.
func (c *Client) Watch(ctx context.Context, filter approval.Filter) iter.Seq2[approval.Page, error] {
	return func(func(approval.Page, error) bool) {}
}
