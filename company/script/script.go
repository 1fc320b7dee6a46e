// Package script plays a Company from its configuration, for demonstrations, for tests and for whoever wants to try a
// Personal Agent: a [Clerk] that answers by rules, and a [Performer] that writes what it performs into a journal.
//
// The structs decode from TOML as they are. Texts may hold values in braces, see [Rule].
package script

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	_ "time/tzdata" // Users name time zones, wherever this runs

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"countersign/internal/config"
	"countersign/poppy"
)

// Problem is one mistake in a script.
type Problem struct {
	Field string // "rule[2].propose.summary"
	What  string // what is wrong, in words that follow the field's name
	Fix   string // what to do; may be empty when What says it
}

// Error returns the field, what is wrong and the fix.
func (p Problem) Error() string {
	text := p.Field + " " + p.What
	if p.Fix != "" {
		text += ": " + p.Fix
	}
	return text
}

// Rules configures a [Clerk].
type Rules struct {
	// TimeZone is that of Users who name none, such as "America/Los_Angeles"; "UTC" by default.
	TimeZone string `toml:"time_zone"`
	// Default answers a message that no rule fits.
	Default Answer `toml:"default"`
	// Rules are tried in their order; the first that fits answers.
	Rules []Rule `toml:"rule"`
}

// Answer is what is said.
type Answer struct {
	Text string         `toml:"text"`
	Data map[string]any `toml:"data"`
	// ThinkFor is how long the Clerk takes before it answers, for tests.
	ThinkFor config.Duration `toml:"think_for"`
}

// Rule fits a message in which all its phrases occur, or that its pattern matches; one without either fits every message.
//
// Texts, also those in data and terms, may hold {today} and {tomorrow} (2026-10-09), {today_words} and {tomorrow_words}
// (Friday, 9 October 2026), {today 18:00} and {tomorrow 18:00} (2026-10-09T18:00:00-07:00), each in the User's time zone,
// and the named groups of the rule's pattern.
type Rule struct {
	// Name is what other rules call it.
	Name string `toml:"name"`
	// Phrases are compared without regard to case and spelling variants of Unicode.
	Phrases []string `toml:"phrases"`
	// Pattern is a regular expression of RE2, compared without regard to case.
	Pattern string `toml:"pattern"`
	// After names a rule that must have answered before in the conversation.
	After string `toml:"after"`
	// While is the state that the conversation's latest operation for an action must be in.
	While *While `toml:"while"`

	Text     string          `toml:"text"`
	Data     map[string]any  `toml:"data"`
	ThinkFor config.Duration `toml:"think_for"`
	// Propose proposes an operation with the answer.
	Propose *Offer `toml:"propose"`
	// Revise changes the terms of one that is proposed, and the rule fits only while it is. What it leaves out is as the rule
	// that proposes the action has it.
	Revise *Offer `toml:"revise"`
}

// While is a state of an operation.
type While struct {
	Action string               `toml:"action"`
	State  poppy.OperationState `toml:"state"`
}

// Offer is an operation as a rule proposes or revises it.
type Offer struct {
	// Action names the action: proposing one that is open does not make a second operation.
	Action  string         `toml:"action"`
	Summary string         `toml:"summary"`
	Terms   map[string]any `toml:"terms"`
	// ExpiresIn is how long it can be confirmed; 20 min by default.
	ExpiresIn config.Duration `toml:"expires_in"`
	// UserApprovalRequired refuses a standing permission.
	UserApprovalRequired bool `toml:"user_approval_required"`
	// Scopes are those needed to confirm; none lets a signed-out Session confirm.
	Scopes []string `toml:"scopes"`
	// URL is a page that shows the operation, with {operation_id} where its ID belongs.
	URL string `toml:"url"`
}

const (
	defaultExpiry = 20 * time.Minute
	maxPattern    = 1_000 // bytes
)

// rule is a rule that was checked, ready to be tried.
type rule struct {
	Rule

	phrases []string // folded
	pattern *regexp.Regexp
}

// fits tells whether the rule fits a text, and returns the named groups of its pattern.
func (r rule) fits(text string) (groups map[string]string, ok bool) {
	folded := fold(text)
	for _, phrase := range r.phrases {
		if !strings.Contains(folded, phrase) {
			return nil, false
		}
	}
	if r.pattern == nil {
		return nil, true
	}
	match := r.pattern.FindStringSubmatch(plain(text))
	if match == nil {
		return nil, false
	}
	groups = make(map[string]string)
	for i, name := range r.pattern.SubexpNames() {
		if name != "" {
			groups[name] = match[i]
		}
	}
	return groups, true
}

// plain makes equal what Unicode spells in several ways, and white space one space.
func plain(text string) string { return strings.Join(strings.Fields(norm.NFKC.String(text)), " ") }

// fold also makes equal what differs in case.
func fold(text string) string { return norm.NFKC.String(cases.Fold().String(plain(text))) }

// check checks the rules. The error joins a [Problem] for each mistake.
func (rs Rules) check() (rules []rule, zone *time.Location, err error) {
	c := checker{proposed: make(map[string]*Offer), named: make(map[string]bool)}
	zone, zoneErr := location(rs.TimeZone)
	if zoneErr != nil {
		c.problem("time_zone", "is not a time zone", `write a name such as "America/Los_Angeles"`)
	}
	c.answer("default", Answer{rs.Default.Text, rs.Default.Data, rs.Default.ThinkFor}, nil)
	if rs.Default.Text == "" && rs.Default.Data == nil {
		c.problem("default.text", "is missing", "say what the Company answers when no rule fits")
	}
	for i, r := range rs.Rules {
		if r.Name != "" && c.named[r.Name] {
			c.problem(fmt.Sprintf("rule[%d].name", i), "names another rule too", "give each rule a name of its own")
		}
		c.named[r.Name] = true
		if r.Propose != nil && c.proposed[r.Propose.Action] == nil {
			c.proposed[r.Propose.Action] = r.Propose
		}
	}
	for i, r := range rs.Rules {
		rules = append(rules, c.rule(fmt.Sprintf("rule[%d]", i), r))
	}
	return rules, zone, errors.Join(c.problems...)
}

// checker gathers mistakes.
type checker struct {
	problems []error
	named    map[string]bool
	proposed map[string]*Offer // by action, of the first rule that proposes it
}

func (c *checker) problem(field, what, fix string) {
	c.problems = append(c.problems, Problem{field, what, fix})
}

func (c *checker) rule(field string, r Rule) rule {
	checked := rule{Rule: r}
	for i, phrase := range r.Phrases {
		if folded := fold(phrase); folded != "" {
			checked.phrases = append(checked.phrases, folded)
		} else {
			c.problem(fmt.Sprintf("%s.phrases[%d]", field, i), "is empty", "")
		}
	}
	var groups []string
	if r.Pattern != "" {
		pattern, err := regexp.Compile("(?i)" + norm.NFKC.String(r.Pattern))
		switch {
		case len(r.Pattern) > maxPattern:
			c.problem(field+".pattern", fmt.Sprintf("is longer than %d bytes", maxPattern), "")
		case err != nil:
			c.problem(field+".pattern", "is not a regular expression", err.Error())
		default:
			checked.pattern = pattern
			for _, name := range pattern.SubexpNames() {
				if name != "" {
					groups = append(groups, name)
				}
			}
		}
	}
	if r.After != "" && !c.named[r.After] {
		c.problem(field+".after", "names no rule", "")
	}
	if w := r.While; w != nil {
		if c.proposed[w.Action] == nil {
			c.problem(field+".while.action", "is proposed by no rule", "")
		}
		if !w.State.Known() {
			c.problem(field+".while.state", "is not a state", "write proposed, in_progress, succeeded, failed, cancelled or expired")
		}
	}
	c.answer(field, Answer{r.Text, r.Data, r.ThinkFor}, groups)
	switch {
	case r.Propose != nil && r.Revise != nil:
		c.problem(field+".revise", "stands beside propose", "make two rules of it")
	case r.Propose != nil:
		c.offer(field+".propose", *r.Propose, groups)
	case r.Revise != nil:
		first := c.proposed[r.Revise.Action]
		if first == nil {
			c.problem(field+".revise.action", "is proposed by no rule", "name the action of a rule that proposes")
			break
		}
		merged := r.Revise.over(*first)
		checked.Revise = &merged
		c.offer(field+".revise", merged, groups)
	case r.Text == "" && r.Data == nil:
		c.problem(field+".text", "is missing", "an answer has a text, data or an operation")
	}
	return checked
}

// over returns the offer with what it leaves out from another one.
func (o Offer) over(first Offer) Offer {
	if o.Summary == "" {
		o.Summary = first.Summary
	}
	if o.Terms == nil {
		o.Terms = first.Terms
	}
	if o.ExpiresIn == 0 {
		o.ExpiresIn = first.ExpiresIn
	}
	if o.Scopes == nil {
		o.Scopes = first.Scopes
	}
	if o.URL == "" {
		o.URL = first.URL
	}
	o.UserApprovalRequired = o.UserApprovalRequired || first.UserApprovalRequired
	return o
}

func (c *checker) answer(field string, a Answer, groups []string) {
	c.text(field+".text", a.Text, groups)
	c.values(field+".data", a.Data, groups)
	if a.ThinkFor < 0 {
		c.problem(field+".think_for", "is less than nothing", "")
	}
}

func (c *checker) offer(field string, o Offer, groups []string) {
	if o.Action == "" {
		c.problem(field+".action", "is missing", `name the action, such as "hold jacket"`)
	}
	if strings.TrimSpace(o.Summary) == "" {
		c.problem(field+".summary", "is missing", "say what will be done, so that the User can decide from it alone")
	}
	c.text(field+".summary", o.Summary, groups)
	c.values(field+".terms", o.Terms, groups)
	if o.ExpiresIn != 0 && time.Duration(o.ExpiresIn) < time.Second {
		c.problem(field+".expires_in", "is less than a second", "")
	}
	for i, scope := range o.Scopes {
		if !poppy.ValidScope(scope) {
			c.problem(fmt.Sprintf("%s.scopes[%d]", field, i), "is not a scope", `write one such as "poppy:write"`)
		}
	}
	if o.URL != "" {
		if _, err := poppy.ParseURL(strings.ReplaceAll(o.URL, "{operation_id}", "op")); err != nil {
			c.problem(field+".url", err.Error(), "")
		}
	}
}

func (c *checker) text(field, text string, groups []string) {
	for _, match := range placeholder.FindAllStringSubmatch(text, -1) {
		if name := match[1]; !known(name) && !slices.Contains(groups, name) {
			c.problem(field, "holds {"+name+"}, which is no value", "write {today}, {tomorrow}, {tomorrow_words}, {tomorrow 18:00} or a named group of the pattern")
		}
	}
}

func (c *checker) values(field string, values map[string]any, groups []string) {
	if values == nil {
		return
	}
	_, err := object(values, func(text string) string {
		c.text(field, text, groups)
		return text
	})
	if err != nil {
		c.problem(field, "cannot be written as JSON", "use texts, numbers, booleans, arrays and tables")
	}
}
