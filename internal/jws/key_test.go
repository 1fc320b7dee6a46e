package jws_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"countersign/internal/jws"
	"countersign/internal/secret"
)

const (
	x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
	y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
)

func ecKey(x, y, more string) string {
	return `{"kty":"EC","crv":"P-256","x":"` + x + `","y":"` + y + `"` + more + `}`
}

func TestParsePublicKeyRefusesPrivateAndSymmetric(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} {
		for _, value := range []string{`"AQAB"`, `""`, `null`, `[]`, `{"x":1}`, `7`} {
			text := ecKey(x, y, `,"`+member+`":`+value)
			if key, err := jws.ParsePublicKey([]byte(text)); !errors.Is(err, jws.ErrPrivateKey) || key != nil {
				t.Errorf("%s: %s: got %v, %v", member, value, key, err)
			}
		}
	}
	for _, text := range []string{`{"kty":"oct","k":"AAAA"}`, `{"kty":"oct"}`, `{"kty":"unknown","d":"AAAA"}`} {
		if _, err := jws.ParsePublicKey([]byte(text)); !errors.Is(err, jws.ErrPrivateKey) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestParsePublicKeyRefuses(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	rsaKey := func(bits int, e []byte) string {
		n := bytes.Repeat([]byte{0xff}, bits/8)
		return `{"kty":"RSA","n":"` + encode(n) + `","e":"` + encode(e) + `"}`
	}
	f4 := []byte{1, 0, 1}
	for name, text := range map[string]string{
		"nothing":                       ``,
		"no JSON":                       `key`,
		"null":                          `null`,
		"a string":                      `"EC"`,
		"no members":                    `{}`,
		"a member twice":                ecKey(x, y, `,"x":"`+x+`"`),
		"another type":                  `{"kty":"AKP","pub":"AAAA"}`,
		"the type in another case":      `{"kty":"ec","crv":"P-256","x":"` + x + `","y":"` + y + `"}`,
		"another curve":                 `{"kty":"EC","crv":"secp256k1","x":"` + x + `","y":"` + y + `"}`,
		"a longer curve's name":         `{"kty":"EC","crv":"P-384","x":"` + x + `","y":"` + y + `"}`,
		"for encryption":                ecKey(x, y, `,"use":"enc"`),
		"not on the curve":              ecKey(x, x, ``),
		"the point zero":                ecKey(encode(make([]byte, 32)), encode(make([]byte, 32)), ``),
		"a coordinate beyond the prime": ecKey(encode(bytes.Repeat([]byte{0xff}, 32)), y, ``),
		"no y":                          `{"kty":"EC","crv":"P-256","x":"` + x + `"}`,
		"short x":                       ecKey(x[:42], y, ``),
		"long x":                        ecKey("AA"+x, y, ``),
		"padded x":                      ecKey(x+"=", y, ``),
		"x of the other alphabet":       ecKey("+"+x[1:], y, ``),
		"x with bits after its end":     ecKey(x[:42]+"V", y, ``),
		"x with a line end":             ecKey(x[:4]+`\n`+x[4:], y, ``),
		"RSA of 1024 bits":              rsaKey(1024, f4),
		"RSA of 2040 bits":              rsaKey(2040, f4),
		"RSA of 4104 bits":              rsaKey(4104, f4),
		"RSA with e = 1":                rsaKey(2048, []byte{1}),
		"RSA with e even":               rsaKey(2048, []byte{1, 0, 0}),
		"RSA with e of 32 bits":         rsaKey(2048, []byte{0x80, 0, 0, 1}),
		"RSA with e of 33 bytes":        rsaKey(2048, bytes.Repeat([]byte{0xff}, 33)),
		"RSA with e written longer":     rsaKey(2048, []byte{0, 1, 0, 1}),
		"RSA without e":                 `{"kty":"RSA","n":"` + encode(bytes.Repeat([]byte{0xff}, 256)) + `"}`,
		"RSA with n written longer":     `{"kty":"RSA","n":"` + encode(append([]byte{0}, bytes.Repeat([]byte{0xff}, 256)...)) + `","e":"AQAB"}`,
		"Ed25519 of 31 bytes":           `{"kty":"OKP","crv":"Ed25519","x":"` + encode(make([]byte, 31)) + `"}`,
		"another Edwards curve":         `{"kty":"OKP","crv":"Ed448","x":"` + encode(make([]byte, 57)) + `"}`,
		"a key agreement curve":         `{"kty":"OKP","crv":"X25519","x":"` + encode(make([]byte, 32)) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := jws.ParsePublicKey([]byte(text))
			if !errors.Is(err, jws.ErrKey) || key != nil {
				t.Fatalf("got %v, %v", key, err)
			}
			if strings.Contains(err.Error(), x) {
				t.Fatalf("the error quotes the key: %v", err)
			}
		})
	}
	for _, text := range []string{ecKey(x, y, ``), ecKey(x, y, `,"use":"sig","alg":"ES256","key_ops":["verify"],"ext":true`), rsaKey(2048, f4), rsaKey(4096, f4), rsaKey(3072, []byte{3})} {
		if _, err := jws.ParsePublicKey([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParsePublicKey(f *testing.F) {
	for _, example := range examples {
		f.Add([]byte(example.key))
	}
	f.Add([]byte(ecKey(x, y, `,"d":null`)))
	f.Add([]byte(`{"kty":"oct","k":"AAAA"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := jws.ParsePublicKey(text)
		if err != nil {
			if key != nil {
				t.Fatal("a key together with an error")
			}
			return
		}
		// Another implementation that reads the same text sees the same public key.
		var other jose.JSONWebKey
		if err := json.Unmarshal(text, &other); err != nil {
			return
		}
		if !other.IsPublic() {
			t.Fatalf("taken for public: %s", text)
		}
		sum, err := other.Thumbprint(crypto.SHA256)
		if again := base64.RawURLEncoding.EncodeToString(sum); err != nil || again != key.Thumbprint {
			t.Fatalf("thumbprint %s, elsewhere %s, %v", key.Thumbprint, again, err)
		}
	})
}

func TestParseSet(t *testing.T) {
	t.Parallel()
	good := ecKey(x, y, `,"kid":"one"`)
	for name, test := range map[string]struct {
		document string
		keys     int // -1 for refused
	}{
		"a key":                         {`{"keys":[` + good + `]}`, 1},
		"no key":                        {`{"keys":[]}`, 0},
		"unknown members":               {`{"keys":[` + good + `],"more":1}`, 1},
		"a key of another type":         {`{"keys":[{"kty":"AKP","pub":"AA"},` + good + `]}`, 1},
		"a key for encryption":          {`{"keys":[` + ecKey(x, y, `,"use":"enc"`) + `,` + good + `]}`, 1},
		"a key that is no object":       {`{"keys":["key",` + good + `]}`, 1},
		"as many as fit":                {`{"keys":[` + good + strings.Repeat(","+good, 99) + `]}`, 100},
		"one more":                      {`{"keys":[` + good + strings.Repeat(","+good, 100) + `]}`, -1},
		"a private key":                 {`{"keys":[` + good + `,` + ecKey(x, y, `,"d":"AA"`) + `]}`, -1},
		"a private key of another type": {`{"keys":[` + good + `,{"kty":"new","d":"AA"}]}`, -1},
		"a private key for encryption":  {`{"keys":[` + good + `,` + ecKey(x, y, `,"d":"AA","use":"enc"`) + `]}`, -1},
		"a symmetric key":               {`{"keys":[` + good + `,{"kty":"oct","k":"AA"}]}`, -1},
		"no keys member":                {`{}`, -1},
		"keys null":                     {`{"keys":null}`, -1},
		"keys an object":                {`{"keys":{}}`, -1},
		"an array":                      {`[` + good + `]`, -1},
		"a member twice":                {`{"keys":[` + good + `],"keys":[]}`, -1},
		"not JSON":                      {`<html>`, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := jws.ParseSet([]byte(test.document))
			if test.keys < 0 {
				if err == nil || set.Len() != 0 {
					t.Fatalf("got %d keys and %v, want it refused", set.Len(), err)
				}
				return
			}
			if err != nil || set.Len() != test.keys {
				t.Fatalf("got %d keys and %v, want %d", set.Len(), err, test.keys)
			}
		})
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	rsaText := strings.TrimSuffix(examples["RFC 7638 3.1"].key, `,"alg":"RS256","kid":"2011-04-29"}`) + `,"kid":"one"}`
	set, err := jws.ParseSet([]byte(`{"keys":[` + ecKey(x, y, `,"kid":"one"`) + `,` + rsaText + `,` + examples["RFC 9449 4.1"].key + `]}`))
	if err != nil || set.Len() != 3 {
		t.Fatal(set.Len(), err)
	}
	for _, test := range []struct {
		keyID, algorithm string
		want             int
	}{
		{"one", jws.ES256, 1},
		{"one", jws.RS256, 1}, // one kid for two types is allowed (RFC 7517 4.5)
		{"one", jws.EdDSA, 0},
		{"two", jws.ES256, 0},
		{"ONE", jws.ES256, 0},
		{"", jws.ES256, 2},
		{"", jws.PS256, 1},
		{"", jws.ES384, 0},
	} {
		if found := set.Find(test.keyID, test.algorithm); len(found) != test.want {
			t.Errorf("kid %q, alg %s: found %d keys, want %d", test.keyID, test.algorithm, len(found), test.want)
		}
	}
	same := ecKey(x, y, `,"kid":"one"`)
	set, err = jws.ParseSet([]byte(`{"keys":[` + same + strings.Repeat(","+same, 20) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	if found := set.Find("one", jws.ES256); len(found) != 8 {
		t.Errorf("found %d keys, want no more than 8 to try", len(found))
	}
	if found := (jws.Set{}).Find("", jws.ES256); found != nil {
		t.Errorf("found %v in no set", found)
	}
}

func TestPrivateKeyIsKept(t *testing.T) {
	t.Parallel()
	key, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := jws.ParsePrivateKey(key.Marshal())
	if err != nil || again.Thumbprint() != key.Thumbprint() {
		t.Fatalf("got %v", err)
	}
	p384, err := x509.MarshalPKCS8PrivateKey(newECDSA(t, elliptic.P384()))
	if err != nil {
		t.Fatal(err)
	}
	der := key.Marshal().Reveal()
	for name, pkcs8 := range map[string]string{"nothing": "", "noise": "noise", "another curve": string(p384), "cut short": der[:len(der)-1]} {
		if got, err := jws.ParsePrivateKey(secret.New(pkcs8)); err == nil || got != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// P-4.1-07, P-4.1-10
func TestMarshalSetPublishesWhatVerifiesAndNothingPrivate(t *testing.T) {
	t.Parallel()
	old, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jws.MarshalSet(old, key)
	if err != nil {
		t.Fatal(err)
	}
	var plain struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(document, &plain); err != nil {
		t.Fatal(err)
	}
	if len(plain.Keys) != 2 {
		t.Fatalf("published %s", document)
	}
	for _, published := range plain.Keys {
		for member := range published {
			if !strings.Contains(" kty crv x y kid use alg ", " "+member+" ") {
				t.Errorf("published %q: %s", member, document)
			}
		}
	}
	set, err := jws.ParseSet(document)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := key.NamingSigner("JWT")
	if err != nil {
		t.Fatal(err)
	}
	compact, err := signer.Sign(map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.Parse(compact, []string{jws.ES256})
	if err != nil {
		t.Fatal(err)
	}
	found := set.Find(token.KeyID, token.Algorithm)
	if token.Type != "JWT" || len(found) != 1 || found[0].Thumbprint != key.Thumbprint() || token.Verify(found[0]) != nil {
		t.Fatalf("typ %q, found %v", token.Type, found)
	}
	if empty, err := jws.MarshalSet(); err != nil || string(empty) != `{"keys":[]}` {
		t.Fatalf("got %s, %v", empty, err)
	}
}

func TestPrivateKeyIsUnprintable(t *testing.T) {
	t.Parallel()
	key, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey([]byte(key.Marshal().Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := parsed.(*ecdsa.PrivateKey).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", key)
		fmt.Fprintf(&out, verb+"\n", struct{ Key *jws.PrivateKey }{key})
		fmt.Fprintf(&out, verb+"\n", *key)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "key", key)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", key)
	for _, spelling := range []string{
		string(scalar), fmt.Sprintf("%x", scalar), fmt.Sprintf("%v", scalar), fmt.Sprintf("%d", scalar),
		base64.RawURLEncoding.EncodeToString(scalar), new(big.Int).SetBytes(scalar).String(),
	} {
		if strings.Contains(out.String(), spelling) {
			t.Fatalf("printed: %s", out.String())
		}
	}
}
