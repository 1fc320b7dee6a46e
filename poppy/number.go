package poppy

import (
	"errors"
	"strconv"
	"strings"
)

// exactNumbers tells whether RFC 8785 keeps every number of a JSON text. It writes numbers as doubles do, so of an
// order number of 19 digits it would keep 16, and two different terms would have one digest. The text of its error is
// a rule that follows a field's name.
func exactNumbers(text []byte) error {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			i = endOfString(text, i)
		case c == '-' || '0' <= c && c <= '9':
			end := i
			for end < len(text) && strings.IndexByte("+-.0123456789Ee", text[end]) >= 0 {
				end++
			}
			if !exactNumber(string(text[i:end])) {
				return errors.New("must not hold a number with more digits than a double keeps: write it as a string")
			}
			i = end - 1
		}
	}
	return nil
}

// endOfString returns the place of the quote that ends the string which starts at start.
func endOfString(text []byte, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}

// exactNumber tells whether the nearest double, written as short as it can be, is the same decimal number.
func exactNumber(text string) bool {
	double, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	digits, exponent := decimal(text)
	kept, keptExponent := decimal(strconv.FormatFloat(double, 'e', -1, 64))
	return digits == kept && exponent == keptExponent
}

// decimal splits a JSON number into its significant digits and the power of ten of the last one; zero is "".
func decimal(text string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "-")), "e")
	if power != "" {
		exponent, _ = strconv.Atoi(power) // ParseFloat has refused what is out of range, except zeros
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return "", 0
	}
	return trimmed, exponent + len(digits) - len(trimmed)
}
