package poppy

import (
	"regexp"
	"strings"
	"time"

	"countersign/internal/strictjson"
)

// Time is a point in time on the wire (RFC 3339). Any offset and fraction is read, UTC is written.
type Time struct{ time.Time }

// At returns t for the wire.
func At(t time.Time) Time { return Time{t.UTC()} }

// timeForm is the grammar of RFC 3339 section 5.6. The time package takes more: a comma, an hour of one digit, an
// offset of 99 hours.
var timeForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// MarshalJSON writes the time in UTC, with a fraction only if it has one.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().MarshalJSON()
}

// UnmarshalJSON reads a string as RFC 3339 defines it; null is no time. The error is a [strictjson.Error].
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := strictjson.Unmarshal(data, &text); err != nil {
		return err
	}
	if string(data) == "null" {
		*t = Time{}
		return nil
	}
	text = strings.ToUpper(text) // t and z may be small
	read, err := time.Parse(time.RFC3339, text)
	if err != nil || !timeForm.MatchString(text) {
		return &strictjson.Error{Problem: "must be a time such as 2026-10-08T19:03:00Z"}
	}
	*t = At(read)
	return nil
}
