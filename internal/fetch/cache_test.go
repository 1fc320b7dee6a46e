package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/internal/fetch"
)

// shelf is a cache of strings in front of a server whose answers and clock the test sets.
type shelf struct {
	*fetch.Cache[string]
	requests atomic.Int64
	mutex    sync.Mutex
	now      time.Time
	answer   http.HandlerFunc
}

var errUnparsable = errors.New("not a document")

func newShelf(t *testing.T, options fetch.CacheOptions) *shelf {
	t.Helper()
	s := &shelf{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		w.Header()["Date"] = nil // the server's clock is not the test's
		s.mutex.Lock()
		answer := s.answer
		s.mutex.Unlock()
		answer(w, r)
	})
	options.Now = func() time.Time {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return s.now
	}
	s.Cache = fetch.NewCache(client(t, server.mapped("outdoor.example", "www.outdoor.example")), options,
		func(r *fetch.Response) (string, error) {
			if strings.HasPrefix(string(r.Body), "bad") {
				return "", errUnparsable
			}
			return string(r.Body), nil
		})
	return s
}

func (s *shelf) pass(d time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.now = s.now.Add(d)
}

// serves sets what the server answers: a body and pairs of headers.
func (s *shelf) serves(body string, header ...string) {
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Add(header[i], header[i+1])
		}
		_, _ = w.Write([]byte(body))
	})
}

func (s *shelf) answers(answer http.HandlerFunc) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.answer = answer
}

// wants gets (or refreshes) a document and checks it, and how many requests that took.
func (s *shelf) wants(t *testing.T, get func(context.Context, string) (string, error), url, want string, requests int64) {
	t.Helper()
	before := s.requests.Load()
	got, err := get(t.Context(), url)
	if err != nil {
		if got != "" {
			t.Errorf("got %q with an error", got)
		}
		got = "error: " + err.Error()
	}
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if made := s.requests.Load() - before; made != requests {
		t.Errorf("%d requests, want %d", made, requests)
	}
}

// P-3-07 P-3.2-40
func TestDocumentIsKeptAsItsHeadersSay(t *testing.T) {
	t.Parallel()
	const forever = 1000 * time.Hour
	for name, test := range map[string]struct {
		header  []string
		options fetch.CacheOptions
		fresh   time.Duration // kept just before this time, not from it on
	}{
		"max-age":                      {[]string{"Cache-Control", "max-age=600"}, fetch.CacheOptions{}, 600 * time.Second},
		"max-age among others":         {[]string{"Cache-Control", `public, Max-Age="600" , must-revalidate`}, fetch.CacheOptions{}, 600 * time.Second},
		"the shortest max-age":         {[]string{"Cache-Control", "max-age=600", "Cache-Control", "max-age=60"}, fetch.CacheOptions{}, time.Minute},
		"unreadable max-age":           {[]string{"Cache-Control", "max-age=10m"}, fetch.CacheOptions{}, 0},
		"max-age before Expires":       {[]string{"Cache-Control", "max-age=600", "Expires", "0"}, fetch.CacheOptions{}, 600 * time.Second},
		"max-age less age":             {[]string{"Cache-Control", "max-age=600", "Age", "500"}, fetch.CacheOptions{}, 100 * time.Second},
		"older than max-age":           {[]string{"Cache-Control", "max-age=600", "Age", "601"}, fetch.CacheOptions{}, 0},
		"shared caches only":           {[]string{"Cache-Control", "s-maxage=600"}, fetch.CacheOptions{}, 0},
		"no-store":                     {[]string{"Cache-Control", "no-store"}, fetch.CacheOptions{Default: forever}, 0},
		"no-store and max-age":         {[]string{"Cache-Control", "max-age=600, NO-STORE"}, fetch.CacheOptions{}, 0},
		"no-store in quotes is not it": {[]string{"Cache-Control", `private="x, no-store", max-age=600`}, fetch.CacheOptions{}, 600 * time.Second},
		"no-cache":                     {[]string{"Cache-Control", "no-cache, max-age=600"}, fetch.CacheOptions{}, 0},
		"Expires and Date":             {[]string{"Date", "Sun, 01 Nov 2026 12:00:00 GMT", "Expires", "Sun, 01 Nov 2026 12:10:00 GMT"}, fetch.CacheOptions{}, 600 * time.Second},
		"Expires alone":                {[]string{"Expires", "Mon, 30 Nov 2026 12:10:00 GMT"}, fetch.CacheOptions{}, 600 * time.Second},
		"Expires in the past":          {[]string{"Expires", "Sun, 01 Nov 2026 12:10:00 GMT"}, fetch.CacheOptions{Default: forever}, 0},
		"Expires unreadable":           {[]string{"Expires", "0"}, fetch.CacheOptions{Default: forever}, 0},
		"varies":                       {[]string{"Cache-Control", "max-age=600", "Vary", "*"}, fetch.CacheOptions{}, 0},
		"nothing said":                 {nil, fetch.CacheOptions{}, 0},
		"nothing said, default":        {nil, fetch.CacheOptions{Default: time.Minute}, time.Minute},
		"ceiling by default":           {[]string{"Cache-Control", "max-age=99999999999999999999"}, fetch.CacheOptions{}, 24 * time.Hour},
		"ceiling":                      {[]string{"Cache-Control", "max-age=600"}, fetch.CacheOptions{Ceiling: time.Minute}, time.Minute},
		"floor":                        {[]string{"Cache-Control", "max-age=1"}, fetch.CacheOptions{Floor: time.Minute}, time.Minute},
		"floor over no-store":          {[]string{"Cache-Control", "no-store"}, fetch.CacheOptions{Floor: time.Minute}, time.Minute},
		"floor under max-age":          {[]string{"Cache-Control", "max-age=600"}, fetch.CacheOptions{Floor: time.Minute}, 600 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t, test.options)
			s.serves("old", test.header...)
			s.wants(t, s.Get, home, "old", 1)
			s.serves("new", "Cache-Control", "no-store")
			if test.fresh > 0 {
				s.pass(test.fresh - time.Nanosecond)
				s.wants(t, s.Get, home, "old", 0)
				s.pass(time.Nanosecond)
			}
			s.wants(t, s.Get, home, "new", 1)
		})
	}
}

// P-3-07
func TestStaleDocumentIsRevalidatedByItsValidators(t *testing.T) {
	t.Parallel()
	for validator, condition := range map[string]string{"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"} {
		version := func(tag, lifetime string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(validator, tag)
				w.Header().Set("Cache-Control", lifetime)
				if r.Header.Get(condition) == tag {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				_, _ = w.Write([]byte(tag + " after " + r.Header.Get(condition)))
			}
		}
		s := newShelf(t, fetch.CacheOptions{})
		s.answers(version("v1", "max-age=60"))
		s.wants(t, s.Get, home, "v1 after ", 1)
		s.pass(time.Minute)
		s.answers(version("v1", "max-age=120"))
		s.wants(t, s.Get, home, "v1 after ", 1)
		s.pass(2*time.Minute - 1)
		s.wants(t, s.Get, home, "v1 after ", 0) // fresh again, by the headers of the 304
		s.pass(1)
		s.answers(version("v2", "max-age=60"))
		s.wants(t, s.Get, home, "v2 after v1", 1)
	}
}

// P-3-07
func TestNothingIsRememberedOfADocumentThatMustNotBeStored(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{})
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("ETag", `"1"`)
		_, _ = w.Write([]byte("known: " + r.Header.Get("If-None-Match")))
	})
	s.wants(t, s.Get, home, "known: ", 1)
	s.wants(t, s.Get, home, "known: ", 1)
}

func TestNotModifiedByAnotherServerIsNotTaken(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{Get: fetch.GetOptions{MaxRedirects: 1}})
	redirects := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			switch {
			case r.Host == "www.outdoor.example":
				http.Redirect(w, r, to, http.StatusFound)
			case r.Header.Get("If-None-Match") == `"1"`:
				w.WriteHeader(http.StatusNotModified)
			default:
				_, _ = w.Write([]byte(r.URL.Path))
			}
		}
	}
	s.answers(redirects("https://outdoor.example/a"))
	s.wants(t, s.Get, "https://www.outdoor.example/", "/a", 2)
	s.wants(t, s.Get, "https://www.outdoor.example/", "/a", 2)
	s.answers(redirects("https://outdoor.example/b"))
	s.wants(t, s.Get, "https://www.outdoor.example/", "/b", 4)
}

func TestFailureIsRememberedForAShortTime(t *testing.T) {
	t.Parallel()
	unavailable := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	const problem = "error: outdoor.example answered 503 Service Unavailable"

	s := newShelf(t, fetch.CacheOptions{Failure: 10 * time.Second})
	s.answers(unavailable)
	s.wants(t, s.Get, home, problem, 1)
	s.serves("back")
	s.pass(10*time.Second - 1)
	s.wants(t, s.Get, home, problem, 0)
	s.wants(t, s.Refresh, home, problem, 0)
	s.pass(1)
	s.wants(t, s.Get, home, "back", 1)

	s.serves("bad")
	s.wants(t, s.Get, home, "error: not a document", 1)
	s.wants(t, s.Get, home, "error: not a document", 0)

	none := newShelf(t, fetch.CacheOptions{})
	none.answers(unavailable)
	none.wants(t, none.Get, home, problem, 1)
	none.wants(t, none.Get, home, problem, 1)
}

// P-4.3-78
func TestRetryAfterIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{})
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	const problem = "error: outdoor.example answered 429 Too Many Requests"
	s.wants(t, s.Get, home, problem, 1)
	s.serves("back")
	s.pass(5*time.Second - 1)
	s.wants(t, s.Get, home, problem, 0)
	s.wants(t, s.Refresh, home, problem, 0)
	s.pass(1)
	s.wants(t, s.Get, home, "back", 1)
}

func TestRefreshAsksOncePerInterval(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{})
	s.serves("old", "Cache-Control", "max-age=86400")
	s.wants(t, s.Get, home, "old", 1)
	s.serves("new", "Cache-Control", "max-age=86400")
	s.wants(t, s.Get, home, "old", 0)
	s.wants(t, s.Refresh, home, "new", 1)
	s.serves("newer", "Cache-Control", "max-age=86400")
	s.pass(time.Minute - 1)
	s.wants(t, s.Refresh, home, "new", 0)
	s.pass(1)
	s.wants(t, s.Refresh, home, "newer", 1)
	s.wants(t, s.Get, home, "newer", 0)
}

func TestFailedRefreshKeepsTheDocument(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{Failure: time.Hour})
	s.serves("kept", "Cache-Control", "max-age=600")
	s.wants(t, s.Get, home, "kept", 1)
	s.serves("bad")
	s.wants(t, s.Refresh, home, "error: not a document", 1)
	s.wants(t, s.Get, home, "kept", 0)
	s.pass(2 * time.Minute)
	s.wants(t, s.Refresh, home, "kept", 0) // the failure is remembered, so it is not tried again
}

func TestCallersAtTheSameTimeShareOneFetch(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{})
	arrived, release := make(chan struct{}), make(chan struct{})
	s.answers(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived) // panics if a second request comes
		<-release
		_, _ = w.Write([]byte("shared"))
	})
	var callers sync.WaitGroup
	get := func() {
		if got, err := s.Get(t.Context(), home); got != "shared" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	callers.Go(get)
	<-arrived
	for range 10 {
		callers.Go(get)
	}
	time.Sleep(50 * time.Millisecond) // for the ten to be waiting
	close(release)
	callers.Wait()
	if s.requests.Load() != 1 {
		t.Errorf("%d requests, want 1", s.requests.Load())
	}
}

func TestCallerWhoGivesUpDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{})
	arrived := make(chan struct{}, 2)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		if s.requests.Load() == 1 {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte("second"))
	})
	impatient, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() {
		if _, err := s.Get(impatient, home); !errors.Is(err, context.Canceled) {
			t.Errorf("impatient: %v", err)
		}
	})
	<-arrived
	callers.Go(func() {
		if got, err := s.Get(t.Context(), home); got != "second" || err != nil {
			t.Errorf("patient: %q, %v", got, err)
		}
	})
	waiting, stop := context.WithCancel(t.Context())
	stop()
	if _, err := s.Get(waiting, home); !errors.Is(err, context.Canceled) {
		t.Errorf("one who waits and gives up: %v", err)
	}
	time.Sleep(50 * time.Millisecond) // for the patient one to be waiting
	leave()
	callers.Wait()
}

func TestPanicWhileParsingLeavesNobodyWaiting(t *testing.T) {
	t.Parallel()
	server := serve(t, writeDocument)
	var calls atomic.Int64
	cache := fetch.NewCache(client(t, server.mapped("outdoor.example")), fetch.CacheOptions{}, func(*fetch.Response) (int, error) {
		if calls.Add(1) == 1 {
			panic("parse")
		}
		return 2, nil
	})
	func() {
		defer func() { _ = recover() }()
		_, _ = cache.Get(t.Context(), home)
	}()
	if got, err := cache.Get(t.Context(), home); got != 2 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestLongestUnusedGoesFirst(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]fetch.CacheOptions{
		"by number": {Default: time.Hour, MaxEntries: 2},
		"by bytes":  {Default: time.Hour, MaxBytes: int64(2*len(home) + 2 + 2*100)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t, options)
			body := fmt.Sprintf("%100s", "x")
			s.serves(body)
			s.wants(t, s.Get, home+"1", body, 1)
			s.wants(t, s.Get, home+"2", body, 1)
			s.wants(t, s.Get, home+"1", body, 0)
			s.wants(t, s.Get, home+"3", body, 1)
			s.wants(t, s.Get, home+"1", body, 0)
			s.wants(t, s.Get, home+"2", body, 1) // had to go
		})
	}
}

func TestDocumentLargerThanTheCacheIsServedAndNotKept(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{Default: time.Hour, MaxBytes: 50})
	body := fmt.Sprintf("%100s", "x")
	s.serves(body)
	s.wants(t, s.Get, home, body, 1)
	s.wants(t, s.Get, home, body, 1)
}

func TestManyCallersAndURLsStayWithinTheBounds(t *testing.T) {
	t.Parallel()
	s := newShelf(t, fetch.CacheOptions{Default: time.Hour, MaxEntries: 3})
	s.answers(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) })
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			for j := range 20 {
				get := s.Get
				if j%5 == 0 {
					get = s.Refresh
				}
				path := fmt.Sprint((i * j) % 7)
				if got, err := get(t.Context(), home+path); got != "/"+path || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	callers.Wait()
}
