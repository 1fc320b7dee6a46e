package dpop

import (
	"errors"
	"net/url"
	"strings"
)

// normalizeURL returns the form in which two URLs of requests are compared: without query and fragment, as RFC 9449 4.3
// says, and normalised by syntax and scheme (RFC 3986 6.2.2 and 6.2.3): case of scheme, host and percent-encodings,
// unreserved characters decoded, dot segments removed, the default port and an empty path. Only https is a URL of the
// protocol (section 3).
func normalizeURL(raw string) (string, error) {
	u, err := url.Parse(raw) // lowers the scheme
	if err != nil {
		return "", errors.New("not a URL") // the cause quotes it
	}
	if u.Scheme != "https" {
		return "", errors.New("not an https URL")
	}
	if u.Hostname() == "" || u.User != nil {
		return "", errors.New("a URL without a host, or with credentials")
	}
	host := strings.ToLower(u.Host)
	host = strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":")
	return "https://" + host + normalizePath(u.EscapedPath()), nil
}

// normalizePath works on the escaped path, so that an encoded slash stays different from a slash.
func normalizePath(escaped string) string {
	path := normalizeEncodings(escaped)
	if path != "" && !strings.Contains(path, "/.") {
		return path // as nearly always: no dot segments
	}
	var kept []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".", "..":
			if segment == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "") // a directory keeps its slash
			}
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/")
}

// normalizeEncodings decodes percent-encoded unreserved characters and writes the other encodings in upper case. The
// text comes from [url.URL.EscapedPath], so each % is followed by two hexadecimal digits.
func normalizeEncodings(escaped string) string {
	if !strings.Contains(escaped, "%") {
		return escaped
	}
	var out strings.Builder
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '%' {
			out.WriteByte(escaped[i])
			continue
		}
		encoding := escaped[i : i+3]
		i += 2
		if decoded, err := url.PathUnescape(encoding); err == nil && isUnreserved(decoded[0]) {
			out.WriteByte(decoded[0])
		} else {
			out.WriteString(strings.ToUpper(encoding))
		}
	}
	return out.String()
}

// isUnreserved is RFC 3986 2.3.
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}
