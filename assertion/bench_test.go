package assertion_test

import (
	"testing"

	"countersign/assertion"
)

// BenchmarkVerify measures a Session assertion whose kid names one of two published keys. The measure beside it is
// BenchmarkBareES256 of package dpop.
func BenchmarkVerify(b *testing.B) {
	key, signer := newSigner(b)
	old, err := assertion.GenerateKey()
	if err != nil {
		b.Fatal(err)
	}
	document, err := assertion.MarshalKeySet(old, key)
	if err != nil {
		b.Fatal(err)
	}
	keys, err := assertion.ParseKeySet(document)
	if err != nil {
		b.Fatal(err)
	}
	made, err := signer.SessionAssertion(issuer, userID, now)
	if err != nil {
		b.Fatal(err)
	}
	compact := made.Reveal()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := assertion.Verify(compact, keys, expected(assertion.Session), now); err != nil {
			b.Fatal(err)
		}
	}
}
