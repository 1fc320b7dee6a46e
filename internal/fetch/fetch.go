// Package fetch is the one HTTP client for URLs that the other party gave.
//
// Such a URL is used only over HTTPS and only at public addresses (protocol 3, "HTTPS" and "Redirects and addresses").
// The address is checked at the moment of connecting, so after name resolution, for every redirect and every retry; a name
// that resolves to something else a moment later gains nothing. A connection that is kept for later requests was checked
// when it was made and cannot change its address. Exceptions are named in [Options].
//
// [Client.Get] is for documents, and [Cache] keeps them as their HTTP caching headers say. [Client.Do] and
// [Client.Transport] are for requests that may carry secrets and therefore never follow a redirect.
package fetch

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

const (
	maxURLBytes    = 8 << 10
	maxHeaderBytes = 64 << 10
	userAgent      = "countersign"
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
type Client struct {
	transport      *http.Transport
	guard          *ssrf.Guardian
	resolve        map[string]netip.AddrPort // by host:port
	resolver       *net.Resolver
	authorities    *x509.CertPool
	connectTimeout time.Duration
	idleTimeout    time.Duration
	timeout        time.Duration
	now            func() time.Time
}

// New returns a client. It uses no proxy, since behind one it would see the proxy's address only.
func New(options Options) *Client {
	c := &Client{
		guard:          newGuard(options.Allow),
		resolve:        make(map[string]netip.AddrPort, len(options.Resolve)),
		resolver:       options.Resolver,
		authorities:    options.Authorities,
		connectTimeout: cmp.Or(options.ConnectTimeout, 5*time.Second),
		idleTimeout:    cmp.Or(options.IdleTimeout, 5*time.Second),
		timeout:        cmp.Or(options.Timeout, 10*time.Second),
		now:            options.Now,
	}
	if c.now == nil {
		c.now = time.Now
	}
	for _, mapping := range options.Resolve {
		c.resolve[mapping.from()] = mapping.Address
	}
	c.transport = &http.Transport{
		DialContext:            c.dial, // unused, since all URLs are https; guarded all the same
		DialTLSContext:         c.dialTLS,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		DisableCompression:     true, // so that what is counted is what is read
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        time.Minute,
	}
	return c
}

// newGuard refuses every address that is not public except those in allowed. Any port is fine: URLs of the protocol may name
// one, and what keeps internal services out of reach is the address.
func newGuard(allowed []netip.Prefix) *ssrf.Guardian {
	var v4, v6 []netip.Prefix
	for _, prefix := range allowed {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	return ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))
}

// Close closes the connections that are kept for later requests.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

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

// Get fetches a document. The response has status 200, or 304 if options name a known copy; anything else is an [*Error]. If
// ctx ends first, the error wraps its error.
func (c *Client) Get(ctx context.Context, rawURL string, options GetOptions) (*Response, error) {
	current, err := url.Parse(rawURL)
	if err != nil {
		return nil, &Error{Kind: ErrURL, Problem: "this is not a URL"} // the parser's error repeats it
	}
	exchange := c.begin(ctx, current, options.Timeout)
	defer exchange.end()
	var redirects []string
	for {
		response, err := exchange.send(newGet(current, options))
		if err != nil {
			return nil, err
		}
		if !isRedirect(response) {
			return c.document(exchange, response, redirects, options)
		}
		response.Body.Close()
		if len(redirects) == options.MaxRedirects {
			return nil, refusedRedirect(response, options.MaxRedirects)
		}
		redirects = append(redirects, current.String())
		if current, err = followed(response); err != nil {
			return nil, err
		}
	}
}

// Do sends a request that may carry secrets and returns the answer whatever its status, except that a redirect is
// [ErrRedirected] and is not followed. If the request's context ends first, the error wraps its error.
func (c *Client) Do(request *http.Request, options DoOptions) (*Response, error) {
	exchange := c.begin(request.Context(), request.URL, options.Timeout)
	defer exchange.end()
	response, err := exchange.send(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if isRedirect(response) {
		return nil, refusedRedirect(response, 0)
	}
	return exchange.read(response, nil, cmp.Or(options.MaxBytes, 1<<20))
}

// Transport returns the client for libraries that bring their own [http.Client]: same checks, and a redirect is
// [ErrRedirected], so that none can be followed. Limits on time and on the body are the caller's to set.
func (c *Client) Transport() http.RoundTripper { return roundTripper{c} }

type roundTripper struct{ client *Client }

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.client.send(request)
	if err != nil {
		return nil, err
	}
	if isRedirect(response) {
		response.Body.Close()
		return nil, refusedRedirect(response, 0)
	}
	return response, nil
}

func newGet(target *url.URL, options GetOptions) *http.Request {
	header := http.Header{
		"Accept":     {cmp.Or(options.Accept, "application/json")},
		"User-Agent": {userAgent},
	}
	if options.IfNoneMatch != "" {
		header.Set("If-None-Match", options.IfNoneMatch)
	}
	if options.IfModifiedSince != "" {
		header.Set("If-Modified-Since", options.IfModifiedSince)
	}
	return &http.Request{Method: http.MethodGet, URL: target, Header: header}
}

// document checks and reads what Get was answered.
func (c *Client) document(exchange *exchange, response *http.Response, redirects []string, options GetOptions) (*Response, error) {
	defer response.Body.Close()
	host := hostOf(response.Request.URL)
	unchanged := response.StatusCode == http.StatusNotModified && (options.IfNoneMatch != "" || options.IfModifiedSince != "")
	if response.StatusCode != http.StatusOK && !unchanged {
		wait, _ := RetryAfter(response.Header, c.now())
		return nil, &Error{
			Kind: ErrStatus, Host: host, Status: response.StatusCode, RetryAfter: wait,
			Problem: fmt.Sprintf("%s answered %d %s", host, response.StatusCode, http.StatusText(response.StatusCode)),
		}
	}
	if response.Header.Get("Content-Encoding") != "" { // none was asked for, and a decoder would have to be bounded too
		return nil, &Error{Kind: ErrBroken, Host: host, Problem: host + " answered with a content encoding that was not asked for"}
	}
	return exchange.read(response, redirects, cmp.Or(options.MaxBytes, 64<<10))
}

// exchange is one call of Get or Do: what bounds it in time.
type exchange struct {
	client *Client
	ctx    context.Context //nolint:containedctx // it ends with the exchange
	stop   context.CancelCauseFunc
	timer  *time.Timer
}

func (c *Client) begin(ctx context.Context, target *url.URL, timeout time.Duration) *exchange {
	timeout = cmp.Or(timeout, c.timeout)
	limited, stop := context.WithCancelCause(ctx)
	return &exchange{c, limited, stop, time.AfterFunc(timeout, func() {
		host := hostOf(target)
		stop(&Error{Kind: ErrTimeout, Host: host, Problem: fmt.Sprintf("%s did not finish its answer within %v", host, timeout)})
	})}
}

func (e *exchange) end() {
	e.timer.Stop()
	e.stop(nil)
}

func (e *exchange) send(request *http.Request) (*http.Response, error) {
	return e.client.send(request.WithContext(e.ctx))
}

// read reads a body to its end within its limits of size and silence.
func (e *exchange) read(response *http.Response, redirects []string, maxBytes int64) (*Response, error) {
	host := hostOf(response.Request.URL)
	tooLarge := &Error{Kind: ErrTooLarge, Host: host, Problem: fmt.Sprintf("%s answered with more than the %d bytes that are allowed here", host, maxBytes)}
	if response.ContentLength > maxBytes {
		return nil, tooLarge
	}
	idle := time.AfterFunc(e.client.idleTimeout, func() {
		e.stop(&Error{Kind: ErrTimeout, Host: host, Problem: fmt.Sprintf("%s sent nothing more of its answer for %v", host, e.client.idleTimeout)})
	})
	defer idle.Stop()
	body, err := io.ReadAll(io.LimitReader(steadyReader{response.Body, idle, e.client.idleTimeout}, maxBytes+1))
	if err != nil {
		return nil, explain(e.ctx, host, err)
	}
	if int64(len(body)) > maxBytes {
		return nil, tooLarge
	}
	return &Response{
		URL: response.Request.URL.String(), Redirects: redirects,
		Status: response.StatusCode, Header: response.Header, Body: body,
	}, nil
}

// steadyReader pushes the idle timer back before each read.
type steadyReader struct {
	io.Reader
	idle    *time.Timer
	timeout time.Duration
}

func (r steadyReader) Read(p []byte) (int, error) {
	r.idle.Reset(r.timeout)
	return r.Reader.Read(p)
}

// send checks the URL and sends one request. Every request of this package goes through here.
func (c *Client) send(request *http.Request) (*http.Response, error) {
	if err := checkURL(request.URL); err != nil {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, err
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return nil, explain(request.Context(), hostOf(request.URL), err)
	}
	return response, nil
}

// dialTLS makes a connection on which the certificate of its host was verified.
func (c *Client) dialTLS(ctx context.Context, network, hostPort string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, hostPort)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.connectTimeout)
	defer cancel()
	secured := tls.Client(conn, &tls.Config{
		RootCAs: c.authorities, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, c.explainTLS(ctx, hostPort, err)
	}
	return secured, nil
}

// dial connects to where a host was sent on purpose, or else to where it resolves if that is a public address.
func (c *Client) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: c.connectTimeout, Resolver: c.resolver, Control: c.checkAddress}
	target := hostPort
	if address, named := c.resolve[strings.ToLower(hostPort)]; named {
		dialer.Control = nil
		target = address.String()
	}
	conn, err := dialer.DialContext(ctx, network, target)
	if err != nil {
		return nil, c.explainDial(hostPort, err)
	}
	return conn, nil
}

// checkAddress is called by the dialer with the address that it is about to connect to.
func (c *Client) checkAddress(network, address string, raw syscall.RawConn) error {
	if err := c.guard.Safe(network, address, raw); err != nil {
		return &refusedAddress{address, err}
	}
	return nil
}
