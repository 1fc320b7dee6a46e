package fetch

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Mapping sends one host and port to one address.
type Mapping struct {
	Host    string // lower case, a name or an address
	Port    uint16
	Address netip.AddrPort
}

// String returns HOST:PORT=ADDR:PORT.
func (m Mapping) String() string { return m.from() + "=" + m.Address.String() }

func (m Mapping) from() string { return net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port))) }

// ParseResolve reads HOST=ADDR:PORT (for port 443 of HOST) or HOST:PORT=ADDR:PORT. Its errors say what to write.
func ParseResolve(text string) (Mapping, error) {
	from, to, found := strings.Cut(text, "=")
	if !found {
		return Mapping{}, fmt.Errorf("%q does not say where to: write HOST=ADDR:PORT, such as outdoor.example=127.0.0.1:8443", text)
	}
	host, port := splitHost(strings.ToLower(from))
	if address, err := netip.ParseAddr(host); err == nil {
		host = address.String()
	} else if !isHostName(host) {
		return Mapping{}, fmt.Errorf("%q is not a host: write it as in a URL, without https:// or a path, such as outdoor.example", from)
	}
	if !isPort(port) {
		return Mapping{}, fmt.Errorf("%q has no port between 1 and 65535: leave it out for 443, or write HOST:PORT", from)
	}
	address, err := netip.ParseAddrPort(to)
	if err != nil || address.Port() == 0 {
		return Mapping{}, fmt.Errorf("%q is not an address with a port: write it such as 127.0.0.1:8443 or [::1]:8443", to)
	}
	number, _ := strconv.ParseUint(port, 10, 16) // isPort has seen it
	return Mapping{Host: host, Port: uint16(number), Address: address}, nil
}

// splitHost separates the port from a host, 443 if there is none, and takes the brackets off an IPv6 address.
func splitHost(text string) (host, port string) {
	if host, port, err := net.SplitHostPort(text); err == nil && !strings.Contains(port, "/") {
		return host, port
	}
	if inner, found := strings.CutPrefix(text, "["); found {
		text = strings.TrimSuffix(inner, "]")
	}
	return text, "443"
}

// isHostName reports whether name is a lower-case DNS name in ASCII.
func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}
