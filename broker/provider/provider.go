// Package provider is the contract between the broker and the systems that it acts on: what a typed operation is, and the
// answers that the broker understands.
//
// The broker owns identity, replay, lifecycle, presentation and safe errors; a provider owns what a target and an argument
// are, how the work is done and what came of it (Agent Operations V1, Contract ownership). A provider implements [Operation]
// once for each operation and knows nothing else of the broker.
package provider

import (
	"context"
	"time"

	"countersign/internal/strictjson"
)

// Effect says what may happen on the provider's side when an operation is executed, and so what the broker may do when it
// does not know whether that happened.
type Effect string

// The effects.
const (
	// Read changes nothing. An interrupted read may run again.
	Read Effect = "read"
	// Keyed changes something, but executing it again under the same operation ID changes nothing more. After a crash it
	// may run again.
	Keyed Effect = "keyed"
	// Change changes something each time. It is executed at most once; an unknown outcome is looked up, see [Reconciler].
	Change Effect = "change"
)

// Hint is how a provider thinks that its operation should be treated. It decides nothing: policy does.
type Hint string

// The hints.
const (
	Unattended Hint = "unattended" // may run without asking a person
	Ask        Hint = "ask"        // should wait for an approval
	Deny       Hint = "deny"       // should not be offered unless someone wants it
)

// Descriptor is what the broker tells others about an operation.
type Descriptor struct {
	// Name identifies the operation, for example "demo.note.write": two or more words of a-z, 0-9 and _ joined by dots,
	// each starting with a letter, at most 128 bytes.
	Name string
	// Title names it for a person, at most 160 bytes.
	Title string
	// Summary says in a sentence or two what it does, for a model that chooses among operations. At most 500 bytes.
	Summary string
	Effect  Effect
	Hint    Hint
	// Target and Arguments say what a request must hold. Both are closed objects.
	Target, Arguments *Schema
	// PublicNames gives result members that carry a name which transcripts blank, such as "key", the name under which they
	// may be shown. A member whose name is blanked and not listed here is left out of results, see [Project].
	PublicNames map[string]string
	// Timeout bounds one call of Execute; zero means [DefaultTimeout].
	Timeout time.Duration
}

// DefaultTimeout bounds a call to a provider whose descriptor says nothing else.
const DefaultTimeout = 60 * time.Second

// Call is a submitted request that has passed the descriptor's schemas.
type Call struct {
	ClientID  string
	Operation string
	// Target and Arguments are JSON objects in canonical form.
	Target, Arguments strictjson.Raw
}

// Dispatch is the execution of a stored plan.
type Dispatch struct {
	// OperationID is the same for every execution and look-up of one operation: the key for [Keyed] operations.
	OperationID string
	ClientID    string
	Operation   string
	// Plan is the content that Resolve returned, in canonical form: all that the execution may depend on.
	Plan strictjson.Raw
	// ApprovalID is the approval of exactly this plan by a person; empty if policy let it run unattended.
	ApprovalID string
}

// Operation is one typed operation of a provider. All methods may be called concurrently, and return soon after ctx ends.
type Operation interface {
	Descriptor() Descriptor
	// Facts tells policy what a request is about, from the request alone. It must not call anyone: a request that policy
	// denies makes no provider request at all.
	Facts(call Call) Facts
	// Resolve finds out what exactly the request would do and returns that as a plan. It may read from the provider and
	// must change nothing there; it can run several times for one request. An [*Error] says that there is no such thing to
	// be done; any other error, that it cannot be found out now.
	Resolve(ctx context.Context, call Call) (Plan, error)
	// Execute performs the plan and nothing else. When ctx ends before the provider has answered, the outcome is
	// [Unknown]. The outcome of a [Read] or [Keyed] operation may be replaced by that of a later call after a crash, except
	// that a change which is refused then is looked up: the interrupted call may have taken effect.
	Execute(ctx context.Context, dispatch Dispatch) Outcome
}

// Reconciler is an [Operation] that can look up what became of an execution whose outcome is unknown.
type Reconciler interface {
	Operation
	// Reconcile answers [Succeeded] if the plan has taken effect, [Failed] if it has ended without success, [Refused] if it has
	// not taken effect and no longer will, for example by a request still under way, and [Unknown] if that cannot be told now.
	// It changes nothing.
	Reconcile(ctx context.Context, dispatch Dispatch) Outcome
}

// Plan is what an operation will do: fixed when the request is submitted, shown to the person who approves it, executed as
// it was stored.
type Plan struct {
	// Content is the provider's own document, an object that [Operation.Execute] gets back; see [NewContent]. It holds no
	// secret.
	Content strictjson.Raw
	// Presentation shows the plan to a person. It is never read back.
	Presentation Presentation
	// Facts are what Resolve learned for policy, beyond those of [Operation.Facts]. They can demand that a person is asked.
	Facts Facts
	// ExpiresAt is when approving the plan makes no sense any more; zero if it always does.
	ExpiresAt time.Time
}

// Presentation is how a plan is shown. What exceeds a bound is cut, and control characters are removed: a presentation
// never fails an operation.
type Presentation struct {
	Title   string `json:"title"`   // at most 160 bytes
	Summary string `json:"summary"` // at most 500 bytes
	// Details are up to 20 labelled values: what exactly, where, how much.
	Details []Detail `json:"details"`
	// Warnings are up to 10 sentences of up to 500 bytes that a person should read before approving.
	Warnings []string `json:"warnings"`
}

// Detail is one labelled value of a [Presentation].
type Detail struct {
	Label string `json:"label"` // at most 80 bytes
	Value string `json:"value"` // at most 500 bytes
}

// Facts are what policy can compare, by name: a word of a-z, 0-9 and _ that starts with a letter.
type Facts map[string]Fact

// Fact is a [Text], [Number], [Flag] or [Texts].
type Fact interface{ fact() }

type (
	// Text is a fact such as a name. At most 500 bytes.
	Text string
	// Number is a whole number.
	Number int64
	// Flag is true or false.
	Flag bool
	// Texts is a set of texts, at most 64.
	Texts []string
)

func (Text) fact()   {}
func (Number) fact() {}
func (Flag) fact()   {}
func (Texts) fact()  {}
