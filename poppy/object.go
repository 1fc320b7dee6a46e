package poppy

import (
	"bytes"

	"countersign/internal/strictjson"
)

// Object is a JSON object kept as text, for members whose keys one party defines, such as message.data (7.4) and
// operation.terms (Operations 3). Nil is an absent one; {} is present. Read it with strictjson.Unmarshal.
type Object []byte

// MarshalJSON writes the object as it is.
func (o Object) MarshalJSON() ([]byte, error) {
	if o == nil {
		return []byte("null"), nil
	}
	return o, nil
}

// UnmarshalJSON keeps an object; null is an absent one. The error is a [strictjson.Error].
func (o *Object) UnmarshalJSON(data []byte) error {
	switch {
	case string(data) == "null":
		*o = nil
	case bytes.HasPrefix(data, []byte("{")):
		*o = bytes.Clone(data)
	default:
		return &strictjson.Error{Problem: "must be a JSON object"}
	}
	return nil
}
