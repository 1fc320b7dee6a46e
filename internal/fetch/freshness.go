package fetch

import (
	"maps"
	"net/http"
	"strings"
	"time"
)

// cachingHeaders are the headers that decide how long a response is fresh and how it is revalidated.
var cachingHeaders = []string{"Age", "Cache-Control", "Date", "Etag", "Expires", "Last-Modified", "Vary"}

// mergeCaching returns the caching headers of a response, over those that are kept of an earlier one (RFC 9111 section 3.2).
func mergeCaching(kept, received http.Header) http.Header {
	merged := make(http.Header)
	maps.Copy(merged, kept)
	delete(merged, "Age") // of the earlier response
	for _, name := range cachingHeaders {
		if values := received.Values(name); len(values) > 0 {
			merged[name] = values
		}
	}
	return merged
}

// freshness returns how long after began, when it was asked for, a response is fresh (RFC 9111 section 4.2), which may be
// negative, and whether it may be stored. unstated is for responses that say nothing.
func freshness(header http.Header, began time.Time, unstated time.Duration) (lifetime time.Duration, storable bool) {
	control := parseCacheControl(header.Values("Cache-Control"))
	if control.noStore {
		return 0, false
	}
	if control.noCache || header.Get("Vary") == "*" {
		return 0, true // to be revalidated before each use
	}
	age, _ := parseSeconds(header.Get("Age"))
	if control.hasMaxAge {
		return control.maxAge - age, true
	}
	if expires, stated := header["Expires"]; stated {
		end, err := http.ParseTime(expires[0])
		if err != nil {
			return 0, true // such as "0": has expired already (RFC 9111 section 5.3)
		}
		if date, err := http.ParseTime(header.Get("Date")); err == nil {
			return max(end.Sub(date), 0) - age, true
		}
		return end.Sub(began), true
	}
	return unstated, true
}

// cacheControl is what matters to a private cache of a Cache-Control header.
type cacheControl struct {
	noStore, noCache, hasMaxAge bool
	maxAge                      time.Duration
}

// parseCacheControl reads the directives (RFC 9111 section 5.2). Of several max-age the shortest counts, and one that cannot
// be read is 0.
func parseCacheControl(values []string) cacheControl {
	var control cacheControl
	for rest := strings.Join(values, ","); rest != ""; {
		var name, argument string
		name, argument, rest = nextDirective(rest)
		switch strings.ToLower(name) {
		case "no-store":
			control.noStore = true
		case "no-cache": // with a list of header names too: simpler, and never too fresh
			control.noCache = true
		case "max-age":
			age, _ := parseSeconds(argument)
			if !control.hasMaxAge || age < control.maxAge {
				control.maxAge = age
			}
			control.hasMaxAge = true
		}
	}
	return control
}

// nextDirective cuts the first directive off a list, with its argument out of its quotes. Commas in quotes do not end it.
func nextDirective(list string) (name, argument, rest string) {
	end := strings.IndexAny(list, "=,")
	if end < 0 || list[end] == ',' {
		name, rest, _ = strings.Cut(list, ",")
		return strings.TrimSpace(name), "", rest
	}
	name, rest = strings.TrimSpace(list[:end]), strings.TrimLeft(list[end+1:], " \t")
	if inner, quoted := strings.CutPrefix(rest, `"`); quoted {
		argument, rest, _ = strings.Cut(inner, `"`) // no directive of ours has a backslash in its argument
		_, rest, _ = strings.Cut(rest, ",")
		return name, argument, rest
	}
	argument, rest, _ = strings.Cut(rest, ",")
	return name, strings.TrimSpace(argument), rest
}
