package fetch

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a server can ask for.
const maxRetryAfter = 365 * 24 * time.Hour

// RetryAfter reads a Retry-After header, in seconds or as a date, as the time to wait from now, at most a year. It reports
// false if there is none or it cannot be read.
func RetryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	value := header.Get("Retry-After")
	if seconds, ok := parseSeconds(value); ok {
		return min(seconds, maxRetryAfter), true
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), maxRetryAfter), true
	}
	return 0, false
}

// parseSeconds reads delta-seconds (RFC 9111 section 1.2.2): digits only. What does not fit a duration is as long as one can be.
func parseSeconds(value string) (time.Duration, bool) {
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0, false
	}
	const most = math.MaxInt64 / int64(time.Second)
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		seconds = most // it is digits, so it can only be too many of them
	}
	return time.Duration(min(seconds, most)) * time.Second, true
}
