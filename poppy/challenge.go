package poppy

import (
	"errors"
	"strings"
)

// Bounds of the WWW-Authenticate headers that are read from one response.
const (
	MaxChallengeBytes = 8 << 10
	MaxChallenges     = 16
	maxParams         = 32
)

// Challenge is one challenge of a WWW-Authenticate header (RFC 9110 section 11.6.1).
type Challenge struct {
	Scheme  string
	Token68 string  // for schemes that have one value instead of parameters
	Params  []Param // in the order of the header
}

// Param is one parameter of a challenge.
type Param struct{ Name, Value string }

// Param returns the value of a parameter, whose name's case does not matter; "" if there is none.
func (c Challenge) Param(name string) string {
	for _, param := range c.Params {
		if equalFold(param.Name, name) {
			return param.Value
		}
	}
	return ""
}

// String writes the challenge with every value quoted.
func (c Challenge) String() string {
	var text strings.Builder
	text.WriteString(c.Scheme)
	if c.Token68 != "" {
		text.WriteString(" " + c.Token68)
	}
	for i, param := range c.Params {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(" " + param.Name + "=" + quote(param.Value))
	}
	return text.String()
}

// quote writes a quoted-string (RFC 9110 section 5.6.4). What may not stand in a header becomes a question mark.
func quote(value string) string {
	var text strings.Builder
	text.WriteByte('"')
	for _, r := range value {
		switch {
		case r == '"' || r == '\\':
			text.WriteByte('\\')
			text.WriteRune(r)
		case r < ' ' || r > '~':
			text.WriteByte('?')
		default:
			text.WriteRune(r)
		}
	}
	text.WriteByte('"')
	return text.String()
}

// ParseChallenges reads the values of all WWW-Authenticate headers of a response, several challenges in one value
// included. It refuses what is malformed, longer than [MaxChallengeBytes] in all, or more than [MaxChallenges].
func ParseChallenges(values []string) ([]Challenge, error) {
	var challenges []Challenge
	total := 0
	for _, value := range values {
		if total += len(value); total > MaxChallengeBytes {
			return nil, errors.New("WWW-Authenticate is too long")
		}
		r := challengeReader{rest: value}
		for r.skipCommas(); r.rest != ""; r.skipCommas() {
			if len(challenges) == MaxChallenges {
				return nil, errors.New("WWW-Authenticate has too many challenges")
			}
			challenge, err := r.challenge()
			if err != nil {
				return nil, err
			}
			challenges = append(challenges, challenge)
		}
	}
	return challenges, nil
}

var errMalformedChallenge = errors.New("WWW-Authenticate is malformed")

// challengeReader reads one header value from left to right.
type challengeReader struct{ rest string }

// challenge reads a scheme and its token68 or parameters, up to the next scheme or the end.
func (r *challengeReader) challenge() (Challenge, error) {
	c := Challenge{Scheme: r.token()}
	if c.Scheme == "" {
		return Challenge{}, errMalformedChallenge
	}
	spaced := r.skipSpaces()
	if r.atEnd() {
		return c, nil
	}
	if !spaced {
		return Challenge{}, errMalformedChallenge
	}
	if token, ok := r.token68(); ok {
		c.Token68 = token
		return c, nil
	}
	for {
		param, ok, err := r.param()
		if err != nil {
			return Challenge{}, err
		}
		if !ok { // a scheme: the next challenge
			return c, nil
		}
		if len(c.Params) == maxParams || c.Param(param.Name) != "" {
			return Challenge{}, errMalformedChallenge
		}
		c.Params = append(c.Params, param)
		r.skipSpaces()
		if !r.atEnd() {
			return Challenge{}, errMalformedChallenge
		}
		r.skipCommas()
		if r.rest == "" {
			return c, nil
		}
	}
}

// param reads name = value. It leaves what has no = behind its name: that is the scheme of the next challenge.
func (r *challengeReader) param() (param Param, ok bool, err error) {
	start := r.rest
	name := r.token()
	r.skipSpaces()
	if name == "" {
		return Param{}, false, errMalformedChallenge
	}
	value, isParam := strings.CutPrefix(r.rest, "=")
	if !isParam {
		r.rest = start
		return Param{}, false, nil
	}
	r.rest = value
	r.skipSpaces()
	if strings.HasPrefix(r.rest, `"`) {
		text, ok := r.quoted()
		if !ok {
			return Param{}, false, errMalformedChallenge
		}
		return Param{name, text}, true, nil
	}
	text := r.token()
	if text == "" {
		return Param{}, false, errMalformedChallenge
	}
	return Param{name, text}, true, nil
}

// token68 reads one if it is all that stands before the next comma or the end.
func (r *challengeReader) token68() (string, bool) {
	end := 0
	for end < len(r.rest) && strings.IndexByte(token68Alphabet, r.rest[end]) >= 0 {
		end++
	}
	if end == 0 {
		return "", false
	}
	for end < len(r.rest) && r.rest[end] == '=' {
		end++
	}
	after := challengeReader{rest: r.rest[end:]}
	after.skipSpaces()
	if !after.atEnd() {
		return "", false
	}
	token := r.rest[:end]
	r.rest = after.rest
	return token, true
}

// quoted reads a quoted-string and returns what it stands for.
func (r *challengeReader) quoted() (string, bool) {
	var text strings.Builder
	for i := 1; i < len(r.rest); i++ {
		switch c := r.rest[i]; c {
		case '"':
			r.rest = r.rest[i+1:]
			return text.String(), true
		case '\\':
			if i++; i == len(r.rest) {
				return "", false
			}
			text.WriteByte(r.rest[i])
		default:
			text.WriteByte(c)
		}
	}
	return "", false
}

// token reads a token (RFC 9110 section 5.6.2), "" if there is none here.
func (r *challengeReader) token() string {
	end := 0
	for end < len(r.rest) && strings.IndexByte(alphanumeric+"!#$%&'*+-.^_`|~", r.rest[end]) >= 0 {
		end++
	}
	token := r.rest[:end]
	r.rest = r.rest[end:]
	return token
}

func (r *challengeReader) atEnd() bool { return r.rest == "" || r.rest[0] == ',' }

func (r *challengeReader) skipSpaces() bool {
	trimmed := strings.TrimLeft(r.rest, " \t")
	skipped := len(trimmed) < len(r.rest)
	r.rest = trimmed
	return skipped
}

func (r *challengeReader) skipCommas() { r.rest = strings.TrimLeft(r.rest, " \t,") }
