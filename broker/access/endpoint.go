package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"countersign/internal/id"
)

// maxSocketPath is the longest path that every system takes for a Unix socket, in bytes.
const maxSocketPath = 100

// Endpoint is where a way in listens. The zero value is none.
type Endpoint struct {
	network string // "unix" or "tcp"
	address string // an absolute path, or IP:port
}

// ParseEndpoint reads unix:///absolute/path or http://IP:port.
func ParseEndpoint(text string) (Endpoint, error) {
	if path, ok := strings.CutPrefix(text, "unix://"); ok { // as it is: no part of a file's name is encoded
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsFunc(path, unicode.IsControl) {
			return Endpoint{}, errors.New("needs an absolute path, with three slashes: unix:///run/countersign/agent.sock")
		}
		if len(path) > maxSocketPath {
			return Endpoint{}, fmt.Errorf("is longer than the %d bytes that a socket's path may have: choose a shorter directory", maxSocketPath)
		}
		return Endpoint{"unix", path}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Endpoint{}, errors.New("is not an address: write unix:///absolute/path or http://127.0.0.1:PORT")
	}
	switch u.Scheme {
	case "http":
		address, err := netip.ParseAddrPort(u.Host)
		if err != nil || u.Path != "" {
			return Endpoint{}, errors.New("needs an IP address and a port and nothing else: http://127.0.0.1:PORT")
		}
		return Endpoint{"tcp", address.String()}, nil
	default:
		return Endpoint{}, errors.New("is not an address: write unix:///absolute/path or http://127.0.0.1:PORT")
	}
}

// String returns the endpoint as [ParseEndpoint] reads it.
func (e Endpoint) String() string {
	if e.network == "unix" {
		return "unix://" + e.address
	}
	return "http://" + e.address
}

// Loopback reports whether only processes of this machine can reach the endpoint.
func (e Endpoint) Loopback() bool {
	if e.network == "unix" {
		return true
	}
	address, err := netip.ParseAddrPort(e.address)
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// Listen starts to listen. A Unix socket is open to its owner only and replaces one that an ended process left behind; one
// that answers, or anything else at that path, is an error. An address that other machines can reach is an error unless
// network is true, since a secret would travel there in the clear. The caller closes the listener.
func (e Endpoint) Listen(ctx context.Context, network bool) (net.Listener, error) {
	if e.network == "unix" {
		return listenUnix(ctx, e.address)
	}
	if !e.Loopback() && !network {
		return nil, fmt.Errorf("%s can be reached from other machines, where secrets would travel unprotected: use a Unix socket or 127.0.0.1", e)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", e.address)
}

// listenUnix binds under a name of its own, restricts that, and moves it to path: nobody ever sees a socket there that is
// open to others, and a stale one is replaced in one step.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := checkDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := checkReplaceable(ctx, path); err != nil {
		return nil, err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+strings.ToLower(id.New("s")[:10]))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", temporary)
	if err != nil {
		return nil, err
	}
	unix := listener.(*net.UnixListener) //nolint:errcheck // that is what listening on "unix" returns
	unix.SetUnlinkOnClose(false)         // by then the name is another one, see socket.Close
	err = os.Chmod(temporary, 0o600)
	var made fs.FileInfo
	if err == nil {
		made, err = os.Lstat(temporary)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(), os.Remove(temporary))
	}
	return &socket{UnixListener: unix, path: path, made: made}, nil
}

// checkDirectory refuses a directory in which someone else could put a socket in our place.
func checkDirectory(directory string) error {
	info, err := os.Stat(directory)
	if err != nil {
		return fmt.Errorf("the socket's directory: %w", err)
	}
	if !ownedByUs(info) {
		return fmt.Errorf("%s belongs to another user, who could replace the socket: choose a directory of your own", directory)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write in %s and could replace the socket: chmod go-w %s", directory, directory)
	}
	return nil
}

// checkReplaceable accepts a path that is free or holds a socket of ours on which nobody listens any more.
func checkReplaceable(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket || !ownedByUs(info):
		return fmt.Errorf("%s exists and is not a socket of ours: remove it or choose another path", path)
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("a broker is listening on %s already: stop it or choose another path", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) { // busy, or a socket of another kind
		return fmt.Errorf("it cannot be told whether someone is listening on %s: remove it or choose another path: %w", path, err)
	}
	return nil
}

// socket removes its file when it is closed, unless another one lies there by then.
type socket struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

// Close stops listening and removes the socket's file.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if info, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(info, s.made) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// URL returns the base URL under which a client with [Endpoint.Transport] finds the server, without a slash at its end.
func (e Endpoint) URL() string {
	if e.network == "unix" {
		return "http://localhost"
	}
	return e.String()
}

// Transport returns a transport whose every connection goes to the endpoint. It uses no proxy. A Unix socket that does not
// belong to the user of this process or to root, and an address of another machine, are refused, since the secret would go
// to a stranger.
func (e Endpoint) Transport() *http.Transport {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if !e.Loopback() {
				return nil, fmt.Errorf("%s is not on this machine: a secret is not sent over the network unprotected", e)
			}
			if e.network == "unix" {
				info, err := os.Lstat(e.address)
				if err != nil {
					return nil, err
				}
				if !ownedByUs(info) {
					return nil, fmt.Errorf("%s belongs to another user: a secret is not sent there", e.address)
				}
			}
			return dialer.DialContext(ctx, e.network, e.address)
		},
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     30 * time.Second,
	}
}
