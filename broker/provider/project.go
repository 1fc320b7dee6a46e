package provider

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"countersign/internal/strictjson"
)

// The bounds of a result that is shown.
const (
	MaxResult      = 256 << 10 // bytes of JSON
	maxResultDepth = 16        // objects and arrays open at once
)

// Project makes the result of a provider safe to show and store. cut reports that something of it is missing. It cannot
// fail: a result must never keep an operation from ending.
//
//   - The projection is an object: an array becomes {"items": …}, anything else {"value": …}.
//   - A member whose name has a word that transcripts blank (see [Blanked]) gets its public name, or is left out if names
//     has none for it.
//   - What looks like a credential inside a string is replaced, see [Redact].
//   - Levels deeper than 16 become null; what exceeds [MaxResult] is left out from the end.
func Project(result strictjson.Raw, names map[string]string) (projection strictjson.Raw, cut bool) {
	if len(result) == 0 {
		return strictjson.Raw("{}"), true
	}
	p := projector{names: names, budget: MaxResult - len(`{"items":}`)}
	var tree any
	switch result.Kind() {
	case '{':
		tree = p.value(result, 0)
	case '[':
		tree = map[string]any{"items": p.value(result, 1)}
	default:
		tree = map[string]any{"value": p.value(result, 1)}
	}
	data, err := strictjson.Marshal(tree)
	if err != nil || tree == nil {
		return strictjson.Raw("{}"), true
	}
	return data, p.cut
}

// projector builds a projection. Scalars stay JSON text, so that no number is rounded.
type projector struct {
	names  map[string]string
	budget int // bytes of JSON that may still be written
	cut    bool
}

// spend takes n bytes from the budget if they are there.
func (p *projector) spend(n int) bool {
	if n > p.budget {
		p.cut = true
		return false
	}
	p.budget -= n
	return true
}

// value projects one value that nests in depth others. What is no JSON as it must be, or too deep, becomes null.
func (p *projector) value(raw strictjson.Raw, depth int) any {
	switch raw.Kind() {
	case '{':
		var members map[string]strictjson.Raw
		if depth < maxResultDepth && strictjson.Unmarshal(raw, &members) == nil {
			return p.object(members, depth)
		}
	case '[':
		var elements []strictjson.Raw
		if depth < maxResultDepth && strictjson.Unmarshal(raw, &elements) == nil {
			return p.array(elements, depth)
		}
	case '"':
		var text string
		if strictjson.Unmarshal(raw, &text) == nil {
			return p.text(text)
		}
	default:
		if p.spend(len(raw)) {
			return raw
		}
	}
	p.cut = true
	return nil
}

func (p *projector) object(members map[string]strictjson.Raw, depth int) any {
	projection := make(map[string]any, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		public := name
		if Blanked(name) || Redact(name) != name {
			public = p.names[name]
		}
		if _, taken := members[public]; public == "" || public != name && taken {
			p.cut = true
			continue
		}
		written, err := strictjson.Marshal(public)
		if err != nil || !p.spend(len(written)+len(`:null,`)) { // null is the least that may follow
			p.cut = true
			break
		}
		projection[public] = p.value(members[name], depth+1)
	}
	return projection
}

func (p *projector) array(elements []strictjson.Raw, depth int) any {
	projection := make([]any, 0, len(elements))
	for _, element := range elements {
		if !p.spend(len("null,")) {
			break
		}
		projection = append(projection, p.value(element, depth+1))
	}
	return projection
}

// text shortens a string until its JSON form fits what is left.
func (p *projector) text(text string) any {
	safe := redactStart(text, MaxResult)
	p.cut = p.cut || safe != text
	for {
		data, err := strictjson.Marshal(safe)
		if err == nil && p.spend(len(data)) {
			return strictjson.Raw(data)
		}
		if err != nil || p.budget < len(`""`)+len(ellipsis) {
			return nil
		}
		if len(safe) <= len(ellipsis) { // and each of its bytes takes several
			safe = ellipsis
		} else {
			safe = Cut(safe, max(min(p.budget, len(safe)*3/4), len(ellipsis)))
		}
	}
}

// blankedWords are the words that transcripts of agents blank, alone or as part of a name.
var blankedWords = map[string]bool{
	"apikey": true, "auth": true, "authorization": true, "cookie": true, "cookies": true, "credential": true,
	"credentials": true, "key": true, "keys": true, "passphrase": true, "passwd": true, "password": true, "passwords": true,
	"secret": true, "secrets": true, "token": true, "tokens": true,
}

// blanked reports whether a word is one of them, or ends with one that no other word ends with, such as accesstoken.
func blanked(word []rune) bool {
	lower := strings.ToLower(string(word))
	return blankedWords[lower] || strings.HasSuffix(lower, "token") || strings.HasSuffix(lower, "secret") || strings.HasSuffix(lower, "password")
}

// Blanked reports whether a name has a word that the redactors of transcripts blank, so that its value would not reach its
// reader: one such as key, token, secret, password or authorization, however the words are joined.
func Blanked(name string) bool {
	start, runes := 0, []rune(name)
	for i, r := range runes {
		word := unicode.IsLetter(r) || unicode.IsDigit(r)
		switch {
		case !word:
			if blanked(runes[start:i]) {
				return true
			}
			start = i + 1
		case i > start && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			if blanked(runes[start:i]) { // camelCase, and APIKey
				return true
			}
			start = i
		}
	}
	return blanked(runes[start:])
}
