package provider

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Redacted stands where something that looks like a credential was.
const Redacted = "[redacted]"

// credentials are what must not be shown, in the order in which they are looked for. What may be a credential is treated as
// one: a blanked word costs less than a shown token.
var credentials = []struct {
	pattern *regexp.Regexp
	show    string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|$)`), Redacted},
	// user:password@ of a URL.
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#@]*@`), "${1}" + Redacted + "@"},
	// JWTs: base64url of {" and what follows.
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*(\.[A-Za-z0-9_-]*)*`), Redacted},
	// Tokens that tell by their first letters whose they are.
	{regexp.MustCompile(`(^|[^A-Za-z0-9])(gh[a-z]_|github_pat_|glpat-|hf_|sk-|sk_|rk_|xox[a-z]-|npm_|pypi-|dop_v1_)[A-Za-z0-9_-]{4,}`), "${1}" + Redacted},
	{regexp.MustCompile(`(^|[^A-Za-z0-9])(AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}`), "${1}" + Redacted},
	// The value of an Authorization header, with or without its name.
	{regexp.MustCompile(`(?i)\b(bearer|dpop|basic|negotiate|digest)(\s+)[A-Za-z0-9._~+/=-]{6,}`), "${1}${2}" + Redacted},
	{regexp.MustCompile(`(?i)\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?)(?:[A-Za-z][A-Za-z0-9-]*\s+)?[^\s"']+`), "${1}" + Redacted},
	{regexp.MustCompile(`(?i)\b((?:set-)?cookie["']?\s*[:=]\s*["']?)[^"'\r\n]+`), "${1}" + Redacted},
	// label=value, label: value, "label": "value".
	{regexp.MustCompile(`(?i)([A-Za-z0-9_.-]*(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|private[_-]?key|access[_-]?key|credential)[A-Za-z0-9_.-]*["']?\s*[:=]\s*)("[^"]*"?|'[^']*'?|[^\s,;&"']+)`), "${1}" + Redacted},
}

// Redact replaces what looks like a credential by [Redacted].
func Redact(text string) string {
	for _, credential := range credentials {
		text = credential.pattern.ReplaceAllString(text, credential.show)
	}
	return text
}

// sanitizeInput bounds what Sanitize looks at: no text of a provider needs more before it is cut.
const sanitizeInput = 64 << 10

// Sanitize makes a text from a provider safe to show and store: one line without control or invisible characters, without
// what looks like a credential, at most limit bytes. It cannot fail.
func Sanitize(text string, limit int) string {
	if len(text) > sanitizeInput {
		text = text[:sanitizeInput]
		text = text[:max(strings.LastIndexByte(text, ' '), 0)] // half a token would look like a harmless word
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError, !unicode.IsPrint(r): // controls, direction marks, zero-width and private characters
			return -1
		}
		return r
	}, text)
	return Cut(strings.Join(strings.Fields(Redact(text)), " "), limit)
}

// Cut shortens text to at most limit bytes of whole characters, the last of them an ellipsis where something is missing.
// limit is at least 3.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
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
