package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"countersign/internal/strictjson"
)

// maxParameters bounds a form. No request of the protocol has twenty.
const maxParameters = 64

// ReadJSON reads a body of type application/json, at most maxBytes long. The error is an [*Error]. Decode the bytes with
// strictjson.
func ReadJSON(w http.ResponseWriter, r *http.Request, maxBytes int64) ([]byte, error) {
	return readBody(w, r, "application/json", maxBytes)
}

// ReadForm reads a body of type application/x-www-form-urlencoded, at most maxBytes long and of at most 64 parameters; the
// query is not mixed in. A repeated parameter has more than one value. The error is an [*Error].
func ReadForm(w http.ResponseWriter, r *http.Request, maxBytes int64) (url.Values, error) {
	body, err := readBody(w, r, "application/x-www-form-urlencoded", maxBytes)
	if err != nil {
		return nil, err
	}
	if strings.Count(string(body), "&") >= maxParameters {
		return nil, InvalidRequest(errors.New("form has too many parameters"))
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, InvalidRequest(errors.New("form has an invalid escape or separator")) // the parser's error repeats it
	}
	for name, values := range form {
		if !utf8.ValidString(name) || !utf8.ValidString(strings.Join(values, "&")) {
			return nil, InvalidRequest(errors.New("form is not UTF-8"))
		}
	}
	return form, nil
}

// readBody checks what the body is said to be before it reads any of it.
func readBody(w http.ResponseWriter, r *http.Request, mediaType string, maxBytes int64) ([]byte, error) {
	if !isOfType(r.Header, mediaType) || r.Header.Get("Content-Encoding") != "" {
		return nil, UnsupportedMediaType()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, TooLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, RequestTimeout()
	}
	if err != nil {
		return nil, InvalidRequest(err)
	}
	return body, nil
}

// isOfType reports whether there is one Content-Type, of mediaType, in UTF-8 if it says so.
func isOfType(header http.Header, mediaType string) bool {
	if len(header.Values("Content-Type")) != 1 {
		return false
	}
	found, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || found != mediaType {
		return false
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// WriteJSON writes v with a status. The error means that v cannot be written as JSON and nothing was sent; a client that has
// gone away is not an error. Return it from a handler.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, err := strictjson.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store") // as a rule it is about one party alone
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
	return nil
}
