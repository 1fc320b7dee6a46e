package provider

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Redacted stands where something that looks like a credential was.
const Redacted = "[redacted]"

// credentials are what must not be shown, in the order in which they are looked for. What may be a credential is treated as
// one: a blanked word costs less than a shown token. A pattern is tried only on a text that has one of its hints, in lower
// case, since searching a large text by pattern is slow.
var credentials = []struct {
	hints   []string
	pattern *regexp.Regexp
	show    string
}{
	{[]string{"-----begin"}, regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|$)`), Redacted},
	// user:password@ of a URL.
	{[]string{"://"}, regexp.MustCompile(`(://)[^\s/?#@]*@`), "${1}" + Redacted + "@"},
	// JWTs: base64url of {" and what follows.
	{[]string{"eyj"}, regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*(\.[A-Za-z0-9_-]*)*`), Redacted},
	// Tokens that tell by their first letters whose they are.
	{
		[]string{"gh", "glpat-", "hf_", "sk-", "sk_", "rk_", "xox", "npm_", "pypi-", "dop_v1_"},
		regexp.MustCompile(`(^|[^A-Za-z0-9])(gh[a-z]_|github_pat_|glpat-|hf_|sk-|sk_|rk_|xox[a-z]-|npm_|pypi-|dop_v1_)[A-Za-z0-9_-]{4,}`), "${1}" + Redacted,
	},
	{[]string{"akia", "asia", "aiza"}, regexp.MustCompile(`(^|[^A-Za-z0-9])(AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}`), "${1}" + Redacted},
	// The value of an Authorization header, with or without its name.
	{[]string{"bearer", "dpop", "basic", "negotiate", "digest"}, regexp.MustCompile(`(?i)\b(bearer|dpop|basic|negotiate|digest)(\s+)[A-Za-z0-9._~+/=-]{6,}`), "${1}${2}" + Redacted},
	{[]string{"authorization"}, regexp.MustCompile(`(?i)\b(authorization\\*["']?\s*[:=]\s*\\*["']?)(?:[A-Za-z][A-Za-z0-9-]*\s+)?[^\s"']+`), "${1}" + Redacted},
	{[]string{"cookie"}, regexp.MustCompile(`(?i)\b(cookie\\*["']?\s*[:=]\s*\\*["']?)[^"'\r\n]+`), "${1}" + Redacted},
	// label=value, label: value, "label": "value", and the same as JSON within a string.
	{
		[]string{"token", "secret", "passw", "passphrase", "key", "credential"},
		regexp.MustCompile(`(?i)((?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|private[_-]?key|access[_-]?key|credential)[A-Za-z0-9_.-]*\\*["']?\s*[:=]\s*)(\\+"[^"\\]*|"[^"]*"?|'[^']*'?|[^\s,;&"']+)`),
		"${1}" + Redacted,
	},
}

// Redact replaces what looks like a credential by [Redacted].
func Redact(text string) string {
	lower := strings.ToLower(text)
	for _, credential := range credentials {
		if slices.ContainsFunc(credential.hints, func(hint string) bool { return strings.Contains(lower, hint) }) {
			text = credential.pattern.ReplaceAllString(text, credential.show)
		}
	}
	return text
}

// redactStart redacts about the first limit bytes of a text. What stands at the end of what was
// looked at is dropped: half a token could look like a harmless word.
func redactStart(text string, limit int) string {
	const edge = 1024
	if len(text) <= limit+edge {
		return Redact(text)
	}
	start := Redact(text[:limit+edge])
	return strings.ToValidUTF8(start[:max(len(start)-edge, 0)], "")
}

// sanitizeInput bounds what Sanitize looks at: no text of a provider needs more before it is cut.
const sanitizeInput = 16 << 10

// Sanitize makes a text from a provider safe to show and store: one line without control or invisible characters, without
// what looks like a credential, at most limit bytes. It cannot fail.
func Sanitize(text string, limit int) string {
	// Invisible characters go first, since they could hide a credential from the patterns.
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError, !unicode.IsPrint(r): // controls, direction marks, zero-width and private characters
			return -1
		}
		return r
	}, text[:min(len(text), 4*sanitizeInput)])
	return Cut(strings.Join(strings.Fields(redactStart(text, sanitizeInput)), " "), limit)
}

// ellipsis stands where something is missing.
const ellipsis = "…"

// Cut shortens text to at most limit bytes of whole characters, the last of them an ellipsis where something is missing.
// limit is at least 3.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// Bounded returns the presentation within its bounds and safe to show. An empty title becomes fallback.
func (p Presentation) Bounded(fallback string) Presentation {
	title := Sanitize(p.Title, 160)
	if title == "" {
		title = Sanitize(fallback, 160)
	}
	bounded := Presentation{Title: title, Summary: Sanitize(p.Summary, 500)}
	for _, detail := range p.Details[:min(len(p.Details), 20)] {
		bounded.Details = append(bounded.Details, Detail{Sanitize(detail.Label, 80), Sanitize(detail.Value, 500)})
	}
	for _, warning := range p.Warnings[:min(len(p.Warnings), 10)] {
		bounded.Warnings = append(bounded.Warnings, Sanitize(warning, 500))
	}
	return bounded
}
