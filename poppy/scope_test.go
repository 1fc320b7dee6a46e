package poppy_test

import (
	"slices"
	"strings"
	"testing"

	"countersign/poppy"
)

// P-4.2-34 P-4.4-21
func TestParseScopes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                       {},
		"poppy:read":             {"poppy:read"},
		"poppy:write poppy:read": {"poppy:write", "poppy:read"},
		"a b a":                  {"a", "b"},
		"!#[]~":                  {"!#[]~"},
	} {
		got, err := poppy.ParseScopes(text)
		if err != nil || !slices.Equal(got, want) || got == nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	if got, err := poppy.ParseScopes("a  b"); err == nil || got != nil {
		t.Errorf("two spaces: got %q", got)
	}
	for _, text := range []string{" ", " a", "a ", "a\tb", `a"b`, `a\b`, "a\x7f", "ä", strings.Repeat("a", 4097)} {
		if _, err := poppy.ParseScopes(text); err == nil {
			t.Errorf("%q accepted", text)
		}
	}
	var many []string
	for i := range poppy.MaxScopes + 1 {
		many = append(many, "s"+strings.Repeat("x", i%10)+string(rune('a'+i/10)))
	}
	if _, err := poppy.ParseScopes(strings.Join(many[:poppy.MaxScopes], " ")); err != nil {
		t.Error(err)
	}
	if _, err := poppy.ParseScopes(strings.Join(many, " ")); err == nil {
		t.Error("too many accepted")
	}
}

// P-4.4-07: neither broad scope includes the other.
func TestScopesAsSets(t *testing.T) {
	t.Parallel()
	both := poppy.Scopes{poppy.ScopeRead, poppy.ScopeWrite}
	read, write, none := both[:1:1], both[1:2:2], poppy.Scopes{}
	for name, ok := range map[string]bool{
		"both cover read":       both.Covers(read),
		"read not write":        !read.Covers(write),
		"write not read":        !write.Covers(read),
		"all cover none":        none.Covers(none) && read.Covers(nil),
		"none cover no read":    !none.Covers(read),
		"has":                   both.Has(poppy.ScopeWrite) && !read.Has(poppy.ScopeWrite) && !read.Has(""),
		"without":               both.Without(read).Equal(write) && read.Without(both).Equal(nil),
		"intersect":             both.Intersect(write).Equal(write) && read.Intersect(write).Equal(none),
		"equal in other orders": both.Equal(poppy.Scopes{poppy.ScopeWrite, poppy.ScopeRead}),
		"not equal":             !both.Equal(read) && !read.Equal(both),
		"written":               both.String() == "poppy:read poppy:write" && none.String() == "",
		"the set is untouched":  both.String() == "poppy:read poppy:write",
	} {
		if !ok {
			t.Error(name)
		}
	}
}

// P-4.4-13
func TestReservedScope(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"poppy:read": false, "poppy:write": false, "poppy:": true, "poppy:pay": true, "poppy": false, "addresses": false, "Poppy:x": false,
	} {
		if poppy.ReservedScope(name) != want {
			t.Errorf("%s: got %t", name, !want)
		}
	}
}
