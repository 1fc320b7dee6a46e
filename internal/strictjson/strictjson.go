// Package strictjson reads JSON from the other party and writes the one canonical form that is digested.
//
// Reading refuses what lenient parsers let through and two readers may understand differently: duplicate member
// names, invalid UTF-8, member names in another case, data after the value, and nesting deeper than [MaxDepth].
// Unknown members are ignored by [Unmarshal] (protocol 3.3) and refused by [UnmarshalClosed].
package strictjson

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how many arrays and objects may be open at once. No document of the protocol needs ten.
const MaxDepth = 32

// Raw is one JSON value kept as text, for members whose content only the other party understands.
type Raw = jsontext.Value

// Error says what is wrong with a JSON text and where. It never repeats a value of the text, so it is safe to log.
type Error struct {
	Pointer string // RFC 6901 pointer to the place, "" for the whole text
	Problem string // what is wrong, in words, without the value
}

// Error returns the problem with its place.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return e.Problem
	}
	return e.Pointer + ": " + e.Problem
}

// Unmarshal decodes data into v and ignores members that v does not know. The error is an [*Error].
func Unmarshal(data []byte, v any) error { return unmarshal(data, v) }

// UnmarshalClosed decodes data into v and refuses members that v does not know. The error is an [*Error].
func UnmarshalClosed(data []byte, v any) error {
	return unmarshal(data, v, json.RejectUnknownMembers(true))
}

// Marshal writes v. Members come in the order of the struct's fields, those of maps sorted by name. Nil slices and
// maps are written as [] and {}.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }

// Canonical returns the RFC 8785 form of a JSON text: the one spelling that is stored, digested and compared.
func Canonical(data []byte) ([]byte, error) {
	if err := checkDepth(data); err != nil {
		return nil, err
	}
	value := Raw(data).Clone()
	if err := value.Canonicalize(); err != nil {
		return nil, explain(err)
	}
	return value, nil
}

// MarshalCanonical writes v in its RFC 8785 form.
func MarshalCanonical(v any) ([]byte, error) {
	data, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	return Canonical(data)
}

// Digest returns the SHA-256 of a canonical text in lower-case hexadecimal, 64 characters.
func Digest(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

func unmarshal(data []byte, v any, options ...json.Options) error {
	if err := checkDepth(data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, options...); err != nil {
		return explain(err)
	}
	return nil
}

// checkDepth counts open brackets outside strings before anything recursive sees the text.
func checkDepth(data []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return &Error{Problem: fmt.Sprintf("nested deeper than %d levels", MaxDepth)}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// explain turns a library error into ours, dropping everything that could quote the text.
func explain(err error) error {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		problem := "is not well-formed JSON"
		if errors.Is(err, jsontext.ErrDuplicateName) {
			problem = "has a member name twice"
		}
		return &Error{Pointer: string(syntactic.JSONPointer), Problem: problem}
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(err, json.ErrUnknownName) {
			return &Error{Pointer: string(semantic.JSONPointer), Problem: "is not a known member"}
		}
		if inner, ok := errors.AsType[*Error](semantic.Err); ok { // from an UnmarshalJSON method of ours
			return &Error{Pointer: string(semantic.JSONPointer) + inner.Pointer, Problem: inner.Problem}
		}
		return &Error{Pointer: string(semantic.JSONPointer), Problem: "has the wrong type: " + kindName(semantic.JSONKind) + " does not fit here"}
	}
	return &Error{Problem: "is not well-formed JSON"}
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "this string"
	case '0':
		return "this number"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "this value"
	}
}
