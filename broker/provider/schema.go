package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"countersign/internal/strictjson"
)

// Schema is a JSON Schema of draft 2020-12, compiled once, when it is first used: a provider may offer a thousand operations.
type Schema struct {
	source  string
	compile func() (*jsonschema.Schema, error)
}

// NewSchema returns the schema written in source. It must describe a closed object: "type": "object" and
// "additionalProperties": false (or "unevaluatedProperties": false) at its top. A reference to another document is an error.
func NewSchema(source string) *Schema {
	return &Schema{source, sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(source) })}
}

// Source returns the JSON Schema document.
func (s *Schema) Source() strictjson.Raw { return strictjson.Raw(s.source) }

// Fault is one thing that is wrong with a document.
type Fault struct {
	Pointer string // RFC 6901 pointer to the place
	Problem string // in words, without any value of the document
}

// maxFaults bounds what is reported, and with it an answer to a document that is wrong everywhere.
const maxFaults = 20

// Validate returns what is wrong with a document, at most 20 faults in the order of their places, and an error if the schema
// itself is broken or the document is not JSON.
func (s *Schema) Validate(document strictjson.Raw) ([]Fault, error) {
	schema, err := s.compile()
	if err != nil {
		return nil, err
	}
	var value any
	if err := strictjson.Unmarshal(document, &value); err != nil {
		return nil, fmt.Errorf("validating: %w", err)
	}
	err = schema.Validate(value)
	if err == nil {
		return nil, nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return nil, fmt.Errorf("validating: %w", err)
	}
	faults := flatten(nil, invalid)
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Problem, b.Problem))
	})
	faults = slices.Compact(faults)
	return faults[:min(len(faults), maxFaults)], nil
}

func compile(source string) (*jsonschema.Schema, error) {
	var document struct {
		Type                  string         `json:"type"`
		AdditionalProperties  strictjson.Raw `json:"additionalProperties"`
		UnevaluatedProperties strictjson.Raw `json:"unevaluatedProperties"`
	}
	var value any
	if err := errors.Join(strictjson.Unmarshal([]byte(source), &document), strictjson.Unmarshal([]byte(source), &value)); err != nil {
		return nil, fmt.Errorf("compiling a schema: %w", err)
	}
	if document.Type != "object" || string(document.AdditionalProperties) != "false" && string(document.UnevaluatedProperties) != "false" {
		return nil, errors.New("compiling a schema: it does not describe a closed object")
	}
	const name = "operation:schema"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // knows no scheme, so that no reference is fetched
	if err := compiler.AddResource(name, value); err != nil {
		return nil, fmt.Errorf("compiling a schema: %w", err)
	}
	schema, err := compiler.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("compiling a schema: %w", err)
	}
	return schema, nil
}

// flatten appends the innermost causes, which name the places that a caller can mend.
func flatten(faults []Fault, invalid *jsonschema.ValidationError) []Fault {
	for _, cause := range invalid.Causes {
		faults = flatten(faults, cause)
	}
	if len(invalid.Causes) > 0 {
		return faults
	}
	place := pointer(invalid.InstanceLocation)
	if unknown, ok := invalid.ErrorKind.(*kind.AdditionalProperties); ok {
		slices.Sort(unknown.Properties) // there may be very many
		for _, name := range unknown.Properties[:min(len(unknown.Properties), maxFaults)] {
			faults = append(faults, Fault{place + pointer([]string{name}), "is not a known member"})
		}
		return faults
	}
	return append(faults, Fault{place, problem(invalid.ErrorKind)})
}

// pointer writes a place. Names come from the document, so each is made safe and short.
func pointer(location []string) string {
	var text strings.Builder
	for _, name := range location {
		text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(Sanitize(name, 64)))
	}
	return Cut(text.String(), 256)
}

// problem words a violation by what the schema wants, never by what the document has.
func problem(violation jsonschema.ErrorKind) string {
	switch v := violation.(type) {
	case *kind.Required:
		return "lacks " + strings.Join(v.Missing, ", ")
	case *kind.FalseSchema:
		return "is not a known member"
	case *kind.Type:
		return "must be " + strings.Join(v.Want, " or ")
	case *kind.Enum:
		return fmt.Sprintf("must be one of %v", v.Want)
	case *kind.Const:
		return fmt.Sprintf("must be %v", v.Want)
	case *kind.Format:
		return "must be a valid " + v.Want
	case *kind.Pattern:
		return "must match " + v.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", v.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", v.Want)
	case *kind.Minimum:
		return "must be at least " + v.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + v.Want.RatString()
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d elements", v.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d elements", v.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members", v.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d members", v.Want)
	default:
		return "does not satisfy " + strings.Join(violation.KeywordPath(), "/")
	}
}
