package dpop_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"countersign/dpop"
	"countersign/internal/secret"
)

func newKey(t testing.TB) *dpop.Key {
	t.Helper()
	key, err := dpop.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func parts(t *testing.T, proof string) (header, claims map[string]any) {
	t.Helper()
	for i, into := range []*map[string]any{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(strings.Split(proof, ".")[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

// P-4.3-15, P-4.3-17, P-4.3-18, P-4.3-19, P-4.3-21
func TestProofSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	proof, err := key.Proof(dpop.Request{Method: method, URL: target + "?cursor=evt_1&wait=10#top", Token: secret.New(token), Nonce: "n-1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	header, claims := parts(t, proof)
	jwk, ok := header["jwk"].(map[string]any)
	if !ok || len(header) != 3 || header["typ"] != "dpop+jwt" || header["alg"] != "ES256" {
		t.Errorf("header %v", header)
	}
	if len(jwk) != 4 || jwk["kty"] != "EC" || jwk["crv"] != "P-256" || jwk["x"] == "" || jwk["y"] == "" {
		t.Errorf("jwk %v", jwk)
	}
	id, ok := claims["jti"].(string)
	if !ok || len(id) < 22 || len(claims) != 6 || claims["htm"] != method || claims["htu"] != target || claims["iat"] != float64(now.Unix()) ||
		claims["ath"] != hash || claims["nonce"] != "n-1" {
		t.Errorf("claims %v", claims)
	}
}

// P-4.3-20
func TestProofForTheTokenEndpointHasNoHash(t *testing.T) {
	t.Parallel()
	proof, err := newKey(t).Proof(dpop.Request{Method: method, URL: "https://auth.outdoor.example/oauth/token"}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, claims := parts(t, proof); len(claims) != 4 {
		t.Errorf("claims %v, want jti, htm, htu and iat alone", claims)
	}
}

// P-4.3-13, P-4.3-16
func TestEachProofIsNew(t *testing.T) {
	t.Parallel()
	key, seen := newKey(t), map[any]bool{}
	for range 1000 {
		proof, err := key.Proof(dpop.Request{Method: method, URL: target}, now)
		if err != nil {
			t.Fatal(err)
		}
		_, claims := parts(t, proof)
		seen[claims["jti"]] = true
	}
	if len(seen) != 1000 {
		t.Fatalf("%d IDs in 1000 proofs", len(seen))
	}
}

// P-3-17
func TestProofIsOnlyForHTTPS(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://api.outdoor.example/orders", "/orders", "", "https://", "https:orders", "https://user:pass@api.outdoor.example/", "%"} {
		if proof, err := newKey(t).Proof(dpop.Request{Method: method, URL: url, Token: secret.New(token)}, now); err == nil || proof != "" {
			t.Errorf("%q: got a proof, %v", url, err)
		}
	}
}

// A proof verifies for each way in which a client's own HTTP library may write the same URL.
func TestProofVerifies(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	again, err := dpop.ParseKey(key.Marshal())
	if err != nil || again.Thumbprint() != key.Thumbprint() {
		t.Fatal("the kept key is another one", err)
	}
	verifier := newVerifier(t, dpop.Options{})
	for _, url := range []string{target, "https://api.outdoor.example", "https://API.outdoor.example:443/a%2fb/%7Euser?q=%2F", "https://[2001:db8::1]:8443/x y/é"} {
		proof, err := again.Proof(dpop.Request{Method: "GET", URL: url, Token: secret.New(token)}, now)
		if err != nil {
			t.Fatal(err)
		}
		want := dpop.Expected{Method: "GET", URL: url, Token: secret.New(token), Thumbprint: key.Thumbprint()}
		got, err := verifier.Verify(header(proof), want, now.Add(time.Second))
		if err != nil || got.Thumbprint != key.Thumbprint() {
			t.Errorf("%s: got %v, %v", url, got, err)
		}
	}
	if key, err := dpop.ParseKey(secret.New("noise")); err == nil || key != nil {
		t.Errorf("got %v, %v from noise", key, err)
	}
}
