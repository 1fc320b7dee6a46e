package web_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"countersign/internal/web"

	"github.com/google/go-cmp/cmp"
)

// post returns a request with a body and pairs of headers.
func post(target, body string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func code(err error) string {
	if refused, ok := errors.AsType[*web.Error](err); ok {
		return refused.Code
	}
	return ""
}

func TestReadJSON(t *testing.T) {
	t.Parallel()
	const kind = "Content-Type"
	for name, test := range map[string]struct {
		request *http.Request
		want    string
		code    string
	}{
		"plain":                {post("/", `{"a":1}`, kind, "application/json"), `{"a":1}`, ""},
		"charset":              {post("/", `{}`, kind, "application/json; charset=UTF-8"), `{}`, ""},
		"charset quoted":       {post("/", `{}`, kind, `Application/JSON;charset="utf-8"`), `{}`, ""},
		"just small enough":    {post("/", strings.Repeat("1", 100), kind, "application/json"), strings.Repeat("1", 100), ""},
		"empty":                {post("/", "", kind, "application/json"), "", ""},
		"too large":            {post("/", strings.Repeat("1", 101), kind, "application/json"), "", "request_too_large"},
		"no type":              {post("/", `{}`), "", "unsupported_media_type"},
		"two types":            {post("/", `{}`, kind, "application/json", kind, "text/plain"), "", "unsupported_media_type"},
		"another type":         {post("/", `{}`, kind, "text/plain"), "", "unsupported_media_type"},
		"a form":               {post("/", `{}`, kind, "application/x-www-form-urlencoded"), "", "unsupported_media_type"},
		"a relative":           {post("/", `{}`, kind, "application/problem+json"), "", "unsupported_media_type"},
		"another charset":      {post("/", `{}`, kind, "application/json; charset=iso-8859-1"), "", "unsupported_media_type"},
		"another parameter":    {post("/", `{}`, kind, "application/json; profile=x"), "", "unsupported_media_type"},
		"unreadable type":      {post("/", `{}`, kind, "application/json; charset"), "", "unsupported_media_type"},
		"compressed":           {post("/", `{}`, kind, "application/json", "Content-Encoding", "gzip"), "", "unsupported_media_type"},
		"type before its size": {post("/", strings.Repeat("1", 101), kind, "text/plain"), "", "unsupported_media_type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := web.ReadJSON(httptest.NewRecorder(), test.request, 100)
			if string(got) != test.want || code(err) != test.code || (test.code == "") != (err == nil) {
				t.Errorf("got %q, %v, want %q, %q", got, err, test.want, test.code)
			}
		})
	}
}

// A body without an announced length is counted while it is read.
func TestReadJSONBoundsAChunkedBody(t *testing.T) {
	t.Parallel()
	r := post("/", "", "Content-Type", "application/json")
	r.ContentLength = -1
	body := &endless{}
	r.Body = body
	if got, err := web.ReadJSON(httptest.NewRecorder(), r, 100); got != nil || code(err) != "request_too_large" {
		t.Errorf("got %q, %v", got, err)
	}
	if body.read > 10_000 {
		t.Errorf("%d bytes were read to find that there are more than 100", body.read)
	}
}

type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	copy(p, bytes.Repeat([]byte("1"), len(p)))
	return len(p), nil
}

func (e *endless) Close() error { return nil }

func TestReadForm(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		form url.Values
		code string
	}{
		"grant_type=refresh_token&client_id=https%3A%2F%2Fagent.example%2Fagent.json": {
			url.Values{"grant_type": {"refresh_token"}, "client_id": {"https://agent.example/agent.json"}}, "",
		},
		"a=1&a=2&b=":                       {url.Values{"a": {"1", "2"}, "b": {""}}, ""},
		"a=x+y":                            {url.Values{"a": {"x y"}}, ""},
		"":                                 {url.Values{}, ""},
		"a=%zz":                            {nil, "invalid_request"},
		"a=%4":                             {nil, "invalid_request"},
		"%zz=a":                            {nil, "invalid_request"},
		"a=1;b=2":                          {nil, "invalid_request"},
		"a=%ff":                            {nil, "invalid_request"},
		"%ff=a":                            {nil, "invalid_request"},
		strings.Repeat("a=1&", 63) + "a=1": {url.Values{"a": strings.Fields(strings.Repeat("1 ", 64))}, ""},
		strings.Repeat("a=1&", 64) + "a=1": {nil, "invalid_request"},
		strings.Repeat("&", 64):            {nil, "invalid_request"},
		"a=" + strings.Repeat("1", 300):    {nil, "request_too_large"},
	} {
		r := post("/?a=query&c=query", body, "Content-Type", "application/x-www-form-urlencoded")
		got, err := web.ReadForm(httptest.NewRecorder(), r, 300)
		if diff := cmp.Diff(want.form, got); diff != "" || code(err) != want.code || (want.code == "") != (err == nil) {
			t.Errorf("%q: %v, want %q %s", body, err, want.code, diff)
		}
	}
	for name, r := range map[string]*http.Request{
		"JSON":      post("/", "a=1", "Content-Type", "application/json"),
		"multipart": post("/", "a=1", "Content-Type", "multipart/form-data; boundary=x"),
		"no type":   post("/?a=1", "a=1"),
	} {
		if got, err := web.ReadForm(httptest.NewRecorder(), r, 300); got != nil || code(err) != "unsupported_media_type" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func FuzzReadForm(f *testing.F) {
	for _, body := range []string{"a=1&a=2&b=", "a=%zz", "a=1;b", "%ff", "a=%00", "&&&", "=", "a+b=c%26d"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := post("/?query=1", body, "Content-Type", "application/x-www-form-urlencoded")
		form, err := web.ReadForm(httptest.NewRecorder(), r, 1000)
		if err != nil {
			if form != nil || code(err) == "" {
				t.Errorf("%q: %v with %v", body, form, err)
			}
			return
		}
		if form.Has("query") && !strings.Contains(body, "q") && !strings.Contains(body, "%") {
			t.Errorf("%q: the query is in the form", body)
		}
		again, err := web.ReadForm(httptest.NewRecorder(), post("/", form.Encode(), "Content-Type", "application/x-www-form-urlencoded"), 1<<20)
		if err != nil || !cmp.Equal(form, again) {
			t.Errorf("%q is %v, and written again %v, %v", body, form, again, err)
		}
		for name, values := range form {
			if !utf8.ValidString(name + strings.Join(values, "")) {
				t.Errorf("%q: %v is not UTF-8", body, form)
			}
		}
	})
}
