package company

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"countersign/company/discovery"
	"countersign/company/guard"
	"countersign/internal/web"
	"countersign/poppy"
)

// Handler serves Companies, each at the hosts and paths of its own URLs; a proxy in front must keep the Host header. Two that
// claim the same URL are an error that names both.
func Handler(log *slog.Logger, companies ...*Company) (http.Handler, error) {
	mux := web.NewMux(web.MuxOptions{Log: log})
	taken := claims{places: make(map[string]claim), above: make(map[string]claim)}
	for _, c := range companies {
		for _, e := range c.endpoints {
			if err := taken.add(claim{c.issuer, e}); err != nil {
				return nil, err
			}
			e.mount(mux, e.place)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isClean(r.URL.Path) { // the mux would redirect it, which no request with a token or proof may meet (3)
			_ = web.WriteJSON(w, http.StatusNotFound, map[string]string{"error": "not_found"})
			return
		}
		r.Host = strings.ToLower(r.Host) // host names have no case, patterns do
		mux.ServeHTTP(w, r)
	}), nil
}

// isClean tells whether a path has no empty segments and none that is . or .. in it.
func isClean(text string) bool {
	return path.Clean(text) == text || path.Clean(text)+"/" == text
}

// endpoint is a URL that a Company serves.
type endpoint struct {
	what  string // for people: the field of the configuration
	url   string
	below bool   // with everything below it
	place string // host in lower case, without port, and path, as the mux's patterns have them
	mount func(mux *web.Mux, place string)
}

// serve lists what the Company serves.
func (c *Company) serve(config Config, documents map[string]discovery.Handler) error {
	c.endpoints = []endpoint{
		{what: "token_endpoint", url: config.TokenEndpoint, mount: func(mux *web.Mux, place string) {
			mux.Handle("POST "+place, c.Sessions.ServeToken)
		}},
		{what: "revocation_endpoint", url: config.RevocationEndpoint, mount: func(mux *web.Mux, place string) {
			mux.Handle("POST "+place, c.Sessions.ServeRevocation)
		}},
	}
	if c.conversations != nil {
		c.endpoints = append(c.endpoints, endpoint{
			what: "conversations.url", url: config.Conversations.URL, below: true, mount: func(mux *web.Mux, place string) {
				c.conversations.Mount(mux, place, c.protect(config.Conversations))
			},
		})
	}
	if c.operations != nil {
		c.endpoints = append(c.endpoints, endpoint{
			what: "operations.url", url: config.Operations.URL, below: true, mount: func(mux *web.Mux, place string) {
				c.operations.Mount(mux, place, c.protect(config.Operations))
			},
		})
	}
	for url, handler := range documents {
		c.endpoints = append(c.endpoints, endpoint{what: "document", url: url, mount: func(mux *web.Mux, place string) {
			if strings.HasSuffix(place, "/") {
				place += "{$}" // this path alone
			}
			mux.Handle("GET "+place, handler)
		}})
	}
	for i, e := range c.endpoints {
		u, err := poppy.ParseURL(e.url)
		if err != nil {
			return fmt.Errorf("%s %w", e.what, err)
		}
		c.endpoints[i].place = strings.ToLower(u.Hostname()) + u.Path
	}
	return nil
}

// protect puts handlers of an endpoint behind the guard.
func (c *Company) protect(e Endpoint) func(guard.Handler) guard.Handler {
	return func(next guard.Handler) guard.Handler {
		return c.Guard.Protect(guard.Endpoint{
			Surface: poppy.SurfaceProtocol, Origin: origin(e.URL), Resource: e.Resource,
		}, next)
	}
}

// origin cuts a valid URL behind its host.
func origin(location string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(location, "https://"), "/")
	return "https://" + host
}

// claim is an endpoint and whose it is.
type claim struct {
	issuer string
	endpoint
}

// claims finds endpoints that would get each other's requests.
type claims struct {
	places map[string]claim
	above  map[string]claim // a path above some claim -> that claim
}

func (s *claims) add(c claim) error {
	other, conflict := s.places[c.place]
	if inside, ok := s.above[c.place]; ok && c.below {
		other, conflict = inside, true
	}
	for end := strings.LastIndexByte(c.place, '/'); end > 0; end = strings.LastIndexByte(c.place[:end], '/') {
		if around, ok := s.places[c.place[:end]]; ok && around.below {
			other, conflict = around, true
		}
		s.above[c.place[:end]] = c
	}
	if conflict {
		return fmt.Errorf("%s of the Company %s and %s of the Company %s overlap, at https://%s: give one of them another URL",
			c.what, c.issuer, other.what, other.issuer, c.place)
	}
	s.places[c.place] = c
	return nil
}
