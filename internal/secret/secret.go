// Package secret holds values that must never be printed: keys, tokens, codes and credentials.
package secret

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// Printed is what every way of printing a secret shows instead of it.
const Printed = "[secret]"

// Text is a secret string. Every format verb, slog and JSON print [Printed]; only [Text.Reveal] gives the value.
// The value sits behind a pointer so that even %#v and reflection-based printers of an enclosing struct show an address.
type Text struct{ value *string }

// New wraps a value.
func New(value string) Text { return Text{&value} }

// Reveal returns the value, for the one place that sends or hashes it.
func (t Text) Reveal() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

// IsZero reports whether there is no value or an empty one.
func (t Text) IsZero() bool { return t.Reveal() == "" }

// Equal compares in constant time.
func (t Text) Equal(other Text) bool {
	return subtle.ConstantTimeCompare([]byte(t.Reveal()), []byte(other.Reveal())) == 1
}

// String implements fmt.Stringer.
func (Text) String() string { return Printed }

// GoString implements fmt.GoStringer.
func (Text) GoString() string { return Printed }

// Format implements fmt.Formatter, so that no verb reaches the value.
func (Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Printed) }

// LogValue implements slog.LogValuer.
func (Text) LogValue() slog.Value { return slog.StringValue(Printed) }

// MarshalText implements encoding.TextMarshaler, which JSON and TOML writers use too.
func (Text) MarshalText() ([]byte, error) { return []byte(Printed), nil }

// UnmarshalText implements encoding.TextUnmarshaler, so that a configuration file or response can hold a secret.
func (t *Text) UnmarshalText(text []byte) error {
	*t = New(string(text))
	return nil
}

var (
	_ fmt.Formatter  = Text{}
	_ slog.LogValuer = Text{}
)
