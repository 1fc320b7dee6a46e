// Package config reads a TOML configuration file strictly, and reports every mistake with file, line and fix.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxSize bounds a configuration file, in bytes.
const maxSize = 4 << 20

// Duration is a length of time written as text such as "90s" or "1h30m".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New(`a length of time is written like "30s", "15m" or "24h"`)
	}
	*d = Duration(value)
	return nil
}

// Problem is one mistake in a configuration file.
type Problem struct {
	File string
	Line int    // 1 is the first; 0 when the mistake is that something is missing altogether
	What string // what is wrong
	Fix  string // what to write instead; may be empty when What says it
}

// Error returns file:line: what, and the fix on a line of its own.
func (p Problem) Error() string {
	place := p.File
	if p.Line > 0 {
		place += ":" + strconv.Itoa(p.Line)
	}
	if p.Fix == "" {
		return place + ": " + p.What
	}
	return place + ": " + p.What + "\n    fix: " + p.Fix
}

// File is a configuration file that was read, able to say where a field stands in it.
type File struct {
	Path  string
	lines map[string]int
}

// Load decodes the file at path into the struct that v points to. A key that v does not know is a mistake. The error joins one
// [Problem] for each mistake found.
func Load(path string, v any) (*File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Problem{File: path, What: "there is no such file", Fix: "name the file with --config, or let the init command write one"}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if info.Size() > maxSize {
		return nil, Problem{File: path, What: "the file is larger than 4 MiB, which no configuration is", Fix: "name the right file with --config"}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if err := decode(path, data, v); err != nil {
		return nil, err
	}
	return &File{Path: path, lines: locate(data)}, nil
}

// Problem says what is wrong with a field, such as "company[0].organization.domain", at its line, or at that of the
// closest table around it.
func (f *File) Problem(field, what, fix string) Problem {
	for place := field; place != ""; place = parent(place) {
		if line, ok := f.lines[place]; ok {
			return Problem{File: f.Path, Line: line, What: field + " " + what, Fix: fix}
		}
	}
	return Problem{File: f.Path, What: field + " " + what, Fix: fix}
}

// Beside returns a path given in the file as it is meant: relative to the file's own folder.
func (f *File) Beside(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.Path), path)
}

func parent(field string) string {
	end := strings.LastIndexAny(field, ".[")
	return field[:max(end, 0)]
}

func decode(path string, data []byte, v any) error {
	decoder := toml.NewDecoder(strings.NewReader(string(data))).DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		return nil
	}
	if missing, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		known := keys(reflect.TypeOf(v))
		var problems []error
		for i := range missing.Errors {
			line, _ := missing.Errors[i].Position()
			key := missing.Errors[i].Key()
			problem := Problem{File: path, Line: line, What: "there is no setting " + strings.Join(key, ".")}
			if near := closest(key[len(key)-1], known); near != "" {
				problem.Fix = "write " + near
			} else {
				problem.Fix = "remove the line"
			}
			problems = append(problems, problem)
		}
		return errors.Join(problems...)
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := wrong.Position()
		return Problem{File: path, Line: line, What: strings.TrimPrefix(wrong.Error(), "toml: ")}
	}
	return Problem{File: path, What: strings.TrimPrefix(err.Error(), "toml: ")}
}

// locate finds the line of every table and key: organization.name, api[1].url.
func locate(data []byte) map[string]int {
	lines := make(map[string]int)
	count := make(map[string]int) // entries of an array of tables so far
	table := ""
	line := func(n *unstable.Node, p *unstable.Parser) int {
		key := n.Key()
		key.Next()
		return p.Shape(key.Node().Raw).Start.Line
	}
	// resolve puts the current index behind each array of tables on the way.
	resolve := func(base string, key unstable.Iterator) string {
		for key.Next() {
			if base != "" {
				base += "."
			}
			base += string(key.Node().Data)
			if n, ok := count[base]; ok {
				base += "[" + strconv.Itoa(n-1) + "]"
			}
		}
		return base
	}
	var parser unstable.Parser
	parser.Reset(data)
	for parser.NextExpression() {
		switch node := parser.Expression(); node.Kind {
		case unstable.Table:
			table = resolve("", node.Key())
			lines[table] = line(node, &parser)
		case unstable.ArrayTable:
			name, parts := "", node.Key()
			for parts.Next() {
				if name != "" {
					name += "."
				}
				name += string(parts.Node().Data)
				if n, ok := count[name]; ok && !parts.IsLast() {
					name += "[" + strconv.Itoa(n-1) + "]"
				}
			}
			count[name]++
			table = name + "[" + strconv.Itoa(count[name]-1) + "]"
			lines[table] = line(node, &parser)
		case unstable.KeyValue:
			lines[resolve(table, node.Key())] = line(node, &parser)
		default: // comments
		}
	}
	return lines
}

// keys lists the names that a struct and everything in it take.
func keys(t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return keys(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	var names []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
		names = append(names, keys(field.Type)...)
	}
	return names
}

// closest returns the known name that a person most likely meant, or "".
func closest(name string, known []string) string {
	best, limit := "", 1+len(name)/4
	for _, candidate := range known {
		if d := distance(strings.ToLower(name), candidate); d <= limit {
			best, limit = candidate, d-1
		}
	}
	return best
}

// distance is how many letters must be changed, added or dropped to make one word of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
