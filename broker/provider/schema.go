package provider

import "countersign/internal/strictjson"

// Schema is a JSON Schema that is compiled when it is first used.
type Schema struct{ source string }

// NewSchema returns the schema written in source.
func NewSchema(source string) *Schema { return &Schema{source: source} }

// Source returns the JSON Schema document.
func (s *Schema) Source() strictjson.Raw { return strictjson.Raw(s.source) }
