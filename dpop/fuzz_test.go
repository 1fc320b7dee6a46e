package dpop_test

import (
	"encoding/base64"
	"testing"

	"countersign/dpop"
	"countersign/internal/jws"
	"countersign/internal/secret"
)

// A key for the fuzz targets alone, fixed so that their inputs mean the same in every run.
const (
	fuzzKey = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgBln02K8Xuq3i+ggXH1q9ANTGvY9Ob1QL8hmThIvDXDahRANCAAQk105A5bEEzKaGS56w1Ery2+GKUGDQXakRchW65k9cmxbjHKQRmgdUh+oUoVlv61ycVtkCltxYXH8XSSQYEUF+"
	fuzzJWK = `{"kty":"EC","crv":"P-256","x":"JNdOQOWxBMymhkuesNRK8tvhilBg0F2pEXIVuuZPXJs","y":"FuMcpBGaB1SH6hShWW_rXJxW2QKW3FhcfxdJJBgRQX4"}`
)

// FuzzVerify signs any header and claims, so that the checks behind the signature are reached, and takes any text as well.
func FuzzVerify(f *testing.F) {
	der, err := base64.StdEncoding.DecodeString(fuzzKey)
	if err != nil {
		f.Fatal(err)
	}
	private, err := jws.ParsePrivateKey(secret.New(string(der)))
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
	f.Add(`{"typ":"dpop+jwt","alg":"ES256","jwk":`+fuzzJWK+`}`, `{"jti":"a","htm":"POST","htu":"`+target+`","iat":1790900000,"ath":"`+hash+`"}`, "")
	f.Add(`{"typ":"dpop+jwt","alg":"ES256","jwk":`+fuzzJWK+`}`, `{"jti":"a","htm":"POST","htu":"`+target+`","iat":1790900000.5,"ath":"`+hash+`","nonce":"b"}`, "a.b.c")
	f.Fuzz(func(t *testing.T, head, claims, text string) {
		compact, err := private.Sign([]byte(head), []byte(claims))
		if err != nil {
			t.Fatal(err)
		}
		for _, proof := range []string{compact, text} {
			want := dpop.Expected{Method: method, URL: target, Token: secret.New(token), Thumbprint: private.Thumbprint()}
			got, err := verifier.Verify(header(proof), want, now)
			if err != nil && got != (dpop.Proof{}) {
				t.Fatalf("a result together with an error: %v, %v", got, err)
			}
			if err == nil && (got.ID == "" || len(got.ID) > 256 || got.Thumbprint != private.Thumbprint() || !got.Until.After(now)) {
				t.Fatalf("accepted as %v", got)
			}
		}
	})
}
