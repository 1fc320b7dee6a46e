package provider

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"countersign/internal/strictjson"
)

// maxExact is the largest whole number that every JSON reader reads exactly (RFC 7493 2.2).
const maxExact = 1<<53 - 1

// Canonical returns the RFC 8785 form of a JSON object. A number that this form would round is an error, since what is
// digested and approved must be what was meant. The error never repeats a value and is safe to show.
func Canonical(data strictjson.Raw) (strictjson.Raw, error) {
	canonical, err := strictjson.Canonical(data)
	if err != nil {
		return nil, err
	}
	if canonical[0] != '{' {
		return nil, errors.New("must be an object")
	}
	for i := 0; i < len(canonical); i++ {
		switch c := canonical[i]; {
		case c == '"':
			for i++; canonical[i] != '"'; i++ {
				if canonical[i] == '\\' {
					i++
				}
			}
		case c == '-' || '0' <= c && c <= '9':
			start := i
			for i+1 < len(canonical) && inNumber(canonical[i+1]) {
				i++
			}
			if n, err := strconv.ParseFloat(string(canonical[start:i+1]), 64); err != nil || n > maxExact || n < -maxExact {
				return nil, fmt.Errorf("has a number beyond ±%d, which would be rounded; send it as a string", int64(maxExact))
			}
		}
	}
	return canonical, nil
}

func inNumber(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// MaxContent bounds the content of a plan.
const MaxContent = 1 << 20

// NewContent writes v as the content of a [Plan]: an object of at most 1 MiB.
func NewContent(v any) (strictjson.Raw, error) {
	data, err := strictjson.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing a plan: %w", err)
	}
	canonical, err := Canonical(data)
	if err != nil {
		return nil, fmt.Errorf("writing a plan: it %w", err)
	}
	if len(canonical) > MaxContent {
		return nil, fmt.Errorf("writing a plan: it has more than %d bytes", MaxContent)
	}
	return canonical, nil
}

var factName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Check returns what is wrong with facts that a provider made, nil if nothing is.
func (f Facts) Check() error {
	if len(f) > 64 {
		return errors.New("more than 64 facts")
	}
	for name, fact := range f {
		if !factName.MatchString(name) {
			return fmt.Errorf("fact %q is not named as facts are", name)
		}
		switch v := fact.(type) {
		case Text:
			if len(v) > 500 {
				return fmt.Errorf("fact %s is longer than 500 bytes", name)
			}
		case Texts:
			if len(v) > 64 {
				return fmt.Errorf("fact %s has more than 64 texts", name)
			}
			for _, text := range v {
				if len(text) > 500 {
					return fmt.Errorf("fact %s has a text longer than 500 bytes", name)
				}
			}
		case Number, Flag:
		case nil:
			return fmt.Errorf("fact %s has no value", name)
		}
	}
	return nil
}
