// Package policy decides by rules, written in Cedar, whether a client's operation may be submitted and whether it may run
// unattended.
package policy

import (
	"errors"

	"countersign/broker/provider"
)

// Request is what is asked about.
type Request struct {
	ClientID  string
	Operation string // its name
	Effect    provider.Effect
	Facts     provider.Facts
}

// Decision is the answer to one question.
type Decision struct {
	Allowed bool
	// Rules are the @id of the rules that decided, sorted: those that forbid, or else those that permit. None means that
	// nothing matched, which denies.
	Rules []string
	// Faults are the rules that could not be evaluated, as "@id: problem". Any fault denies.
	Faults []string
}

// Explanation is the answer to both questions.
type Explanation struct{ Submit, RunUnattended Decision }

// Engine answers from one policy file. It never changes and may be used concurrently.
type Engine struct{}

var errSkeleton = errors.New("not there yet")

// Load reads and checks the policy file at path. Nothing serves with a file that has a fault; the error tells file, line
// and fix.
func Load(path string) (*Engine, error) { return nil, errSkeleton }

// Check reads the policy file at path and returns what is wrong with it, nil if nothing is.
func Check(path string) error { return errSkeleton }

// MaySubmit answers whether the operation may be submitted at all.
func (e *Engine) MaySubmit(request Request) Decision { return Decision{} }

// MayRunUnattended answers whether the operation may run without asking a person.
func (e *Engine) MayRunUnattended(request Request) Decision { return Decision{} }

// Explain answers both questions with their reasons.
func (e *Engine) Explain(request Request) Explanation { return Explanation{} }

// Default is the commented policy file that a new broker starts with.
func Default() string { return "" }
