package poppy

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ReportMissing is the one kind of report that the protocol defines: the Company offers no way to do the task (8).
const ReportMissing = "missing"

// Bounds of a report, in characters. The protocol leaves them to the Company (8).
const (
	MaxReportKind        = 64
	MaxReportTask        = 200
	MaxReportDescription = 4000
)

// Report is a feedback report: a task that could not be done (8). Its text is data, whoever reads it.
type Report struct {
	Kind        string `json:"kind"` // any kind is accepted
	Task        string `json:"task"`
	Description string `json:"description,omitempty"`
}

// ParseReport reads a report as a Company must. The error is [Problems].
func ParseReport(data []byte) (Report, error) {
	var r Report
	if err := decode(data, MaxReportBytes, &r); err != nil {
		return Report{}, err
	}
	if err := r.Validate(); err != nil {
		return Report{}, err
	}
	return r, nil
}

// Validate checks what a Company accepts. The error is [Problems].
func (r Report) Validate() error {
	var c checker
	r.check(&c)
	return c.err()
}

func (r Report) check(c *checker) {
	c.text(r.Kind, MaxReportKind, "8", "kind")
	c.text(r.Task, MaxReportTask, "8", "task")
	c.longest(r.Description, MaxReportDescription, "8", "description")
}

// ValidateForSending checks what a Personal Agent must send: a description too. The error is [Problems].
func (r Report) ValidateForSending() error {
	var c checker
	r.check(&c)
	c.require(strings.TrimSpace(r.Description) != "", "8", "description", "is required")
	return c.err()
}

// text requires a text that is not blank and at most so many characters long.
func (c *checker) text(text string, longest int, section, field string) {
	c.require(strings.TrimSpace(text) != "", section, field, "is required")
	c.longest(text, longest, section, field)
}

func (c *checker) longest(text string, longest int, section, field string) {
	c.require(utf8.RuneCountInString(text) <= longest, section, field, fmt.Sprintf("must not be longer than %d characters", longest))
}
