package page_test

import (
	"testing"

	"countersign/broker/page"
)

func TestACursorContinuesOnlyItsOwnList(t *testing.T) {
	t.Parallel()
	made := page.Cursor("op_A", "client", "pending")
	if last, ok := page.Last(made, "client", "pending"); !ok || last != "op_A" {
		t.Fatalf("%q, %v", last, ok)
	}
	for name, c := range map[string]struct {
		cursor string
		scope  []string
	}{
		"another client":      {made, []string{"clien2", "pending"}},
		"another filter":      {made, []string{"client", ""}},
		"words moved":         {made, []string{"clientp", "ending"}},
		"fewer":               {made, []string{"client"}},
		"cut":                 {made[:len(made)-1], []string{"client", "pending"}},
		"longer":              {made + "A", []string{"client", "pending"}},
		"a line break inside": {made[:8] + "\n" + made[8:], []string{"client", "pending"}},
		"altered":             {made[:len(made)-2] + "AA", []string{"client", "pending"}},
		"empty":               {"", []string{"client", "pending"}},
		"no UTF-8":            {"AAAAAAAAAAAAAAAAAAAAAAD_", []string{"client", "pending"}},
		"not made here":       {"b3BfQQ", []string{"client", "pending"}},
	} {
		if last, ok := page.Last(c.cursor, c.scope...); ok {
			t.Errorf("%s: accepted as %q", name, last)
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{-1: 20, 0: 20, 1: 1, 50: 50, 51: 50, 1000: 50} {
		if got := page.Limit(n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}
