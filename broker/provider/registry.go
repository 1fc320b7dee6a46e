package provider

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Registry is the operations that a broker offers, by name. It never changes and may be used concurrently.
type Registry struct {
	operations  map[string]Operation
	descriptors map[string]Descriptor
}

// NewRegistry collects the operations of all providers. It returns an error for a descriptor that breaks its rules and for a
// name that is given twice: mistakes of a provider's author.
func NewRegistry(operations ...Operation) (*Registry, error) {
	r := &Registry{make(map[string]Operation, len(operations)), make(map[string]Descriptor, len(operations))}
	for _, operation := range operations {
		d := operation.Descriptor()
		if err := d.check(); err != nil {
			return nil, fmt.Errorf("registering operation %q: %w", d.Name, err)
		}
		if _, twice := r.operations[d.Name]; twice {
			return nil, fmt.Errorf("registering operation %q: the name is given twice", d.Name)
		}
		if d.Timeout == 0 {
			d.Timeout = DefaultTimeout
		}
		r.operations[d.Name], r.descriptors[d.Name] = operation, d
	}
	return r, nil
}

// Find returns the operation of that name and its descriptor.
func (r *Registry) Find(name string) (Operation, Descriptor, bool) {
	operation, ok := r.operations[name]
	return operation, r.descriptors[name], ok
}

// Descriptors returns what is offered, sorted by name.
func (r *Registry) Descriptors() []Descriptor {
	list := make([]Descriptor, 0, len(r.descriptors))
	for _, name := range slices.Sorted(maps.Keys(r.descriptors)) {
		list = append(list, r.descriptors[name])
	}
	return list
}

var operationName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$`)

func (d Descriptor) check() error {
	switch {
	case !operationName.MatchString(d.Name) || len(d.Name) > 128:
		return errors.New("the name is not words joined by dots")
	case d.Title == "" || len(d.Title) > 160:
		return errors.New("the title must have 1 to 160 bytes")
	case d.Summary == "" || len(d.Summary) > 500:
		return errors.New("the summary must have 1 to 500 bytes")
	case !slices.Contains([]Effect{Read, Keyed, Change}, d.Effect):
		return errors.New("the effect is none")
	case !slices.Contains([]Hint{Unattended, Ask, Deny}, d.Hint):
		return errors.New("the hint is none")
	case d.Target == nil || d.Arguments == nil:
		return errors.New("a schema is missing")
	case d.Timeout < 0:
		return errors.New("the timeout is negative")
	}
	for _, public := range d.PublicNames {
		if public == "" || Blanked(public) {
			return fmt.Errorf("the public name %q would be blanked too", public)
		}
	}
	return nil
}
