package dpop_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"testing"

	"countersign/dpop"
	"countersign/internal/jws"
	"countersign/internal/secret"
)

// FuzzVerify signs any header and claims, so that the checks behind the signature are reached, and takes any text as well.
// Its key is fixed and its signatures deterministic (Ed25519), so that one input takes one path.
func FuzzVerify(f *testing.F) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	encode := base64.RawURLEncoding.EncodeToString
	jwk := `{"kty":"OKP","crv":"Ed25519","x":"` + encode(private.Public().(ed25519.PublicKey)) + `"}`
	key, err := jws.ParsePublicKey([]byte(jwk))
	if err != nil {
		f.Fatal(err)
	}
	nonces, err := dpop.NewNonces(secret.New(master), 0)
	if err != nil {
		f.Fatal(err)
	}
	verifier, err := dpop.NewVerifier(dpop.Options{Algorithms: dpop.Algorithms(), Nonces: nonces})
	if err != nil {
		f.Fatal(err)
	}
	head := `{"typ":"dpop+jwt","alg":"EdDSA","jwk":` + jwk + `}`
	f.Add(head, `{"jti":"a","htm":"POST","htu":"`+target+`","iat":1790900000,"ath":"`+hash+`"}`, "")
	f.Add(head, `{"jti":"a","htm":"POST","htu":"`+target+`","iat":1790900000.5,"ath":"`+hash+`","nonce":"b"}`, "a.b.c")
	f.Fuzz(func(t *testing.T, head, claims, text string) {
		signed := encode([]byte(head)) + "." + encode([]byte(claims))
		compact := signed + "." + encode(ed25519.Sign(private, []byte(signed)))
		for _, proof := range []string{compact, text} {
			want := dpop.Expected{Method: method, URL: target, Token: secret.New(token), Thumbprint: key.Thumbprint}
			got, err := verifier.Verify(header(proof), want, now)
			if err != nil && got != (dpop.Proof{}) {
				t.Fatalf("a result together with an error: %v, %v", got, err)
			}
			if err == nil && (got.ID == "" || len(got.ID) > 256 || got.Thumbprint != key.Thumbprint || !got.Until.After(now)) {
				t.Fatalf("accepted as %v", got)
			}
		}
	})
}
