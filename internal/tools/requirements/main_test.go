package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The IDs are put together, since the tool would take them for tests of the requirements.
const (
	one   = "P-" + "4.3-01"
	two   = "P-" + "4.3-02"
	three = "B-" + "mcp-01"
)

// project makes a project with two requirements and one test file.
func project(t *testing.T, test string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"conformance/requirements.tsv": "id\tsource\tsection\trole\tlevel\trequirement\thow_to_test\n" +
			one + "\tpoppy\t4.3 Using Session Tokens\tagent\tMUST\tone\ttry\n" +
			two + "\tpoppy\t4.3 Using Session Tokens\tcompany\tMAY\ttwo\ttry\n" +
			three + "\tbroker\tRecovery\tbroker\tFACT\tthree\ttry\n",
		"room/room_test.go":    test,
		"room/room.go":         "// " + two + " in the product proves nothing.",
		".hidden/some_test.go": "// " + three,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestOnlyTestsProve(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, sections, levels, roles string
		missing                       int
	}{
		"all":                  {"// " + one, "", "", "", 2},
		"one level":            {"// " + one, "4.3", "MUST,MUST NOT", "", 0},
		"one role":             {"", "4.3", "", "company", 1},
		"a topic":              {"", "B:mcp", "", "", 1},
		"a section of another": {"", "4.4", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missing, err := run(project(t, test.text), test.sections, test.levels, test.roles, true)
			if err != nil || missing != test.missing {
				t.Fatalf("got %d, %v; want %d", missing, err, test.missing)
			}
		})
	}
}

func TestAnUnknownIDIsAMistake(t *testing.T) {
	t.Parallel()
	if _, err := run(project(t, "// P-4.3-"+"99"), "", "", "", false); err == nil || !strings.Contains(err.Error(), "4.3-99") {
		t.Fatal(err)
	}
}
