package poppy_test

import (
	"strings"
	"testing"

	"countersign/internal/id"
	"countersign/poppy"
)

// P-7.2-07
func TestValidID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"cnv_8f3Kd2":             true,
		"a":                      true,
		"-_-":                    true,
		id.New("evt"):            true,
		strings.Repeat("a", 256): true,
		strings.Repeat("a", 257): false,
		"":                       false,
		"a b":                    false,
		"a.b":                    false,
		"a=":                     false,
		"a+b":                    false,
		"a/b":                    false,
		"a\n":                    false,
		"é":                      false,
	} {
		if poppy.ValidID(text) != want {
			t.Errorf("%q: got %t", text, !want)
		}
	}
}

// O-3-01 O-3-02: the Company's own IDs are fine as long as a path can hold them.
func TestValidOperationID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"exc_5Rt2":               true,
		"2026.10:7@a~b,c;d=e":    true,
		"...":                    true,
		strings.Repeat("a", 256): true,
		strings.Repeat("a", 257): false,
		"":                       false,
		".":                      false,
		"..":                     false,
		"a/b":                    false,
		"a?b":                    false,
		"a#b":                    false,
		"a%2Fb":                  false,
		"a b":                    false,
		"a\\b":                   false,
		"é":                      false,
		"a\x00":                  false,
	} {
		if poppy.ValidOperationID(text) != want {
			t.Errorf("%q: got %t", text, !want)
		}
	}
}

func TestValidUserAndSessionIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"usr_Q7c1vK": true, "a b/ü": false, "a b/c": true, "": false, "a\n": false, "a\x7f": false,
	} {
		if poppy.ValidUserID(text) != want || poppy.ValidSessionID(text) != want {
			t.Errorf("%q: want %t", text, want)
		}
	}
	if !poppy.ValidUserID(strings.Repeat("a", 255)) || poppy.ValidUserID(strings.Repeat("a", 256)) {
		t.Error("a User ID has at most 255 characters")
	}
	if !poppy.ValidSessionID(strings.Repeat("a", 256)) || poppy.ValidSessionID(strings.Repeat("a", 257)) {
		t.Error("a session_id has at most 256 characters")
	}
}
