package dpop_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"countersign/dpop"
	"countersign/internal/jws"
	"countersign/internal/secret"
)

// The request that most proofs here are for, and when it is made.
const (
	method = "POST"
	target = "https://api.outdoor.example/orders/ord_7Hk2/exchanges"
	token  = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU" // RFC 9449 7.1
	hash   = "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"
)

var now = time.Unix(1790900000, 0)

// forger signs proofs whose header and claims start out right and can be changed.
type forger struct {
	t       *testing.T
	private *jws.PrivateKey
	jwk     map[string]any
}

func newForger(t *testing.T) *forger {
	t.Helper()
	private, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return &forger{t: t, private: private, jwk: publicJWK(t, private)}
}

func publicJWK(t *testing.T, private *jws.PrivateKey) map[string]any {
	t.Helper()
	document, err := jws.MarshalSet(private)
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []map[string]any }
	if err := json.Unmarshal(document, &set); err != nil {
		t.Fatal(err)
	}
	return set.Keys[0]
}

type object = map[string]any

// proof is for the usual request and token; change edits it, nil leaves it right.
func (f *forger) proof(change func(header, claims object)) string {
	f.t.Helper()
	header := object{"typ": "dpop+jwt", "alg": "ES256", "jwk": f.jwk}
	claims := object{"jti": "e1j3V_bKic8-LAEBq7Rw2g", "htm": method, "htu": target, "iat": now.Unix(), "ath": hash}
	if change != nil {
		change(header, claims)
	}
	return f.sign(marshal(f.t, header), marshal(f.t, claims))
}

func (f *forger) sign(header, claims string) string {
	f.t.Helper()
	compact, err := f.private.Sign([]byte(header), []byte(claims))
	if err != nil {
		f.t.Fatal(err)
	}
	return compact
}

// atResource is what the usual request expects of a proof.
func (f *forger) atResource() dpop.Expected {
	return dpop.Expected{Method: method, URL: target + "?cursor=evt_1&wait=10", Token: secret.New(token), Thumbprint: f.private.Thumbprint()}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func header(proofs ...string) http.Header {
	h := http.Header{}
	for _, proof := range proofs {
		h.Add("DPoP", proof)
	}
	return h
}

func newVerifier(t *testing.T, options dpop.Options) *dpop.Verifier {
	t.Helper()
	verifier, err := dpop.NewVerifier(options)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func newNonces(t *testing.T, master string, lifetime time.Duration) *dpop.Nonces {
	t.Helper()
	nonces, err := dpop.NewNonces(secret.New(master), lifetime)
	if err != nil {
		t.Fatal(err)
	}
	return nonces
}

const master = "0123456789abcdef0123456789abcdef"

// check fails unless the outcome is the reason ("" for accepted) and, if refused, the code that goes with it.
func check(t *testing.T, got dpop.Proof, err error, want dpop.Reason) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		return
	}
	refusal, ok := errors.AsType[*dpop.Error](err)
	if !ok || refusal.Reason != want {
		t.Fatalf("got %v, want it refused for %s", err, want)
	}
	if got != (dpop.Proof{}) {
		t.Fatalf("a result together with an error: %v", got)
	}
	wantCode := "invalid_dpop_proof"
	if strings.HasPrefix(string(want), "nonce") {
		wantCode = "use_dpop_nonce"
	}
	if refusal.Code() != wantCode { // P-4.3-43
		t.Fatalf("code %s, want %s", refusal.Code(), wantCode)
	}
}

// The proofs in RFC 9449, made by others.
func TestVerifyExamplesOfTheRFC(t *testing.T) {
	t.Parallel()
	const jwtHeader = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19."
	const thumbprint = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
	for name, test := range map[string]struct {
		proof string
		want  dpop.Expected
		made  int64
		id    string
	}{
		"token request (figure 1)": {
			proof: jwtHeader + "eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2fQ." +
				"2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg",
			want: dpop.Expected{Method: "POST", URL: "https://server.example.com/token"},
			made: 1562262616,
			id:   "-BwC3ESc6acc2lTc",
		},
		"protected resource (figure 12)": {
			proof: jwtHeader + "eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9." +
				"2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA",
			want: dpop.Expected{Method: "GET", URL: "https://resource.example.org/protectedresource", Token: secret.New(token), Thumbprint: thumbprint},
			made: 1562262618,
			id:   "e1j3V_bKic8-LAEB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := time.Unix(test.made, 0)
			got, err := newVerifier(t, dpop.Options{}).Verify(header(test.proof), test.want, made)
			want := dpop.Proof{ID: test.id, Thumbprint: thumbprint, Until: made.Add(time.Minute)}
			if err != nil || got != want {
				t.Fatalf("got %v, %v; want %v", got, err, want)
			}
		})
	}
}

// P-4.3-23, P-4.3-62: every check of section 4.3, at a resource.
func TestVerifyAtAResource(t *testing.T) {
	t.Parallel()
	set := func(member string, value any) func(header, claims object) {
		return func(header, claims object) {
			into := claims
			if member == "typ" || member == "alg" || member == "jwk" || member == "crit" {
				into = header
			}
			if value == nil {
				delete(into, member)
			} else {
				into[member] = value
			}
		}
	}
	for name, test := range map[string]struct {
		change func(header, claims object)
		want   dpop.Reason
	}{
		// P-3.2-34, P-4.3-04, P-4.3-15, P-4.3-19
		"right": {nil, ""},

		// P-4.3-25
		"no jti":                  {set("jti", nil), dpop.ReasonClaims},
		"no htm":                  {set("htm", nil), dpop.ReasonClaims},
		"no htu":                  {set("htu", nil), dpop.ReasonClaims},
		"no iat":                  {set("iat", nil), dpop.ReasonClaims},
		"jti empty":               {set("jti", ""), dpop.ReasonClaims},
		"jti a number":            {set("jti", 7), dpop.ReasonClaims},
		"jti of 256 bytes":        {set("jti", strings.Repeat("a", 256)), ""},
		"jti of 257 bytes":        {set("jti", strings.Repeat("a", 257)), dpop.ReasonClaims},
		"htm a list":              {set("htm", []string{method}), dpop.ReasonClaims},
		"iat a string":            {set("iat", "1790900000"), dpop.ReasonClaims},
		"iat before 1970":         {set("iat", -1), dpop.ReasonClaims},
		"iat beyond all calendar": {set("iat", 1e300), dpop.ReasonClaims},
		"iat with a fraction":     {set("iat", 1790900000.25), ""}, // RFC 7519 2
		"unknown claims":          {set("more", []int{1}), ""},

		// P-4.3-26
		"typ absent":             {set("typ", nil), dpop.ReasonType},
		"typ JWT":                {set("typ", "JWT"), dpop.ReasonType},
		"typ in another case":    {set("typ", "DPoP+JWT"), dpop.ReasonType},
		"typ with application/":  {set("typ", "application/dpop+jwt"), dpop.ReasonType},
		"typ of another kind":    {set("typ", "poppy-browser+jwt"), dpop.ReasonType},
		"a critical extension":   {set("crit", []string{"exp"}), dpop.ReasonMalformed},
		"alg none":               {set("alg", "none"), dpop.ReasonAlgorithm}, // P-4.3-27, with the next three
		"alg symmetric":          {set("alg", "HS256"), dpop.ReasonAlgorithm},
		"alg not accepted here":  {set("alg", "EdDSA"), dpop.ReasonAlgorithm},
		"alg absent":             {set("alg", nil), dpop.ReasonAlgorithm},
		"jwk absent":             {set("jwk", nil), dpop.ReasonKey}, // P-4.3-28, with the next four
		"jwk symmetric":          {set("jwk", object{"kty": "oct", "k": "AAAA"}), dpop.ReasonKey},
		"jwk a string":           {set("jwk", "key"), dpop.ReasonMalformed},
		"jwk of another curve":   {set("jwk", object{"kty": "EC", "crv": "P-384", "x": "AA", "y": "AA"}), dpop.ReasonKey},
		"jwk with a private key": {func(header, _ object) { header["jwk"] = with(header["jwk"], "d", "AAAA") }, dpop.ReasonKey},

		// P-4.3-30
		"another method":         {set("htm", "GET"), dpop.ReasonMethod},
		"method in another case": {set("htm", "post"), dpop.ReasonMethod},

		// P-4.3-31, P-4.3-39; P-3-17 for http
		"another path":       {set("htu", "https://api.outdoor.example/orders/ord_7Hk2"), dpop.ReasonURL},
		"another host":       {set("htu", "https://mcp.outdoor.example/orders/ord_7Hk2/exchanges"), dpop.ReasonURL},
		"another port":       {set("htu", "https://api.outdoor.example:8443/orders/ord_7Hk2/exchanges"), dpop.ReasonURL},
		"http":               {set("htu", strings.Replace(target, "https:", "http:", 1)), dpop.ReasonURL},
		"path alone":         {set("htu", "/orders/ord_7Hk2/exchanges"), dpop.ReasonURL},
		"htu with a query":   {set("htu", target+"?cursor=1"), ""}, // ignored, RFC 9449 4.3
		"htu without it":     {set("htu", target), ""},             // P-4.3-17: the request has a query
		"htu written longer": {set("htu", "HTTPS://API.outdoor.example:443/orders/x/../ord_7%48k2/exchanges#top"), ""},

		// P-4.3-32
		"at the end of the window":  {set("iat", now.Unix()-59), ""},
		"after the window":          {set("iat", now.Unix()-60), dpop.ReasonStale},
		"ten minutes old":           {set("iat", now.Unix()-600), dpop.ReasonStale},
		"a clock a little ahead":    {set("iat", now.Unix()+30), ""},
		"a clock further ahead":     {set("iat", now.Unix()+31), dpop.ReasonStale},
		"ten minutes in the future": {set("iat", now.Unix()+600), dpop.ReasonStale},
		"a nonce nobody asked for":  {set("nonce", "any"), ""},

		// P-4.3-36
		"no ath":                {set("ath", nil), dpop.ReasonToken},
		"ath empty":             {set("ath", ""), dpop.ReasonToken},
		"ath of another token":  {set("ath", "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"), dpop.ReasonToken},
		"ath with padding":      {set("ath", hash+"="), dpop.ReasonToken},
		"ath is the token":      {set("ath", token), dpop.ReasonToken},
		"ath in hexadecimal":    {set("ath", fmt.Sprintf("%x", decode(hash))), dpop.ReasonToken},
		"ath in another letter": {set("ath", strings.ToLower(hash)), dpop.ReasonToken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForger(t)
			proof := f.proof(test.change)
			got, err := newVerifier(t, dpop.Options{}).Verify(header(proof), f.atResource(), now)
			check(t, got, err, test.want)
		})
	}
}

func TestVerifyTheHeader(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	proof := f.proof(nil)
	for name, test := range map[string]struct {
		header http.Header
		want   dpop.Reason
	}{
		// P-4.3-24
		"one":             {header(proof), ""},
		"none":            {header(), dpop.ReasonHeader},
		"two":             {header(proof, proof), dpop.ReasonHeader},
		"two, one empty":  {header(proof, ""), dpop.ReasonHeader},
		"two in one line": {header(proof + ", " + proof), dpop.ReasonMalformed},

		// P-4.3-25
		"empty":           {header(""), dpop.ReasonMalformed},
		"no JWT":          {header("abc"), dpop.ReasonMalformed},
		"a space in it":   {header(proof[:9] + " " + proof[9:]), dpop.ReasonMalformed},
		"claims no JSON":  {header(f.sign(marshal(t, object{"typ": "dpop+jwt", "alg": "ES256", "jwk": f.jwk}), `iat`)), dpop.ReasonClaims},
		"a claim twice":   {header(f.sign(marshal(t, object{"typ": "dpop+jwt", "alg": "ES256", "jwk": f.jwk}), `{"jti":"a","jti":"b"}`)), dpop.ReasonClaims},
		"an unending one": {header(strings.Repeat("a", 9<<10)), dpop.ReasonMalformed},
	} {
		got, err := newVerifier(t, dpop.Options{}).Verify(test.header, f.atResource(), now)
		t.Run(name, func(t *testing.T) { check(t, got, err, test.want) })
	}
}

// P-4.3-29
func TestVerifyTheSignature(t *testing.T) {
	t.Parallel()
	f, other := newForger(t), newForger(t)
	parts := strings.Split(f.proof(nil), ".")
	changed := strings.Split(f.proof(func(_, claims object) { claims["htm"] = "GET" }), ".")
	want := f.atResource()
	want.Method = "GET"
	got, err := newVerifier(t, dpop.Options{}).Verify(header(parts[0]+"."+changed[1]+"."+parts[2]), want, now)
	check(t, got, err, dpop.ReasonSignature)

	proof := f.proof(func(header, _ object) { header["jwk"] = other.jwk })
	got, err = newVerifier(t, dpop.Options{}).Verify(header(proof), other.atResource(), now)
	check(t, got, err, dpop.ReasonSignature)
}

// P-4.3-35, P-4.3-39
func TestVerifyTheBinding(t *testing.T) {
	t.Parallel()
	f, other := newForger(t), newForger(t)
	got, err := newVerifier(t, dpop.Options{}).Verify(header(f.proof(nil)), other.atResource(), now)
	check(t, got, err, dpop.ReasonBinding)

	want := f.atResource()
	want.Token = secret.New(token + "x")
	got, err = newVerifier(t, dpop.Options{}).Verify(header(f.proof(nil)), want, now)
	check(t, got, err, dpop.ReasonToken)

	// Half of what a resource expects never passes for the token endpoint.
	want = f.atResource()
	want.Thumbprint = ""
	got, err = newVerifier(t, dpop.Options{}).Verify(header(f.proof(nil)), want, now)
	check(t, got, err, dpop.ReasonBinding)
	want = f.atResource()
	want.Token = secret.Text{}
	got, err = newVerifier(t, dpop.Options{}).Verify(header(f.proof(nil)), want, now)
	check(t, got, err, dpop.ReasonToken)
}

// P-4.3-20, P-4.3-22: no ath is needed, and the result names the key to bind to.
func TestVerifyAtTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	want := dpop.Expected{Method: method, URL: target}
	for name, change := range map[string]func(header, claims object){
		"without ath":     func(_, claims object) { delete(claims, "ath") },
		"with a needless": nil,
	} {
		got, err := newVerifier(t, dpop.Options{}).Verify(header(f.proof(change)), want, now)
		if err != nil || got.Thumbprint != f.private.Thumbprint() || got.ID != "e1j3V_bKic8-LAEBq7Rw2g" {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// P-4.3-37: until when the token endpoint has to remember an ID.
func TestUntilIsTheFirstMomentOfRefusal(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	nonces := newNonces(t, master, 2*time.Minute)
	verifier := newVerifier(t, dpop.Options{Window: 10 * time.Second, Leeway: time.Hour, Nonces: nonces})
	for name, change := range map[string]func(header, claims object){
		"by iat":                 nil,
		"by iat with a fraction": func(_, claims object) { claims["iat"] = float64(now.Unix()) + 0.1234567 },
		"by iat in the future":   func(_, claims object) { claims["iat"] = now.Unix() + 20 },
		"by the nonce":           func(_, claims object) { claims["nonce"] = nonces.Issue(now); claims["iat"] = 1 },
		"by the nonce, then iat": func(_, claims object) { claims["nonce"] = nonces.Issue(now); claims["iat"] = now.Unix() + 100 },
	} {
		proof := header(f.proof(change))
		got, err := verifier.Verify(proof, f.atResource(), now)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for later := now; later.Before(now.Add(10 * time.Minute)); later = later.Add(500 * time.Millisecond) {
			if _, err := verifier.Verify(proof, f.atResource(), later); err == nil && !later.Before(got.Until) {
				t.Fatalf("%s: still accepted at %v, to be forgotten at %v", name, later, got.Until)
			}
		}
		if _, err := verifier.Verify(proof, f.atResource(), got.Until); err == nil {
			t.Fatalf("%s: still accepted at %v", name, got.Until)
		}
	}
}

// P-4.3-21, P-4.3-33, P-4.3-34, P-4.3-41, P-4.3-43
func TestVerifyNonces(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	nonces := newNonces(t, master, 0)
	for name, test := range map[string]struct {
		require bool
		nonce   string
		iat     int64
		want    dpop.Reason
		due     bool
	}{
		"required and fresh":               {true, nonces.Issue(now), 0, "", false},
		"required, half its life gone":     {true, nonces.Issue(now.Add(-150 * time.Second)), 0, "", true},
		"required and missing":             {true, "", 0, dpop.ReasonNonceMissing, false},
		"required, missing and stale":      {true, "", -600, dpop.ReasonNonceMissing, false},
		"required and made up":             {true, strings.Repeat("A", 48), 0, dpop.ReasonNonce, false},
		"required and expired":             {true, nonces.Issue(now.Add(-5 * time.Minute)), 0, dpop.ReasonNonce, false},
		"required, of another secret":      {true, newNonces(t, master+"x", 0).Issue(now), 0, dpop.ReasonNonce, false},
		"not required and missing":         {false, "", 0, "", false},
		"not required, missing and stale":  {false, "", -600, dpop.ReasonStale, false},
		"not required and made up":         {false, "made-up", 0, dpop.ReasonNonce, false},
		"old iat, fresh nonce":             {false, nonces.Issue(now), -600, "", false},
		"future iat, fresh nonce":          {false, nonces.Issue(now), 600, "", false},
		"old iat, nonce out of the window": {true, nonces.Issue(now.Add(-time.Minute)), -600, dpop.ReasonNonceStale, false},
		"new iat, nonce out of the window": {true, nonces.Issue(now.Add(-time.Minute)), 0, "", false},
		"new iat, expired nonce":           {true, nonces.Issue(now.Add(-6 * time.Minute)), 0, dpop.ReasonNonce, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verifier := newVerifier(t, dpop.Options{Nonces: nonces, RequireNonce: test.require})
			proof := f.proof(func(_, claims object) {
				claims["iat"] = now.Unix() + test.iat
				if test.nonce != "" {
					claims["nonce"] = test.nonce
				}
			})
			got, err := verifier.Verify(header(proof), f.atResource(), now)
			check(t, got, err, test.want)
			if got.NonceDue != test.due {
				t.Fatalf("a new nonce due: %t, want %t", got.NonceDue, test.due)
			}
		})
	}
}

// P-3.2-36, P-4.3-60
func TestNewVerifierRefuses(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]dpop.Options{
		"a list without ES256":     {Algorithms: []string{"RS256"}},
		"an empty list":            {Algorithms: []string{}},
		"none":                     {Algorithms: []string{"ES256", "none"}},
		"a symmetric algorithm":    {Algorithms: []string{"ES256", "HS256"}},
		"a negative window":        {Window: -1},
		"a negative leeway":        {Leeway: -1},
		"a nonce and none to give": {RequireNonce: true},
	} {
		if verifier, err := dpop.NewVerifier(options); err == nil || verifier != nil {
			t.Errorf("%s: got %v, %v", name, verifier, err)
		}
	}
	verifier := newVerifier(t, dpop.Options{Algorithms: []string{"ES256", "EdDSA"}})
	if got := verifier.Algorithms(); len(got) != 2 || got[0] != "ES256" || got[1] != "EdDSA" {
		t.Errorf("accepts %v", got)
	}
	if got := newVerifier(t, dpop.Options{}).Algorithms(); len(got) != 1 || got[0] != "ES256" {
		t.Errorf("accepts %v by default", got)
	}
}

func TestVerifyNeedsItsOwnURL(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	want := f.atResource()
	want.URL = "/orders"
	_, err := newVerifier(t, dpop.Options{}).Verify(header(f.proof(nil)), want, now)
	if _, refused := errors.AsType[*dpop.Error](err); err == nil || refused {
		t.Fatalf("got %v, want our own fault and not the proof's", err)
	}
}

func TestErrorsRepeatNothingOfTheProof(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	for _, change := range []func(header, claims object){
		func(_, claims object) { claims["htu"] = "https://mArKeR.example/%zz" },
		func(_, claims object) { claims["iat"] = "mArKeR" },
		func(_, claims object) { claims["jti"] = strings.Repeat("mArKeR", 100) },
		func(header, _ object) { header["jwk"] = with(header["jwk"], "kty", "mArKeR") },
		func(header, _ object) { header["jwk"] = with(header["jwk"], "d", "mArKeR") },
		func(header, _ object) { header["alg"] = "mArKeR" },
	} {
		_, err := newVerifier(t, dpop.Options{}).Verify(header(f.proof(change)), f.atResource(), now)
		if err == nil || strings.Contains(err.Error(), "mArKeR") {
			t.Errorf("got %v", err)
		}
	}
}

func with(jwk any, member string, value any) object {
	changed := object{member: value}
	for name, old := range jwk.(object) {
		if name != member {
			changed[name] = old
		}
	}
	return changed
}

func decode(text string) []byte {
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}
