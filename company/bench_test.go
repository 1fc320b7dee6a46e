package company_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/company"
	"countersign/company/guard"
	"countersign/internal/database"
	"countersign/poppy"
)

// BenchmarkGuardedRequest measures a request behind the guard, from its headers to the handler: looking the token up, checking
// the proof, making the Principal. x_ES256 is how many bare ES256 verifications it costs; 1.3 is the limit.
func BenchmarkGuardedRequest(b *testing.B) {
	s := open(b, func(c *company.Config) { c.Limits.RequestsPerMinute = -1 })
	token := s.token()
	handler := s.company.Guard.Protect(
		guard.Endpoint{Surface: poppy.SurfaceAPI, Origin: "https://api.outdoor.example"},
		func(_ http.ResponseWriter, r *http.Request) error {
			if _, ok := guard.PrincipalFrom(r.Context()); !ok {
				b.Fatal("no Principal")
			}
			return nil
		})
	request := httptest.NewRequest(http.MethodGet, ordersURL, nil)
	request.Header.Set("Authorization", "DPoP "+token)
	request.Header.Set("Dpop", s.agent.Proof(http.MethodGet, ordersURL, token))
	response := httptest.NewRecorder()
	compare(b, "x_ES256", bareES256(b, 1), func() {
		if err := handler(response, request); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkSessionStart measures a request that starts a Session, from its form to its answer. x_ES256 is its cost beside its
// three ES256 verifications and one durable write; 1.5 is the limit.
func BenchmarkSessionStart(b *testing.B) {
	s := open(b, func(c *company.Config) { c.Limits.StartsPerMinute = -1 })
	s.start(userID)
	verify := bareES256(b, 3)
	durable := durableWrite(b, s.OpenDatabase(b.TempDir()+"/bare.db"))
	var request *http.Request
	prepare := func() {
		request = httptest.NewRequest(http.MethodPost, tokenURL, strings.NewReader(s.agent.SessionForm(issuer, userID, "").Encode()))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Dpop", s.agent.Proof(http.MethodPost, tokenURL, ""))
	}
	compareEach(b, "x_ES256", prepare, func() { verify(); durable() }, func() {
		response := httptest.NewRecorder()
		if err := s.company.Sessions.ServeToken(response, request); err != nil || response.Code != http.StatusOK {
			b.Fatal(err, response.Body)
		}
	})
}

// compare runs both by turns, so that they meet the same machine, and reports the ratio of their medians, since other
// processes only ever add time.
func compare(b *testing.B, unit string, bare, measured func()) {
	b.Helper()
	compareEach(b, unit, func() {}, bare, measured)
}

func compareEach(b *testing.B, unit string, prepare, bare, measured func()) {
	b.Helper()
	var inBare, inMeasured []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		prepare()
		start := time.Now()
		bare()
		between := time.Now()
		measured()
		inMeasured = append(inMeasured, time.Since(between))
		inBare = append(inBare, between.Sub(start))
	}
	slices.Sort(inBare)
	slices.Sort(inMeasured)
	b.ReportMetric(float64(inMeasured[len(inMeasured)/2]), "ns/op")
	b.ReportMetric(float64(inMeasured[len(inMeasured)/2])/float64(inBare[len(inBare)/2]), unit)
}

// bareES256 returns a function that verifies a signature so many times.
func bareES256(b *testing.B, times int) func() {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	digest := sha256.Sum256([]byte("header.payload"))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		for range times {
			if !ecdsa.Verify(&key.PublicKey, digest[:], r, s) {
				b.Fatal("the signature does not verify")
			}
		}
	}
}

// durableWrite returns a function that commits one small row to disk.
func durableWrite(b *testing.B, db *database.DB) func() {
	b.Helper()
	write := func(statement string, args ...any) {
		if err := db.Write(b.Context(), func(tx *database.Tx) error {
			_, err := tx.Exec(statement, args...)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	write(`CREATE TABLE row (id BLOB PRIMARY KEY) STRICT, WITHOUT ROWID`)
	return func() { write(`INSERT INTO row (id) VALUES (?)`, []byte(rand.Text())) }
}
