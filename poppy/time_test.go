package poppy_test

import (
	"testing"
	"time"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// P-7.5-04
func TestTimeOnTheWire(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // read, and as written again; "" for refused
		"2026-10-08T19:03:00Z":                "2026-10-08T19:03:00Z",
		"2026-10-08T12:20:00-07:00":           "2026-10-08T19:20:00Z",
		"2026-10-08T19:03:00.250Z":            "2026-10-08T19:03:00.25Z",
		"2026-10-08T19:03:00.123456789+00:00": "2026-10-08T19:03:00.123456789Z",
		"2026-10-08t19:03:00z":                "2026-10-08T19:03:00Z",
		"2026-10-08T19:03:00":                 "",
		"2026-10-08 19:03:00Z":                "",
		"2026-10-08":                          "",
		"2026-13-08T19:03:00Z":                "",
		"2026-10-08T19:03:00,5Z":              "", "2026-10-08T9:03:00Z": "", "2026-10-08T19:03:00+24:00": "", "2026-10-08T19:03:00+0200": "",
		"1790900000": "",
		"":           "",
	} {
		var read poppy.Time
		err := strictjson.Unmarshal([]byte(`"`+text+`"`), &read)
		if want == "" {
			if err == nil || !read.IsZero() {
				t.Errorf("%q: read as %v", text, read)
			}
			continue
		}
		written, writeErr := strictjson.Marshal(read)
		if err != nil || writeErr != nil || string(written) != `"`+want+`"` {
			t.Errorf("%q: written as %s, %v, %v", text, written, err, writeErr)
		}
	}
	var read poppy.Time
	if err := strictjson.Unmarshal([]byte(`1790900000`), &read); err == nil {
		t.Error("a number is a time")
	}
	zone := time.FixedZone("", 2*60*60)
	if written, err := strictjson.Marshal(poppy.At(time.Date(2026, 1, 1, 1, 0, 0, 0, zone))); err != nil || string(written) != `"2025-12-31T23:00:00Z"` {
		t.Errorf("got %s, %v", written, err)
	}
}
