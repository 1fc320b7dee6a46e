// Package limit bounds how often each of many keys may do something (protocol 4.3, Rate limits).
package limit

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter gives every key a bucket of its own, in memory. It may be used concurrently.
type Limiter struct {
	every time.Duration // between two events of a key, in the long run
	burst int
	keys  int

	mutex   sync.Mutex
	buckets map[string]*list.Element // of *bucket
	recent  *list.List               // the bucket used last is at the front
}

type bucket struct {
	key  string
	rate *rate.Limiter
}

// New allows every key perMinute events in a minute, which may come at once. It remembers the keys that were seen last, at
// most as many as keys says; one that was forgotten starts anew. A perMinute of 0 means no limit.
func New(perMinute, keys int) *Limiter {
	l := &Limiter{burst: perMinute, keys: keys, buckets: make(map[string]*list.Element), recent: list.New()}
	if perMinute > 0 {
		l.every = time.Minute / time.Duration(perMinute)
	}
	return l
}

// Allow takes one event of the key. Over the limit it takes nothing and returns how long to wait for the next, else 0.
func (l *Limiter) Allow(key string, now time.Time) (wait time.Duration) {
	if l.burst == 0 {
		return 0
	}
	reservation := l.bucket(key).ReserveN(now, 1)
	wait = reservation.DelayFrom(now)
	if wait > 0 {
		reservation.CancelAt(now)
	}
	return wait
}

func (l *Limiter) bucket(key string) *rate.Limiter {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if element, ok := l.buckets[key]; ok {
		l.recent.MoveToFront(element)
		return element.Value.(*bucket).rate
	}
	if l.recent.Len() >= l.keys {
		oldest := l.recent.Back()
		l.recent.Remove(oldest)
		delete(l.buckets, oldest.Value.(*bucket).key)
	}
	b := &bucket{key: key, rate: rate.NewLimiter(rate.Every(l.every), l.burst)}
	l.buckets[key] = l.recent.PushFront(b)
	return b.rate
}
