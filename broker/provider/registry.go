package provider

// Registry is the operations that a broker offers, by name. It never changes and may be used concurrently.
type Registry struct {
	operations map[string]Operation
	names      []string
}

// Find returns the operation of that name.
func (r *Registry) Find(name string) (Operation, bool) {
	found, ok := r.operations[name]
	return found, ok
}

// Descriptors returns what is offered, sorted by name.
func (r *Registry) Descriptors() []Descriptor {
	list := make([]Descriptor, len(r.names))
	for i, name := range r.names {
		list[i] = r.operations[name].Descriptor()
	}
	return list
}
