package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"countersign/poppy"
)

// ParseDomain reads a domain as a person types it, and returns it in lower case. A URL, an address or anything else that is
// not a domain alone is refused with what to give instead.
func ParseDomain(text string) (string, error) {
	domain := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(text), "."))
	if domain == "" {
		return "", errors.New("give the Company's domain, such as outdoor.example")
	}
	if host := hostIn(domain); host != domain {
		return "", fmt.Errorf("that is not a domain: give %q alone", host)
	}
	for _, r := range domain {
		if r > '~' {
			return "", errors.New("give the domain in its ASCII form, which starts with xn-- (a browser shows it when the page's address is copied)")
		}
	}
	if _, err := netip.ParseAddr(domain); err == nil {
		return "", errors.New("that is an address: give the Company's domain, such as outdoor.example")
	}
	if !strings.Contains(domain, ".") || poppy.CheckDomain(domain) != nil {
		return "", errors.New("that is not a domain: give it like outdoor.example, with letters, digits, hyphens and dots only")
	}
	return domain, nil
}

// hostIn returns the host of what looks like a URL or an e-mail address, and other text as it is.
func hostIn(text string) string {
	_, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		rest = text
	}
	if !isURL && !strings.ContainsAny(rest, "/?#@:") {
		return text
	}
	u, err := url.Parse("//" + rest)
	if err != nil || u.Hostname() == "" {
		return text
	}
	return u.Hostname()
}
