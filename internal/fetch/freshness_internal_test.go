package fetch

import (
	"net/http"
	"testing"
	"time"
)

func FuzzCacheControl(f *testing.F) {
	for _, value := range []string{"max-age=600", `no-cache="a, b", max-age="1"`, "no-store", `="`, "max-age", "=,=,=", `a="\", max-age=1`} {
		f.Add(value, "1", "Mon, 30 Nov 2026 12:10:00 GMT", "Mon, 30 Nov 2026 12:00:00 GMT")
	}
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, control, age, expires, date string) {
		header := http.Header{"Cache-Control": {control}, "Age": {age}, "Expires": {expires}, "Date": {date}}
		parsed := parseCacheControl(header["Cache-Control"])
		if parsed.maxAge < 0 || (parsed.maxAge > 0 && !parsed.hasMaxAge) {
			t.Errorf("%q: %+v", control, parsed)
		}
		if !parseCacheControl([]string{"no-store, " + control}).noStore || !parseCacheControl([]string{"no-store", control}).noStore {
			t.Errorf("no-store before %q was not seen", control)
		}
		lifetime, storable := freshness(header, began, time.Minute)
		if parsed.noStore == storable || (!storable && lifetime != 0) {
			t.Errorf("%q: %v, %v", control, lifetime, storable)
		}
	})
}
