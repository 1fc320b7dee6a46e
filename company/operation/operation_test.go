package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"countersign/company/guard"
	"countersign/company/operation"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// O-3-01, O-3-03, O-3-04, O-3-05, O-3-06, O-3-07, O-3-09, O-3-10, O-3-11, O-3-15, O-6-01, O-5.2-12
func TestAProposedOperationHasItsTermsAndNothingHasHappened(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	before := w.at.Now()
	proposal := hold()
	proposal.URL = "https://outdoor.example/holds/{operation_id}"
	proposed := w.propose(guest, proposal)
	r := w.call(guest, "GET", "/"+proposed.OperationID, "")
	o := r.state(t, poppy.OperationProposed)
	if o.OperationID == "" || o.Revision != 1 || o.Summary != proposal.Summary || o.URL != "https://outdoor.example/holds/"+o.OperationID {
		t.Errorf("got %s", r.body)
	}
	if left := o.ExpiresAt.Sub(before); left < 19*time.Minute || left > 21*time.Minute {
		t.Errorf("it can be confirmed for %v, want 20 minutes", left)
	}
	var members map[string]strictjson.Raw
	if err := strictjson.Unmarshal(r.body, &members); err != nil {
		t.Fatal(err)
	}
	if string(members["confirmation"]) != "null" || string(members["result"]) != "null" {
		t.Errorf("confirmation %s, result %s: want both null and there", members["confirmation"], members["result"])
	}
	if string(members["terms"]) != string(proposal.Terms) {
		t.Errorf("terms %s, want %s", members["terms"], proposal.Terms)
	}
	if got := r.header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		t.Errorf("content type %q", got)
	}
	if got := r.header.Get("Retry-After"); got != "" {
		t.Errorf("Retry-After %q for an operation that is not in progress", got)
	}
	if n := len(p.calls); n != 0 {
		t.Errorf("the performer was called %d times", n)
	}
}

// O-5.2-08, O-5.2-09, O-5.2-12, O-3-19, O-6-05, O-8-01
func TestConfirmPerformsExactlyTheConfirmedRevisionAndRecordsWhoConfirmed(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	proposed := w.propose(signedIn, hold())
	o := w.call(signedIn, "POST", "/"+proposed.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationSucceeded)
	if o.Result.Summary != "Held." || string(o.Result.Data) != `{"hold":"h-1"}` {
		t.Errorf("result %+v", o.Result)
	}
	if c := o.Confirmation; c.Revision != 1 || c.ApprovedBy != poppy.ApprovedByUser || time.Since(c.ConfirmedAt.Time).Abs() > time.Minute {
		t.Errorf("confirmation %+v", c)
	}
	if p.count("perform") != 1 {
		t.Fatalf("performed %d times", p.count("perform"))
	}
	digest, err := proposed.TermsDigest()
	if err != nil {
		t.Fatal(err)
	}
	want := operation.Action{
		OperationID: proposed.OperationID, Attempt: 1, Key: "hold jacket", Revision: 1, Digest: digest,
		Summary: proposed.Summary, Terms: proposed.Terms,
		ClientID: signedIn.ClientID, UserID: "u-1", SessionID: "ses_1", Account: "ada", ApprovedBy: poppy.ApprovedByUser,
	}
	got := p.actions[0]
	got.ConfirmedAt = time.Time{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was performed (-want +got):\n%s", diff)
	}
	var kept string
	err = w.db.QueryRow(t.Context(), `SELECT client_id || ' ' || user_id || ' ' || session_id || ' ' || account || ' ' ||
		key_thumbprint || ' ' || revision || ' ' || digest || ' ' || approved_by FROM operation_confirmation
		WHERE operation_id = ? AND confirmed > 0`, proposed.OperationID).Scan(&kept)
	if want := "https://agent.example/agent.json u-1 ses_1 ada thumb-1 1 " + digest + " user"; err != nil || kept != want {
		t.Errorf("kept %q, %v; want %q", kept, err, want)
	}
}

// O-3.1-01, O-3.1-02, O-3.1-03, O-3-03, O-5.2-05, O-9-04, O-9-01, O-4.3-03
func TestOnlyTheLatestRevisionCanBeConfirmed(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	first := w.propose(guest, hold())
	w.at.Move(time.Minute)
	larger := hold().Revision
	larger.Summary = strings.Replace(larger.Summary, "(M)", "(L)", 1)
	larger.Terms = poppy.Object(`{"sku":"stormline-insulated-l"}`)
	second, err := w.revise(guest, first.OperationID, larger)
	if err != nil {
		t.Fatal(err)
	}
	if second.OperationID != first.OperationID || second.Revision != 2 || !second.ExpiresAt.After(first.ExpiresAt.Time) {
		t.Fatalf("second revision %+v", second)
	}
	for _, revision := range []int{1, 3} {
		r := w.call(guest, "POST", "/"+first.OperationID+"/confirm", fmt.Sprintf(`{"revision":%d,"approved_by":"user"}`, revision)).
			want(t, http.StatusConflict, poppy.ErrTermsChanged)
		if diff := cmp.Diff(&second.Operation, r.err.Operation); diff != "" {
			t.Errorf("revision %d: the operation in the error (-want +got):\n%s", revision, diff)
		}
	}
	if p.count("perform") != 0 {
		t.Fatal("performed without a valid confirmation")
	}
	o := w.call(guest, "POST", "/"+first.OperationID+"/confirm", `{"revision":2,"approved_by":"user"}`).state(t, poppy.OperationSucceeded)
	if o.Revision != 2 || o.Confirmation.Revision != 2 || p.actions[0].Summary != larger.Summary || string(p.actions[0].Terms) != string(larger.Terms) {
		t.Errorf("performed %+v", p.actions[0])
	}
	// O-3.1-04, O-5.2-07: now it is returned as it is, whatever revision is named.
	w.call(guest, "POST", "/"+first.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationSucceeded)
	if _, err := w.revise(guest, first.OperationID, hold().Revision); !errors.Is(err, operation.ErrNotProposed) {
		t.Errorf("revising a confirmed operation: %v", err)
	}
	// O-3.1-02: the first revision is still what it was.
	var summary, digest string
	if err := w.db.QueryRow(t.Context(), `SELECT summary, digest FROM operation_revision WHERE operation_id = ? AND revision = 1`,
		first.OperationID).Scan(&summary, &digest); err != nil || summary != first.Summary {
		t.Errorf("first revision %q, %v", summary, err)
	}
}

func TestTheSameTermsAreNoNewRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	first := w.propose(guest, hold())
	w.at.Move(time.Minute)
	same := hold().Revision
	same.Terms = poppy.Object(`{ "until": "2026-10-09T18:00:00-07:00", "sku": "stormline-insulated-m" }`) // spelled otherwise
	again, err := w.revise(guest, first.OperationID, same)
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Fatalf("%v (-first +again):\n%s", err, diff)
	}
	for name, change := range map[string]func(*operation.Revision){
		"summary":                func(r *operation.Revision) { r.Summary += " Paid at the till." },
		"terms":                  func(r *operation.Revision) { r.Terms = nil },
		"user_approval_required": func(r *operation.Revision) { r.UserApprovalRequired = true },
		"scopes":                 func(r *operation.Revision) { r.Scopes = []string{"poppy:write"} },
		"url":                    func(r *operation.Revision) { r.URL = "https://outdoor.example/holds" },
	} {
		proposal := hold()
		proposal.Key = name
		first := w.propose(guest, proposal)
		change(&proposal.Revision)
		if second := w.propose(guest, proposal); second.Revision != 2 || second.OperationID != first.OperationID {
			t.Errorf("another %s: revision %d of %s, want revision 2 of %s", name, second.Revision, second.OperationID, first.OperationID)
		}
	}
}

// O-4-03, O-3-25, O-3.1-04
func TestTheSameActionIsTheSameOperationWhileItIsOpen(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := &performer{perform: func(context.Context, operation.Action) (operation.Outcome, error) { <-release; return succeeded(), nil }}
	w := newWorld(t, p, func(o *operation.Options) { o.Wait = time.Millisecond })
	first := w.propose(signedIn, hold())
	if again := w.propose(otherSession, hold()); again.OperationID != first.OperationID || again.Revision != 1 {
		t.Errorf("proposed again from another Session of the account: %+v", again)
	}
	for name, by := range map[string]guard.Principal{
		"another account": otherAccount, "signed out": otherGuest, "another User": otherUser, "another Personal Agent": otherAgent,
	} {
		if other := w.propose(by, hold()); other.OperationID == first.OperationID {
			t.Errorf("%s was given the operation of the account", name)
		}
	}
	w.call(signedIn, "POST", "/"+first.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationInProgress)
	changed := hold()
	changed.Summary = "Hold the jacket in L."
	if again := w.propose(signedIn, changed); again.OperationID != first.OperationID || again.State != poppy.OperationInProgress || again.Summary != first.Summary {
		t.Errorf("proposed again in progress: %+v", again)
	}
	close(release)
	w.becomes(signedIn, first.OperationID, poppy.OperationSucceeded)
	if after := w.propose(signedIn, hold()); after.OperationID == first.OperationID || after.State != poppy.OperationProposed {
		t.Errorf("proposed again when final: %+v", after)
	}
}

// O-3.2-01, O-3.2-02, O-3.2-03, O-3.2-04, O-5.2-03, O-9-03, O-2-05
func TestWhoCanUseAnOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	type refusals map[string]struct {
		by     guard.Principal
		status int
		code   poppy.ErrorCode
	}
	for name, test := range map[string]struct {
		proposedTo guard.Principal
		allowed    []guard.Principal
		refused    refusals
	}{
		"proposed signed out": {guest, []guard.Principal{guest, signedIn}, refusals{
			"another Session":                     {otherGuest, 404, poppy.ErrOperationNotFound},
			"another Session, signed in":          {otherSession, 404, poppy.ErrOperationNotFound},
			"another User":                        {otherUser, 404, poppy.ErrOperationNotFound},
			"another agent":                       {otherAgent, 404, poppy.ErrOperationNotFound},
			"an agent that does not list it (2)":  {with(guest, func(p *guard.Principal) { p.Extensions = nil }), 403, poppy.ErrExtensionRequired},
			"an agent with another version (3.3)": {with(guest, func(p *guard.Principal) { p.Extensions = map[string]string{"operations": "2"} }), 403, poppy.ErrExtensionRequired},
		}},
		"proposed signed in": {signedIn, []guard.Principal{signedIn, otherSession}, refusals{
			"another account": {otherAccount, 404, poppy.ErrOperationNotFound},
			"another User":    {otherUser, 404, poppy.ErrOperationNotFound},
			"another agent":   {otherAgent, 404, poppy.ErrOperationNotFound},
			"an agent that does not list the extension": {unlisted, 403, poppy.ErrExtensionRequired},
			// 4.9: what used the account answers a signed-out token of the same User so.
			"its own Session, signed out": {guest, 403, poppy.ErrSignInRequired},
			"another Session, signed out": {otherGuest, 403, poppy.ErrSignInRequired},
		}},
	} {
		proposal := hold()
		proposal.Key = name
		o := w.propose(test.proposedTo, proposal)
		for who, refused := range test.refused {
			t.Run(name+"/"+who, func(t *testing.T) {
				for _, call := range [][3]string{{"GET", "", ""}, {"POST", "/confirm", confirmFirst}, {"POST", "/cancel", ""}} {
					r := w.call(refused.by, call[0], "/"+o.OperationID+call[1], call[2]).want(t, refused.status, refused.code)
					if bytes.Contains(r.body, []byte("Stormline")) {
						t.Errorf("%s %s tells the terms: %s", call[0], call[1], r.body)
					}
				}
			})
		}
		for _, by := range test.allowed {
			w.call(by, "GET", "/"+o.OperationID, "").state(t, poppy.OperationProposed)
		}
		last := test.allowed[len(test.allowed)-1]
		w.call(last, "POST", "/"+o.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationSucceeded)
		w.call(last, "POST", "/"+o.OperationID+"/cancel", "").state(t, poppy.OperationSucceeded)
	}
}

// O-9-03
func TestAnUnknownOperationAndSomebodyElsesAreAnsweredAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	o := w.propose(signedIn, hold())
	foreign := w.call(otherUser, "GET", "/"+o.OperationID, "").want(t, 404, poppy.ErrOperationNotFound)
	for _, id := range []string{"op_UNKNOWN", "%2e%2e", "a%20b", "x%00", strings.Repeat("a", 5000), "é"} {
		unknown := w.call(otherUser, "GET", "/"+id, "").want(t, 404, poppy.ErrOperationNotFound)
		if string(unknown.body) != string(foreign.body) {
			t.Errorf("%q: %s, want %s", id, unknown.body, foreign.body)
		}
	}
}

// O-2-05
func TestNothingIsProposedToAnAgentThatDoesNotListTheExtension(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	// O-2-06, O-9-06
	if _, err := w.tryPropose(unlisted, hold()); poppy.CodeOf(err) != poppy.ErrExtensionRequired {
		t.Errorf("proposing: %v", err)
	}
	o := w.propose(signedIn, hold())
	if _, err := w.revise(unlisted, o.OperationID, hold().Revision); poppy.CodeOf(err) != poppy.ErrExtensionRequired {
		t.Errorf("revising: %v", err)
	}
}

// O-5.2-04, O-5.1-04, O-5.2-06, O-9-05, O-3-08
func TestConfirmIsRefusedInTheOrderOfTheChecks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by     guard.Principal
		body   string
		status int
		code   poppy.ErrorCode
	}{
		"signed out": {guest, confirmFirst, 403, poppy.ErrSignInRequired},
		"too few scopes, before the revision is looked at":                {readOnly, `{"revision":7,"approved_by":"user"}`, 403, poppy.ErrInsufficientScope},
		"the revision, before the way of approving":                       {signedIn, `{"revision":7,"approved_by":"standing_permission"}`, 409, poppy.ErrTermsChanged},
		"a standing permission where the User must approve":               {signedIn, `{"revision":1,"approved_by":"standing_permission"}`, 403, poppy.ErrUserApprovalRequired},
		"an unknown way of approving":                                     {signedIn, `{"revision":1,"approved_by":"me"}`, 400, poppy.ErrInvalidRequest},
		"no way of approving":                                             {signedIn, `{"revision":1}`, 400, poppy.ErrInvalidRequest},
		"no revision":                                                     {signedIn, `{"approved_by":"user"}`, 400, poppy.ErrInvalidRequest},
		"a revision that is no whole number":                              {signedIn, `{"revision":1.5,"approved_by":"user"}`, 400, poppy.ErrInvalidRequest},
		"a revision that is a text":                                       {signedIn, `{"revision":"1","approved_by":"user"}`, 400, poppy.ErrInvalidRequest},
		"a revision that is too large":                                    {signedIn, `{"revision":1e300,"approved_by":"user"}`, 400, poppy.ErrInvalidRequest},
		"a member twice, so that two readers may see different revisions": {signedIn, `{"revision":1,"revision":2,"approved_by":"user"}`, 400, poppy.ErrInvalidRequest},
		"no JSON": {signedIn, `confirm`, 400, poppy.ErrInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := new(performer)
			w := newWorld(t, p)
			proposal := hold()
			proposal.Scopes, proposal.UserApprovalRequired = []string{"poppy:read", "poppy:write"}, true
			o := w.propose(guest, proposal)
			r := w.call(test.by, "POST", "/"+o.OperationID+"/confirm", test.body).want(t, test.status, test.code)
			if test.code == poppy.ErrInsufficientScope && r.err.Scope != "poppy:read poppy:write" {
				t.Errorf("scopes named: %q", r.err.Scope)
			}
			w.call(guest, "GET", "/"+o.OperationID, "").state(t, poppy.OperationProposed)
			if len(p.calls) != 0 {
				t.Error("the performer was called")
			}
		})
	}
}

// O-3-08
func TestAStandingPermissionIsEnoughUnlessTheUserMustApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	o := w.propose(guest, hold())
	done := w.call(guest, "POST", "/"+o.OperationID+"/confirm", `{"revision":1,"approved_by":"standing_permission","more":1}`).state(t, poppy.OperationSucceeded)
	if done.Confirmation.ApprovedBy != poppy.ApprovedByStandingPermission {
		t.Errorf("approved by %q", done.Confirmation.ApprovedBy)
	}
}

// O-3-22, O-3-16, O-3-17, O-3-07, O-5.2-07
func TestAnOperationExpiresAfterItsLastMoment(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	byConfirm := w.propose(guest, hold())
	other := hold()
	other.Key = "hold another"
	byRead := w.propose(guest, other)
	inTime := hold()
	inTime.Key, inTime.ExpiresIn = "hold a third", time.Hour
	third := w.propose(guest, inTime)

	w.at.Move(20*time.Minute + time.Second)
	for _, r := range []response{
		w.call(guest, "POST", "/"+byConfirm.OperationID+"/confirm", confirmFirst),
		w.call(guest, "GET", "/"+byRead.OperationID, ""),
	} {
		o := r.state(t, poppy.OperationExpired)
		if o.Confirmation != nil || !strings.Contains(o.Result.Summary, "Nothing was done") {
			t.Errorf("got %s", r.body)
		}
	}
	w.at.Move(-time.Hour) // once expired, it stays so, whatever the clock says
	for _, o := range []operation.Tracked{byConfirm, byRead} {
		w.call(guest, "POST", "/"+o.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationExpired)
		w.call(guest, "POST", "/"+o.OperationID+"/cancel", "").state(t, poppy.OperationExpired)
	}
	if len(p.calls) != 0 {
		t.Fatalf("calls %v for operations that nobody confirmed in time", p.calls)
	}
	w.call(guest, "POST", "/"+third.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationSucceeded)
	if again := w.propose(guest, hold()); again.OperationID == byConfirm.OperationID {
		t.Error("proposed again under the ID of an expired operation")
	}
}

// O-3-07, O-3-17
func TestTheLastMomentToConfirmIsTheOneThatWasAnnounced(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 10, 8, 12, 0, 0, 123_456_789, time.UTC)
	w := newWorld(t, new(performer), func(o *operation.Options) { o.Now = func() time.Time { return at } })
	o := w.propose(guest, hold())
	other := hold()
	other.Key = "another"
	late := w.propose(guest, other)
	at = o.ExpiresAt.Time
	w.call(guest, "POST", "/"+o.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationSucceeded)
	at = o.ExpiresAt.Add(1)
	w.call(guest, "POST", "/"+late.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationExpired)
}

// O-3-23, O-5.2-07, O-7-07
func TestAFinalOperationNeverChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		verdict operation.Verdict
		state   poppy.OperationState
	}{
		"succeeded": {operation.Succeeded, poppy.OperationSucceeded},
		"failed":    {operation.Failed, poppy.OperationFailed},
		"stopped":   {operation.Stopped, poppy.OperationCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &performer{perform: func(context.Context, operation.Action) (operation.Outcome, error) {
				return operation.Outcome{Verdict: test.verdict, Result: poppy.Result{Summary: "The label was printed, and nothing else."}}, nil
			}}
			w := newWorld(t, p)
			o := w.propose(guest, hold())
			first := w.call(guest, "POST", "/"+o.OperationID+"/confirm", confirmFirst)
			first.state(t, test.state)
			for _, call := range [][3]string{{"POST", "/confirm", confirmFirst}, {"POST", "/confirm", `{"revision":9,"approved_by":"standing_permission"}`}, {"POST", "/cancel", ""}, {"GET", "", ""}} {
				if again := w.call(guest, call[0], "/"+o.OperationID+call[1], call[2]).want(t, 200, ""); string(again.body) != string(first.body) {
					t.Errorf("%v: %s, want %s", call, again.body, first.body)
				}
			}
			if p.count("perform") != 1 {
				t.Errorf("performed %d times", p.count("perform"))
			}
		})
	}
}

// O-7-02, O-7-03, O-7-04
func TestACancelledProposalCanNotBeConfirmed(t *testing.T) {
	t.Parallel()
	p := new(performer)
	w := newWorld(t, p)
	for _, body := range []string{"", `{}`, `no JSON`} {
		proposal := hold()
		proposal.Key += body
		o := w.propose(guest, proposal)
		cancelled := w.call(guest, "POST", "/"+o.OperationID+"/cancel", body).state(t, poppy.OperationCancelled)
		if cancelled.Confirmation != nil || !strings.Contains(cancelled.Result.Summary, "Nothing was done") {
			t.Errorf("got %+v", cancelled)
		}
		w.call(guest, "POST", "/"+o.OperationID+"/confirm", confirmFirst).state(t, poppy.OperationCancelled)
	}
	if len(p.calls) != 0 {
		t.Error("the performer was called")
	}
}

func TestAProposalThatCanNotBeShownIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	for name, change := range map[string]func(*operation.Proposal){
		"no key":                     func(p *operation.Proposal) { p.Key = "" },
		"a long key":                 func(p *operation.Proposal) { p.Key = strings.Repeat("k", 1001) },
		"no summary":                 func(p *operation.Proposal) { p.Summary = " \n" }, // O-3-05
		"a long summary":             func(p *operation.Proposal) { p.Summary = strings.Repeat("é", 4001) },
		"terms of another form":      func(p *operation.Proposal) { p.Terms = poppy.Object(`{"a":1,"a":2}`) },
		"terms that are no object":   func(p *operation.Proposal) { p.Terms = poppy.Object(`[1]`) },
		"terms that no reader keeps": func(p *operation.Proposal) { p.Terms = poppy.Object(`{"order":1234567890123456789}`) },
		"long terms":                 func(p *operation.Proposal) { p.Terms = poppy.Object(`{"a":"` + strings.Repeat("a", 64<<10) + `"}`) },
		"no time":                    func(p *operation.Proposal) { p.ExpiresIn = 0 },
		"a page without https":       func(p *operation.Proposal) { p.URL = "http://outdoor.example/" },
		"a scope with a space":       func(p *operation.Proposal) { p.Scopes = []string{"poppy:read poppy:write"} },
	} {
		proposal := hold()
		change(&proposal)
		if o, err := w.tryPropose(guest, proposal); err == nil || o.OperationID != "" {
			t.Errorf("%s: %v, operation %q", name, err, o.OperationID)
		}
	}
	var n int
	if err := w.db.QueryRow(t.Context(), `SELECT count(*) FROM operation`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d operations were kept, %v", n, err)
	}
}

// O-4.3-03: what a conversation is told of its operations.
func TestTheOperationsOfAConversationComeNewestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	for i := range 4 {
		proposal := hold()
		proposal.Key, proposal.ConversationID = fmt.Sprint(i), "cnv_1"
		w.propose(guest, proposal)
		w.at.Move(time.Second)
	}
	w.propose(guest, hold()) // of no conversation
	w.at.Move(time.Hour)
	list, err := w.service.Conversation(t.Context(), guest, "cnv_1", 3)
	if err != nil || len(list) != 3 || list[0].Key != "3" || list[2].Key != "1" {
		t.Fatalf("%+v, %v", list, err)
	}
	if list[0].State != poppy.OperationExpired {
		t.Errorf("state %s of one that nobody has looked at since it expired", list[0].State)
	}
	if none, err := w.service.Conversation(t.Context(), guest, "", 3); err != nil || len(none) != 0 {
		t.Errorf("of no conversation: %+v, %v", none, err)
	}
	// O-3.2-03
	if none, err := w.service.Conversation(t.Context(), otherGuest, "cnv_1", 3); err != nil || len(none) != 0 {
		t.Errorf("for another signed-out Session: %+v, %v", none, err)
	}
}

// The record of a proposal is part of the channel's transaction.
func TestAProposalIsUndoneWithItsTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, new(performer))
	mine := errors.New("mine")
	var id string
	err := w.db.Write(t.Context(), func(tx *database.Tx) error {
		o, err := w.service.Propose(tx, guest, hold())
		id = o.OperationID
		return errors.Join(err, mine)
	})
	if !errors.Is(err, mine) {
		t.Fatal(err)
	}
	w.call(guest, "GET", "/"+id, "").want(t, 404, poppy.ErrOperationNotFound)
}
