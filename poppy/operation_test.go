package poppy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

func operation(t testing.TB, name string, edits ...any) poppy.Operation {
	t.Helper()
	o, err := poppy.ParseOperation(load(t, name, edits...))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// O-3-01 O-3-03 O-3-04 O-3-06 O-3-09 O-3-10 O-3-11 O-5.2-12
func TestOperationIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"proposed.json", "succeeded.json"} {
		o := operation(t, name)
		wantSame(t, o, load(t, name))
		if err := o.ValidateForPublishing(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// O-3-10 O-3-11: both are always written, null when there is nothing; O-3-08: what was left out is false.
	o := operation(t, "proposed.json", "confirmation", gone, "result", gone, "user_approval_required", gone)
	wantSame(t, o, load(t, "proposed.json"))
	// O-3-06 O-3-09: what is optional may be null
	operation(t, "proposed.json", "terms", nil, "url", nil, "x", 1)
}

func TestOperationFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		// O-3-01
		"no ID":   {[]any{"operation_id", gone}, []string{"operation_id"}},
		"path ID": {[]any{"operation_id", "../a"}, []string{"operation_id"}},
		// O-3-03
		"no revision":             {[]any{"revision", gone}, []string{"revision"}},
		"revision 0":              {[]any{"revision", 0}, []string{"revision"}},
		"revision a text":         {[]any{"revision", "1"}, []string{"revision"}},
		"revision one and a half": {[]any{"revision", 1.5}, []string{"revision"}},
		// O-3-04
		"no state":      {[]any{"state", gone}, []string{"state"}},
		"another state": {[]any{"state", "done"}, []string{"state"}},
		// O-3-05
		"no summary":    {[]any{"summary", gone}, []string{"summary"}},
		"blank summary": {[]any{"summary", " \n"}, []string{"summary"}},
		// O-3-06
		"terms a text": {[]any{"terms", "as agreed"}, []string{"terms"}},
		"terms a list": {[]any{"terms", []any{}}, []string{"terms"}},
		// O-3-07
		"no expiry":  {[]any{"expires_at", gone}, []string{"expires_at"}},
		"odd expiry": {[]any{"expires_at", "soon"}, []string{"expires_at"}},
		// O-3-08
		"approval a text": {[]any{"user_approval_required", "true"}, []string{"user_approval_required"}},
		// P-3-18 O-3-09
		"page by http": {[]any{"url", "http://outdoor.example"}, []string{"url"}},
		"page a path":  {[]any{"url", "/orders"}, []string{"url"}},
		// O-3-10
		"proposed and confirmed": {[]any{"confirmation", map[string]any{"revision": 1, "approved_by": "user"}}, []string{"confirmation"}},
		// O-3-11
		"proposed with a result":    {[]any{"result", map[string]any{"summary": "done"}}, []string{"result"}},
		"in progress with a result": {[]any{"state", "in_progress", "result", map[string]any{"summary": "done"}}, []string{"result"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := poppy.ParseOperation(load(t, "proposed.json", test.edits...))
			wantFields(t, err, test.want...)
			if o.OperationID != "" {
				t.Error("an operation together with an error")
			}
		})
	}
}

// The outcome of a confirmed operation is never lost because the Company's record is thin.
func TestOperationLeniency(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]any{
		"final without result":       {"result", nil},
		"final without confirmation": {"confirmation", nil},
		"confirmed in another way":   {"confirmation/approved_by", "voice"},
		"result without summary":     {"result/summary", gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := operation(t, "succeeded.json", edits...)
			if o.State != poppy.OperationSucceeded || o.ValidateForPublishing() == nil {
				t.Errorf("got %+v, fit to publish", o)
			}
		})
	}
}

func TestOperationForPublishing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edits []any
		want  []string
	}{
		// O-3-10
		"succeeded, never confirmed":   {[]any{"confirmation", nil}, []string{"confirmation"}},
		"in progress, never confirmed": {[]any{"state", "in_progress", "confirmation", nil, "result", nil}, []string{"confirmation"}},
		"expired and confirmed":        {[]any{"state", "expired"}, []string{"confirmation"}},
		"cancelled before":             {[]any{"state", "cancelled", "confirmation", nil}, nil},
		"cancelled after":              {[]any{"state", "cancelled"}, nil},
		"confirmed when?":              {[]any{"confirmation/confirmed_at", gone}, []string{"confirmation.confirmed_at"}},
		// O-3.1-04
		"confirmed another revision": {[]any{"revision", 2}, []string{"confirmation.revision"}},
		// O-5.1-02 O-5.1-03
		"approved by a message": {[]any{"confirmation/approved_by", "message"}, []string{"confirmation.approved_by"}},
		"approved in advance":   {[]any{"confirmation/approved_by", "standing_permission"}, nil},
		// O-5.1-04
		"approved in advance where that is barred": {
			[]any{"confirmation/approved_by", "standing_permission", "user_approval_required", true}, []string{"confirmation.approved_by"},
		},
		// O-3-11
		"final without result": {[]any{"result", nil}, []string{"result.summary"}},
		"result without words": {[]any{"result/summary", " "}, []string{"result.summary"}},
		"failed without words": {[]any{"state", "failed", "result/summary", ""}, []string{"result.summary"}},
		"expired without":      {[]any{"state", "expired", "confirmation", nil, "result", nil}, []string{"result.summary"}},
		// what is digested must be what is meant
		"terms that no digest can hold": {[]any{"terms/order", strictjson.Raw("1234567890123456789")}, []string{"terms"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFields(t, operation(t, "succeeded.json", test.edits...).ValidateForPublishing(), test.want...)
		})
	}
}

// O-3-19 O-3-20 O-3-21 O-3-22 O-3-23: every pair of states.
func TestOperationStateMachine(t *testing.T) {
	t.Parallel()
	states := []poppy.OperationState{"proposed", "in_progress", "succeeded", "failed", "cancelled", "expired"}
	allowed := map[poppy.OperationState][]poppy.OperationState{
		"proposed":    {"in_progress", "cancelled", "expired"},
		"in_progress": {"succeeded", "failed", "cancelled"},
	}
	for _, from := range states {
		if !from.Known() || from.Final() != (len(allowed[from]) == 0) {
			t.Errorf("%s: known %t, final %t", from, from.Known(), from.Final())
		}
		for _, to := range states {
			if got, want := from.MayBecome(to), slices.Contains(allowed[from], to); got != want {
				t.Errorf("%s to %s: got %t", from, to, got)
			}
		}
		if from.MayBecome("done") || from.MayBecome("") {
			t.Errorf("%s may become a state that does not exist", from)
		}
	}
	for _, unknown := range []poppy.OperationState{"", "done", "Proposed"} {
		if unknown.Known() || unknown.Final() || unknown.MayBecome("proposed") {
			t.Errorf("%q is a state", unknown)
		}
	}
}

// Operations 3.1: two revisions with any difference that matters have different digests.
func TestTermsDigest(t *testing.T) {
	t.Parallel()
	digest := func(edits ...any) string {
		t.Helper()
		d, err := operation(t, "proposed.json", edits...).TermsDigest()
		if err != nil || len(d) != 64 {
			t.Fatalf("got %q, %v", d, err)
		}
		return d
	}
	first := digest()
	for name, edits := range map[string][]any{
		"again":                 nil,
		"unknown fields":        {"x", 1},
		"the default, left out": {"user_approval_required", gone},
		"another offset":        {"expires_at", "2026-10-08T12:20:00-07:00"},
		"no nulls":              {"confirmation", gone, "result", gone},
	} {
		if digest(edits...) != first {
			t.Errorf("%s makes it other terms", name)
		}
	}
	seen := map[string]string{first: "the first"}
	for name, edits := range map[string][]any{
		"ID":       {"operation_id", "exc_other"},
		"revision": {"revision", 2},
		"summary":  {"summary", "Exchange the jacket for $7.00 more."},
		"terms":    {"terms/price_difference/amount", "7.00"},
		"no terms": {"terms", gone},
		"empty":    {"terms", map[string]any{}},
		"expiry":   {"expires_at", "2026-10-08T19:20:01Z"},
		"fraction": {"expires_at", "2026-10-08T19:20:00.001Z"},
		"approval": {"user_approval_required", true},
		"page":     {"url", "https://outdoor.example/other"},
		"no page":  {"url", gone},
		"number":   {"terms/quantity", 1},
		"numeral":  {"terms/quantity", "1"},
	} {
		d := digest(edits...)
		if seen[d] != "" {
			t.Errorf("%s has the digest of %s", name, seen[d])
		}
		seen[d] = name
	}
	// The state is no part of the terms.
	if digest("state", "expired") != first {
		t.Error("the state counts")
	}
	if d, err := operation(t, "proposed.json", "terms/order", strictjson.Raw("1234567890123456789")).TermsDigest(); err == nil || d != "" {
		t.Errorf("got %q for a number that RFC 8785 rounds", d)
	}
}

func TestNumbersThatACanonicalFormKeeps(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]bool{
		"0": true, "-0": true, "0.0": true, "1": true, "-1": true, "70.00": true, "70.1": true, "0.1": true, "1e3": true, "1E+3": true, "1.50e-7": true,
		"9007199254740991":                     true,
		"9007199254740993":                     false,
		"1234567890123456789":                  false,
		"0.1000000000000000055511151231257827": false,
		"70.10000000000000000000":              true,
		"1e400":                                false,
		"1e-400":                               false,
		"0e99999999999999999999":               true,
		"1e23":                                 true,
		"100000000000000000000000":             true,
	} {
		o := operation(t, "proposed.json", "terms", map[string]any{`a "1234567890123456789" \`: []any{"9007199254740993", strictjson.Raw(number)}})
		if _, err := o.TermsDigest(); (err == nil) != want {
			t.Errorf("%s: got %v", number, err)
		}
	}
}

// O-4.1-01 O-4.2-01
func TestFindOperation(t *testing.T) {
	t.Parallel()
	proposed := string(load(t, "proposed.json"))
	o, found, err := poppy.FindOperation([]byte(`{"operation":` + proposed + `,"other":1}`))
	if err != nil || !found || o.OperationID != "exc_5Rt2" || !o.ExpiresAt.Equal(time.Date(2026, 10, 8, 19, 20, 0, 0, time.UTC)) {
		t.Errorf("got %+v, %t, %v", o, found, err)
	}
	for name, text := range map[string]string{
		"an operation at the top": proposed,
		"null":                    `{"operation":null}`,
		"another operation":       `{"operation":"sum"}`,
		"a list":                  `[` + proposed + `]`,
		"no JSON":                 `<html>`,
		"nothing":                 ``,
		"too long":                `{"operation":` + proposed + `,"x":"` + strings.Repeat("x", poppy.MaxOperationBytes) + `"}`,
	} {
		if o, found, err := poppy.FindOperation([]byte(text)); found || err != nil || o.OperationID != "" {
			t.Errorf("%s: found %+v, %v", name, o, err)
		}
	}
	if _, found, err := poppy.FindOperation([]byte(`{"operation":{"operation_id":"a"}}`)); found || err == nil {
		t.Error("a broken operation is none, silently")
	}
}

// O-5.2-02
func TestConfirm(t *testing.T) {
	t.Parallel()
	r, err := poppy.ParseConfirm([]byte(`{"revision":1,"approved_by":"user"}`))
	if err != nil || r != (poppy.Confirm{Revision: 1, ApprovedBy: poppy.ApprovedByUser}) {
		t.Errorf("got %+v, %v", r, err)
	}
	wantSame(t, r, []byte(`{"revision":1,"approved_by":"user"}`))
	for text, want := range map[string][]string{
		`{"revision":2,"approved_by":"standing_permission","x":1}`: nil,
		`{}`:                                    {"revision", "approved_by"},
		`{"revision":0,"approved_by":"user"}`:   {"revision"},
		`{"revision":"1","approved_by":"user"}`: {"revision"},
		`{"revision":1,"approved_by":"agent"}`:  {"approved_by"},
		`{"revision":1}`:                        {"approved_by"},
		``:                                      {""},
	} {
		_, err := poppy.ParseConfirm([]byte(text))
		t.Log(text)
		wantFields(t, err, want...)
	}
}
