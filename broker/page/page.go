// Package page cuts lists into pages that are continued by opaque cursors.
//
// A cursor names the last item of a page and is bound to what was listed, so that it continues only the list that it came
// from. It holds nothing that its reader does not know and gives no access: every list checks its caller by itself.
package page

import (
	"encoding/base64"
	"strings"

	"countersign/internal/strictjson"
)

// The sizes of a page.
const (
	DefaultLimit = 20
	MaxLimit     = 50
)

// Limit returns the size of a page for which n items were asked: [DefaultLimit] for 0 or less, and at most [MaxLimit].
func Limit(n int) int {
	if n <= 0 {
		return DefaultLimit
	}
	return min(n, MaxLimit)
}

// checkLength is how much of the digest binds a cursor. It detects mistakes; it is not a secret.
const checkLength = 16

// maxCursor bounds what is looked at.
const maxCursor = 256

// Cursor returns the cursor behind the item last of the list that scope describes: who lists, and every filter.
func Cursor(last string, scope ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(check(last, scope) + last))
}

// Last returns the item that a cursor names, and false for a cursor of another list or one that was not made here.
func Last(cursor string, scope ...string) (last string, ok bool) {
	if len(cursor) > maxCursor || strings.ContainsAny(cursor, "\r\n") { // which the decoder would skip
		return "", false
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(data) <= checkLength {
		return "", false
	}
	last = string(data[checkLength:])
	return last, string(data[:checkLength]) == check(last, scope)
}

func check(last string, scope []string) string {
	data, err := strictjson.MarshalCanonical(append([]string{last}, scope...))
	if err != nil {
		return "" // only for text that is not UTF-8, which no cursor of ours holds
	}
	return strictjson.Digest(data)[:checkLength]
}
