package assertion_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"countersign/assertion"
	"countersign/internal/jws"
	"countersign/internal/secret"
)

const (
	clientID = "https://agent.example/agent.json"
	issuer   = "https://auth.outdoor.example"
	userID   = "usr_Q7c1vK"
)

var now = time.Unix(1790900000, 0)

type object = map[string]any

// forger signs assertions whose header and claims start out right and can be changed.
type forger struct {
	t       *testing.T
	private *jws.PrivateKey
	keys    assertion.KeySet
}

func newForger(t *testing.T) *forger {
	t.Helper()
	private, err := jws.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return &forger{t: t, private: private, keys: publish(t, private)}
}

func publish(t *testing.T, keys ...*jws.PrivateKey) assertion.KeySet {
	t.Helper()
	document, err := jws.MarshalSet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	set, err := assertion.ParseKeySet(document)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// assertion is one of the kind; change edits it, nil leaves it right.
func (f *forger) assertion(kind assertion.Kind, change func(header, claims object)) string {
	f.t.Helper()
	header := object{"alg": "ES256", "kid": f.private.Thumbprint()}
	claims := object{"iss": clientID, "sub": userID, "aud": issuer, "iat": now.Unix(), "exp": now.Unix() + 60, "jti": "V6vJGs2ixBAvGdaQgGaTzg"}
	if kind == assertion.Client {
		claims["sub"] = clientID
	}
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

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func expected(kind assertion.Kind) assertion.Expected {
	return assertion.Expected{Kind: kind, ClientID: clientID, Audience: issuer}
}

func check(t *testing.T, got assertion.Claims, err error, want assertion.Reason) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		return
	}
	refusal, ok := errors.AsType[*assertion.Error](err)
	if !ok || refusal.Reason != want {
		t.Fatalf("got %v, want it refused for %s", err, want)
	}
	if got != (assertion.Claims{}) {
		t.Fatalf("a result together with an error: %v", got)
	}
}

// What holds for both kinds.
func TestVerify(t *testing.T) {
	t.Parallel()
	set := func(member string, value any) func(header, claims object) {
		return func(header, claims object) {
			into := claims
			if member == "typ" || member == "alg" || member == "kid" || member == "crit" || member == "jwk" {
				into = header
			}
			if value == nil {
				delete(into, member)
			} else {
				into[member] = value
			}
		}
	}
	lasting := func(seconds int64) func(header, claims object) { return set("exp", now.Unix()+seconds) }
	for name, test := range map[string]struct {
		change func(header, claims object)
		want   assertion.Reason
	}{
		"right": {nil, ""}, // P-4.1-09, P-4.2-11

		"alg none":             {set("alg", "none"), assertion.ReasonAlgorithm},
		"alg symmetric":        {set("alg", "HS256"), assertion.ReasonAlgorithm},
		"a critical extension": {set("crit", []string{"exp"}), assertion.ReasonMalformed},

		"typ JWT":                  {set("typ", "JWT"), ""},
		"typ jwt":                  {set("typ", "jwt"), ""}, // a media type, in any case
		"typ application/jwt":      {set("typ", "application/jwt"), ""},
		"typ of a browser one":     {set("typ", "poppy-browser+jwt"), assertion.ReasonType}, // P-5-20
		"typ of it, in full":       {set("typ", "application/Poppy-Browser+JWT"), assertion.ReasonType},
		"typ of a proof":           {set("typ", "dpop+jwt"), assertion.ReasonType},
		"typ of an access token":   {set("typ", "at+jwt"), assertion.ReasonType},
		"typ of another namespace": {set("typ", "text/jwt"), assertion.ReasonType},

		"kid unknown":        {set("kid", "other"), assertion.ReasonUnknownKey},
		"kid absent":         {set("kid", nil), ""},
		"alg of another key": {set("alg", "RS256"), assertion.ReasonUnknownKey},

		// P-4.2-24
		"iss another":             {set("iss", "https://other.example/agent.json"), assertion.ReasonIssuer},
		"iss in another case":     {set("iss", "https://Agent.example/agent.json"), assertion.ReasonIssuer},
		"iss with a slash":        {set("iss", clientID+"/"), assertion.ReasonIssuer},
		"iss over http":           {set("iss", "http://agent.example/agent.json"), assertion.ReasonIssuer}, // P-3-17
		"iss absent":              {set("iss", nil), assertion.ReasonIssuer},
		"sub absent":              {set("sub", nil), assertion.ReasonSubject}, // P-4.2-16
		"sub empty":               {set("sub", ""), assertion.ReasonSubject},  // P-4.2-16
		"sub a number":            {set("sub", 7), assertion.ReasonClaims},
		"aud the token endpoint":  {set("aud", issuer+"/oauth/token"), assertion.ReasonAudience}, // P-4.1-13, P-4.2-18, with those that follow
		"aud with a slash":        {set("aud", issuer+"/"), assertion.ReasonAudience},
		"aud in another case":     {set("aud", "https://Auth.outdoor.example"), assertion.ReasonAudience},
		"aud with the port":       {set("aud", issuer+":443"), assertion.ReasonAudience},
		"aud another Company":     {set("aud", "https://auth.other.example"), assertion.ReasonAudience}, // P-9.4-01
		"aud over http":           {set("aud", "http://auth.outdoor.example"), assertion.ReasonAudience},
		"aud a list of one":       {set("aud", []string{issuer}), assertion.ReasonClaims},
		"aud a list of two":       {set("aud", []string{issuer, "https://auth.other.example"}), assertion.ReasonClaims},
		"aud an object":           {set("aud", object{"iss": issuer}), assertion.ReasonClaims},
		"aud absent":              {set("aud", nil), assertion.ReasonAudience},
		"aud empty":               {set("aud", ""), assertion.ReasonAudience},
		"iat absent":              {set("iat", nil), assertion.ReasonClaims}, // P-4.1-14, with exp and jti below
		"iat a string":            {set("iat", "1790900000"), assertion.ReasonClaims},
		"iat with a fraction":     {set("iat", 1790900000.5), assertion.ReasonClaims},
		"iat with an exponent":    {set("iat", json.RawMessage("17909e5")), assertion.ReasonClaims},
		"iat before 1970":         {set("iat", -1), assertion.ReasonClaims},
		"exp absent":              {set("exp", nil), assertion.ReasonClaims},
		"exp beyond all calendar": {set("exp", int64(1)<<62), assertion.ReasonClaims},
		"iat and exp overflowing": {func(_, claims object) { claims["iat"] = -(int64(1) << 62); claims["exp"] = int64(1) << 62 }, assertion.ReasonClaims},
		"exp five minutes later":  {lasting(300), ""},
		"exp a second more":       {lasting(301), assertion.ReasonLifetime}, // P-4.1-15, P-4.2-20
		"exp no time after iat":   {lasting(0), assertion.ReasonLifetime},
		"exp before iat":          {lasting(-1), assertion.ReasonLifetime},
		"exp now":                 {func(_, claims object) { claims["iat"] = now.Unix() - 60; claims["exp"] = now.Unix() }, assertion.ReasonExpired}, // P-4.2-19
		"exp in a second":         {func(_, claims object) { claims["iat"] = now.Unix() - 299; claims["exp"] = now.Unix() + 1 }, ""},
		"iat a little ahead":      {set("iat", now.Unix()+30), ""},
		"iat further ahead":       {set("iat", now.Unix()+31), assertion.ReasonNotYet},
		"made in advance":         {func(_, claims object) { claims["iat"] = now.Unix() + 3600; claims["exp"] = now.Unix() + 3660 }, assertion.ReasonNotYet},
		"nbf in the past":         {set("nbf", now.Unix()-60), ""},
		"nbf a little ahead":      {set("nbf", now.Unix()+30), ""},
		"nbf further ahead":       {set("nbf", now.Unix()+31), assertion.ReasonNotYet},
		"nbf a string":            {set("nbf", "now"), assertion.ReasonClaims},
		"nbf before 1970":         {set("nbf", -1), assertion.ReasonClaims},
		"jti absent":              {set("jti", nil), assertion.ReasonClaims},
		"jti empty":               {set("jti", ""), assertion.ReasonClaims},
		"jti of 256 bytes":        {set("jti", strings.Repeat("a", 256)), ""},
		"jti of 257 bytes":        {set("jti", strings.Repeat("a", 257)), assertion.ReasonClaims},
		"unknown claims":          {set("session_id", "ses_2Lm0"), ""},
	} {
		for _, kind := range []assertion.Kind{assertion.Client, assertion.Session} {
			t.Run(map[assertion.Kind]string{assertion.Client: "client ", assertion.Session: "session "}[kind]+name, func(t *testing.T) {
				t.Parallel()
				f := newForger(t)
				got, err := assertion.Verify(f.assertion(kind, test.change), f.keys, expected(kind), now)
				check(t, got, err, test.want)
			})
		}
	}
}

func TestVerifySubjectAndTypeOfEachKind(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind         assertion.Kind
		typ, subject string
		want         assertion.Reason
	}{
		// RFC 7523 3: a client authenticates as itself.
		"client, sub the client_id":      {assertion.Client, "", clientID, ""},
		"client, sub a User ID":          {assertion.Client, "", userID, assertion.ReasonSubject},
		"client, sub in another case":    {assertion.Client, "", "https://Agent.example/agent.json", assertion.ReasonSubject},
		"session, sub the client_id":     {assertion.Session, "", clientID, assertion.ReasonSubject},
		"session, sub of 255 characters": {assertion.Session, "", strings.Repeat("u", 255), ""},
		"session, sub of 256 characters": {assertion.Session, "", strings.Repeat("u", 256), assertion.ReasonSubject},
		"session, sub with a line end":   {assertion.Session, "", "usr\n", assertion.ReasonSubject},
		"session, sub not in ASCII":      {assertion.Session, "", "usr_é", assertion.ReasonSubject},
		"session, sub with a space":      {assertion.Session, "", "usr 1", ""},

		// draft-ietf-oauth-rfc7523bis
		"client, its own typ":         {assertion.Client, "client-authentication+jwt", clientID, ""},
		"client, a grant's typ":       {assertion.Client, "authorization-grant+jwt", clientID, assertion.ReasonType},
		"session, its own typ":        {assertion.Session, "authorization-grant+jwt", userID, ""},
		"session, a client's typ":     {assertion.Session, "client-authentication+jwt", userID, assertion.ReasonType},
		"no kind, sub the client_id":  {0, "", clientID, assertion.ReasonSubject},
		"no kind, sub a User ID":      {0, "", userID, assertion.ReasonSubject},
		"no kind, typ JWT and a User": {0, "JWT", userID, assertion.ReasonType},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForger(t)
			compact := f.assertion(test.kind, func(header, claims object) {
				claims["sub"] = test.subject
				if test.typ != "" {
					header["typ"] = test.typ
				}
			})
			got, err := assertion.Verify(compact, f.keys, expected(test.kind), now)
			check(t, got, err, test.want)
		})
	}
}

// P-4.1-09, P-4.2-11, P-4.2-23, P-5-17 for the signature
func TestVerifyTheKey(t *testing.T) {
	t.Parallel()
	f, other := newForger(t), newForger(t)
	named, unnamed := f.assertion(assertion.Client, nil), f.assertion(assertion.Client, func(header, _ object) { delete(header, "kid") })
	stolen := f.assertion(assertion.Client, func(header, _ object) { header["kid"] = other.private.Thumbprint() })
	parts := strings.Split(named, ".")
	changed := strings.Split(f.assertion(assertion.Client, func(_, claims object) { claims["jti"] = "another" }), ".")
	both := publish(t, other.private, f.private)
	for name, test := range map[string]struct {
		compact string
		keys    assertion.KeySet
		want    assertion.Reason
	}{
		"named, the second of two":     {named, both, ""},
		"unnamed, the second of two":   {unnamed, both, ""},
		"named, not published":         {named, other.keys, assertion.ReasonUnknownKey},
		"unnamed, not published":       {unnamed, other.keys, assertion.ReasonUnknownKey},
		"nothing published":            {unnamed, assertion.KeySet{}, assertion.ReasonUnknownKey},
		"another's name":               {stolen, both, assertion.ReasonSignature},
		"other claims, same signature": {parts[0] + "." + changed[1] + "." + parts[2], both, assertion.ReasonSignature},
		"not a JWT":                    {"abc", both, assertion.ReasonMalformed},
		"nothing":                      {"", both, assertion.ReasonMalformed},
		"claims no JSON":               {f.sign(`{"alg":"ES256"}`, `jti`), both, assertion.ReasonClaims},
		"claims null":                  {f.sign(`{"alg":"ES256"}`, `null`), both, assertion.ReasonIssuer},
		"a claim twice":                {f.sign(`{"alg":"ES256"}`, `{"aud":"`+issuer+`","aud":"https://auth.other.example"}`), both, assertion.ReasonClaims},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := assertion.Verify(test.compact, test.keys, expected(assertion.Client), now)
			check(t, got, err, test.want)
		})
	}
}

// A key in the header proves nothing about who the Personal Agent is.
func TestVerifyIgnoresAKeyInTheHeader(t *testing.T) {
	t.Parallel()
	f, other := newForger(t), newForger(t)
	document, err := jws.MarshalSet(f.private)
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []any }
	if err := json.Unmarshal(document, &set); err != nil {
		t.Fatal(err)
	}
	compact := f.assertion(assertion.Session, func(header, _ object) { header["jwk"] = set.Keys[0]; delete(header, "kid") })
	got, err := assertion.Verify(compact, other.keys, expected(assertion.Session), now)
	check(t, got, err, assertion.ReasonUnknownKey)
}

// P-4.1-12, P-4.1-14, P-4.2-15, P-4.2-16, P-4.2-17, P-4.2-19, P-4.2-20
func TestSignerSaysWhatTheProtocolAsks(t *testing.T) {
	t.Parallel()
	key, signer := newSigner(t)
	for subject, sign := range map[string]func() (secret.Text, error){
		clientID: func() (secret.Text, error) { return signer.ClientAssertion(issuer, now) },
		userID:   func() (secret.Text, error) { return signer.SessionAssertion(issuer, userID, now) },
	} {
		made, err := sign()
		if err != nil {
			t.Fatal(err)
		}
		header, claims := parts(t, made)
		if len(header) != 3 || header["alg"] != "ES256" || header["kid"] != key.ID() || header["typ"] != "JWT" {
			t.Errorf("header %v", header)
		}
		id, ok := claims["jti"].(string)
		if !ok || len(id) < 22 || len(claims) != 6 || claims["iss"] != clientID || claims["sub"] != subject || claims["aud"] != issuer ||
			claims["iat"] != float64(now.Unix()) || claims["exp"] != float64(now.Unix()+60) {
			t.Errorf("claims %v", claims)
		}
	}
}

// P-4.1-10: the published key verifies both kinds, as does the kept one.
func TestWhatASignerMakesVerifies(t *testing.T) {
	t.Parallel()
	key, signer := newSigner(t)
	kept, err := assertion.ParseKey(key.Marshal())
	if err != nil || kept.ID() != key.ID() {
		t.Fatal("the kept key is another one", err)
	}
	document, err := assertion.MarshalKeySet(kept)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := assertion.ParseKeySet(document)
	if err != nil {
		t.Fatal(err)
	}
	client, err := signer.ClientAssertion(issuer, now)
	if err != nil {
		t.Fatal(err)
	}
	session, err := signer.SessionAssertion(issuer, userID, now)
	if err != nil {
		t.Fatal(err)
	}
	for subject, made := range map[string]struct {
		secret.Text
		assertion.Kind
	}{clientID: {client, assertion.Client}, userID: {session, assertion.Session}} {
		got, err := assertion.Verify(made.Reveal(), keys, expected(made.Kind), now)
		if err != nil {
			t.Fatal(err)
		}
		want := assertion.Claims{Issuer: clientID, Subject: subject, ID: got.ID, IssuedAt: now, ExpiresAt: now.Add(time.Minute)}
		if got != want || got.ID == "" {
			t.Errorf("got %v, want %v", got, want)
		}
		if iss, err := assertion.UnverifiedIssuer(made.Reveal()); err != nil || iss != clientID {
			t.Errorf("issuer %q, %v", iss, err)
		}
	}
	// Neither serves as the other.
	got, err := assertion.Verify(client.Reveal(), keys, expected(assertion.Session), now)
	check(t, got, err, assertion.ReasonSubject)
	got, err = assertion.Verify(session.Reveal(), keys, expected(assertion.Client), now)
	check(t, got, err, assertion.ReasonSubject)
}

// P-4.1-16, P-4.2-21
func TestEachAssertionIsNew(t *testing.T) {
	t.Parallel()
	_, signer := newSigner(t)
	seen := map[any]bool{}
	for range 500 {
		client, err := signer.ClientAssertion(issuer, now)
		if err != nil {
			t.Fatal(err)
		}
		session, err := signer.SessionAssertion(issuer, userID, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, made := range []secret.Text{client, session} {
			_, claims := parts(t, made)
			seen[claims["jti"]] = true
		}
	}
	if len(seen) != 1000 {
		t.Fatalf("%d IDs in 1000 assertions", len(seen))
	}
}

// P-3-17, and what no Company would take.
func TestSignerRefuses(t *testing.T) {
	t.Parallel()
	key, signer := newSigner(t)
	for _, id := range []string{"", "agent", "http://agent.example/agent.json", "https:///agent.json"} {
		if signer, err := assertion.NewSigner(id, key); err == nil || signer != nil {
			t.Errorf("client_id %q: got %v, %v", id, signer, err)
		}
	}
	for _, issuer := range []string{"", "auth.outdoor.example", "http://auth.outdoor.example"} {
		if made, err := signer.ClientAssertion(issuer, now); err == nil || !made.IsZero() {
			t.Errorf("issuer %q: got an assertion, %v", issuer, err)
		}
	}
	for _, user := range []string{"", clientID, strings.Repeat("u", 256), "usr\x00", "usr_é"} {
		if made, err := signer.SessionAssertion(issuer, user, now); err == nil || !made.IsZero() {
			t.Errorf("User ID %q: got an assertion, %v", user, err)
		}
	}
}

func TestUnverifiedIssuerRefuses(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	for name, compact := range map[string]string{
		"nothing":       "",
		"no JWT":        "a.b.c",
		"no JSON":       f.sign(`{"alg":"ES256"}`, `iss`),
		"iss a list":    f.sign(`{"alg":"ES256"}`, `{"iss":["`+clientID+`"]}`),
		"alg none":      f.sign(`{"alg":"none"}`, `{"iss":"`+clientID+`"}`),
		"a claim twice": f.sign(`{"alg":"ES256"}`, `{"iss":"a","iss":"b"}`),
	} {
		iss, err := assertion.UnverifiedIssuer(compact)
		if _, ok := errors.AsType[*assertion.Error](err); !ok || iss != "" {
			t.Errorf("%s: got %q, %v", name, iss, err)
		}
	}
}

func TestErrorsRepeatNothingOfTheAssertion(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	for _, change := range []func(header, claims object){
		func(header, _ object) { header["alg"] = "mArKeR" },
		func(header, _ object) { header["typ"] = "mArKeR" },
		func(header, _ object) { header["kid"] = "mArKeR" },
		func(_, claims object) { claims["iss"] = "mArKeR" },
		func(_, claims object) { claims["aud"] = []string{"mArKeR"} },
		func(_, claims object) { claims["iat"] = "mArKeR" },
	} {
		_, err := assertion.Verify(f.assertion(assertion.Session, change), f.keys, expected(assertion.Session), now)
		if err == nil || strings.Contains(err.Error(), "mArKeR") {
			t.Errorf("got %v", err)
		}
	}
}

func newSigner(t testing.TB) (*assertion.Key, *assertion.Signer) {
	t.Helper()
	key, err := assertion.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := assertion.NewSigner(clientID, key)
	if err != nil {
		t.Fatal(err)
	}
	return key, signer
}

func parts(t *testing.T, made secret.Text) (header, claims object) {
	t.Helper()
	for i, into := range []*object{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(strings.Split(made.Reveal(), ".")[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}
