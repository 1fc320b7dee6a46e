package poppy_test

import (
	"strings"
	"testing"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// P-8-04
func TestReportIsReadAndWrittenAsItStands(t *testing.T) {
	t.Parallel()
	const text = `{"kind":"missing","task":"Pay with a gift card","description":"Neither the API nor the website takes one."}`
	r, err := poppy.ParseReport([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, r, []byte(text))
	if r.Kind != poppy.ReportMissing || r.ValidateForSending() != nil {
		t.Errorf("got %+v", r)
	}
}

// P-8-15, Q9
func TestReportBounds(t *testing.T) {
	t.Parallel()
	report := func(kind, task, description int) []byte {
		data, err := strictjson.Marshal(poppy.Report{
			Kind: strings.Repeat("é", kind), Task: strings.Repeat("é", task), Description: strings.Repeat("é", description),
		})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, test := range map[string]struct {
		data []byte
		want []string
	}{
		"as long as it may be": {report(64, 200, 4000), nil},
		"long kind":            {report(65, 200, 4000), []string{"kind"}},
		"long task":            {report(64, 201, 4000), []string{"task"}},
		"long description":     {report(64, 200, 4001), []string{"description"}},
		"no description":       {report(1, 1, 0), nil},
		"no kind":              {report(0, 1, 1), []string{"kind"}},
		"no task":              {report(1, 0, 1), []string{"task"}},
		"long body":            {[]byte(`{"kind":"a","task":"b","x":"` + strings.Repeat("x", poppy.MaxReportBytes) + `"}`), []string{""}},
		"no object":            {[]byte(`"missing"`), []string{""}},
		// P-8-11
		"a kind of later": {[]byte(`{"kind":"confusing","task":"b"}`), nil},
		// P-3.3-08
		"more fields": {[]byte(`{"kind":"a","task":"b","severity":5}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := poppy.ParseReport(test.data)
			wantFields(t, err, test.want...)
		})
	}
	wantFields(t, poppy.Report{Kind: "a", Task: "b"}.ValidateForSending(), "description")
}
