package poppy

import (
	"bytes"
	"time"

	"countersign/internal/strictjson"
)

// Time is a point in time on the wire (RFC 3339). Any offset and fraction is read, UTC is written.
type Time struct{ time.Time }

// At returns t for the wire.
func At(t time.Time) Time { return Time{t.UTC()} }

// MarshalJSON writes the time in UTC, with a fraction only if it has one.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().MarshalJSON()
}

// UnmarshalJSON reads a string as RFC 3339 defines it. The error is a [strictjson.Error].
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*t = Time{}
		return nil
	}
	// RFC 3339 5.6 lets t and z be small, Go does not.
	var read time.Time
	if err := read.UnmarshalJSON(bytes.ToUpper(data)); err != nil {
		return &strictjson.Error{Problem: "must be a time such as 2026-10-08T19:03:00Z"}
	}
	*t = At(read)
	return nil
}
