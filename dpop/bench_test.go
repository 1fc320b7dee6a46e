package dpop_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"countersign/dpop"
	"countersign/internal/secret"
)

// BenchmarkBareES256 is the measure for the others: one signature verified by the standard library, and nothing around it.
func BenchmarkBareES256(b *testing.B) {
	verify := bareES256(b)
	b.ReportAllocs()
	for b.Loop() {
		verify()
	}
}

// BenchmarkVerify measures a proof at a resource, alternating with bare verifications so that both meet the same machine.
// x-bare is how many bare ES256 verifications one costs, by the medians, since other processes only ever add time.
func BenchmarkVerify(b *testing.B) {
	nonces, err := dpop.NewNonces(secret.New(master), 0)
	if err != nil {
		b.Fatal(err)
	}
	for name, options := range map[string]dpop.Options{"plain": {}, "nonce": {Nonces: nonces, RequireNonce: true}} {
		b.Run(name, func(b *testing.B) {
			key := newKey(b)
			proof, err := key.Proof(dpop.Request{Method: method, URL: target, Token: secret.New(token), Nonce: nonces.Issue(now)}, now)
			if err != nil {
				b.Fatal(err)
			}
			verifier, err := dpop.NewVerifier(options)
			if err != nil {
				b.Fatal(err)
			}
			want := dpop.Expected{Method: method, URL: target, Token: secret.New(token), Thumbprint: key.Thumbprint()}
			request := header(proof)
			bare := bareES256(b)
			var inBare, inVerify []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				bare()
				between := time.Now()
				if _, err := verifier.Verify(request, want, now); err != nil {
					b.Fatal(err)
				}
				inVerify = append(inVerify, time.Since(between))
				inBare = append(inBare, between.Sub(start))
			}
			b.ReportMetric(median(inVerify), "ns/op")
			b.ReportMetric(median(inVerify)/median(inBare), "x-bare")
		})
	}
}

func BenchmarkProof(b *testing.B) {
	key := newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := key.Proof(dpop.Request{Method: method, URL: target, Token: secret.New(token)}, now); err != nil {
			b.Fatal(err)
		}
	}
}

func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2])
}

func bareES256(b *testing.B) func() {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	digest := sha256.Sum256([]byte("the same for each"))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		if !ecdsa.Verify(&key.PublicKey, digest[:], r, s) {
			b.Fatal("not verified")
		}
	}
}
