package conversation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"countersign/agent/session"
	"countersign/poppy"
)

const (
	// hold is how long a Company is asked to hold a read until there is an event.
	hold = 25 * time.Second
	// readTimeout is for the way there and back.
	readTimeout = 10 * time.Second
	// pause is the least time between two reads that brought nothing, should a Company not hold them.
	pause = time.Second
	// longestPause is the longest time between two tries while the Company cannot be reached.
	longestPause = 30 * time.Second
	// maxTries is how many reads in a row may fail.
	maxTries = 6
)

// Follow gives every event to handle, in the order in which the Company sent them and each once, and waits for more. Events
// of unknown types are skipped. When handle has returned, the event is kept as handled, so that following goes on behind it
// after a restart; if handle returns an error, the event is not, and Follow ends with that error. [ErrStop] ends it too, as a
// success that counts as handled.
//
// Follow ends without an error when the conversation is closed, and otherwise when ctx ends or the Company refuses. If the
// Company no longer has the events in between, handle gets a [Gap] and then what the Company still has (7.5).
func (c *Conversation) Follow(ctx context.Context, handle func(context.Context, Event) error) error {
	failures, restarted := 0, false
	for {
		cursor := c.lastHandled()
		asked := c.service.now()
		page, err := c.Read(ctx, cursor, hold)
		switch {
		case err == nil:
			failures = 0
		case cursor != "" && unusable(err) && !restarted: // 7.5; not twice in a row, should the Company refuse its own cursors
			restarted = true
			if err := c.restart(ctx, handle); err != nil {
				return ended(err)
			}
			continue
		case ctx.Err() != nil || failures+1 == maxTries || !passes(err):
			return err
		default:
			failures++
			if err := pauseAfter(ctx, err, failures, c.service.now()); err != nil {
				return err
			}
			continue
		}
		handled, err := c.handle(ctx, page, handle)
		if err != nil {
			return ended(err)
		}
		restarted = restarted && handled == 0
		if page.HasMore {
			continue
		}
		if page.State.Status == poppy.StatusClosed {
			return nil
		}
		if early := pause - c.service.now().Sub(asked); handled == 0 && early > 0 {
			if err := sleep(ctx, early); err != nil {
				return err
			}
		}
	}
}

// ended turns [ErrStop] into a success.
func ended(err error) error {
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// handle gives the events of a page that were not handled before to the function, keeps how far it came, and returns how
// many they were.
func (c *Conversation) handle(ctx context.Context, page Page, handle func(context.Context, Event) error) (handled int, err error) {
	for _, e := range page.Events {
		known, err := c.wasHandled(ctx, e.ID)
		if err != nil {
			return handled, err
		}
		if known {
			continue
		}
		if e.Message != nil && e.Message.Operation != nil {
			if err := c.service.operations.Remember(ctx, c.session, *e.Message.Operation); err != nil {
				return handled, err
			}
		}
		stop := handle(ctx, e)
		if stop != nil && !errors.Is(stop, ErrStop) {
			return handled, stop
		}
		handled++
		if err := c.advance(ctx, e.ID, e.ID); err != nil {
			return handled, err
		}
		if stop != nil {
			return handled, stop
		}
	}
	return handled, c.advance(ctx, page.Cursor, "") // past events of unknown types, and those that were handled before
}

// restart goes back to the beginning of what the Company has, and says so.
func (c *Conversation) restart(ctx context.Context, handle func(context.Context, Event) error) error {
	stop := handle(ctx, Event{Type: Gap, CreatedAt: c.service.now()})
	if stop != nil && !errors.Is(stop, ErrStop) {
		return stop
	}
	if err := c.advance(ctx, "", ""); err != nil {
		return err
	}
	return stop
}

func (c *Conversation) lastHandled() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.cursor
}

func (c *Conversation) wasHandled(ctx context.Context, eventID string) (bool, error) {
	if row := c.keptAs(); row != "" {
		return c.service.store.wasHandled(ctx, row, eventID)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.handled[eventID], nil
}

// advance keeps the cursor and, if there is one, the event that was handled.
func (c *Conversation) advance(ctx context.Context, cursor, eventID string) error {
	if cursor == c.lastHandled() {
		return nil
	}
	if row := c.keptAs(); row != "" {
		// It was handled, so it is kept even if the caller no longer waits.
		if err := c.service.store.advance(context.WithoutCancel(ctx), row, cursor, eventID); err != nil {
			return fmt.Errorf("keeping the cursor: %w", err)
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.cursor = cursor
	if c.row == "" && eventID != "" {
		c.handled[eventID] = true
	}
	return nil
}

// unusable tells whether a read failed because the Company does not take the cursor.
func unusable(err error) bool {
	problem, ok := errors.AsType[*poppy.Error](err)
	if !ok {
		return false
	}
	switch problem.Code {
	case poppy.ErrCursorExpired, poppy.ErrInvalidCursor:
		return true
	case poppy.ErrInvalidRequest, "":
		return problem.HTTPStatus == http.StatusBadRequest || problem.HTTPStatus == http.StatusGone
	default:
		return false
	}
}

// passes tells whether reading may succeed later: the Company was not reached or had trouble of its own.
func passes(err error) bool {
	if problem, ok := errors.AsType[*poppy.Error](err); ok {
		return problem.HTTPStatus >= http.StatusInternalServerError
	}
	_, unreadable := errors.AsType[poppy.Problems](err)
	return !unreadable
}

// pauseAfter waits after a failed read: longer each time, and at least as long as the Company asked.
func pauseAfter(ctx context.Context, err error, failures int, now time.Time) error {
	wait := min(pause<<(failures-1), longestPause)
	if limited, ok := errors.AsType[*session.RateLimitedError](err); ok {
		wait = max(wait, limited.Until.Sub(now))
	}
	return sleep(ctx, wait)
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
