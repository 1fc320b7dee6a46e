// Package operation follows what Companies propose: it asks the User for the exact terms, confirms them, and reads the
// operation until it has a result (the Operations extension).
//
// [Ask] is the only way to an [Approval], and [Service.Confirm] confirms nothing without one that fits to the character.
// Every operation that is not final is remembered in the vault, so that the same action is never proposed again while an
// earlier one may still take effect ([Service.Propose]).
package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"countersign/agent/discovery"
	"countersign/agent/quote"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Question is what a User is asked: one revision of one operation.
type Question struct {
	Company              string     // organization.name
	Domain               string     // organization.domain, to be shown with it
	Summary              quote.Text // the terms in the Company's words: what will happen, to what, at which cost
	Terms                string     // the same as indented JSON; "" if the Company gave none
	Revision             int64      // from 1; above it, the terms have changed since they were first proposed
	ExpiresAt            time.Time  // the last time this revision can be confirmed
	UserApprovalRequired bool       // the Company accepts nothing but the User's own answer
	OperationID          string     // the Company's name for the operation
}

// Asker puts a question to the User through the agent's own interface, and returns the User's answer and nobody else's
// (Operations 5.1). It shows at least the Company's name and domain and the summary. An error is no answer.
type Asker interface {
	Ask(ctx context.Context, question Question) (approved bool, err error)
}

// Approval is a User's yes to one revision, made by [Ask] alone. The zero value approves nothing.
type Approval struct {
	issuer      string
	operationID string
	revision    int64
	digest      string // of the terms that were shown
}

// ErrDeclined says that the User said no. Whoever asked then cancels the operation.
var ErrDeclined = errors.New("the User declined")

// ErrNotApproved says that an approval is not for these terms.
var ErrNotApproved = errors.New("the User has not approved these terms: ask again with the operation as it is now")

// Ask shows an operation that is proposed to the User and returns their approval of exactly these terms. It returns
// [ErrDeclined] if they say no.
func Ask(ctx context.Context, company discovery.Company, o poppy.Operation, asker Asker) (Approval, error) {
	if o.State != poppy.OperationProposed {
		return Approval{}, fmt.Errorf("there is nothing to approve: the operation is %s", o.State)
	}
	approval, err := approvalOf(company, o)
	if err != nil {
		return Approval{}, fmt.Errorf("the operation cannot be approved: %w", err)
	}
	terms, err := indented(o.Terms)
	if err != nil {
		return Approval{}, fmt.Errorf("the operation cannot be approved: %w", err)
	}
	approved, err := asker.Ask(ctx, Question{
		Company:              company.Name,
		Domain:               company.Domain,
		Summary:              quote.New(company.Domain, o.Summary),
		Terms:                terms,
		Revision:             o.Revision,
		ExpiresAt:            o.ExpiresAt.Time,
		UserApprovalRequired: o.UserApprovalRequired,
		OperationID:          o.OperationID,
	})
	if err != nil {
		return Approval{}, fmt.Errorf("asking the User: %w", err)
	}
	if !approved {
		return Approval{}, ErrDeclined
	}
	return approval, nil
}

// approvalOf returns what an approval of an operation as it is now would be.
func approvalOf(company discovery.Company, o poppy.Operation) (Approval, error) {
	digest, err := o.TermsDigest()
	if err != nil {
		return Approval{}, err
	}
	return Approval{issuer: company.Issuer, operationID: o.OperationID, revision: o.Revision, digest: digest}, nil
}

// indented returns terms as a person reads them.
func indented(terms poppy.Object) (string, error) {
	if terms == nil {
		return "", nil
	}
	text := strictjson.Raw(terms).Clone()
	if err := text.Indent(); err != nil {
		return "", err
	}
	return string(text), nil
}

// Outcome returns what a Company says became of a final operation, to be shown to the User as the Company's account of what
// happened (Operations 6). It is empty while there is none.
func Outcome(company discovery.Company, o poppy.Operation) quote.Text {
	if o.Result == nil {
		return quote.Text{}
	}
	return quote.New(company.Domain, o.Result.Summary)
}

// TermsChangedError says that the approved revision is no longer the latest. Nothing was confirmed. The new terms need a
// new [Ask].
type TermsChangedError struct{ Operation poppy.Operation }

// Error says what to do.
func (e *TermsChangedError) Error() string {
	return fmt.Sprintf("the Company has changed the terms since (revision %d): show them to the User and ask again", e.Operation.Revision)
}

// UnknownError says that it could not be found out whether the Company received a confirmation. The action may happen.
type UnknownError struct {
	OperationID string
	Err         error
}

// Error says what to do.
func (e *UnknownError) Error() string {
	return "it is not known whether the confirmation arrived: read operation " + e.OperationID + " again before anything else (" + e.Err.Error() + ")"
}

// Unwrap returns what went wrong last.
func (e *UnknownError) Unwrap() error { return e.Err }

// DifferentTermsError says that what the Company has confirmed is not what the User approved: it broke the protocol. The
// User must be told.
type DifferentTermsError struct{ Operation poppy.Operation }

// Error says what to do.
func (e *DifferentTermsError) Error() string {
	return "the Company's record of operation " + e.Operation.OperationID + " has other terms than those that were approved: tell the User, and ask the Company"
}

// sameTerms tells whether an operation still has the terms of a revision. What may be left out once confirmed does not
// count (Operations 3).
func sameTerms(approved, now poppy.Operation) bool {
	now.ExpiresAt, now.URL, now.UserApprovalRequired = approved.ExpiresAt, approved.URL, approved.UserApprovalRequired
	if now.Terms == nil {
		now.Terms = approved.Terms
	}
	before, errBefore := approved.TermsDigest()
	after, errAfter := now.TermsDigest()
	return errBefore == nil && errAfter == nil && before == after
}
