package script

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"countersign/company/operation"
	"countersign/internal/config"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Work configures a [Performer].
type Work struct {
	// Journal is the file that gets one line for each action that had an effect. It is made if it is not there.
	Journal string `toml:"journal"`
	// Actions say how an action goes. One that is not listed succeeds at once.
	Actions []Performance `toml:"action"`
}

// Performance is how an action goes.
type Performance struct {
	// Action is what the rule that proposes it calls it; empty for every other one.
	Action string `toml:"action"`
	// Delay is how long it takes. It goes on after the call has timed out.
	Delay config.Duration `toml:"delay"`
	// Ends is how it ends; [Succeeds] by default.
	Ends End `toml:"ends"`
	// Result tells the User what was done; by default "Done. " and the operation's summary. Of an action that fails it tells
	// which changes were made all the same, and has no default.
	Result string `toml:"result"`
	// Data is the result's data.
	Data map[string]any `toml:"data"`
}

// End is how an action ends.
type End string

// The ends.
const (
	Succeeds End = "succeed" // it has its effect, and says so
	Fails    End = "fail"    // it has only a part of its effect, and says so
	Errs     End = "error"   // it has its effect, but the call returns an error
	Hangs    End = "hang"    // it has no effect and says nothing, until it is stopped
)

// line is one line of the journal.
type line struct {
	OperationID string       `json:"operation_id"`
	Revision    int64        `json:"revision"`
	Digest      string       `json:"digest"`
	Terms       poppy.Object `json:"terms"`
	Time        poppy.Time   `json:"time"`
	Outcome     string       `json:"outcome"` // succeeded, or failed after a part
}

// Performer performs operations by writing them into a journal. Every call of Perform that has its effect writes a line,
// however often it is called: whoever calls it twice for one operation is found out. Make one with [OpenPerformer].
type Performer struct {
	work Work
	now  func() time.Time

	mutex   sync.Mutex
	file    *os.File
	read    int64             // how far the journal has been read
	effects map[string]string // outcome by operation ID, as read
	running map[string]*job   // by operation ID
	stopped map[string]bool   // operations that were stopped before they had an effect
	jobs    sync.WaitGroup
	closing chan struct{}
}

// job is an action under way.
type job struct {
	stop chan struct{} // closed to stop it
	done chan struct{} // closed when it has ended
	err  error         // of writing; to be read when it has ended
}

var (
	_ operation.Performer = (*Performer)(nil)
	_ operation.Stopper   = (*Performer)(nil)
)

// OpenPerformer opens the journal. The error joins a [Problem] for each mistake in work. Close it when done.
func OpenPerformer(work Work, now func() time.Time) (*Performer, error) {
	if err := work.check(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(work.Journal, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, Problem{"journal", "cannot be opened", err.Error()}
	}
	p := &Performer{
		work: work, now: now, file: file, effects: make(map[string]string),
		running: make(map[string]*job), stopped: make(map[string]bool), closing: make(chan struct{}),
	}
	if err = p.refresh(); err == nil {
		err = file.Truncate(p.read) // a line that a crash cut off was not performed
	}
	if err != nil {
		return nil, errors.Join(Problem{"journal", "cannot be read", err.Error()}, file.Close())
	}
	return p, nil
}

func (w Work) check() error {
	var c checker
	if w.Journal == "" {
		c.problem("journal", "is missing", "name the file that gets a line for each operation that is performed")
	}
	for i, a := range w.Actions {
		field := fmt.Sprintf("action[%d]", i)
		if a.Delay < 0 {
			c.problem(field+".delay", "is less than nothing", "")
		}
		switch a.Ends {
		case "", Succeeds, Errs, Hangs:
		case Fails:
			if a.Result == "" {
				c.problem(field+".result", "is missing", "say which changes an action makes that fails, if only that it makes none")
			}
		default:
			c.problem(field+".ends", "is not an end", "write succeed, fail, error or hang")
		}
		if _, err := object(a.Data, func(text string) string { return text }); err != nil {
			c.problem(field+".data", "cannot be written as JSON", "use texts, numbers, booleans, arrays and tables")
		}
	}
	return errors.Join(c.problems...)
}

// Close ends what is under way and closes the journal.
func (p *Performer) Close() error {
	close(p.closing)
	p.jobs.Wait()
	return p.file.Close()
}

// Perform performs an action. It goes on when ctx ends before it is done.
func (p *Performer) Perform(ctx context.Context, a operation.Action) (operation.Outcome, error) {
	how := p.performance(a.Key)
	j := &job{stop: make(chan struct{}), done: make(chan struct{})}
	p.mutex.Lock()
	if p.stopped[a.OperationID] {
		close(j.stop)
	}
	p.running[a.OperationID] = j
	p.mutex.Unlock()
	p.jobs.Go(func() { p.run(j, how, a) })
	select {
	case <-j.done:
	case <-ctx.Done():
		return operation.Outcome{}, ctx.Err()
	}
	switch {
	case j.err != nil:
		return operation.Outcome{}, j.err
	case how.Ends == Errs:
		return operation.Outcome{}, errors.New("the script lets this action end with an error after it has had its effect")
	}
	return p.Lookup(ctx, a)
}

// run is one action under way.
func (p *Performer) run(j *job, how Performance, a operation.Action) {
	defer close(j.done)
	after := time.After(time.Duration(how.Delay))
	if how.Ends == Hangs {
		after = nil
	}
	select {
	case <-after:
	case <-j.stop:
	case <-p.closing:
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.running[a.OperationID] == j {
		delete(p.running, a.OperationID)
	}
	select {
	case <-j.stop: // it may have come at the same moment
		p.stopped[a.OperationID] = true
		return
	case <-p.closing:
		return
	default:
	}
	outcome := "succeeded"
	if how.Ends == Fails {
		outcome = "failed"
	}
	j.err = p.write(line{a.OperationID, a.Revision, a.Digest, a.Terms, poppy.At(p.now()), outcome})
}

// write adds a line and makes it durable. It is called with the mutex held.
func (p *Performer) write(l line) error {
	text, err := strictjson.Marshal(l)
	if err == nil {
		_, err = p.file.Write(append(text, '\n'))
	}
	if err == nil {
		err = p.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}

// Lookup finds an action in the journal, or among those under way.
func (p *Performer) Lookup(_ context.Context, a operation.Action) (operation.Outcome, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := p.refresh(); err != nil {
		return operation.Outcome{}, err
	}
	how := p.performance(a.Key)
	data, err := object(how.Data, func(text string) string { return text })
	if err != nil {
		return operation.Outcome{}, err
	}
	result := poppy.Result{Summary: how.Result, Data: data}
	if result.Summary == "" {
		result.Summary = "Done. " + a.Summary
	}
	switch {
	case p.effects[a.OperationID] == "succeeded":
		return operation.Outcome{Verdict: operation.Succeeded, Result: result}, nil
	case p.effects[a.OperationID] != "":
		return operation.Outcome{Verdict: operation.Failed, Result: result}, nil
	case p.running[a.OperationID] != nil:
		return operation.Outcome{}, nil
	case p.stopped[a.OperationID]:
		return operation.Outcome{Verdict: operation.Stopped, Result: poppy.Result{Summary: "Stopped before anything was done."}}, nil
	}
	return operation.Outcome{Verdict: operation.NotStarted}, nil
}

// Stop stops an action that has had no effect yet.
func (p *Performer) Stop(_ context.Context, a operation.Action) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	j := p.running[a.OperationID]
	if j == nil {
		p.stopped[a.OperationID] = true // it may have been under way before a restart
		return nil
	}
	select {
	case <-j.stop: // asked before
	default:
		close(j.stop)
	}
	return nil
}

// performance returns how an action goes.
func (p *Performer) performance(key string) Performance {
	var other Performance
	for _, how := range p.work.Actions {
		switch how.Action {
		case key:
			return how
		case "":
			other = how
		}
	}
	return other
}

// refresh reads what was added to the journal, also by others, up to the last whole line. It is called with the mutex held.
func (p *Performer) refresh() error {
	info, err := p.file.Stat()
	if err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	lines := bufio.NewReader(io.NewSectionReader(p.file, p.read, info.Size()-p.read))
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the journal: %w", err)
		}
		var l line
		if err := strictjson.Unmarshal(bytes.TrimSpace(text), &l); err != nil {
			return fmt.Errorf("reading the journal at byte %d: %w", p.read, err)
		}
		p.effects[l.OperationID] = l.Outcome
		p.read += int64(len(text))
	}
}
