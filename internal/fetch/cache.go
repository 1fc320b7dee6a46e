package fetch

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// CacheOptions configures a [Cache].
type CacheOptions struct {
	// Get is how each document is fetched. Its validators are set by the cache.
	Get GetOptions
	// Floor is the shortest time a document is kept, whatever its headers say, no-store too; 0 obeys them strictly.
	Floor time.Duration
	// Ceiling is the longest time a document is kept; 24 h by default.
	Ceiling time.Duration
	// Default is how long a document is kept that has no caching headers; 0 by default.
	Default time.Duration
	// Failure is how long a failure is remembered, or longer if the server says so with Retry-After; 0 by default.
	Failure time.Duration
	// RefreshInterval is the shortest time between two forced fetches of one URL; 1 min by default.
	RefreshInterval time.Duration
	// MaxEntries and MaxBytes bound what is kept, the longest unused goes first; 1000 and 16 MiB by default.
	MaxEntries int
	MaxBytes   int64
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Cache keeps parsed documents by URL as their HTTP caching headers say (RFC 9111, as a private cache). Its methods may be
// called concurrently; callers who want the same URL at the same time share one fetch, and all get the same value, which
// they must not change.
//
// What is fresh is decided by the headers of the response that was reached in the end, not of the redirects to it.
type Cache[T any] struct {
	client  *Client
	options CacheOptions
	parse   func(*Response) (T, error)

	mutex   sync.Mutex
	entries map[string]*list.Element // of *entry[T]
	recent  list.List                // the same elements, the one used last in front
	bytes   int64                    // sum of the entries' sizes
}

// entry is what is known about one URL.
type entry[T any] struct {
	url       string
	running   *flight[T] // the fetch that is under way, nil if none is
	document  *document[T]
	failure   error     // what the last fetch ended with, if that was a failure
	failed    time.Time // until when failure is remembered
	refreshed time.Time // when the last forced fetch began
}

// document is a parsed document and what decides how long it is kept. It does not change.
type document[T any] struct {
	value    T
	url      string      // that answered
	header   http.Header // caching headers only
	size     int64
	storable bool
	fresh    time.Time // until when
}

// flight is one fetch and what those get who wait for it.
type flight[T any] struct {
	done      chan struct{} // closed when the rest is set
	document  *document[T]  // nil with err
	err       error
	abandoned bool // whoever ran it gave up; another must try
}

// NewCache returns an empty cache. parse turns a response with status 200 into what is kept; its error is remembered as a
// failure is.
func NewCache[T any](client *Client, options CacheOptions, parse func(*Response) (T, error)) *Cache[T] {
	options.Ceiling = cmp.Or(options.Ceiling, 24*time.Hour)
	options.RefreshInterval = cmp.Or(options.RefreshInterval, time.Minute)
	options.MaxEntries = cmp.Or(options.MaxEntries, 1000)
	options.MaxBytes = cmp.Or(options.MaxBytes, 16<<20)
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Cache[T]{client: client, options: options, parse: parse, entries: make(map[string]*list.Element)}
}

// Get returns the document at url, fetched or revalidated if the kept one is not fresh. The error is that of [Client.Get] or
// of parsing.
func (c *Cache[T]) Get(ctx context.Context, url string) (T, error) { return c.get(ctx, url, false) }

// Refresh is [Cache.Get] that asks the server even if the kept document is fresh, but not twice within
// [CacheOptions.RefreshInterval] and not while a failure is remembered. It is for a document that lacks something, such as
// an unknown key ID. If it fails, the kept document stays.
func (c *Cache[T]) Refresh(ctx context.Context, url string) (T, error) { return c.get(ctx, url, true) }

func (c *Cache[T]) get(ctx context.Context, url string, force bool) (T, error) {
	for {
		f, known, leads := c.join(url, force)
		if leads {
			c.fly(ctx, url, known, f)
			return f.result()
		}
		select {
		case <-f.done:
			if !f.abandoned {
				return f.result()
			}
		case <-ctx.Done():
			var none T
			return none, fmt.Errorf("waiting for another fetch: %w", ctx.Err())
		}
	}
}

// join returns the flight whose result counts: one that has landed if what is kept will do, the one under way, or a new one
// that the caller leads, with the document to revalidate.
func (c *Cache[T]) join(url string, force bool) (f *flight[T], known *document[T], leads bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.options.Now()
	e := c.entry(url)
	force = force && now.Sub(e.refreshed) >= c.options.RefreshInterval && !now.Before(e.failed)
	switch {
	case e.document != nil && now.Before(e.document.fresh) && !force:
		return &flight[T]{done: landed, document: e.document}, nil, false
	case now.Before(e.failed):
		return &flight[T]{done: landed, err: e.failure}, nil, false
	case e.running != nil:
		return e.running, nil, false
	}
	if force {
		e.refreshed = now
	}
	e.running = &flight[T]{done: make(chan struct{})}
	return e.running, e.document, true
}

// landed is the done channel of flights that never took off.
var landed = func() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

// fly runs the fetch in the caller's goroutine and within its context. If that ends first, one of the waiting takes over.
func (c *Cache[T]) fly(ctx context.Context, url string, known *document[T], f *flight[T]) {
	f.abandoned = true // unless it gets to its end: parse may panic
	defer close(f.done)
	defer c.land(url, f)
	f.document, f.err = c.fetch(ctx, url, known)
	f.abandoned = f.err != nil && ctx.Err() != nil
}

func (c *Cache[T]) fetch(ctx context.Context, url string, known *document[T]) (*document[T], error) {
	began := c.options.Now() // the time that the answer takes counts against its freshness (RFC 9111 section 4.2.3)
	options := c.options.Get
	options.IfNoneMatch, options.IfModifiedSince = "", ""
	unconditional := options
	if known != nil {
		options.IfNoneMatch = known.header.Get("ETag")
		options.IfModifiedSince = known.header.Get("Last-Modified")
	}
	response, err := c.client.Get(ctx, url, options)
	if err == nil && response.Status == http.StatusNotModified && response.URL != known.url {
		response, err = c.client.Get(ctx, url, unconditional) // redirects lead elsewhere now, where the validators mean nothing
	}
	if err != nil {
		return nil, err
	}
	fetched := &document[T]{url: response.URL, size: int64(len(url) + len(response.Body))}
	if response.Status == http.StatusNotModified {
		fetched.value, fetched.size = known.value, known.size
		fetched.header = mergeCaching(known.header, response.Header)
	} else {
		if fetched.value, err = c.parse(response); err != nil {
			return nil, err
		}
		fetched.header = mergeCaching(nil, response.Header)
	}
	lifetime, storable := freshness(fetched.header, began, c.options.Default)
	fetched.storable = storable || c.options.Floor > 0
	fetched.fresh = began.Add(min(max(lifetime, c.options.Floor), c.options.Ceiling))
	return fetched, nil
}

// land records how a flight ended.
func (c *Cache[T]) land(url string, f *flight[T]) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	e := c.entry(url)
	if e.running == f {
		e.running = nil
	}
	if f.abandoned {
		return
	}
	if f.err != nil {
		remember := c.options.Failure
		if refused, ok := errors.AsType[*Error](f.err); ok {
			remember = max(remember, refused.RetryAfter) // protocol 4.3, "Rate limits"
		}
		e.failure, e.failed = f.err, c.options.Now().Add(remember)
		return
	}
	e.failure, e.failed = nil, time.Time{}
	if f.document.storable {
		c.keep(e, f.document)
	} else {
		c.keep(e, nil)
	}
	c.evict()
}

// entry returns the entry of url, made if there is none, as the one used last.
func (c *Cache[T]) entry(url string) *entry[T] {
	if element, found := c.entries[url]; found {
		c.recent.MoveToFront(element)
		return element.Value.(*entry[T])
	}
	e := &entry[T]{url: url}
	c.entries[url] = c.recent.PushFront(e)
	c.evict()
	return e
}

// keep sets the document of e; nil forgets it.
func (c *Cache[T]) keep(e *entry[T], kept *document[T]) {
	if e.document != nil {
		c.bytes -= e.document.size
	}
	if kept != nil {
		c.bytes += kept.size
	}
	e.document = kept
}

// evict forgets the longest unused until the bounds hold.
func (c *Cache[T]) evict() {
	for c.recent.Len() > c.options.MaxEntries || c.bytes > c.options.MaxBytes {
		oldest := c.recent.Remove(c.recent.Back()).(*entry[T])
		delete(c.entries, oldest.url)
		c.keep(oldest, nil)
	}
}

func (f *flight[T]) result() (T, error) {
	if f.err != nil {
		var none T
		return none, f.err
	}
	return f.document.value, nil
}
