package poppy

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// MaxURLBytes is the longest URL that is taken from the other party.
const MaxURLBytes = 2048

const scheme = "https://"

// ParseURL reads a URL that the protocol defines or exchanges: absolute, https, with a host, without user name,
// password and fragment, of visible ASCII and at most [MaxURLBytes] long (3). The text of its error is a rule that
// follows the name of a field.
func ParseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("is required: an https URL")
	}
	if len(text) > MaxURLBytes {
		return nil, errors.New("must not be longer than 2048 bytes")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("must be a URL of visible ASCII characters: no spaces, other letters percent-encoded or as punycode")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("must be a well-formed URL")
	}
	switch {
	case u.Scheme != "https":
		return nil, errors.New("must be an https URL")
	case u.Opaque != "" || u.Hostname() == "" || strings.HasSuffix(u.Host, ":"):
		return nil, errors.New("must be an https URL with a host: https://host/path")
	case u.User != nil:
		return nil, errors.New("must be a URL without user name and password")
	case strings.Contains(text, "#"):
		return nil, errors.New("must be a URL without fragment (#)")
	}
	return u, nil
}

// ParseIssuer reads an issuer identifier: a URL as [ParseURL] reads it, without query (RFC 8414 section 2).
func ParseIssuer(text string) (*url.URL, error) {
	u, err := ParseURL(text)
	if err != nil {
		return nil, err
	}
	if strings.Contains(text, "?") {
		return nil, errors.New("must be a URL without query (?)")
	}
	return u, nil
}

// ParseClientID reads a client_id: a URL as [ParseURL] reads it, with a path and without dot segments, as the OAuth
// Client ID Metadata Document draft wants it (4.1).
func ParseClientID(text string) (*url.URL, error) {
	u, err := ParseURL(text)
	if err != nil {
		return nil, err
	}
	if u.Path == "" {
		return nil, errors.New("must be a URL with a path: https://host/agent.json")
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, errors.New("must be a URL without . and .. in its path")
		}
	}
	return u, nil
}

// MetadataURL returns where an issuer's metadata is: the well-known path between the issuer's host and its path, from
// which a last slash is taken away (3.2, RFC 8414 section 3.1).
func MetadataURL(issuer string) (string, error) {
	if _, err := ParseIssuer(issuer); err != nil {
		return "", err
	}
	origin, path := splitOrigin(issuer)
	return origin + IssuerMetadataPath + strings.TrimSuffix(path, "/"), nil
}

// ResourceMetadataURL returns where the metadata of a protected resource is: the well-known path between the host and
// the path and query. Only a slash that directly follows the host is taken away (6, RFC 9728 section 3.1).
func ResourceMetadataURL(resource string) (string, error) {
	if _, err := ParseURL(resource); err != nil {
		return "", err
	}
	origin, path := splitOrigin(resource)
	if path == "/" || strings.HasPrefix(path, "/?") {
		path = path[1:]
	}
	return origin + ResourceMetadataPath + path, nil
}

// splitOrigin cuts a parsed URL's text behind its host, so that what follows keeps its spelling.
func splitOrigin(text string) (origin, rest string) {
	if end := strings.IndexAny(text[len(scheme):], "/?"); end >= 0 {
		return text[:len(scheme)+end], text[len(scheme)+end:]
	}
	return text, ""
}

// SubURL returns the URL of something below an endpoint, such as {endpoint}/{id}/messages (7.2, 4.7, Operations 5.2).
// Every segment is escaped; a slash at the endpoint's end is not doubled, and its query stays.
func SubURL(endpoint string, segments ...string) string {
	base, query, hasQuery := strings.Cut(endpoint, "?")
	var text strings.Builder
	text.WriteString(strings.TrimSuffix(base, "/"))
	for _, segment := range segments {
		text.WriteString("/" + url.PathEscape(segment))
	}
	if hasQuery {
		text.WriteString("?" + query)
	}
	return text.String()
}

// CheckDomain tells whether text is a host name as organization.domain holds it: letters, digits, hyphens and dots,
// at most 253, without scheme, port, path and last dot. The text of its error is a rule that follows a field's name.
func CheckDomain(text string) error {
	const rule = "must be a host name alone, such as outdoor.example: no https://, port, path or last dot; other letters as punycode"
	if text == "" || len(text) > 253 {
		return errors.New(rule)
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return errors.New(rule)
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return errors.New(rule)
		}
	}
	return nil
}

// DomainResource returns the resource identifier that stands for a domain in an issuer's protected_resources (3.2).
func DomainResource(domain string) string { return scheme + domain }

// SpeaksForHost tells whether a document with this organization.domain speaks for the host that served it: the same
// name, ignoring ASCII case. Neither may have a port; www. has no special meaning (3, 3.1).
func SpeaksForHost(domain, host string) bool {
	return CheckDomain(domain) == nil && equalFold(domain, host)
}

// ListsDomain tells whether an issuer's protected_resources names the domain: an entry that is https://{domain} to the
// character, except that the host's case is ignored. An entry with a port, a path or a last slash is another one (3.2).
func ListsDomain(protectedResources []string, domain string) bool {
	for _, entry := range protectedResources {
		if host, ok := strings.CutPrefix(entry, scheme); ok && SpeaksForHost(domain, host) {
			return true
		}
	}
	return false
}

// SameDomain tells whether two URLs are on the same domain, as jwks_uri and redirect_uris must be with client_id (4.1):
// the same host, ignoring case, and the same port. A subdomain is another domain.
func SameDomain(a, b string) bool {
	first, err := ParseURL(a)
	if err != nil {
		return false
	}
	second, err := ParseURL(b)
	if err != nil {
		return false
	}
	return equalFold(first.Hostname(), second.Hostname()) && port(first) == port(second)
}

// OnDomain tells whether the URL is on the domain or a subdomain of it, on the https port, as return_to must be with
// organization.domain (5).
func OnDomain(text, domain string) bool {
	u, err := ParseURL(text)
	return err == nil && port(u) == "443" && within(u.Hostname(), domain)
}

// within tells whether host is domain or below it. An IP address has nothing below it.
func within(host, domain string) bool {
	if equalFold(host, domain) {
		return true
	}
	above := len(host) - len(domain)
	return domain != "" && net.ParseIP(domain) == nil && above > 1 && host[above-1] == '.' && equalFold(host[above:], domain)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "443"
}

// equalFold ignores the case of ASCII letters only: Unicode folding would take a Kelvin sign for a k.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
