package session

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"countersign/agent/discovery"
	"countersign/internal/fetch"
	"countersign/poppy"
)

const (
	// maxWait is how long a call waits by itself because a Company asked to; beyond it the caller decides.
	maxWait = time.Minute
	// defaultWait is for a 429 that does not say how long.
	defaultWait = 5 * time.Second
	// maxNonces bounds the nonces that are remembered, one per origin.
	maxNonces = 1000
	// maxNonceLength is the longest nonce that is taken from a Company, in bytes.
	maxNonceLength = 1024
)

// RateLimitedError says that a Company asked to wait longer than a call waits by itself. Until then, nothing is sent to
// that URL, whoever asks (4.3).
type RateLimitedError struct {
	Host  string
	Until time.Time
}

// Error says until when to wait.
func (e *RateLimitedError) Error() string {
	return fmt.Sprintf("%s limits how often it can be asked: try again after %s", e.Host, e.Until.UTC().Format(time.RFC3339))
}

// wire is how every request that carries a secret leaves the agent. It keeps what Companies ask of later requests: the
// nonce for the next proof, by origin, and how long to wait, by URL.
type wire struct {
	client *fetch.Client
	store  store
	now    func() time.Time

	mutex  sync.Mutex
	nonces map[string]string    // by origin
	until  map[string]time.Time // by row of the vault
}

// attempt makes a request. It is called anew for each try, since a proof and an assertion are good for one request only.
type attempt func(ctx context.Context, nonce string) (*http.Request, error)

// send sends what attempt makes to an endpoint and returns the answer, whatever its status.
//
//   - A redirect is an error, and nothing is sent to where it points (3).
//   - A limit that the Company set for the URL is waited for, up to a minute and not beyond the deadline of ctx (4.3).
//   - A use_dpop_nonce is answered once, with a new proof, and any new nonce is kept for the next one (4.3, RFC 9449 8).
func (w *wire) send(ctx context.Context, to *url.URL, kind discovery.Kind, bounds Bounds, make attempt) (*Response, error) {
	place := w.store.limitRow(to)
	origin := to.Scheme + "://" + to.Host
	giveUp := w.now().Add(maxWait)
	nonce, retried := w.nonce(origin), false
	for {
		if err := w.wait(ctx, place, to.Host, giveUp); err != nil {
			return nil, err
		}
		request, err := make(ctx, nonce)
		if err != nil {
			return nil, err
		}
		response, err := w.client.Do(request, bounds)
		if err != nil {
			return nil, err
		}
		w.noteNonce(origin, response.Header)
		nonce = w.nonce(origin)
		if response.Status < http.StatusBadRequest {
			return response, nil
		}
		switch problem := parseProblem(response, kind); {
		case response.Status == http.StatusTooManyRequests:
			if err := w.noteLimit(ctx, place, response.Header); err != nil {
				return nil, err
			}
		case problem.Code == poppy.ErrUseDPoPNonce && problem.Nonce != "" && !retried:
			nonce, retried = problem.Nonce, true
		default:
			return response, nil
		}
	}
}

// parseProblem reads the error of an answer. The body of an API is its own (6).
func parseProblem(response *Response, kind discovery.Kind) *poppy.Error {
	body := response.Body
	if kind == discovery.OpenAPI || kind == discovery.MCP {
		body = nil
	}
	return poppy.ParseError(response.Status, response.Header, body)
}

// wait returns when a request may be sent, or a [*RateLimitedError] if that takes too long.
func (w *wire) wait(ctx context.Context, place, host string, giveUp time.Time) error {
	for {
		now := w.now()
		until := w.limit(place, now)
		if until.IsZero() {
			return ctx.Err()
		}
		if deadline, ok := ctx.Deadline(); until.After(giveUp) || ok && until.After(deadline) {
			return &RateLimitedError{Host: host, Until: until}
		}
		timer := time.NewTimer(until.Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// limit returns until when nothing may be sent, zero if nothing stands in the way.
func (w *wire) limit(place string, now time.Time) time.Time {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	until, limited := w.until[place]
	if limited && !now.Before(until) {
		delete(w.until, place)
		return time.Time{}
	}
	return until
}

// noteLimit keeps a limit, in the vault too, since restarting the agent does not lift it. A longer one stays.
func (w *wire) noteLimit(ctx context.Context, place string, header http.Header) error {
	now := w.now()
	retryAfter, ok := fetch.RetryAfter(header, now)
	if !ok {
		retryAfter = defaultWait
	}
	until := now.Add(retryAfter)
	w.mutex.Lock()
	if w.until[place].After(until) {
		until = w.until[place]
	}
	w.until[place] = until
	w.mutex.Unlock()
	if err := w.store.putLimit(ctx, place, until, now); err != nil {
		return fmt.Errorf("keeping a limit of the Company: %w", err)
	}
	return nil
}

func (w *wire) nonce(origin string) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.nonces[origin]
}

// noteNonce keeps the nonce of an answer, of any status (RFC 9449 8.2).
func (w *wire) noteNonce(origin string, header http.Header) {
	nonce := header.Get("DPoP-Nonce")
	if nonce == "" || len(nonce) > maxNonceLength {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if _, known := w.nonces[origin]; !known && len(w.nonces) >= maxNonces {
		clear(w.nonces) // they cost one more round trip each
	}
	w.nonces[origin] = nonce
}
