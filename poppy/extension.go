package poppy

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"countersign/internal/strictjson"
)

// ExtensionOperations is the name of the Operations extension, OperationsVersion the version spoken here.
const (
	ExtensionOperations = "operations"
	OperationsVersion   = "1"
)

// Extensions are the extensions that a Company or a Personal Agent lists, by name (3.3). An entry is kept as text, so
// that one which is not known here cannot get in the way.
type Extensions map[string]strictjson.Raw

// OperationsEntry is a Company's entry for the Operations extension (Operations 2).
type OperationsEntry struct {
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
	Resource string `json:"resource,omitempty"` // "": any of the Company's DPoP Session Tokens will do
}

// Supports tells whether the extension is listed with this version. An incompatible change gets a new version, so
// another one is another extension (3.3).
func (e Extensions) Supports(name, version string) bool {
	raw, listed := e[name]
	if !listed {
		return false
	}
	var entry struct {
		Version string `json:"version"`
	}
	return strictjson.Unmarshal(raw, &entry) == nil && entry.Version == version
}

// Operations returns the entry of a Company that supports the Operations extension in the version spoken here.
func (e Extensions) Operations() (OperationsEntry, bool) {
	if !e.Supports(ExtensionOperations, OperationsVersion) {
		return OperationsEntry{}, false
	}
	var entry OperationsEntry
	err := strictjson.Unmarshal(e[ExtensionOperations], &entry)
	return entry, err == nil
}

// Set lists an extension with its entry, a struct of the extension's fields.
func (e Extensions) Set(name string, entry any) error {
	raw, err := strictjson.Marshal(entry)
	if err != nil {
		return err
	}
	e[name] = raw
	return nil
}

// anyEndpoint tells whether an extension, known here or not, has an endpoint of its own.
func (e Extensions) anyEndpoint() bool {
	for _, raw := range e {
		var entry struct {
			Endpoint strictjson.Raw `json:"endpoint"`
		}
		if strictjson.Unmarshal(raw, &entry) == nil && entry.Endpoint != nil {
			return true
		}
	}
	return false
}

// checkOperationsEntry checks a Company's entry for the version that is spoken here; another one is skipped.
func checkOperationsEntry(c *checker, raw strictjson.Raw) {
	const place = "extensions.operations"
	if !(Extensions{ExtensionOperations: raw}).Supports(ExtensionOperations, OperationsVersion) {
		return
	}
	var entry OperationsEntry
	if err := strictjson.Unmarshal(raw, &entry); err != nil {
		c.within(place, jsonProblem(err))
		return
	}
	c.url(entry.Endpoint, "Operations 2", place+".endpoint")
	c.optionalURL(entry.Resource, "Operations 2", place+".resource")
}

// checkForPublishing checks the form that every entry must have, whoever defined the extension (3.3).
func (e Extensions) checkForPublishing(c *checker) {
	for _, name := range slices.Sorted(maps.Keys(e)) {
		place := fieldPath("/extensions/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
		c.rule(CheckExtensionName(name), "3.3", place)
		var entry struct {
			Version  string `json:"version"`
			Endpoint string `json:"endpoint"`
		}
		if err := strictjson.Unmarshal(e[name], &entry); err != nil {
			c.within(place, jsonProblem(err))
			continue
		}
		c.require(isDigits(entry.Version), "3.3", place+".version", `must be the extension's major version, such as "1"`)
		if name != ExtensionOperations {
			c.optionalURL(entry.Endpoint, "3", place+".endpoint")
		}
	}
}

// CheckExtensionName tells whether an extension may have this name: a plain one if the protocol defines it, otherwise
// one that starts with a domain, such as outdoor.example/gift-wrap (3.3). The text of its error is a rule that follows
// a field's name.
func CheckExtensionName(name string) error {
	domain, _, _ := strings.Cut(name, "/")
	if name == ExtensionOperations || strings.Contains(domain, ".") && CheckDomain(domain) == nil {
		return nil
	}
	return errors.New("must be named after a domain of whoever defines it, such as outdoor.example/gift-wrap; only the protocol's own extensions have plain names")
}
