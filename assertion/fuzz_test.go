package assertion_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"testing"

	"countersign/assertion"
)

// FuzzVerify signs any header and claims, so that the checks behind the signature are reached, and takes any text as well.
// Its key is fixed and its signatures deterministic (Ed25519), so that one input takes one path.
func FuzzVerify(f *testing.F) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	encode := base64.RawURLEncoding.EncodeToString
	keys, err := assertion.ParseKeySet([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + encode(private.Public().(ed25519.PublicKey)) + `"}]}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"alg":"EdDSA","typ":"JWT"}`, `{"iss":"`+clientID+`","sub":"`+userID+`","aud":"`+issuer+`","iat":1790900000,"exp":1790900060,"jti":"a"}`, "")
	f.Add(`{"alg":"EdDSA"}`, `{"iss":"`+clientID+`","sub":"`+clientID+`","aud":"`+issuer+`","iat":1790900000,"exp":1790900060,"nbf":0,"jti":"a"}`, "a.b.c")
	f.Fuzz(func(t *testing.T, header, claims, text string) {
		signed := encode([]byte(header)) + "." + encode([]byte(claims))
		compact := signed + "." + encode(ed25519.Sign(private, []byte(signed)))
		for _, compact := range []string{compact, text} {
			for _, kind := range []assertion.Kind{assertion.Client, assertion.Session} {
				got, err := assertion.Verify(compact, keys, expected(kind), now)
				if err != nil && got != (assertion.Claims{}) {
					t.Fatalf("a result together with an error: %v, %v", got, err)
				}
				if err == nil && (got.Issuer != clientID || (got.Subject == clientID) != (kind == assertion.Client) || got.ID == "" ||
					!got.ExpiresAt.After(now) || got.ExpiresAt.Sub(got.IssuedAt).Minutes() > 5) {
					t.Fatalf("accepted as %v", got)
				}
			}
		}
	})
}
