package web_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"countersign/internal/web"

	"github.com/google/go-cmp/cmp"
)

// journal collects what is logged.
type journal struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.text.Write(p)
}

func (j *journal) lines(containing string) []string {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	var found []string
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, containing) {
			found = append(found, line)
		}
	}
	return found
}

// surface serves a mux, whose log it returns.
func surface(t *testing.T, options web.MuxOptions, routes func(*web.Mux)) (*httptest.Server, *journal) {
	t.Helper()
	logged := new(journal)
	options.Log = slog.New(slog.NewTextHandler(logged, nil))
	mux := web.NewMux(options)
	routes(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server, logged
}

// answer is what matters of a response.
type answer struct {
	Status int
	Header map[string]string
	Body   string
}

func ask(t *testing.T, client *http.Client, request *http.Request, headers ...string) answer {
	t.Helper()
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := answer{response.StatusCode, map[string]string{}, string(body)}
	for _, name := range headers {
		got.Header[name] = response.Header.Get(name)
	}
	return got
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestUnknownPathsAndMethodsAreAnsweredInJSON(t *testing.T) {
	t.Parallel()
	server, _ := surface(t, web.MuxOptions{}, func(mux *web.Mux) {
		mux.Handle("GET /document", func(w http.ResponseWriter, _ *http.Request) error {
			return web.WriteJSON(w, http.StatusOK, map[string]string{"name": "Outdoor"})
		})
		mux.Handle("POST /document", func(w http.ResponseWriter, _ *http.Request) error {
			return web.WriteJSON(w, http.StatusCreated, struct{}{})
		})
		mux.Mount("GET /page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>") }))
	})
	const json, none = "application/json", ""
	headers := []string{"Content-Type", "X-Content-Type-Options", "Allow"}
	for request, want := range map[string]answer{
		"GET /document":     {200, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": none}, `{"name":"Outdoor"}`},
		"HEAD /document":    {200, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": none}, ""},
		"POST /document":    {201, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": none}, `{}`},
		"DELETE /document":  {405, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": "GET, HEAD, POST"}, `{"error":"method_not_allowed"}`},
		"OPTIONS /document": {204, map[string]string{"Content-Type": none, "X-Content-Type-Options": none, "Allow": "GET, HEAD, POST, OPTIONS"}, ""},
		"GET /nowhere":      {404, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": none}, `{"error":"not_found"}`},
		"HEAD /nowhere":     {404, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": none}, ""},
		"OPTIONS /nowhere":  {404, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": none}, `{"error":"not_found"}`},
		"GET /document/":    {404, map[string]string{"Content-Type": json, "X-Content-Type-Options": "nosniff", "Allow": none}, `{"error":"not_found"}`},
		"GET /page":         {200, map[string]string{"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": none, "Allow": none}, "<p>"},
	} {
		method, path, _ := strings.Cut(request, " ")
		got := ask(t, server.Client(), newRequest(t, method, server.URL+path, nil), headers...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", request, diff)
		}
	}
}

func TestErrorOfAHandlerBecomesItsAnswer(t *testing.T) {
	t.Parallel()
	cause := errors.New("SECRET: no such table")
	for name, test := range map[string]struct {
		err   error
		want  answer
		level string // of the log line, "" for none
	}{
		"refused":          {&web.Error{Status: 403, Code: "account_mismatch"}, answer{403, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, `{"error":"account_mismatch"}`}, ""},
		"with a header":    {&web.Error{Status: 401, Code: "invalid_token", Header: http.Header{"Www-Authenticate": {"DPoP"}, "Cache-Control": {"private"}}}, answer{401, map[string]string{"Www-Authenticate": "DPoP", "Cache-Control": "private"}, `{"error":"invalid_token"}`}, ""},
		"with a body":      {&web.Error{Status: 403, Code: "extension_required", Body: map[string]string{"error": "extension_required", "extension": "operations"}}, answer{403, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, `{"error":"extension_required","extension":"operations"}`}, ""},
		"wrapped":          {fmt.Errorf("reading: %w", web.TooLarge()), answer{413, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, `{"error":"request_too_large"}`}, ""},
		"with a cause":     {web.InvalidRequest(cause), answer{400, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, `{"error":"invalid_request"}`}, "INFO"},
		"media type":       {web.UnsupportedMediaType(), answer{415, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, `{"error":"unsupported_media_type"}`}, ""},
		"unknown":          {cause, answer{500, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, `{"error":"server_error"}`}, "ERROR"},
		"unwritable":       {&web.Error{Status: 403, Code: "x", Body: func() {}}, answer{500, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, ""}, "ERROR"},
		"unwritable value": {web.WriteJSON(httptest.NewRecorder(), 200, func() {}), answer{500, map[string]string{"Www-Authenticate": "", "Cache-Control": "no-store"}, `{"error":"server_error"}`}, "ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, logged := surface(t, web.MuxOptions{}, func(mux *web.Mux) {
				mux.Handle("GET /{$}", func(http.ResponseWriter, *http.Request) error { return test.err })
			})
			got := ask(t, server.Client(), newRequest(t, "GET", server.URL, nil), "Www-Authenticate", "Cache-Control")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			server.Close() // waits for the log
			lines := append(logged.lines("request refused"), logged.lines("error without a body")...)
			if test.level == "" && len(lines) != 0 || test.level != "" && (len(lines) != 1 || !strings.Contains(lines[0], "level="+test.level) || !strings.Contains(lines[0], "request_id=req_")) {
				t.Errorf("logged %q, want one line of level %q", lines, test.level)
			}
		})
	}
}

func TestSurfaceHasItsOwnFormOfErrors(t *testing.T) {
	t.Parallel()
	server, _ := surface(t, web.MuxOptions{ErrorBody: func(e *web.Error) any {
		return map[string]any{"error": map[string]string{"code": e.Code}}
	}}, func(mux *web.Mux) {
		mux.Handle("GET /panic", func(http.ResponseWriter, *http.Request) error { panic("on purpose") })
	})
	for path, want := range map[string]string{"/": `{"error":{"code":"not_found"}}`, "/panic": `{"error":{"code":"server_error"}}`} {
		if got := ask(t, server.Client(), newRequest(t, "GET", server.URL+path, nil)).Body; got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestPanicIsAnsweredAndLoggedOnceWithItsStack(t *testing.T) {
	t.Parallel()
	server, logged := surface(t, web.MuxOptions{}, func(mux *web.Mux) {
		mux.Handle("GET /before", func(http.ResponseWriter, *http.Request) error { panic("on purpose") })
		mux.Handle("GET /after", func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic("on purpose")
		})
		mux.Handle("GET /flushed", func(w http.ResponseWriter, _ *http.Request) error {
			_ = http.NewResponseController(w).Flush()
			panic("on purpose")
		})
		mux.Handle("GET /error", func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "half")
			return errors.New("too late to answer")
		})
		mux.Handle("GET /abort", func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) })
	})
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(logged, nil), slog.LevelError)

	got := ask(t, server.Client(), newRequest(t, "GET", server.URL+"/before", nil), "Content-Type")
	want := answer{500, map[string]string{"Content-Type": "application/json"}, `{"error":"server_error"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"/after", "/flushed", "/error", "/abort"} {
		response, err := server.Client().Do(newRequest(t, "GET", server.URL+path, nil))
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: the client took half an answer for a whole one", path)
		}
	}
	server.Close()
	if lines := logged.lines("too late to answer"); len(lines) != 1 {
		t.Errorf("%d log lines for an error after the answer had begun: %q", len(lines), lines)
	}
	lines := logged.lines("on purpose")
	if len(lines) != 3 {
		t.Errorf("%d log lines, want one for each of three panics: %q", len(lines), lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, "mux_test.go") {
			t.Errorf("no stack in %q", line)
		}
	}
	if len(logged.lines("msg=request ")) != 5 {
		t.Errorf("access log: %q", logged.lines("msg=request "))
	}
}

func TestAccessLogHasNoSecrets(t *testing.T) {
	t.Parallel()
	server, logged := surface(t, web.MuxOptions{}, func(mux *web.Mux) {
		mux.Handle("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("X-Seen", web.RequestID(r.Context()))
			return web.WriteJSON(w, http.StatusCreated, "0123456789")
		})
	})
	request := newRequest(t, "POST", server.URL+"/orders/7?code=SECRET", strings.NewReader("SECRET"))
	for _, name := range []string{"Authorization", "DPoP", "Cookie", "Referer", "X-Api-Key", "X-Request-Id"} {
		request.Header.Set(name, "SECRET")
	}
	got := ask(t, server.Client(), request, "X-Request-Id", "X-Seen")
	server.Close()
	lines := logged.lines("")
	if len(lines) != 1 {
		t.Fatalf("log is %q, want one line", lines)
	}
	if strings.Contains(lines[0], "SECRET") {
		t.Errorf("a secret is in %q", lines[0])
	}
	requestID := got.Header["X-Request-Id"]
	for _, want := range []string{"method=POST", "path=/orders/7 ", "status=201", "bytes=12", "duration=", "request_id=" + requestID} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q is not in %q", want, lines[0])
		}
	}
	if !strings.HasPrefix(requestID, "req_") || requestID != got.Header["X-Seen"] {
		t.Errorf("client was told %q, handler %q", requestID, got.Header["X-Seen"])
	}
}
