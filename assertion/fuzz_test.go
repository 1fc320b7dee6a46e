package assertion_test

import (
	"encoding/base64"
	"testing"

	"countersign/assertion"
	"countersign/internal/jws"
	"countersign/internal/secret"
)

// A key for the fuzz target alone, fixed so that its inputs mean the same in every run.
const fuzzKey = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgBln02K8Xuq3i+ggXH1q9ANTGvY9Ob1QL8hmThIvDXDahRANCAAQk105A5bEEzKaGS56w1Ery2+GKUGDQXakRchW65k9cmxbjHKQRmgdUh+oUoVlv61ycVtkCltxYXH8XSSQYEUF+"

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
	document, err := jws.MarshalSet(private)
	if err != nil {
		f.Fatal(err)
	}
	keys, err := assertion.ParseKeySet(document)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"alg":"ES256","typ":"JWT"}`, `{"iss":"`+clientID+`","sub":"`+userID+`","aud":"`+issuer+`","iat":1790900000,"exp":1790900060,"jti":"a"}`, "")
	f.Add(`{"alg":"ES256"}`, `{"iss":"`+clientID+`","sub":"`+clientID+`","aud":"`+issuer+`","iat":1790900000,"exp":1790900060,"nbf":0,"jti":"a"}`, "a.b.c")
	f.Fuzz(func(t *testing.T, header, claims, text string) {
		compact, err := private.Sign([]byte(header), []byte(claims))
		if err != nil {
			t.Fatal(err)
		}
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
