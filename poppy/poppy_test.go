package poppy_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// gone, as a value given to edit, removes the member.
const gone = "\x00gone"

// load returns a document of testdata, edited: path and value in turn, a path being names and array places with slashes.
func load(t testing.TB, name string, edits ...any) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return edit(t, data, edits...)
}

func edit(t testing.TB, data []byte, edits ...any) []byte {
	t.Helper()
	var document any
	if err := strictjson.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(edits, 2) {
		document = set(t, document, strings.Split(pair[0].(string), "/"), pair[1])
	}
	edited, err := strictjson.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

func set(t testing.TB, at any, path []string, value any) any {
	t.Helper()
	if len(path) == 0 {
		return value
	}
	switch at := at.(type) {
	case map[string]any:
		if len(path) == 1 && value == gone {
			delete(at, path[0])
		} else {
			at[path[0]] = set(t, at[path[0]], path[1:], value)
		}
		return at
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i > len(at) {
			t.Fatalf("no element %s", path[0])
		}
		if i == len(at) {
			at = append(at, nil)
		}
		at[i] = set(t, at[i], path[1:], value)
		return at
	default:
		t.Fatalf("nothing at %v", path)
		return nil
	}
}

// fields returns the fields of the problems that err lists.
func fields(t testing.TB, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	problems, ok := errors.AsType[poppy.Problems](err)
	if !ok {
		t.Fatalf("%T is not Problems: %v", err, err)
	}
	list := make([]string, len(problems))
	for i, problem := range problems {
		if problem.Rule == "" {
			t.Errorf("%s: no rule", problem.Field)
		}
		list[i] = problem.Field
	}
	return list
}

// wantFields checks that err has exactly these problems, each once.
func wantFields(t testing.TB, err error, want ...string) {
	t.Helper()
	if got := fields(t, err); !slices.Equal(got, want) {
		t.Errorf("got problems in %q, want %q\n%v", got, want, err)
	}
}

// wantSame checks that v is written as the JSON text want, members in any order.
func wantSame(t testing.TB, v any, want []byte) {
	t.Helper()
	got, err := strictjson.MarshalCanonical(v)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := strictjson.Canonical(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, canonical) {
		t.Errorf("got  %s\nwant %s", got, canonical)
	}
}
