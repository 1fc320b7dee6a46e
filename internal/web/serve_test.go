package web_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"countersign/internal/localca"
	"countersign/internal/web"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server that the test stops.
type running struct {
	address string
	stop    context.CancelFunc
	ended   chan error
}

func start(t *testing.T, options web.Options) *running {
	t.Helper()
	if options.Listener == nil {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		options.Listener = listener
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &running{options.Listener.Addr().String(), stop, make(chan error, 1)}
	go func() { s.ended <- web.Serve(ctx, options) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-s.ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("the server did not end")
		}
	})
	return s
}

// end stops the server and waits for it.
func (s *running) end(t *testing.T) error {
	t.Helper()
	s.stop()
	select {
	case err := <-s.ended:
		s.ended <- err
		return err
	case <-time.After(5 * time.Second):
		t.Fatal("the server did not end")
		return nil
	}
}

// startTLS starts a server and returns a client for each version of HTTP.
func startTLS(t *testing.T, options web.Options) (*running, map[string]*http.Client) {
	t.Helper()
	ca, err := localca.Create(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Issue("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	options.Certificate = &certificate
	s := start(t, options)
	clients := make(map[string]*http.Client)
	for version, http2 := range map[string]bool{"HTTP/2.0": true, "HTTP/1.1": false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: http2}
		t.Cleanup(transport.CloseIdleConnections)
		clients[version] = &http.Client{Transport: transport}
	}
	return s, clients
}

func TestServeAnswersOverTLSAndHTTP2(t *testing.T) {
	t.Parallel()
	s, clients := startTLS(t, web.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	})})
	for version, client := range clients {
		if got := ask(t, client, newRequest(t, "GET", "https://"+s.address, nil)); got.Body != version {
			t.Errorf("got %s, want %s", got.Body, version)
		}
	}
	if _, err := tls.Dial("tcp", s.address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil { //nolint:gosec // old on purpose
		t.Error("TLS 1.1 was accepted")
	}
	if err := s.end(t); err != nil {
		t.Error(err)
	}
}

// slowBody sends the first byte of a body and then nothing.
func slowBody(t *testing.T) io.Reader {
	t.Helper()
	reader, writer := io.Pipe()
	go func() { _, _ = writer.Write([]byte("{")) }()
	t.Cleanup(func() { _ = reader.Close() })
	return reader
}

func TestBodyThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	mux := web.NewMux(web.MuxOptions{Log: slog.New(slog.DiscardHandler)})
	mux.Handle("POST /read", func(w http.ResponseWriter, r *http.Request) error {
		_, err := web.ReadJSON(w, r, 100)
		return err
	})
	mux.Handle("POST /unread", func(http.ResponseWriter, *http.Request) error { return web.UnsupportedMediaType() })
	s, clients := startTLS(t, web.Options{BodyTimeout: 200 * time.Millisecond, Handler: mux})
	for version, client := range clients {
		for path, want := range map[string]string{
			"/read": `{"error":"request_timeout"}`, "/unread": `{"error":"unsupported_media_type"}`, "/nowhere": `{"error":"not_found"}`,
		} {
			request := newRequest(t, "POST", "https://"+s.address+path, slowBody(t))
			request.Header.Set("Content-Type", "application/json")
			began := time.Now()
			if got := ask(t, client, request); got.Body != want || time.Since(began) > 3*time.Second {
				t.Errorf("%s, %s: got %s after %v, want %s", version, path, got.Body, time.Since(began), want)
			}
		}
	}
}

func TestHandlerMayTakeLongerThanItsBodyDid(t *testing.T) {
	t.Parallel()
	mux := web.NewMux(web.MuxOptions{Log: slog.New(slog.DiscardHandler)})
	mux.Handle("POST /{$}", func(w http.ResponseWriter, r *http.Request) error {
		if _, err := web.ReadJSON(w, r, 100); err != nil {
			return err
		}
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(400 * time.Millisecond):
			return web.WriteJSON(w, http.StatusOK, "waited")
		}
	})
	s, clients := startTLS(t, web.Options{HeaderTimeout: 100 * time.Millisecond, BodyTimeout: 100 * time.Millisecond, Handler: mux})
	for version, client := range clients {
		for range 2 { // the second on the same connection, whose deadline must be gone too
			request := newRequest(t, "POST", "https://"+s.address, strings.NewReader("{}"))
			request.Header.Set("Content-Type", "application/json")
			if got := ask(t, client, request); got.Body != `"waited"` {
				t.Errorf("%s: got %d %s", version, got.Status, got.Body)
			}
		}
	}
}

// send sends a request on a connection of its own and returns what is read until that closes.
func send(t *testing.T, address, request string) (answer chan string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	answer = make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(conn)
		answer <- string(data)
	}()
	return answer
}

const plainGet = "GET / HTTP/1.1\r\nHost: outdoor.example\r\nConnection: close\r\n\r\n"

func TestRunningRequestEndsBeforeTheServerDoes(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	s := start(t, web.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		if r.Context().Err() != nil {
			t.Error("the request was cancelled within its grace time")
		}
		_, _ = io.WriteString(w, "whole")
	})})
	answer := send(t, s.address, plainGet)
	<-arrived
	s.stop()
	select {
	case err := <-s.ended:
		t.Fatalf("the server ended before the request: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if conn, err := net.Dial("tcp", s.address); err == nil {
		_ = conn.Close()
		t.Error("a stopping server accepts connections")
	}
	close(release)
	if got := <-answer; !strings.HasSuffix(got, "whole") {
		t.Errorf("got %q", got)
	}
	if err := s.end(t); err != nil {
		t.Error(err)
	}
}

func TestWhoHoldsARequestOpenLearnsThatTheServerStops(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	s := start(t, web.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		select {
		case <-web.Stopping(r.Context()):
			_, _ = io.WriteString(w, "nothing new")
		case <-r.Context().Done():
		}
	})})
	answer := send(t, s.address, plainGet)
	<-arrived
	if err := s.end(t); err != nil {
		t.Error(err)
	}
	if got := <-answer; !strings.HasSuffix(got, "nothing new") {
		t.Errorf("got %q", got)
	}
	if web.Stopping(t.Context()) != nil {
		t.Error("there is something to wait for outside a server")
	}
}

func TestRequestThatOutlastsTheGraceTimeIsCutOffAndWaitedFor(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	handlerEnded := make(chan struct{})
	s := start(t, web.Options{Grace: 50 * time.Millisecond, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		time.Sleep(50 * time.Millisecond)
		close(handlerEnded)
	})})
	// The body does not come, so the handler would not learn that the connection is closed.
	answer := send(t, s.address, "POST / HTTP/1.1\r\nHost: outdoor.example\r\nContent-Length: 10\r\n\r\n")
	<-arrived
	if err := s.end(t); err != nil {
		t.Error(err)
	}
	select {
	case <-handlerEnded:
	default:
		t.Error("the server ended before its handler")
	}
	if got := <-answer; got != "" {
		t.Errorf("got %q", got)
	}
}

func TestListenerThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	err = web.Serve(t.Context(), web.Options{Listener: listener, Handler: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func TestHeadersAreBoundedInTimeAndSize(t *testing.T) {
	t.Parallel()
	s := start(t, web.Options{
		HeaderTimeout: 100 * time.Millisecond,
		Handler:       http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was reached") }),
	})
	for name, test := range map[string]struct{ sent, want string }{
		"slow":  {"GET / HTTP/1.1\r\nHost: outdoor.example\r\n", ""},
		"large": {"GET / HTTP/1.1\r\nHost: outdoor.example\r\nX: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
	} {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, test.sent); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if !strings.HasPrefix(line, test.want) || (test.want == "" && !errors.Is(err, io.EOF)) {
			t.Errorf("%s: got %q, %v", name, line, err)
		}
		_ = conn.Close()
	}
}
