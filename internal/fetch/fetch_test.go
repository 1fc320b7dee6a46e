package fetch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/internal/fetch"

	"github.com/google/go-cmp/cmp"
)

const home = "https://outdoor.example/"

// P-3-04 P-3-05
func TestGetFollowsRedirectsToOtherHTTPSHostsAndReportsTheWay(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.Host + r.URL.Path {
			case "www.outdoor.example/.well-known/poppy.json":
				http.Redirect(w, r, "https://outdoor.example/moved", status)
			case "outdoor.example/moved":
				http.Redirect(w, r, "/here", status)
			case "outdoor.example/here":
				writeDocument(w, r)
			}
		})
		c := client(t, s.mapped("outdoor.example", "www.outdoor.example"))
		got, err := c.Get(t.Context(), "https://www.outdoor.example/.well-known/poppy.json", fetch.GetOptions{MaxRedirects: 2})
		if err != nil {
			t.Fatalf("%d: %v", status, err)
		}
		got.Header = nil
		want := &fetch.Response{
			URL:       "https://outdoor.example/here",
			Redirects: []string{"https://www.outdoor.example/.well-known/poppy.json", "https://outdoor.example/moved"},
			Status:    200, Body: []byte(`{"name":"Outdoor"}`),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d: %s", status, diff)
		}
	}
}

func TestGetRefusesRedirects(t *testing.T) {
	t.Parallel()
	plain, plainDials := plainServer(t)
	for name, test := range map[string]struct {
		status   int
		location string
		allowed  int
		want     fetch.Kind
		problem  string
		requests int64
	}{
		// P-3-06 P-3-19
		"to http":         {302, plain, 5, fetch.ErrRedirected, "outdoor.example redirects to a URL that may not be fetched: only https URLs are used", 1},
		"to another":      {302, "ftp://outdoor.example/", 5, fetch.ErrURL, "outdoor.example redirects to a URL that may not be fetched: only https URLs are used", 1},
		"in a circle":     {302, home, 5, fetch.ErrTooManyRedirects, "outdoor.example redirects to outdoor.example after 5 redirects, which is the limit", 6},
		"none allowed":    {302, "https://auth.outdoor.example/?code=1", 0, fetch.ErrRedirected, "outdoor.example redirects to auth.outdoor.example, which is not followed here", 1},
		"to nowhere":      {302, "", 5, fetch.ErrRedirected, "outdoor.example answered 302 without a URL that can be followed", 1},
		"through a proxy": {305, home, 5, fetch.ErrRedirected, "outdoor.example answered 305 without a URL that can be followed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				if test.location != "" {
					w.Header().Set("Location", test.location)
				}
				w.WriteHeader(test.status)
			})
			response, err := client(t, s.mapped("outdoor.example")).Get(t.Context(), home, fetch.GetOptions{MaxRedirects: test.allowed})
			if !errors.Is(err, test.want) || err.Error() != test.problem || response != nil {
				t.Errorf("got %v, %v, want %v: %s", response, err, test.want, test.problem)
			}
			if requests.Load() != test.requests {
				t.Errorf("%d requests, want %d", requests.Load(), test.requests)
			}
		})
	}
	t.Cleanup(func() {
		if plainDials.Load() != 0 {
			t.Errorf("%d connections were made to the http URL", plainDials.Load())
		}
	})
}

// plainServer listens without TLS and counts connections.
func plainServer(t *testing.T) (url string, dials *atomic.Int64) {
	t.Helper()
	dials = new(atomic.Int64)
	s := httptest.NewUnstartedServer(http.HandlerFunc(writeDocument))
	s.Listener = counted{s.Listener, dials}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, dials
}

func TestGetReportsWhatIsNotADocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		options fetch.GetOptions
		want    fetch.Error
	}{
		"status": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
			fetch.GetOptions{},
			fetch.Error{Kind: fetch.ErrStatus, Status: 404, Problem: "outdoor.example answered 404 Not Found"},
		},
		"status without content": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
			fetch.GetOptions{},
			fetch.Error{Kind: fetch.ErrStatus, Status: 204, Problem: "outdoor.example answered 204 No Content"},
		},
		"rate limit": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
			},
			fetch.GetOptions{},
			fetch.Error{Kind: fetch.ErrStatus, Status: 429, RetryAfter: 7 * time.Second, Problem: "outdoor.example answered 429 Too Many Requests"},
		},
		"not modified, unasked": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
			fetch.GetOptions{},
			fetch.Error{Kind: fetch.ErrStatus, Status: 304, Problem: "outdoor.example answered 304 Not Modified"},
		},
		"announced too large": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 101)) },
			fetch.GetOptions{MaxBytes: 100},
			fetch.Error{Kind: fetch.ErrTooLarge, Problem: "outdoor.example answered with more than the 100 bytes that are allowed here"},
		},
		"endless": {
			func(w http.ResponseWriter, _ *http.Request) {
				for err := error(nil); err == nil; {
					_, err = w.Write(make([]byte, 1<<10))
				}
			},
			fetch.GetOptions{},
			fetch.Error{Kind: fetch.ErrTooLarge, Problem: "outdoor.example answered with more than the 65536 bytes that are allowed here"},
		},
		"gzip bomb": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				var bomb bytes.Buffer
				writer := gzip.NewWriter(&bomb)
				_, _ = writer.Write(make([]byte, 10<<20))
				_ = writer.Close()
				_, _ = w.Write(bomb.Bytes())
			},
			fetch.GetOptions{},
			fetch.Error{Kind: fetch.ErrBroken, Problem: "outdoor.example answered with a content encoding that was not asked for"},
		},
		"no headers in time": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			fetch.GetOptions{Timeout: 100 * time.Millisecond},
			fetch.Error{Kind: fetch.ErrTimeout, Problem: "outdoor.example did not finish its answer within 100ms"},
		},
		"silence in the body": {
			func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte("{"))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
			fetch.GetOptions{},
			fetch.Error{Kind: fetch.ErrTimeout, Problem: "outdoor.example sent nothing more of its answer for 1s"},
		},
		"a body drop by drop": {
			func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = w.Write([]byte(" "))
					_ = http.NewResponseController(w).Flush()
					time.Sleep(20 * time.Millisecond)
				}
			},
			fetch.GetOptions{Timeout: 400 * time.Millisecond},
			fetch.Error{Kind: fetch.ErrTimeout, Problem: "outdoor.example did not finish its answer within 400ms"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configured := serve(t, test.handler).mapped("outdoor.example")
			configured.IdleTimeout = time.Second
			response, err := client(t, configured).Get(t.Context(), home, test.options)
			got, ok := errors.AsType[*fetch.Error](err)
			if !ok || response != nil {
				t.Fatalf("got %v, %v", response, err)
			}
			test.want.Host = "outdoor.example"
			got.Err = nil
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSteadyBodyMayTakeLongerThanTheIdleLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 12 {
			_, _ = w.Write([]byte("."))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	})
	options := s.mapped("outdoor.example")
	options.IdleTimeout = 800 * time.Millisecond
	response, err := client(t, options).Get(t.Context(), home, fetch.GetOptions{})
	if err != nil || string(response.Body) != "............" {
		t.Errorf("got %v, %v", response, err)
	}
}

func TestConnectionThatCannotBeMadeOrTrustedIsExplained(t *testing.T) {
	t.Parallel()
	s := serve(t, writeDocument)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	plain, _ := plainServer(t)
	broken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broken.Close() })
	go func() {
		for conn, err := broken.Accept(); err == nil; conn, err = broken.Accept() {
			_ = conn.Close()
		}
	}()
	to := func(host, address string) fetch.Options {
		return fetch.Options{
			Authorities: s.pool,
			Resolve:     []fetch.Mapping{{Host: host, Port: 443, Address: netip.MustParseAddrPort(address)}},
		}
	}
	strangers := to("outdoor.example", s.address().String())
	strangers.Authorities = nil
	impatient := to("outdoor.example", silent.Addr().String())
	impatient.ConnectTimeout = 300 * time.Millisecond
	for name, test := range map[string]struct {
		host    string
		options fetch.Options
		want    fetch.Kind
		problem string
	}{
		"nobody listens":        {"outdoor.example", to("outdoor.example", closed.Addr().String()), fetch.ErrConnect, "no connection to outdoor.example: dial tcp " + closed.Addr().String()},
		"silent":                {"outdoor.example", impatient, fetch.ErrTimeout, "no TLS connection to outdoor.example within 300ms"},
		"hangs up":              {"outdoor.example", to("outdoor.example", broken.Addr().String()), fetch.ErrTLS, "no TLS connection to outdoor.example: "},
		"not TLS":               {"outdoor.example", to("outdoor.example", strings.TrimPrefix(plain, "http://")), fetch.ErrTLS, "no TLS connection to outdoor.example: "},
		"unknown authority":     {"outdoor.example", strangers, fetch.ErrTLS, "the certificate of outdoor.example is not trusted: x509: certificate signed by unknown authority"},
		"another's certificate": {"other.example", to("other.example", s.address().String()), fetch.ErrTLS, "the certificate of other.example is not trusted: x509: certificate is valid for outdoor.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client(t, test.options).Get(t.Context(), "https://"+test.host+"/", fetch.GetOptions{Timeout: 5 * time.Second})
			if !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), test.problem) {
				t.Errorf("got %v, want %v: %s…", err, test.want, test.problem)
			}
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, writeDocument)
	old := httptest.NewUnstartedServer(http.HandlerFunc(writeDocument))
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	old.Config.ErrorLog = log.New(io.Discard, "", 0)
	old.StartTLS()
	t.Cleanup(old.Close)
	options := s.mapped()
	options.Authorities.AddCert(old.Certificate())
	options.Resolve = []fetch.Mapping{{Host: "example.com", Port: 443, Address: netip.MustParseAddrPort(old.Listener.Addr().String())}}
	_, err := client(t, options).Get(t.Context(), "https://example.com/", fetch.GetOptions{})
	if !errors.Is(err, fetch.ErrTLS) || !strings.Contains(err.Error(), "version") {
		t.Errorf("got %v, want a refused TLS version", err)
	}
}

func TestContextOfTheCallerEndsAFetch(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := client(t, s.mapped("outdoor.example")).Get(ctx, home, fetch.GetOptions{})
	if _, ours := errors.AsType[*fetch.Error](err); ours || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestConnectionIsReusedAcrossRequestsAndHTTP2IsSpoken(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	c := client(t, s.mapped("outdoor.example"))
	for range 5 {
		response, err := c.Get(t.Context(), home, fetch.GetOptions{})
		if err != nil || string(response.Body) != "HTTP/2.0" {
			t.Fatalf("got %v, %v", response, err)
		}
	}
	if s.dials.Load() != 1 {
		t.Errorf("%d connections, want 1", s.dials.Load())
	}
}

// captured is what arrived where a redirect led.
type captured struct {
	mutex    sync.Mutex
	requests []string
}

func (c *captured) handler(w http.ResponseWriter, r *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.requests = append(c.requests, r.Method+" "+r.Host+r.URL.Path+" "+r.Header.Get("Authorization"))
}

func secretRequest(ctx context.Context, url string) *http.Request {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("assertion=secret"))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Authorization", "DPoP secret")
	request.Header.Set("DPoP", "proof")
	return request
}

// P-3-22 P-3-23 P-3-24 P-3-25 P-3-26
func TestRedirectedRequestWithSecretsIsSentNowhereElse(t *testing.T) {
	t.Parallel()
	for _, status := range []int{300, 301, 302, 303, 305, 307, 308} {
		for name, target := range map[string]string{
			"the same host": home + "elsewhere", "another host": "https://auth.outdoor.example/", "a relative URL": "/elsewhere", "http": "http://outdoor.example/",
		} {
			for way, send := range map[string]func(c *fetch.Client, r *http.Request) error{
				"Do": func(c *fetch.Client, r *http.Request) error {
					response, err := c.Do(r, fetch.DoOptions{})
					if response != nil {
						return errors.New("a response was returned")
					}
					return err
				},
				"Transport": func(c *fetch.Client, r *http.Request) error {
					response, err := (&http.Client{Transport: c.Transport()}).Do(r)
					if err == nil {
						response.Body.Close()
					}
					return err
				},
			} {
				var elsewhere captured
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Host == "outdoor.example" && r.URL.Path == "/" {
						w.Header().Set("Location", target)
						w.WriteHeader(status)
						return
					}
					elsewhere.handler(w, r)
				})
				err := send(client(t, s.mapped("outdoor.example", "auth.outdoor.example")), secretRequest(t.Context(), home))
				refused, _ := errors.AsType[*fetch.Error](err)
				if !errors.Is(err, fetch.ErrRedirected) || refused.Location == "" {
					t.Errorf("%s, %d to %s: got %v, want a redirect that is not followed", way, status, name, err)
				}
				if len(elsewhere.requests) > 0 {
					t.Errorf("%s, %d to %s: arrived elsewhere: %v", way, status, name, elsewhere.requests)
				}
			}
		}
	}
}

func TestDoReturnsAnyOtherStatusWithItsBody(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("WWW-Authenticate", `DPoP error="use_dpop_nonce"`)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, r.Header.Get("DPoP")+" "+string(body))
	})
	response, err := client(t, s.mapped("outdoor.example")).Do(secretRequest(t.Context(), home), fetch.DoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if response.Status != 401 || string(response.Body) != "proof assertion=secret" || response.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("got %d %s %v", response.Status, response.Body, response.Header)
	}
}

// P-3-19
func TestRequestToAURLThatIsNotHTTPSIsNotSent(t *testing.T) {
	t.Parallel()
	url, dials := plainServer(t)
	c := client(t, fetch.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if _, err := c.Get(t.Context(), url, fetch.GetOptions{}); !errors.Is(err, fetch.ErrURL) {
		t.Errorf("Get: %v", err)
	}
	if _, err := c.Do(secretRequest(t.Context(), url), fetch.DoOptions{}); !errors.Is(err, fetch.ErrURL) {
		t.Errorf("Do: %v", err)
	}
	response, err := c.Transport().RoundTrip(secretRequest(t.Context(), url))
	if !errors.Is(err, fetch.ErrURL) {
		t.Errorf("Transport: %v", err)
	}
	if response != nil {
		response.Body.Close()
	}
	if dials.Load() != 0 {
		t.Errorf("%d connections were made", dials.Load())
	}
}

func TestDoBoundsItsResponse(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		_, _ = w.Write(make([]byte, 2<<20))
	})
	c := client(t, s.mapped("outdoor.example"))
	if _, err := c.Do(secretRequest(t.Context(), home), fetch.DoOptions{}); !errors.Is(err, fetch.ErrTooLarge) {
		t.Errorf("size: %v", err)
	}
	if response, err := c.Do(secretRequest(t.Context(), home), fetch.DoOptions{MaxBytes: 2 << 20}); err != nil || len(response.Body) != 2<<20 {
		t.Errorf("size just allowed: %v", err)
	}
	if _, err := c.Do(secretRequest(t.Context(), home+"slow"), fetch.DoOptions{Timeout: 100 * time.Millisecond}); !errors.Is(err, fetch.ErrTimeout) {
		t.Errorf("time: %v", err)
	}
}

// P-4.3-78
func TestRetryAfterIsReadInBothForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]struct {
		wait time.Duration
		ok   bool
	}{
		"5":                              {5 * time.Second, true},
		"0":                              {0, true},
		"Mon, 30 Nov 2026 12:01:30 GMT":  {90 * time.Second, true},
		"Monday, 30-Nov-26 12:01:30 GMT": {90 * time.Second, true},
		"Mon, 30 Nov 2026 11:00:00 GMT":  {0, true},
		"99999999999999999999999":        {365 * 24 * time.Hour, true},
		"Fri, 30 Nov 2096 12:00:00 GMT":  {365 * 24 * time.Hour, true},
		"":                               {0, false},
		"-5":                             {0, false},
		"+5":                             {0, false},
		"1.5":                            {0, false},
		"5s":                             {0, false},
		"soon":                           {0, false},
	} {
		wait, ok := fetch.RetryAfter(http.Header{"Retry-After": {value}}, now)
		if wait != want.wait || ok != want.ok {
			t.Errorf("%q: got %v, %v, want %v, %v", value, wait, ok, want.wait, want.ok)
		}
	}
	if _, ok := fetch.RetryAfter(http.Header{}, now); ok {
		t.Error("no header was read as one")
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("5")
	f.Add("Mon, 30 Nov 2026 12:01:30 GMT")
	f.Add("99999999999999999999999")
	f.Fuzz(func(t *testing.T, value string) {
		wait, ok := fetch.RetryAfter(http.Header{"Retry-After": {value}}, time.Unix(1_796_040_000, 0))
		if wait < 0 || wait > 365*24*time.Hour || (!ok && wait != 0) {
			t.Errorf("%q: %v, %v", value, wait, ok)
		}
	})
}
