// Package fetch is the one HTTP client for URLs that the other party gave.
//
// Such a URL is used only over HTTPS and only at public addresses: the address is checked when it is connected to, so after
// name resolution, for every redirect and every retry (protocol 3, "Redirects and addresses"). Exceptions are named in
// [Options]. [Client.Get] is for documents, [Client.Do] and [Client.Transport] are for requests that carry secrets and
// therefore never follow a redirect; [Cache] keeps documents as their HTTP caching headers say.
package fetch

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Options configures a [Client]. The zero value is safe.
type Options struct {
	// Resolve sends single hosts to other addresses. Naming a host here is what allows its address to be private.
	Resolve []Mapping
	// Allow lists networks that may be connected to although they are not public. None by default.
	Allow []netip.Prefix
	// Authorities replaces the system's certificate authorities. Start from x509.SystemCertPool to trust both.
	Authorities *x509.CertPool
	// Resolver looks names up; nil is the system's.
	Resolver *net.Resolver
	// ConnectTimeout bounds the TCP connection and the TLS handshake, each; 5 s by default.
	ConnectTimeout time.Duration
	// IdleTimeout bounds the silence before the next part of a body; 5 s by default.
	IdleTimeout time.Duration
	// Timeout bounds a whole exchange, redirects included, where a call names no other; 10 s by default.
	Timeout time.Duration
	// Now is the clock for Retry-After dates; time.Now by default.
	Now func() time.Time
}

// Client fetches. Its methods may be called concurrently.
type Client struct{}

// New returns a client. It uses no proxy, since a proxy would resolve names itself.
func New(options Options) *Client { return &Client{} }

// Close closes the connections that are kept for later requests.
func (c *Client) Close() {}

// GetOptions says how one document is fetched.
type GetOptions struct {
	MaxBytes     int64         // longest body; 64 KiB by default
	MaxRedirects int           // how many redirects are followed, each to an HTTPS URL; none by default
	Timeout      time.Duration // whole exchange; [Options.Timeout] by default
	Accept       string        // Accept header; application/json by default

	IfNoneMatch     string // ETag of a known copy, "" for none
	IfModifiedSince string // Last-Modified of a known copy, "" for none
}

// DoOptions bounds one request.
type DoOptions struct {
	MaxBytes int64         // longest body; 1 MiB by default
	Timeout  time.Duration // whole exchange; [Options.Timeout] by default. Add what a long poll asks the server to wait.
}

// Response is an answer that was read to its end.
type Response struct {
	URL       string   // the URL that answered
	Redirects []string // the URLs that redirected, in order, starting with the one asked for
	Status    int
	Header    http.Header
	Body      []byte
}

// Get fetches a document. The response has status 200, or 304 if a copy is known; anything else is an [*Error]. If ctx ends
// first, its error is returned.
func (c *Client) Get(ctx context.Context, url string, options GetOptions) (*Response, error) {
	return nil, errors.ErrUnsupported
}

// Do sends a request that may carry secrets and returns the answer whatever its status, except that a redirect is
// [ErrRedirected] and is not followed (protocol 3). If the request's context ends first, its error is returned.
func (c *Client) Do(request *http.Request, options DoOptions) (*Response, error) {
	return nil, errors.ErrUnsupported
}

// Transport returns the client for libraries that bring their own [http.Client]: same checks, and a redirect is
// [ErrRedirected], so none can be followed. The body is the caller's to bound and close.
func (c *Client) Transport() http.RoundTripper { return nil }

// Mapping sends one host and port to one address.
type Mapping struct {
	Host    string // lower case
	Port    uint16
	Address netip.AddrPort
}

// ParseResolve reads HOST=ADDR:PORT (for port 443 of HOST) or HOST:PORT=ADDR:PORT.
func ParseResolve(text string) (Mapping, error) { return Mapping{}, errors.ErrUnsupported }

// RetryAfter reads a Retry-After header, in seconds or as a date, as the time to wait from now. It reports false if there is
// none or it cannot be read.
func RetryAfter(header http.Header, now time.Time) (time.Duration, bool) { return 0, false }
