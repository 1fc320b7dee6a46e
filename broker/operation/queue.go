package operation

import "sync"

// job is one operation to be taken up.
type job struct {
	id string
	// recovering says that an earlier process had dispatched it.
	recovering bool
}

// queue hands jobs to goroutines, at most limit at once, oldest first. It is no authority: the row says what is to be done,
// and what is still queued when the process ends is found in the rows by the next one.
type queue struct {
	limit int

	mutex   sync.Mutex
	work    func(job) // nil while nothing is to be started
	waiting []job
	running int
	workers sync.WaitGroup
}

// add hands a job over and never waits.
func (q *queue) add(j job) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.waiting = append(q.waiting, j)
	q.fill()
}

// start begins with first, then takes what was and will be added.
func (q *queue) start(first []job, work func(job)) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.work, q.waiting = work, append(first, q.waiting...)
	q.fill()
}

// stop lets what is running end and starts nothing more.
func (q *queue) stop() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.work = nil
}

// wait returns when nothing is running. Call it after stop.
func (q *queue) wait() { q.workers.Wait() }

// fill starts goroutines for what is waiting, up to the limit.
func (q *queue) fill() {
	for q.running < q.limit {
		next, work, ok := q.next()
		if !ok {
			return
		}
		q.running++
		q.workers.Go(func() { q.run(next, work) })
	}
}

// run does jobs until there are none.
func (q *queue) run(j job, work func(job)) {
	for ok := true; ok; {
		work(j)
		q.mutex.Lock()
		if j, work, ok = q.next(); !ok {
			q.running--
		}
		q.mutex.Unlock()
	}
}

func (q *queue) next() (j job, work func(job), ok bool) {
	if q.work == nil || len(q.waiting) == 0 {
		return job{}, nil, false
	}
	j, q.waiting = q.waiting[0], q.waiting[1:]
	return j, q.work, true
}
