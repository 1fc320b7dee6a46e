package wire_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/broker/internal/brokertest"
	"countersign/broker/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T, handler http.HandlerFunc) *wire.Client {
	t.Helper()
	c := wire.NewClient(brokertest.Serve(t, handler), brokertest.Secret("alice"))
	t.Cleanup(c.Close)
	return c
}

var stream = wire.Call{Method: http.MethodGet, Path: "/stream"}

func TestFollowTakesUpABrokenStreamWhereItBroke(t *testing.T) {
	t.Parallel()
	var resumed []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
		switch len(resumed) {
		case 1:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": hello\n\nid: 1\nevent: x\ndata: {\"a\":\ndata: 1}\n\n: still here\n\nid: 2\r\ndata: 2\r\n\r\nid: 3\ndata: half a mess")
			http.NewResponseController(w).Flush() //nolint:errcheck // a reader that has gone is no matter here
			panic(http.ErrAbortHandler)
		case 2: // closed by a server that stops
			fmt.Fprint(w, "id: 3\ndata: 3\n\n")
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"code":"unavailable","message":"later"}}`)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	var got []string
	for m, err := range c.Follow(t.Context(), stream, "0") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.ID+"="+string(m.Data))
	}
	if text := strings.Join(got, " "); text != `1={"a":1} 2=2 3=3` {
		t.Errorf("got %s", text)
	}
	if text := strings.Join(resumed, " "); text != "0 2 3 3" {
		t.Errorf("resumed after %s", text)
	}
}

func TestFollowGivesUp(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"on a refusal": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"code":"not_found","message":"no"}}`)
		},
		"when nobody answers": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"on an endless line":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data: ", strings.Repeat("x", 9<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var last error
			count := 0
			for m, err := range client(t, handler).Follow(t.Context(), stream, "") {
				last = err
				if count++; m.ID != "" || m.Data != nil {
					t.Errorf("got %+v", m)
				}
			}
			if count != 1 || last == nil {
				t.Errorf("%d results, the last %v", count, last)
			}
		})
	}
}

func TestDoRepeatsWhatWasLostAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle func(w http.ResponseWriter)
		calls  int32
	}{
		"lost":                {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 3},
		"unavailable":         {func(w http.ResponseWriter) { refuse(w, http.StatusServiceUnavailable, "unavailable") }, 3},
		"refused":             {func(w http.ResponseWriter) { refuse(w, http.StatusConflict, "request_id_conflict") }, 1},
		"fault of the broker": {func(w http.ResponseWriter) { refuse(w, http.StatusInternalServerError, "server_error") }, 1},
		"answer cut short": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"a":`)
		}, 3},
		"no JSON": {func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			c := client(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				test.handle(w)
			})
			var answer struct{}
			if _, err := c.Do(t.Context(), wire.Call{Method: http.MethodPost, Path: "/", Body: map[string]int{"a": 1}}, &answer); err == nil || calls.Load() != test.calls {
				t.Errorf("%d calls, %v", calls.Load(), err)
			}
		})
	}
}

func TestDoDoesNotSendWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	c := client(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	_, err := c.Do(t.Context(), wire.Call{Method: http.MethodPost, Path: "/", Body: "\xff"}, nil)
	if _, lost := errors.AsType[*wire.LostError](err); err == nil || lost {
		t.Errorf("got %v", err)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":"no"}}`, code)
}

func TestQuery(t *testing.T) {
	t.Parallel()
	read := func(raw string) (wire.Query, error) {
		return wire.ReadQuery(httptest.NewRequest(http.MethodGet, "/?"+raw, nil), "n", "s")
	}
	for raw, want := range map[string]time.Duration{"": 7 * time.Second, "s=0": 0, "s=1": time.Second, "s=0.25": 250 * time.Millisecond, "s=25": 25 * time.Second, "s=26": 25 * time.Second, "s=99999999999999999999999": 25 * time.Second} {
		query, err := read(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := query.Seconds("s", 7*time.Second, 25*time.Second); err != nil || got != want {
			t.Errorf("%q: %s, %v", raw, got, err)
		}
	}
	for raw, want := range map[string]int64{"": 5, "n=1": 1, "n=9007199254740991": 1<<53 - 1} {
		query, err := read(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := query.Int("n", 5, 1); err != nil || got != want {
			t.Errorf("%q: %d, %v", raw, got, err)
		}
	}
	for _, raw := range []string{"n=0", "n=-1", "n=1.0", "n=9007199254740992", "n=+1", "n=0x1", "n=١"} {
		if query, err := read(raw); err == nil {
			if got, err := query.Int("n", 5, 1); err == nil {
				t.Errorf("%q: %d", raw, got)
			}
		}
	}
	for _, raw := range []string{"n=", "n", "n=1&n=1", "N=1", "x=1", "n=%", "n=1;s=2"} {
		if query, err := read(raw); err == nil {
			t.Errorf("%q: %v", raw, query)
		}
	}
}
