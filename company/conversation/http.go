package conversation

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"countersign/company/guard"
	"countersign/internal/strictjson"
	"countersign/internal/web"
	"countersign/poppy"
)

// Mount routes the endpoint of conversations (7.2). place is its path, with its host before it if the mux serves several, such
// as api.outdoor.example/poppy/conversations. protect puts a handler behind the guard.
func (s *Service) Mount(mux *web.Mux, place string, protect func(guard.Handler) guard.Handler) {
	mux.Handle("POST "+place, protect(asked(s.serveStart)))
	mux.Handle("POST "+place+"/{id}/"+poppy.PathMessages, protect(asked(s.serveSend)))
	mux.Handle("GET "+place+"/{id}/"+poppy.PathEvents, protect(asked(s.serveEvents)))
	mux.Handle("POST "+place+"/{id}/"+poppy.PathHandoff, protect(asked(s.serveHandoff)))
	mux.Handle("POST "+place+"/{id}/"+poppy.PathClose, protect(asked(s.serveClose)))
}

// asked tells a handler who is asking.
func asked(next func(http.ResponseWriter, *http.Request, guard.Principal) error) guard.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		by, ok := guard.PrincipalFrom(r.Context())
		if !ok {
			return errors.New("the endpoint of conversations is not behind a guard")
		}
		return next(w, r, by)
	}
}

func (s *Service) serveStart(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	query, err := parseQuery(r)
	if err != nil {
		return invalid(err)
	}
	body, err := web.ReadJSON(w, r, poppy.MaxMessageBytes)
	if err != nil {
		return err
	}
	request, err := poppy.ParseStartRequest(body)
	if err != nil {
		return invalid(err)
	}
	accepted, err := s.start(r.Context(), by, request)
	if err != nil {
		return err
	}
	return s.serveAccepted(w, r, by, http.StatusCreated, accepted, query)
}

func (s *Service) serveSend(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	query, err := parseQuery(r)
	if err != nil {
		return invalid(err)
	}
	body, err := web.ReadJSON(w, r, poppy.MaxMessageBytes)
	if err != nil {
		return err
	}
	request, err := poppy.ParseSendRequest(body)
	if err != nil {
		return invalid(err)
	}
	accepted, err := s.send(r.Context(), by, r.PathValue("id"), request)
	if err != nil {
		return err
	}
	return s.serveAccepted(w, r, by, http.StatusAccepted, accepted, query)
}

// serveAccepted answers a message: shortly, or as a read if wait asks for the reply (7.3).
func (s *Service) serveAccepted(w http.ResponseWriter, r *http.Request, by guard.Principal, status int, a accepted, q query) error {
	if !q.waits {
		return web.WriteJSON(w, status, a.Accepted)
	}
	page, err := s.readReply(r.Context(), by, a, q.cursor, q.wait)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, status, page)
}

// serveEvents answers in JSON, also a request for a stream (7.6).
func (s *Service) serveEvents(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	query, err := parseQuery(r)
	if err != nil {
		return invalid(err)
	}
	if last := r.Header.Get(poppy.HeaderLastEvent); last != "" {
		query.cursor = last // an SSE client repeats the URL that it began with, so the header is the newer of the two (7.6)
	}
	page, err := s.Read(r.Context(), by, r.PathValue("id"), query.cursor, query.wait)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, page)
}

func (s *Service) serveHandoff(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	if err := readNothing(w, r); err != nil {
		return err
	}
	accepted, err := s.Handoff(r.Context(), by, r.PathValue("id"))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusAccepted, accepted)
}

func (s *Service) serveClose(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	if err := readNothing(w, r); err != nil {
		return err
	}
	accepted, err := s.Close(r.Context(), by, r.PathValue("id"))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, accepted)
}

// readNothing reads a body that says nothing: none, or an object whatever its members (7.9, 7.12).
func readNothing(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	body, err := web.ReadJSON(w, r, poppy.MaxMetadataBytes)
	if err != nil || len(body) == 0 { // chunks can turn out to be none
		return err
	}
	var members map[string]strictjson.Raw
	if err := strictjson.Unmarshal(body, &members); err != nil {
		return invalid(err)
	}
	if members == nil {
		return invalid(errors.New("the body is null"))
	}
	return nil
}

// query is what a request asks of the events (7.5).
type query struct {
	cursor string // "" for the beginning
	wait   time.Duration
	waits  bool // wait was given
}

// parseQuery reads cursor and wait. Other parameters are ignored (3.3).
func parseQuery(r *http.Request) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{}, errors.New("the query is malformed")
	}
	if len(values[poppy.QueryCursor]) > 1 || len(values[poppy.QueryWait]) > 1 {
		return query{}, errors.New("cursor and wait can be given once")
	}
	q := query{cursor: values.Get(poppy.QueryCursor), waits: values.Has(poppy.QueryWait)}
	if q.waits {
		q.wait, err = parseWait(values.Get(poppy.QueryWait))
	}
	return q, err
}

// parseWait reads a whole number of seconds, 0 or more. One that is too large for anything is held as long as any (7.5).
func parseWait(text string) (time.Duration, error) {
	const longest = 1_000_000
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, errors.New("wait must be a whole number of seconds")
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		seconds = longest // digits alone are only ever too many
	}
	return time.Duration(min(seconds, longest)) * time.Second, nil
}
