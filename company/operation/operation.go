// Package operation is the Company's one record of the actions that it has proposed: their terms, revision by revision,
// their confirmation, how they were performed and what came of it (Operations extension).
//
// A channel proposes with [Service.Propose] inside its own transaction. The Personal Agent reads, confirms and cancels at the
// operations endpoint ([Service.Mount]). A confirmed operation is performed by a [Performer], at most once (Operations 6):
// a committed row says that an attempt starts before the Performer is called, and another one what came of it. An attempt
// whose outcome is not known is looked up until it is, and never repeated unless the Performer says that it had no effect.
package operation

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Proposal asks for an operation.
type Proposal struct {
	// Key identifies the action, in the Company's own words, such as "exchange ord_7Hk2/itm_4Qa", at most 1,000 bytes. While
	// an operation for it is open to the same owner, proposing again does not make a second one (Operations 4).
	Key string
	// ConversationID is the conversation that it came up in; empty for another channel.
	ConversationID string
	Revision
}

// Revision is one version of the terms, before it has a number. It is kept as it is and never changed (Operations 3.1).
type Revision struct {
	// Summary says in plain language what will be done: everything the User needs to decide, at most 4,000 characters.
	Summary string
	// Terms are the same terms as a JSON object, at most 64 KiB; nil for none.
	Terms poppy.Object
	// ExpiresIn is how long the revision can be confirmed, at least one second.
	ExpiresIn time.Duration
	// UserApprovalRequired refuses a standing permission.
	UserApprovalRequired bool
	// Scopes are those a token needs to confirm; none lets a signed-out one confirm.
	Scopes []string
	// URL is a page of the Company's website that shows the operation, with {operation_id} where its ID belongs; empty
	// for none.
	URL string
}

const (
	maxSummary = 4_000    // characters
	maxTerms   = 64 << 10 // bytes
	maxKey     = 1_000    // bytes
)

// issue makes the revision one of an operation, or says why it cannot be: what is sent must be something that every
// Personal Agent can read and every User can be shown.
func (r Revision) issue(id string, number int64, now time.Time) (issued, error) {
	switch {
	case utf8.RuneCountInString(r.Summary) > maxSummary:
		return issued{}, fmt.Errorf("summary must not have more than %d characters", maxSummary)
	case len(r.Terms) > maxTerms:
		return issued{}, fmt.Errorf("terms must not have more than %d bytes", maxTerms)
	case r.ExpiresIn < time.Second:
		return issued{}, errors.New("expires_in must be at least a second")
	}
	for _, scope := range r.Scopes {
		if !poppy.ValidScope(scope) {
			return issued{}, errors.New("scopes must be scopes")
		}
	}
	operation := poppy.Operation{
		OperationID: id, Revision: number, State: poppy.OperationProposed,
		Summary: r.Summary, Terms: r.Terms, UserApprovalRequired: r.UserApprovalRequired,
		// In the precision of the database, so that the last moment to confirm is the one that was announced.
		ExpiresAt: poppy.At(now.Add(r.ExpiresIn).Truncate(time.Millisecond)),
		URL:       strings.ReplaceAll(r.URL, "{operation_id}", url.PathEscape(id)),
	}
	if err := operation.ValidateForPublishing(); err != nil {
		return issued{}, err
	}
	if r.Terms != nil {
		canonical, err := strictjson.Canonical(r.Terms)
		if err != nil || canonical[0] != '{' {
			return issued{}, errors.Join(errors.New("terms must be a JSON object"), err)
		}
		operation.Terms = canonical
	}
	digest, err := operation.TermsDigest()
	if err != nil {
		return issued{}, err
	}
	return issued{operation, r.Scopes, digest}, nil
}

// issued is a revision with its number and digest.
type issued struct {
	operation poppy.Operation // as it is while proposed
	scopes    poppy.Scopes
	digest    string
}

// says tells whether both revisions say the same, apart from when they expire.
func (i issued) says(other issued) bool {
	a, b := i.operation, other.operation
	return a.Summary == b.Summary && string(a.Terms) == string(b.Terms) && a.UserApprovalRequired == b.UserApprovalRequired &&
		a.URL == b.URL && i.scopes.Equal(other.scopes)
}

// Tracked is an operation as the Company itself sees it.
type Tracked struct {
	// Operation is what the Personal Agent sees.
	poppy.Operation
	// Key is what the [Proposal] identified the action by.
	Key string
	// RetryAfter is when it makes sense to look again, in whole seconds; 0 unless the operation is in progress.
	RetryAfter time.Duration
}

// ErrNotProposed is returned by [Service.Revise] for an operation that is no longer proposed: it was confirmed, cancelled or
// has expired meanwhile, and its terms cannot change any more (Operations 3.1).
var ErrNotProposed = errors.New("the operation is not proposed any more")

// Action is a confirmed operation as it is given to a [Performer]: exactly the revision that was confirmed.
type Action struct {
	OperationID string
	// Attempt counts from 1. A new one begins only after the one before it was found to have had no effect.
	Attempt  int
	Key      string // what the [Proposal] identified it by
	Revision int64
	Digest   string // of the revision, see poppy.Operation.TermsDigest
	Summary  string
	Terms    poppy.Object // nil if there are none

	ClientID, UserID, SessionID string
	Account                     string // empty when it was confirmed signed out
	ApprovedBy                  poppy.Approval
	ConfirmedAt                 time.Time
}

// Performer performs operations in the Company's own systems. Its methods may be called concurrently, and return soon
// after ctx ends. An error means that the outcome is not known now; it is logged.
type Performer interface {
	// Perform performs the action. It is called at most once for each attempt.
	Perform(ctx context.Context, action Action) (Outcome, error)
	// Lookup finds out what became of an attempt whose outcome is unknown, and changes nothing. It answers NotStarted only
	// if the attempt has had no effect and will have none, for example by a request still under way.
	Lookup(ctx context.Context, action Action) (Outcome, error)
}

// Stopper is a [Performer] that can stop an action.
type Stopper interface {
	// Stop asks for an attempt to be stopped (Operations 7); it may be asked more than once. What came of it is the outcome
	// that Perform or Lookup gives.
	Stop(ctx context.Context, action Action) error
}

// Verdict is what became of an attempt.
type Verdict int

// The verdicts. Unknown is the zero value, so that nothing is final by accident.
const (
	Unknown    Verdict = iota // it may or may not have taken effect
	Succeeded                 // the action was performed
	Failed                    // it was not completed
	Stopped                   // it was stopped
	NotStarted                // it had no effect and will have none: the action may be attempted again
)

// Outcome is what became of an attempt.
type Outcome struct {
	Verdict Verdict
	// Result describes every change that was made (Operations 6). Succeeded, Failed and Stopped are nothing without its
	// summary.
	Result poppy.Result
}

// state is the operation's state after a verdict, "" if it does not end the operation.
func (o Outcome) state() poppy.OperationState {
	switch o.Verdict {
	case Succeeded:
		return poppy.OperationSucceeded
	case Failed:
		return poppy.OperationFailed
	case Stopped:
		return poppy.OperationCancelled
	case Unknown, NotStarted:
	}
	return ""
}
