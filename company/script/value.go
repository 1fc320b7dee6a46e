package script

import (
	"regexp"
	"strings"
	"time"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// placeholder is a value in braces.
var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// known tells whether a value in braces is one of a day.
func known(name string) bool {
	_, ok := day(name, time.Time{})
	return ok
}

// day returns the value of a name such as "tomorrow 18:00", seen from now.
func day(name string, now time.Time) (value string, ok bool) {
	word, clock, timed := strings.Cut(name, " ")
	word, worded := strings.CutSuffix(word, "_words")
	switch word {
	case "today":
	case "tomorrow":
		now = time.Date(now.Year(), now.Month(), now.Day()+1, 12, 0, 0, 0, now.Location())
	default:
		return "", false
	}
	switch {
	case worded && timed:
		return "", false
	case worded:
		return now.Format("Monday, 2 January 2006"), true
	case !timed:
		return now.Format(time.DateOnly), true
	}
	at, err := time.Parse("15:04", clock)
	if err != nil {
		return "", false
	}
	return time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, now.Location()).Format(time.RFC3339), true
}

// expander returns a function that puts values for what stands in braces. now is in the User's time zone.
func expander(now time.Time, groups map[string]string) func(string) string {
	return func(text string) string {
		return placeholder.ReplaceAllStringFunc(text, func(braced string) string {
			name := braced[1 : len(braced)-1]
			if value, ok := groups[name]; ok {
				return value
			}
			value, _ := day(name, now)
			return value
		})
	}
}

// object writes values as a JSON object, with each text in them expanded; nil as none.
func object(values map[string]any, expand func(string) string) (poppy.Object, error) {
	if values == nil {
		return nil, nil
	}
	data, err := strictjson.Marshal(expanded(values, expand))
	if err != nil {
		return nil, err
	}
	return poppy.Object(data), nil
}

func expanded(value any, expand func(string) string) any {
	switch value := value.(type) {
	case string:
		return expand(value)
	case map[string]any:
		out := make(map[string]any, len(value))
		for name, member := range value {
			out[name] = expanded(member, expand)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, member := range value {
			out[i] = expanded(member, expand)
		}
		return out
	default:
		return value
	}
}

// location finds a time zone by its name in the database; "" is UTC.
func location(name string) (*time.Location, error) {
	if name == "Local" { // not a name of the database, but one of Go
		name = "?"
	}
	return time.LoadLocation(name)
}
