// Command requirements lists the requirements of conformance/requirements.tsv that no test names.
//
//	go run ./internal/tools/requirements [-sections 3,4.1] [-levels MUST,"MUST NOT"] [-roles company,agent] [-list] [-require]
//
// A test names a requirement by its ID, in its name or in a comment: P-4.3-28. With -require the exit code is 1 when one of
// the selected requirements has no test. An ID in a test that the list does not know is always an error: it is a typing mistake.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type requirement struct{ id, section, role, level, text string }

// number is the section's number: requirements of the broker have a topic in their ID instead.
func (r requirement) number() string {
	if strings.HasPrefix(r.id, "B-") {
		return strings.Split(r.id, "-")[1]
	}
	return strings.Split(r.section, " ")[0]
}

// source is P (protocol), O (operations extension) or B (broker).
func (r requirement) source() string { return r.id[:1] }

func main() {
	sections := flag.String("sections", "", "sections such as 3,4.1 for the protocol, O:5.2 for the extension, B:handles for the broker; empty for all")
	levels := flag.String("levels", "", "levels such as MUST,MUST NOT; empty for all")
	roles := flag.String("roles", "", "roles: company, agent, both, broker; empty for all")
	list := flag.Bool("list", false, "list the tested ones too, with the files that name them")
	require := flag.Bool("require", false, "exit 1 when a selected requirement has no test")
	root := flag.String("root", ".", "the project's folder")
	flag.Parse()
	missing, err := run(*root, *sections, *levels, *roles, *list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "requirements:", err)
		os.Exit(2)
	}
	if *require && missing > 0 {
		os.Exit(1)
	}
}

func run(root, sections, levels, roles string, list bool) (missing int, err error) {
	all, err := load(filepath.Join(root, "conformance", "requirements.tsv"))
	if err != nil {
		return 0, err
	}
	named, err := scan(root)
	if err != nil {
		return 0, err
	}
	known := make(map[string]bool, len(all))
	for _, r := range all {
		known[r.id] = true
	}
	for id, files := range named {
		if !known[id] {
			return 0, fmt.Errorf("%s names %s, which is not in conformance/requirements.tsv", files[0], id)
		}
	}
	selected := 0
	for _, r := range all {
		inSection := selects(sections, r.source()+":"+r.number()) || r.source() == "P" && selects(sections, r.number())
		if !inSection || !selects(levels, r.level) || !selects(roles, r.role) {
			continue
		}
		selected++
		switch files := named[r.id]; {
		case len(files) == 0:
			missing++
			fmt.Printf("untested  %-14s %-8s %-9s %s\n", r.id, r.role, r.level, r.text)
		case list:
			fmt.Printf("tested    %-14s %-8s %-9s %s\n", r.id, r.role, r.level, strings.Join(files, " "))
		}
	}
	fmt.Printf("%d of %d selected requirements are named by a test, %d are not.\n", selected-missing, selected, missing)
	return missing, nil
}

// selects reports whether value is in the comma-separated list; an empty list selects everything.
func selects(list, value string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), value)
}

func load(path string) ([]requirement, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []requirement
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 7 {
			return nil, fmt.Errorf("%s: a line has %d fields, not 7", path, len(fields))
		}
		if fields[0] != "id" {
			all = append(all, requirement{fields[0], fields[2], fields[3], fields[4], fields[5]})
		}
	}
	return all, lines.Err()
}

var pattern = regexp.MustCompile(`\b[POB]-[0-9a-z.]+-[0-9]+\b`)

// scan finds the IDs in test files and their data.
func scan(root string) (map[string][]string, error) {
	named := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name != "." && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "testdata"+string(filepath.Separator)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, id := range pattern.FindAllString(string(text), -1) {
			if file := filepath.ToSlash(path); !slices.Contains(named[id], file) {
				named[id] = append(named[id], file)
			}
		}
		return nil
	})
	for _, files := range named {
		slices.SortFunc(files, cmp.Compare)
	}
	return named, err
}
