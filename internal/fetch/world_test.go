package fetch_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/internal/fetch"
	"countersign/internal/localca"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a real HTTPS server that listens on every address of this machine and counts the TCP connections made to it.
type server struct {
	port  uint16
	pool  *x509.CertPool
	dials atomic.Int64
}

// serve starts a server whose certificate is for outdoor.example, everything below it, and the loopback addresses.
func serve(t *testing.T, handler http.HandlerFunc) *server {
	t.Helper()
	ca, err := localca.Create(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Issue("outdoor.example", "www.outdoor.example", "auth.outdoor.example", "127.0.0.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{port: uint16(listener.Addr().(*net.TCPAddr).Port), pool: ca.Pool()}
	httpServer := &http.Server{
		Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = httpServer.ServeTLS(counted{listener, &s.dials}, "", "")
	}()
	t.Cleanup(func() {
		_ = httpServer.Close()
		<-done
	})
	return s
}

type counted struct {
	net.Listener
	dials *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.dials.Add(1)
	}
	return conn, err
}

// url returns a URL of the server at its own port.
func (s *server) url(host, path string) string {
	return "https://" + net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(int(s.port))) + path
}

// mapped returns options that send hosts, at port 443, to the server.
func (s *server) mapped(hosts ...string) fetch.Options {
	options := fetch.Options{Authorities: s.pool, Resolver: resolver(nil)}
	for _, host := range hosts {
		options.Resolve = append(options.Resolve, fetch.Mapping{Host: host, Port: 443, Address: s.address()})
	}
	return options
}

func (s *server) address() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.port)
}

func client(t *testing.T, options fetch.Options) *fetch.Client {
	t.Helper()
	c := fetch.New(options)
	t.Cleanup(c.Close)
	return c
}

// resolver answers each lookup of a name with the next of its replies, then with the last again. A reply is a list of
// addresses, separated by spaces. Names that are not listed do not exist.
func resolver(replies map[string][]string) *net.Resolver {
	zone := &zone{replies: replies, asked: make(map[string]int)}
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go zone.answer(server)
		return client, nil
	}}
}

type zone struct {
	replies map[string][]string
	mutex   sync.Mutex
	asked   map[string]int // by name and type
}

const typeA, typeAAAA = 1, 28

// answer speaks DNS over a stream (RFC 1035 section 4.2.2) for one query.
func (z *zone) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return
	}
	var labels []string
	end := 12
	for query[end] != 0 {
		length := int(query[end])
		labels = append(labels, string(query[end+1:end+1+length]))
		end += 1 + length
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	question := query[12 : end+5]
	addresses, found := z.next(strings.ToLower(strings.Join(labels, ".")), kind)

	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0}, question...)
	if !found {
		reply[3] |= 3 // no such name
	}
	for _, address := range addresses {
		data := address.AsSlice()
		reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(data)))
		reply = append(reply, data...)
	}
	_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
}

func (z *zone) next(name string, kind uint16) (addresses []netip.Addr, found bool) {
	replies, found := z.replies[name]
	if !found {
		return nil, false
	}
	z.mutex.Lock()
	defer z.mutex.Unlock()
	key := name + strconv.Itoa(int(kind))
	reply := replies[min(z.asked[key], len(replies)-1)]
	z.asked[key]++
	for text := range strings.FieldsSeq(reply) {
		if address := netip.MustParseAddr(text); (kind == typeA && address.Is4()) || (kind == typeAAAA && address.Is6()) {
			addresses = append(addresses, address)
		}
	}
	return addresses, true
}

func writeDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"name":"Outdoor"}`)
}
