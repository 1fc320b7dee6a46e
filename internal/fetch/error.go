package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Kind is why fetching failed. Ask with errors.Is(err, fetch.ErrRedirected).
type Kind string

// Error returns the kind in words.
func (k Kind) Error() string { return string(k) }

// The kinds of an [Error].
const (
	ErrURL              Kind = "URL that may not be fetched"
	ErrAddress          Kind = "address that may not be connected to"
	ErrLookup           Kind = "name without address"
	ErrConnect          Kind = "no connection"
	ErrTLS              Kind = "no trusted TLS connection"
	ErrTimeout          Kind = "time limit"
	ErrTooLarge         Kind = "size limit"
	ErrBroken           Kind = "answer that cannot be read"
	ErrRedirected       Kind = "redirect that is not followed"
	ErrTooManyRedirects Kind = "redirect limit"
	ErrStatus           Kind = "unexpected status"
)

// Error is a failed fetch. Its text is for the person who runs this program: it names the host, never the rest of the URL.
type Error struct {
	Kind       Kind
	Host       string        // host (with port if it is not 443) that was asked, "" if the URL has none
	Problem    string        // what happened and, where there is something, what to do
	Status     int           // for ErrStatus
	RetryAfter time.Duration // for ErrStatus: how long the server asked to wait, 0 if it did not
	Location   string        // for redirects: where to, absolute, "" if it did not say
	Err        error         // cause, may be nil
}

// Error returns the problem.
func (e *Error) Error() string { return e.Problem }

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// refusedAddress travels from the address check through the dialer.
type refusedAddress struct {
	address string // ADDR:PORT
	err     error
}

func (e *refusedAddress) Error() string { return e.err.Error() }

// explain turns a failure of sending or reading into what is reported. If a context ended, that is the reason, whatever the
// transport made of it.
func explain(ctx context.Context, host string, err error) error {
	if own, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return own // one of the exchange's limits
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fetching from %s: %w", host, ctx.Err())
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own // from dialling
	}
	return &Error{Kind: ErrBroken, Host: host, Err: err, Problem: "the exchange with " + host + " broke off: " + err.Error()}
}

// explainDial says why there is no connection to hostPort.
func (c *Client) explainDial(hostPort string, err error) error {
	failed := &Error{Kind: ErrConnect, Host: shown(hostPort), Err: err}
	if refused, ok := errors.AsType[*refusedAddress](err); ok {
		failed.Kind = ErrAddress
		failed.Problem = refusal(hostPort, refused.address)
	} else if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		failed.Kind = ErrLookup
		failed.Problem = "the address of " + failed.Host + " cannot be found (" + lookup.Err + ")"
		if lookup.IsNotFound {
			failed.Problem += "; a host on this machine is named with --resolve " + failed.Host + "=127.0.0.1:PORT"
		}
	} else if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		failed.Kind = ErrTimeout
		failed.Problem = fmt.Sprintf("no connection to %s within %v", failed.Host, c.connectTimeout)
	} else {
		failed.Problem = "no connection to " + failed.Host + ": " + err.Error()
	}
	return failed
}

// explainTLS says why a connection to hostPort is not trusted.
func (c *Client) explainTLS(ctx context.Context, hostPort string, err error) error {
	host := shown(hostPort)
	failed := &Error{Kind: ErrTLS, Host: host, Err: err, Problem: "no TLS connection to " + host + ": " + err.Error()}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		failed.Problem = "the certificate of " + host + " is not trusted: " + untrusted.Err.Error()
	} else if ctx.Err() != nil {
		failed.Kind = ErrTimeout
		failed.Problem = fmt.Sprintf("no TLS connection to %s within %v", host, c.connectTimeout)
	}
	return failed
}

// refusal is the text for an address that may not be connected to.
func refusal(hostPort, address string) string {
	target, err := netip.ParseAddrPort(address)
	if err != nil { // cannot be: the dialer wrote it
		return shown(hostPort) + " has an address that this program refuses to connect to"
	}
	mapping := shown(hostPort) + "=" + address
	host, _, _ := net.SplitHostPort(hostPort)
	where := host + " resolves to the " + class(target.Addr()) + " " + target.Addr().String()
	if _, err := netip.ParseAddr(host); err == nil {
		where = "the URL names the " + class(target.Addr()) + " " + host
	}
	return where + ", which this program refuses to connect to; name it with --resolve " + mapping + " if that is on purpose"
}

func class(address netip.Addr) string {
	switch address = address.Unmap(); {
	case address.IsLoopback():
		return "loopback address"
	case address.IsPrivate():
		return "private address"
	case address.IsLinkLocalUnicast():
		return "link-local address"
	default:
		return "special-purpose address"
	}
}

// shown is [hostOf] for the host:port form of the dialer.
func shown(hostPort string) string { return strings.TrimSuffix(hostPort, ":443") }
