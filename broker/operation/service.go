package operation

import (
	"context"
	"errors"
	"time"
)

// MaxWait bounds how long [Service.Wait] waits, and is what it should wait by default.
const MaxWait = 25 * time.Second

// The sizes of a page.
const (
	DefaultPage = 20
	MaxPage     = 50
)

// Service is the lifecycle of operations. Its methods may be called concurrently; clientID is the authenticated client's,
// and no method shows or changes an operation of another one. Refusals are [*Error]; any other error is ours.
type Service struct{}

var errSkeleton = errors.New("not there yet")

// Submit stores the request as an operation and returns it without waiting for an approval or for its execution. The same
// request again returns the operation as it is now, with replayed true, whether or not it could be submitted today.
func (s *Service) Submit(ctx context.Context, clientID string, request Request) (op Operation, replayed bool, err error) {
	return Operation{}, false, errSkeleton
}

// Get returns an operation.
func (s *Service) Get(ctx context.Context, clientID, id string) (Operation, error) {
	return Operation{}, errSkeleton
}

// Lookup returns an operation of whichever client, for operators.
func (s *Service) Lookup(ctx context.Context, id string) (Operation, error) {
	return Operation{}, errSkeleton
}

// List returns up to limit operations, newest first; 0 means [DefaultPage], and more than [MaxPage] means MaxPage. cursor
// is empty or the Next of a page with the same client and filter.
func (s *Service) List(ctx context.Context, clientID string, filter Filter, limit int, cursor string) (Page, error) {
	return Page{}, errSkeleton
}

// Events returns the durable changes after a revision, oldest first: all if after is 0, at most [MaxPage].
func (s *Service) Events(ctx context.Context, clientID, id string, after int64) ([]Event, error) {
	return nil, errSkeleton
}

// Wait returns the operation as soon as its revision is greater than after or its state is terminal, and otherwise as it is
// when timeout ([MaxWait] at most) or ctx ends. After 0 it returns at once; after the revision last seen, at the next
// change.
func (s *Service) Wait(ctx context.Context, clientID, id string, after int64, timeout time.Duration) (Operation, error) {
	return Operation{}, errSkeleton
}

// Cancel ends an operation that has not been dispatched, and returns a terminal one as it is. It never waits for a
// provider: an executing operation is [NotCancelable].
func (s *Service) Cancel(ctx context.Context, clientID, id string) (Operation, error) {
	return Operation{}, errSkeleton
}
