package fetch

import (
	"context"
	"errors"
	"time"
)

// CacheOptions configures a [Cache].
type CacheOptions struct {
	// Get is how each document is fetched; its validators are the cache's own.
	Get GetOptions
	// Floor is the shortest time a document is kept whatever its headers say, no-store too; 0 obeys them strictly.
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

// Cache keeps documents by URL, parsed, as their HTTP caching headers say (RFC 9111, as a private cache). Its methods may be
// called concurrently, and callers who want the same URL at the same time share one fetch.
type Cache[T any] struct{}

// NewCache returns an empty cache. parse turns a response with status 200 into what is kept; its error is kept as a failure.
func NewCache[T any](client *Client, options CacheOptions, parse func(*Response) (T, error)) *Cache[T] {
	return &Cache[T]{}
}

// Get returns the document at url, fetched or revalidated if the kept one is not fresh.
func (c *Cache[T]) Get(ctx context.Context, url string) (T, error) {
	var none T
	return none, errors.ErrUnsupported
}

// Refresh is [Cache.Get] that asks the server even if the kept document is fresh, but not twice within
// [CacheOptions.RefreshInterval]. It is for a document that lacks something, such as an unknown key ID.
func (c *Cache[T]) Refresh(ctx context.Context, url string) (T, error) {
	var none T
	return none, errors.ErrUnsupported
}
