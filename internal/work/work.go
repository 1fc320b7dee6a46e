// Package work runs background jobs by key: never two of one key at the same time, and at most so many in all.
//
// A job is told only its key. It reads the store to find out what is to be done, so that losing the queue in a crash loses
// nothing: whoever starts a pool adds the keys of what the store says is unfinished.
package work

import (
	"context"
	"sync"
	"time"
)

// Pool runs jobs. Make one with [New]; its methods may be called concurrently.
type Pool struct {
	limit int
	job   func(ctx context.Context, key string)

	mutex  sync.Mutex
	queue  []string        // keys that wait, in the order they were added
	known  map[string]bool // keys that wait or run; true when a running one must run again
	signal chan struct{}   // holds one signal when the queue may have something
}

// New makes a pool of at most limit jobs at a time. job must return soon after its context ends.
func New(limit int, job func(ctx context.Context, key string)) *Pool {
	if limit < 1 {
		panic("work: a pool needs room for at least one job")
	}
	return &Pool{limit: limit, job: job, known: make(map[string]bool), signal: make(chan struct{}, 1)}
}

// Add asks for a run of the key's job that begins after this call. A key that waits already is not queued twice; one that
// is running runs once more afterwards. Before [Pool.Run] the keys only gather.
func (p *Pool) Add(key string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, known := p.known[key]; known {
		p.known[key] = true // no matter for one that waits: next clears it
		return
	}
	p.enqueue(key)
}

// AddAfter is [Pool.Add] after a delay.
func (p *Pool) AddAfter(key string, delay time.Duration) {
	time.AfterFunc(delay, func() { p.Add(key) })
}

// Run runs the jobs until ctx ends, and returns when the last of them has returned.
func (p *Pool) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	slots := make(chan struct{}, p.limit)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		key, ok := p.next(ctx)
		if !ok {
			return
		}
		group.Go(func() {
			p.job(ctx, key)
			p.finish(key)
			<-slots
		})
	}
}

// next waits for a key.
func (p *Pool) next(ctx context.Context) (key string, ok bool) {
	for ctx.Err() == nil {
		if key, ok = p.take(); ok {
			return key, true
		}
		select {
		case <-p.signal:
		case <-ctx.Done():
		}
	}
	return "", false
}

func (p *Pool) take() (key string, ok bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.queue) == 0 {
		return "", false
	}
	key, p.queue = p.queue[0], p.queue[1:]
	p.known[key] = false
	return key, true
}

func (p *Pool) finish(key string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	again := p.known[key]
	delete(p.known, key)
	if again {
		p.enqueue(key)
	}
}

// enqueue is called with the mutex held.
func (p *Pool) enqueue(key string) {
	p.known[key] = false
	p.queue = append(p.queue, key)
	select {
	case p.signal <- struct{}{}:
	default:
	}
}
