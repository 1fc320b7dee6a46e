package fetch

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// checkURL refuses what is not a plain HTTPS URL.
func checkURL(u *url.URL) error {
	problem := ""
	switch host := u.Hostname(); {
	case u.Scheme != "https": // protocol 3, "HTTPS"
		problem = "only https URLs are used"
	case u.Opaque != "" || host == "":
		problem = "the URL has no host"
	case u.User != nil: // user:password@host is a secret in a URL, and good.example@evil.example a trap for readers
		problem = "the URL has a user name in front of its host"
	case !isASCII(host):
		problem = "the host of the URL must be written in its xn-- form"
	case looksNumeric(host):
		problem = "the host of the URL is an address in an unusual spelling"
	case u.Port() != "" && !isPort(u.Port()):
		problem = "the port of the URL is not between 1 and 65535"
	case len(u.String()) > maxURLBytes:
		problem = "the URL is too long"
	default:
		return nil
	}
	return &Error{Kind: ErrURL, Host: hostOf(u), Problem: problem}
}

// looksNumeric reports whether host is a spelling of an IPv4 address that some resolvers understand and others look up as a
// name: 127.1, 0x7f.1, 2130706433, 0177.0.0.1. No top-level domain is a number, so the last label decides.
func looksNumeric(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false // the usual spelling
	}
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return strings.Trim(last, "0123456789") == "" || strings.HasPrefix(strings.ToLower(last), "0x")
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > '~' })
}

func isPort(s string) bool {
	port, err := strconv.ParseUint(s, 10, 16)
	return err == nil && port > 0
}

// hostOf returns the host as messages show it: with its port unless that is 443.
func hostOf(u *url.URL) string { return strings.TrimSuffix(u.Host, ":443") }

// isRedirect reports whether a response sends the client somewhere else. 304 is about the client's copy.
func isRedirect(response *http.Response) bool {
	return response.StatusCode/100 == 3 && response.StatusCode != http.StatusNotModified
}

// followable lists the statuses that mean: fetch it there (RFC 9110 section 15.4).
var followable = []int{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
}

// followed returns where a redirect leads, if that is an HTTPS URL (protocol 3).
func followed(response *http.Response) (*url.URL, error) {
	host := hostOf(response.Request.URL)
	target, err := response.Location()
	if err != nil || !slices.Contains(followable, response.StatusCode) {
		return nil, &Error{Kind: ErrRedirected, Host: host, Problem: fmt.Sprintf("%s answered %d without a URL that can be followed", host, response.StatusCode)}
	}
	if err := checkURL(target); err != nil {
		return nil, &Error{
			Kind: ErrRedirected, Host: host, Location: target.String(), Err: err,
			Problem: host + " redirects to a URL that may not be fetched: " + err.Error(),
		}
	}
	return target, nil
}

// refusedRedirect is the error for a redirect that is one too many.
func refusedRedirect(response *http.Response, allowed int) error {
	refused := &Error{Kind: ErrRedirected, Host: hostOf(response.Request.URL)}
	to := "another URL"
	if target, err := response.Location(); err == nil {
		refused.Location = target.String()
		to = hostOf(target)
	}
	refused.Problem = refused.Host + " redirects to " + to + ", which is not followed here"
	if allowed > 0 {
		refused.Kind = ErrTooManyRedirects
		refused.Problem = refused.Host + " redirects to " + to + " after " + strconv.Itoa(allowed) + " redirects, which is the limit"
	}
	return refused
}
