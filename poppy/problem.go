package poppy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"countersign/internal/strictjson"
)

// FieldError is one fault of a document. It never repeats the value, which may be a secret.
type FieldError struct {
	Field   string // where, as a path: "auth.issuer", "apis[1].url"; "" for the whole document
	Rule    string // what must hold, in words that follow the field's name: "must be an https URL"
	Section string // what says so: "3.2", "Operations 3"; "" when it is plain JSON
}

// Error returns the field, the rule and the section in one line.
func (e *FieldError) Error() string {
	text := e.Rule
	if e.Field != "" {
		text = e.Field + " " + text
	}
	if e.Section != "" {
		text += " (section " + e.Section + ")"
	}
	return text
}

// Problems is what is wrong with one document, in a fixed order and at most 100 of it. As an error it is never
// empty.
type Problems []*FieldError

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems one by one, for errors.As.
func (p Problems) Unwrap() []error {
	list := make([]error, len(p))
	for i, problem := range p {
		list[i] = problem
	}
	return list
}

// maxProblems is how many are kept of one document. The other party decides how many there are.
const maxProblems = 100

// checker gathers problems while a document is walked from top to bottom.
type checker struct{ problems Problems }

// require adds a problem unless ok.
func (c *checker) require(ok bool, section, field, rule string) {
	if !ok && len(c.problems) < maxProblems {
		c.problems = append(c.problems, &FieldError{Field: field, Rule: rule, Section: section})
	}
}

// rule adds the problem that err describes, if any. Its text is a rule, as those of [ParseURL] are.
func (c *checker) rule(err error, section, field string) {
	if err != nil {
		c.require(false, section, field, err.Error())
	}
}

// url requires an https URL (3).
func (c *checker) url(text, section, field string) {
	_, err := ParseURL(text)
	c.rule(err, section, field)
}

// optionalURL requires an https URL unless the field is absent.
func (c *checker) optionalURL(text, section, field string) {
	if text != "" {
		c.url(text, section, field)
	}
}

// within adds the problems of a part of the document, with the part's place before theirs.
func (c *checker) within(prefix string, err error) {
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		return
	}
	for _, problem := range problems {
		field := prefix
		if problem.Field != "" {
			field += "." + problem.Field
		}
		c.require(false, problem.Section, field, problem.Rule)
	}
}

// err returns the problems as an error, nil when there are none.
func (c *checker) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return c.problems
}

// decode reads one bounded JSON document into v. Its error is [Problems].
func decode(data []byte, limit int, v any) error {
	if len(data) > limit {
		return Problems{{Rule: fmt.Sprintf("must not be longer than %d bytes", limit)}}
	}
	if err := strictjson.Unmarshal(data, v); err != nil {
		return jsonProblem(err)
	}
	return nil
}

// jsonProblem turns an error of strictjson into ours, with its RFC 6901 pointer as a path.
func jsonProblem(err error) Problems {
	fault, ok := errors.AsType[*strictjson.Error](err)
	if !ok {
		return Problems{{Rule: "is not well-formed JSON"}}
	}
	return Problems{{Field: fieldPath(fault.Pointer), Rule: fault.Problem}}
}

// fieldPath writes /apis/1/url as apis[1].url. Names come from the other party, so odd ones are quoted and long ones cut.
func fieldPath(pointer string) string {
	const longest = 64
	var path strings.Builder
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if len(name) > longest {
			name = name[:longest] + "…"
		}
		switch _, err := strconv.Atoi(name); {
		case err == nil:
			path.WriteString("[" + name + "]")
		case !isFieldName(name):
			path.WriteString("[" + strconv.QuoteToASCII(name) + "]")
		default:
			if path.Len() > 0 {
				path.WriteByte('.')
			}
			path.WriteString(name)
		}
	}
	return path.String()
}

// isFieldName reports whether a name can stand in a path without quotes, as every name of the protocol can.
func isFieldName(name string) bool {
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
