package wire

import (
	"fmt"
	"net/http"
	"sync"

	"countersign/broker/access"
	"countersign/internal/web"
)

// ReplayedHeader is set to true on an answer that repeats what an earlier call with the same key did.
const ReplayedHeader = "Idempotency-Replayed"

// Private forbids every answer to be kept or to be taken for something else.
func Private(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		handler.ServeHTTP(w, r)
	})
}

// Healthy answers that the process serves. It needs no secret and looks at nothing.
func Healthy(w http.ResponseWriter, _ *http.Request) error {
	return web.WriteJSON(w, http.StatusOK, map[string]bool{"ok": true})
}

// Authenticate returns the ID of the caller, or 401 with a challenge.
func Authenticate(callers *access.Callers, r *http.Request) (string, error) {
	id, err := callers.Authenticate(r)
	if err != nil {
		refused := Refuse(http.StatusUnauthorized, Fault{
			Code:    codeAuthenticationFailed,
			Message: "Authentication failed: " + err.Error() + ". Send yours in the header Authorization: Bearer SECRET.",
		})
		refused.Header = http.Header{"Www-Authenticate": {callers.Challenge(err)}}
		return "", refused
	}
	return id, nil
}

// Places bounds how many requests of one caller are held open at once.
type Places struct {
	most  int
	mutex sync.Mutex
	taken map[string]int
}

// NewPlaces returns places for most requests of each caller.
func NewPlaces(most int) *Places { return &Places{most: most, taken: make(map[string]int)} }

// Enter takes a place, to be given back by leave. The error is 429.
func (p *Places) Enter(caller string) (leave func(), err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.taken[caller] >= p.most {
		refused := Refuse(http.StatusTooManyRequests, Fault{
			Code:    codeTooManyWaiting,
			Message: fmt.Sprintf("%d of your requests are waiting already, which is the limit. Let one end first.", p.most),
		})
		refused.Header = http.Header{"Retry-After": {"2"}}
		return nil, refused
	}
	p.taken[caller]++
	return func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if p.taken[caller]--; p.taken[caller] == 0 {
			delete(p.taken, caller)
		}
	}, nil
}
