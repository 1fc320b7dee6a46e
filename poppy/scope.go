package poppy

import (
	"errors"
	"slices"
	"strings"
)

// The two broad scopes (4.4). Neither includes the other.
const (
	ScopeRead  = "poppy:read"
	ScopeWrite = "poppy:write"
)

// ReservedScopePrefix starts the names that only the protocol may define (4.4).
const ReservedScopePrefix = "poppy:"

// Bounds of a scope string.
const (
	MaxScopeBytes = 4096
	MaxScopes     = 128
)

// Scopes is a set of account scopes in the order they were first named. None at all means signed out (4.2).
type Scopes []string

// ParseScopes reads a space-separated scope string (RFC 6749 section 3.3). "" has no scopes. A scope that is named
// twice is kept once. The text of the error is a rule that follows a field's name.
func ParseScopes(text string) (Scopes, error) {
	if text == "" {
		return Scopes{}, nil
	}
	if len(text) > MaxScopeBytes {
		return nil, errors.New("must not be longer than 4096 bytes")
	}
	scopes := Scopes{}
	for scope := range strings.SplitSeq(text, " ") {
		if !ValidScope(scope) {
			return nil, errors.New(`must be scopes with one space between them, without " and \`)
		}
		if !scopes.Has(scope) {
			scopes = append(scopes, scope)
		}
	}
	if len(scopes) > MaxScopes {
		return nil, errors.New("must not name more than 128 scopes")
	}
	return scopes, nil
}

// String writes the scopes with a space between them, "" for none.
func (s Scopes) String() string { return strings.Join(s, " ") }

// Has tells whether scope is one of s.
func (s Scopes) Has(scope string) bool { return slices.Contains(s, scope) }

// Covers tells whether every one of wanted is in s.
func (s Scopes) Covers(wanted Scopes) bool { return len(wanted.Without(s)) == 0 }

// Without returns those of s that are not in other.
func (s Scopes) Without(other Scopes) Scopes {
	return slices.DeleteFunc(slices.Clone(s), other.Has)
}

// Intersect returns those of s that are in other too.
func (s Scopes) Intersect(other Scopes) Scopes {
	return slices.DeleteFunc(slices.Clone(s), func(scope string) bool { return !other.Has(scope) })
}

// Equal tells whether both are the same set, in whatever order.
func (s Scopes) Equal(other Scopes) bool { return s.Covers(other) && other.Covers(s) }

// ValidScope tells whether text is one scope: visible ASCII without " and \ (RFC 6749 section 3.3).
func ValidScope(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// ReservedScope tells whether a name is reserved for the protocol and not one that it defines, so that no Company may
// use it (4.4).
func ReservedScope(name string) bool {
	return strings.HasPrefix(name, ReservedScopePrefix) && name != ScopeRead && name != ScopeWrite
}
