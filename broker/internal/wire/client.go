package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"countersign/broker/access"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
)

const (
	// maxAnswer bounds what a client reads, in bytes. The largest answer is a discovery with thousands of operations.
	maxAnswer = 32 << 20
	// callTimeout bounds one attempt of a call, besides what it asks the server to wait.
	callTimeout = 30 * time.Second
)

// pauses are how long a client waits before it repeats a call whose answer was lost.
var pauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// Client makes calls to a surface of the broker. Every call of the broker is safe to repeat, so a call whose answer was lost, or
// that was answered with 503, is repeated as it was.
type Client struct {
	http   *http.Client
	base   string
	secret secret.Text
}

// NewClient returns a client. It connects when it is first used.
func NewClient(endpoint access.Endpoint, s secret.Text) *Client {
	return &Client{
		http: &http.Client{
			Transport: endpoint.Transport(),
			// A redirect would carry the secret elsewhere; the broker sends none.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		base:   endpoint.URL(),
		secret: s,
	}
}

// Close closes the connections that are kept for later calls.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call is one call.
type Call struct {
	Method string
	Path   string // escaped
	Query  url.Values
	Body   any // written as JSON; nil for none
	// Wait is what the call asks the server to wait.
	Wait time.Duration
}

// Refusal is an error answer of the broker.
type Refusal struct {
	Status int
	Fault  Fault
}

// Error returns the code and the message.
func (e *Refusal) Error() string { return e.Fault.Code + ": " + e.Fault.Message }

// LostError is a call that got no answer. It may have been carried out.
type LostError struct{ Err error }

// Error says what to do.
func (e *LostError) Error() string {
	return "the broker does not answer; is it running? The same call may be made again: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// Do makes a call and decodes its answer into answer. The error is a [*Refusal], a [*LostError], or that of ctx.
func (c *Client) Do(ctx context.Context, call Call, answer any) (http.Header, error) {
	for attempt := 0; ; attempt++ {
		header, err := c.once(ctx, call, answer)
		if !repeatable(err) || attempt == len(pauses) {
			return header, err
		}
		if err := pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
}

func (c *Client) once(ctx context.Context, call Call, answer any) (http.Header, error) {
	attempt, cancel := context.WithTimeout(ctx, callTimeout+call.Wait)
	defer cancel()
	request, err := c.request(attempt, call, "application/json")
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, orEnded(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, orEnded(ctx, err)
	}
	if response.StatusCode/100 != 2 {
		return nil, refusal(response.StatusCode, body)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the broker's answer is longer than %d bytes", maxAnswer)
	}
	if err := strictjson.Unmarshal(body, answer); err != nil {
		return nil, fmt.Errorf("reading the broker's answer: %w", err)
	}
	return response.Header, nil
}

// Follow yields the messages of an event stream, starting after the one with ID last unless that is empty. A lost connection is
// taken up after the last message. The iteration ends when the server says that nothing more will come. An error is the last
// thing that is yielded, see [Client.Do].
func (c *Client) Follow(ctx context.Context, call Call, last string) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for attempt := 0; ; attempt++ {
			err := c.follow(ctx, call, last, func(m Message) bool {
				attempt, last = 0, m.ID
				return yield(m, nil)
			})
			if errors.Is(err, errEnd) {
				return
			}
			if err == nil || repeatable(err) && attempt < len(pauses) {
				err = pause(ctx, min(attempt, len(pauses)-1))
			}
			if err != nil {
				yield(Message{}, err)
				return
			}
		}
	}
}

// errEnd ends a stream for good.
var errEnd = errors.New("end of the stream")

// follow passes on the messages of one connection. It returns nil if the server has closed that.
func (c *Client) follow(ctx context.Context, call Call, last string, pass func(Message) bool) error {
	request, err := c.request(ctx, call, eventStream)
	if err != nil {
		return err
	}
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return orEnded(ctx, err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent:
		return errEnd
	default:
		body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return orEnded(ctx, err)
		}
		return refusal(response.StatusCode, body)
	}
	for m, err := range readStream(response.Body) {
		if err != nil {
			return orEnded(ctx, err)
		}
		if !pass(m) {
			return errEnd
		}
	}
	return nil
}

func (c *Client) request(ctx context.Context, call Call, accept string) (*http.Request, error) {
	var body io.Reader
	if call.Body != nil {
		data, err := strictjson.Marshal(call.Body)
		if err != nil {
			return nil, fmt.Errorf("writing the call: %w", err)
		}
		body = bytes.NewReader(data)
	}
	target := c.base + call.Path
	if len(call.Query) > 0 {
		target += "?" + call.Query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.Method, target, body)
	if err != nil {
		return nil, fmt.Errorf("writing the call: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.secret.Reveal())
	request.Header.Set("Accept", accept)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// pause waits before the next attempt.
func pause(ctx context.Context, attempt int) error {
	select {
	case <-time.After(pauses[attempt]):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func repeatable(err error) bool {
	if refused, ok := errors.AsType[*Refusal](err); ok {
		return refused.Status == http.StatusServiceUnavailable
	}
	_, lost := errors.AsType[*LostError](err)
	return lost
}

// orEnded tells a lost answer from a call that its caller gave up.
func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the URL of a socket helps nobody
	}
	return &LostError{err}
}

func refusal(status int, body []byte) error {
	var document envelope
	if err := strictjson.Unmarshal(body, &document); err != nil || document.Error.Code == "" {
		return fmt.Errorf("the answer has status %d and is not the broker's: check the address", status)
	}
	return &Refusal{status, document.Error}
}
