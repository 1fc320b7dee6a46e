package wire

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query is the parameters of a request, each known, there once, and not empty.
type Query map[string]string

// ReadQuery reads the parameters of a request. One that is not among known, or there twice, or empty, is invalid_request: a
// caller who misspells a filter must not get the unfiltered list.
func ReadQuery(r *http.Request, known ...string) (Query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Invalid("The query is not well-formed.")
	}
	query := make(Query, len(values))
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, Invalid("The query has a parameter that this route does not know. It takes: " + orNone(known) + ".")
		case len(list) != 1:
			return nil, Invalid("The parameter " + name + " is there more than once.")
		case list[0] == "":
			return nil, Invalid("The parameter " + name + " has no value. Leave it out instead.")
		}
		query[name] = list[0]
	}
	return query, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Int returns the whole number of a parameter, fallback if it is missing. One below least is invalid_request.
func (q Query) Int(name string, fallback, least int64) (int64, error) {
	text, ok := q[name]
	if !ok {
		return fallback, nil
	}
	number, err := strconv.ParseUint(text, 10, 53)
	if err != nil || int64(number) < least { //nolint:gosec // 53 bits fit
		return 0, Invalid(fmt.Sprintf("The parameter %s must be a whole number of at least %d.", name, least))
	}
	return int64(number), nil //nolint:gosec // as above
}

// Seconds returns the time of a parameter in seconds, with or without a fraction: fallback if it is missing, and at most most.
func (q Query) Seconds(name string, fallback, most time.Duration) (time.Duration, error) {
	text, ok := q[name]
	if !ok {
		return fallback, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if strings.Trim(text, "0123456789.") != "" || err != nil {
		return 0, Invalid(fmt.Sprintf("The parameter %s must be a number of seconds from 0 to %d.", name, int(most.Seconds())))
	}
	if seconds >= most.Seconds() {
		return most, nil
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
