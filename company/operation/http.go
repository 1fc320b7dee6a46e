package operation

import (
	"errors"
	"net/http"

	"countersign/company/guard"
	"countersign/internal/web"
	"countersign/poppy"
)

// Mount routes the operations endpoint: GET {place}/{id} (Operations 6), POST {place}/{id}/confirm (5.2) and POST
// {place}/{id}/cancel (7). place is its path, with its host before it if the mux serves several, such as
// api.outdoor.example/poppy/operations. protect puts a handler behind the guard.
func (s *Service) Mount(mux *web.Mux, place string, protect func(guard.Handler) guard.Handler) {
	mux.Handle("GET "+place+"/{id}", protect(asked(s.serveGet)))
	mux.Handle("POST "+place+"/{id}/"+poppy.PathConfirm, protect(asked(s.serveConfirm)))
	mux.Handle("POST "+place+"/{id}/"+poppy.PathCancel, protect(asked(s.serveCancel)))
}

// asked tells a handler who is asking.
func asked(next func(http.ResponseWriter, *http.Request, guard.Principal) error) guard.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		by, ok := guard.PrincipalFrom(r.Context())
		if !ok {
			return errors.New("the operations endpoint is not behind a guard")
		}
		return next(w, r, by)
	}
}

func (s *Service) serveGet(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	operation, err := s.Get(r.Context(), by, r.PathValue("id"))
	return respond(w, operation, err)
}

func (s *Service) serveConfirm(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	body, err := web.ReadJSON(w, r, poppy.MaxReportBytes)
	if err != nil {
		return err
	}
	request, err := poppy.ParseConfirm(body)
	if err != nil {
		return &poppy.Error{Code: poppy.ErrInvalidRequest, Cause: err}
	}
	operation, err := s.Confirm(r.Context(), by, r.PathValue("id"), request)
	return respond(w, operation, err)
}

// serveCancel does not look at the body: the extension gives it none.
func (s *Service) serveCancel(w http.ResponseWriter, r *http.Request, by guard.Principal) error {
	operation, err := s.Cancel(r.Context(), by, r.PathValue("id"))
	return respond(w, operation, err)
}

// respond writes the operation as it is, with Retry-After while it is in progress (Operations 6).
func respond(w http.ResponseWriter, t Tracked, err error) error {
	if err != nil {
		return err
	}
	if t.RetryAfter > 0 {
		w.Header().Set("Retry-After", poppy.FormatRetryAfter(t.RetryAfter))
	}
	return web.WriteJSON(w, http.StatusOK, t.Operation)
}
