package operatorapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"countersign/broker/access"
	"countersign/broker/approval"
	"countersign/broker/internal/wire"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

// ClientOptions say whom to call and as whom. Both must be given.
type ClientOptions struct {
	Endpoint access.Endpoint
	Secret   secret.Text
}

// Client calls a broker as one of its operators. Its methods may be called concurrently. The refusals of the broker are
// [*approval.Error], and for a revision that is not the current one a [*Conflict]. A call whose answer was lost is repeated as it
// was, which is safe since a key stands for one decision.
type Client struct{ wire *wire.Client }

// NewClient returns a client. It connects when it is first used.
func NewClient(options ClientOptions) *Client {
	return &Client{wire.NewClient(options.Endpoint, options.Secret)}
}

// Close closes the connections that are kept for later calls.
func (c *Client) Close() { c.wire.Close() }

// Conflict says that the approval was decided or closed since the operator looked.
type Conflict struct {
	Message string
	Current approval.Approval // as it is now
}

// Error says what to do.
func (e *Conflict) Error() string { return e.Message }

// List returns a page of approvals, see [approval.Service.List].
func (c *Client) List(ctx context.Context, filter approval.Filter, limit int, cursor string) (approval.Page, error) {
	query := filterQuery(filter)
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	var document PageDocument
	if _, err := c.wire.Do(ctx, wire.Call{Method: http.MethodGet, Path: approvalsPath, Query: query}, &document); err != nil {
		return approval.Page{}, explain(err)
	}
	return document.page(), nil
}

// Get returns an approval with its terms.
func (c *Client) Get(ctx context.Context, id string) (approval.Approval, Terms, error) {
	var document DetailDocument
	if _, err := c.wire.Do(ctx, wire.Call{Method: http.MethodGet, Path: approvalPath(id)}, &document); err != nil {
		return approval.Approval{}, Terms{}, explain(err)
	}
	return document.approval(), document.Terms, nil
}

// Approve approves; the decision's operator is whoever has the secret. replayed reports that this very command was carried
// out before.
func (c *Client) Approve(ctx context.Context, decision approval.Decision) (a approval.Approval, replayed bool, err error) {
	return c.decide(ctx, "/approve", decision)
}

// Deny denies, see [Client.Approve].
func (c *Client) Deny(ctx context.Context, decision approval.Decision) (a approval.Approval, replayed bool, err error) {
	return c.decide(ctx, "/deny", decision)
}

// Watch yields the newest page of approvals at once and again whenever it has changed. A lost connection is taken up again. An
// error is the last thing that is yielded.
func (c *Client) Watch(ctx context.Context, filter approval.Filter) iter.Seq2[approval.Page, error] {
	return func(yield func(approval.Page, error) bool) {
		call := wire.Call{Method: http.MethodGet, Path: approvalsPath, Query: filterQuery(filter)}
		for message, err := range c.wire.Follow(ctx, call, "") {
			var document PageDocument
			if err == nil {
				err = strictjson.Unmarshal(message.Data, &document)
			}
			if err != nil {
				yield(approval.Page{}, explain(err))
				return
			}
			if !yield(document.page(), nil) {
				return
			}
		}
	}
}

func approvalPath(id string) string { return approvalsPath + "/" + url.PathEscape(id) }

func filterQuery(filter approval.Filter) url.Values {
	query := url.Values{}
	if filter.State != "" {
		query.Set("state", string(filter.State))
	}
	return query
}

func (c *Client) decide(ctx context.Context, action string, decision approval.Decision) (approval.Approval, bool, error) {
	var document Document
	header, err := c.wire.Do(ctx, wire.Call{
		Method: http.MethodPost,
		Path:   approvalPath(decision.ApprovalID) + action,
		Body:   decisionDocument{decision.ExpectedRevision, decision.Key, decision.Note},
	}, &document)
	if err != nil {
		return approval.Approval{}, false, explain(err)
	}
	return document.approval(), header.Get(wire.ReplayedHeader) == "true", nil
}

// explain turns a refusal into that of the approvals and leaves any other error as it is.
func explain(err error) error {
	refused, ok := errors.AsType[*wire.Refusal](err)
	if !ok {
		return err
	}
	if refused.Fault.Current != nil {
		var document Document
		if err := strictjson.Unmarshal(refused.Fault.Current, &document); err != nil {
			return err
		}
		return &Conflict{refused.Fault.Message, document.approval()}
	}
	return &approval.Error{Code: approval.Code(refused.Fault.Code), Message: refused.Fault.Message}
}
