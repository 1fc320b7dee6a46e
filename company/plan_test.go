package company_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// statement is one that a room's source holds as a whole.
var statement = regexp.MustCompile("(?s)`\\s*((?:SELECT|INSERT|UPDATE|DELETE)\\s[^`]+)`")

// What a token request or a guarded one costs must not grow with the tables: every statement finds its rows by an index. A scan is allowed where
// the statement itself says how many rows it reads.
func TestNoStatementOfATokenRequestScansATable(t *testing.T) {
	t.Parallel()
	s := open(t)
	planned := 0
	for _, file := range []string{"registry/store.go", "session/store.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range statement.FindAllStringSubmatch(string(source), -1) {
			text := match[1]
			planned++
			err := s.db.Query(t.Context(), func(scan func(...any) error) error {
				var id, parent, unused int
				var step string
				if err := scan(&id, &parent, &unused, &step); err != nil {
					return err
				}
				if strings.HasPrefix(step, "SCAN") && !strings.Contains(text, "LIMIT") {
					t.Errorf("%s: %s\n%s", file, step, text)
				}
				return nil
			}, "EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "?"))...)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
			}
		}
	}
	if planned < 20 {
		t.Errorf("only %d statements were found", planned)
	}
}
