package jws_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"countersign/internal/jws"
)

// Examples of the RFCs: keys and signatures that others made.
var examples = map[string]struct{ key, thumbprint, token string }{
	"RFC 7515 A.3": {
		key: `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`,
		token: "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ." +
			"DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
	},
	"RFC 8037 A.4": {
		key:        `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`,
		thumbprint: "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
		token:      "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
	},
	"RFC 7638 3.1": {
		key: `{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",` +
			`"e":"AQAB","alg":"RS256","kid":"2011-04-29"}`,
		thumbprint: "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs",
	},
	"RFC 9449 4.1": {
		key:        `{"kty":"EC","crv":"P-256","x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs","y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA"}`,
		thumbprint: "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I",
	},
}

func TestExamplesOfTheRFCs(t *testing.T) {
	t.Parallel()
	for name, example := range examples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := jws.ParsePublicKey([]byte(example.key))
			if err != nil {
				t.Fatal(err)
			}
			if example.thumbprint != "" && key.Thumbprint != example.thumbprint {
				t.Errorf("thumbprint %s, want %s", key.Thumbprint, example.thumbprint)
			}
			if example.token == "" {
				return
			}
			token, err := jws.Parse(example.token, jws.Algorithms())
			if err != nil {
				t.Fatal(err)
			}
			if err := token.Verify(key); err != nil {
				t.Error(err)
			}
		})
	}
}

// Every algorithm verifies what an independent implementation signed, and refuses another payload, another key and a key
// that is for another algorithm.
func TestVerifyEachAlgorithm(t *testing.T) {
	t.Parallel()
	rsaKeys := [2]*rsa.PrivateKey{newRSA(t), newRSA(t)}
	for algorithm, keys := range map[string][2]any{
		jws.ES256: {newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())},
		jws.ES384: {newECDSA(t, elliptic.P384()), newECDSA(t, elliptic.P384())},
		jws.ES512: {newECDSA(t, elliptic.P521()), newECDSA(t, elliptic.P521())},
		jws.RS256: {rsaKeys[0], rsaKeys[1]},
		jws.PS256: {rsaKeys[0], rsaKeys[1]},
		jws.EdDSA: {newEd25519(t), newEd25519(t)},
	} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			compact := signed(t, algorithm, keys[0], `{"a":1}`)
			token, err := jws.Parse(compact, jws.Algorithms())
			if err != nil {
				t.Fatal(err)
			}
			if string(token.Payload) != `{"a":1}` || token.Algorithm != algorithm {
				t.Fatalf("got payload %q and algorithm %q", token.Payload, token.Algorithm)
			}
			if err := token.Verify(publicKey(t, keys[0], "")); err != nil {
				t.Errorf("its own key: %v", err)
			}
			if err := token.Verify(publicKey(t, keys[0], algorithm)); err != nil {
				t.Errorf("its own key, marked for the algorithm: %v", err)
			}
			if err := token.Verify(publicKey(t, keys[1], "")); !errors.Is(err, jws.ErrSignature) {
				t.Errorf("another key: got %v", err)
			}
			if err := token.Verify(publicKey(t, keys[0], "ES256K")); !errors.Is(err, jws.ErrSignature) {
				t.Errorf("a key marked for another algorithm: got %v", err)
			}
			parts := strings.Split(compact, ".")
			parts[1] = base64.RawURLEncoding.EncodeToString([]byte(`{"a":2}`))
			forged, err := jws.Parse(strings.Join(parts, "."), jws.Algorithms())
			if err != nil {
				t.Fatal(err)
			}
			if err := forged.Verify(publicKey(t, keys[0], "")); !errors.Is(err, jws.ErrSignature) {
				t.Errorf("another payload: got %v", err)
			}
			if _, err := jws.Parse(compact, without(algorithm)); !errors.Is(err, jws.ErrAlgorithm) {
				t.Errorf("not allowed: got %v", err)
			}
		})
	}
}

func TestVerifyRefusesOtherFormsOfAnES256Signature(t *testing.T) {
	t.Parallel()
	key := newECDSA(t, elliptic.P256())
	compact := signed(t, jws.ES256, key, `{}`)
	content := compact[:strings.LastIndex(compact, ".")+1]
	good, err := base64.RawURLEncoding.DecodeString(compact[len(content):])
	if err != nil {
		t.Fatal(err)
	}
	for name, signature := range map[string][]byte{
		"empty":      {},
		"R alone":    good[:32],
		"a byte off": good[:63],
		"a byte on":  append(bytes.Clone(good), 0),
		"S longer":   slices.Insert(bytes.Clone(good), 32, 0),
		"zeroes":     make([]byte, 64),
		"S is zero":  append(bytes.Clone(good[:32]), make([]byte, 32)...),
		"all ones":   bytes.Repeat([]byte{0xff}, 64),
	} {
		token, err := jws.Parse(content+base64.RawURLEncoding.EncodeToString(signature), jws.Algorithms())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := token.Verify(publicKey(t, key, "")); !errors.Is(err, jws.ErrSignature) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	key, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	good := mustSign(t, key, `{"alg":"ES256"}`, `{"a":"b"}`)
	parts := strings.Split(good, ".")
	headed := func(header string) string { return mustSign(t, key, header, `{}`) }
	for name, test := range map[string]struct {
		compact string
		want    error
	}{
		"nothing":                     {"", jws.ErrMalformed},
		"one part":                    {parts[0], jws.ErrMalformed},
		"two parts":                   {parts[0] + "." + parts[1], jws.ErrMalformed},
		"four parts":                  {good + ".", jws.ErrMalformed},
		"five parts":                  {good + ".a.b", jws.ErrMalformed},
		"too long":                    {headed(`{"alg":"ES256","x":"` + strings.Repeat("a", jws.MaxLength) + `"}`), jws.ErrMalformed},
		"space before":                {" " + good, jws.ErrMalformed},
		"space after":                 {good + " ", jws.ErrMalformed},
		"line end after":              {good + "\n", jws.ErrMalformed},
		"line end inside the header":  {parts[0][:4] + "\n" + parts[0][4:] + "." + parts[1] + "." + parts[2], jws.ErrMalformed},
		"line end inside the payload": {parts[0] + "." + parts[1][:4] + "\r\n" + parts[1][4:] + "." + parts[2], jws.ErrMalformed},
		"padding":                     {good + "==", jws.ErrMalformed},
		"base64 of the other alphabet": {
			parts[0] + "." + parts[1] + "." + strings.Repeat("+/", 43), jws.ErrMalformed,
		},
		"bits after the last byte":      {good[:len(good)-1] + nextCharacter(good[len(good)-1]), jws.ErrMalformed},
		"header not JSON":               {headed(`alg`), jws.ErrMalformed},
		"header an array":               {headed(`["ES256"]`), jws.ErrMalformed},
		"header member twice":           {headed(`{"alg":"ES256","alg":"ES256"}`), jws.ErrMalformed},
		"unknown header member twice":   {headed(`{"alg":"ES256","x":1,"x":1}`), jws.ErrMalformed},
		"header member twice, escaped":  {headed(`{"alg":"ES256","\u0061lg":"none"}`), jws.ErrMalformed},
		"typ not a string":              {headed(`{"alg":"ES256","typ":["JWT"]}`), jws.ErrMalformed},
		"critical extension":            {headed(`{"alg":"ES256","crit":["exp"],"exp":1}`), jws.ErrMalformed},
		"empty list of critical ones":   {headed(`{"alg":"ES256","crit":[]}`), jws.ErrMalformed},
		"null list of critical ones":    {headed(`{"alg":"ES256","crit":null}`), jws.ErrMalformed},
		"payload not encoded":           {headed(`{"alg":"ES256","b64":false}`), jws.ErrMalformed},
		"payload said to be encoded":    {headed(`{"alg":"ES256","b64":true}`), jws.ErrMalformed},
		"no algorithm":                  {headed(`{}`), jws.ErrAlgorithm},
		"null header":                   {headed(`null`), jws.ErrAlgorithm},
		"algorithm none":                {headed(`{"alg":"none"}`), jws.ErrAlgorithm},
		"algorithm None":                {headed(`{"alg":"None"}`), jws.ErrAlgorithm},
		"symmetric algorithm":           {headed(`{"alg":"HS256"}`), jws.ErrAlgorithm},
		"algorithm in another case":     {headed(`{"alg":"es256"}`), jws.ErrAlgorithm},
		"member name in another case":   {headed(`{"ALG":"ES256"}`), jws.ErrAlgorithm},
		"algorithm that nobody has":     {headed(`{"alg":"ES257"}`), jws.ErrAlgorithm},
		"algorithm is the empty string": {headed(`{"alg":""}`), jws.ErrAlgorithm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, err := jws.Parse(test.compact, jws.Algorithms())
			if !errors.Is(err, test.want) || token != nil {
				t.Fatalf("got %v, %v; want %v", token, err, test.want)
			}
		})
	}
	if _, err := jws.Parse(good, jws.Algorithms()); err != nil {
		t.Fatalf("the token that the others come from: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, example := range examples {
		f.Add(example.token)
	}
	f.Add("eyJhbGciOiJFUzI1NiJ9..")
	f.Add("eyJhbGciOiJFUzI1NiIsImNyaXQiOltdfQ.e30.AA")
	key, err := jws.ParsePublicKey([]byte(examples["RFC 7515 A.3"].key))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, compact string) {
		token, err := jws.Parse(compact, jws.Algorithms())
		if err != nil {
			if token != nil {
				t.Fatal("a token together with an error")
			}
			return
		}
		_ = token.Verify(key) // does not panic
		parts := strings.Split(compact, ".")
		if len(parts) != 3 {
			t.Fatalf("%d parts", len(parts))
		}
		if again := base64.RawURLEncoding.EncodeToString(token.Payload); again != parts[1] {
			t.Fatalf("the payload has a second spelling: %q and %q", parts[1], again)
		}
		for _, part := range parts {
			data, err := base64.RawURLEncoding.DecodeString(part)
			if again := base64.RawURLEncoding.EncodeToString(data); err != nil || again != part {
				t.Fatalf("a part has a second spelling: %q and %q", part, again)
			}
		}
	})
}

func nextCharacter(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)+1]) // a canonical last character is never the last of the alphabet
}

func without(algorithm string) []string {
	var rest []string
	for _, other := range jws.Algorithms() {
		if other != algorithm {
			rest = append(rest, other)
		}
	}
	return rest
}

func mustSign(t *testing.T, key *jws.PrivateKey, header, payload string) string {
	t.Helper()
	compact, err := key.Sign([]byte(header), []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

// signed is made by another implementation.
func signed(t *testing.T, algorithm string, key any, payload string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	object, err := signer.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	compact, err := object.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

func publicKey(t *testing.T, private any, algorithm string) *jws.PublicKey {
	t.Helper()
	whole := jose.JSONWebKey{Key: private}
	public := whole.Public()
	public.Algorithm = algorithm
	text, err := json.Marshal(public)
	if err != nil {
		t.Fatal(err)
	}
	key, err := jws.ParsePublicKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newECDSA(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRSA(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newEd25519(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
