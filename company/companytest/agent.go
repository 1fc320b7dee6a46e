package companytest

import (
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"sync"

	"countersign/dpop"
	"countersign/internal/jws"
	"countersign/internal/secret"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Agent is a Personal Agent with its documents on a host of its own.
type Agent struct {
	ClientID string
	Key      *jws.PrivateKey // signs assertions; it is published
	Proofs   *dpop.Key       // its key for proofs

	world *World

	mutex    sync.Mutex
	document map[string]any
	keys     []*jws.PrivateKey
	keySet   []byte         // served instead of keys if not nil
	status   int            // of every answer
	fetched  map[string]int // by path
}

// NewAgent publishes a Personal Agent at https://{host}/agent.json.
func (w *World) NewAgent(host string) *Agent {
	w.t.Helper()
	a := &Agent{
		ClientID: "https://" + host + "/agent.json", Key: w.newKey(), world: w, status: http.StatusOK, fetched: make(map[string]int),
	}
	var err error
	if a.Proofs, err = dpop.GenerateKey(); err != nil {
		w.t.Fatal(err)
	}
	a.keys = []*jws.PrivateKey{a.Key}
	a.document = map[string]any{ //nolint:gosec // the name of a method is no credential
		"client_id":                  a.ClientID,
		"client_name":                "Agent at " + host,
		"jwks_uri":                   "https://" + host + "/jwks.json",
		"redirect_uris":              []string{"https://" + host + "/callback"},
		"token_endpoint_auth_method": "private_key_jwt",
		"extensions":                 map[string]any{"operations": map[string]any{"version": "1"}},
	}
	w.ServeHost(host, a)
	return a
}

func (w *World) newKey() *jws.PrivateKey {
	w.t.Helper()
	key, err := jws.GenerateKey()
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

// NewProofKey makes another key for proofs.
func (w *World) NewProofKey() *dpop.Key {
	w.t.Helper()
	key, err := dpop.GenerateKey()
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

// Describe changes members of the agent's document; nil removes one.
func (a *Agent) Describe(members map[string]any) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for name, value := range members {
		if value == nil {
			delete(a.document, name)
		} else {
			a.document[name] = value
		}
	}
}

// Rotate makes a new key, signs with it from now on, and publishes it alone.
func (a *Agent) Rotate() {
	key := a.world.newKey()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.Key, a.keys = key, []*jws.PrivateKey{key}
}

// PublishKeySet serves this document at jwks_uri instead of the agent's keys.
func (a *Agent) PublishKeySet(document []byte) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.keySet = document
}

// Fail makes the agent's host answer every request with this status.
func (a *Agent) Fail(status int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.status = status
}

// Fetched returns how often a path of the agent's host was asked for.
func (a *Agent) Fetched(path string) int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.fetched[path]
}

// ServeHTTP serves the agent's documents.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.fetched[r.URL.Path]++
	if a.status != http.StatusOK {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=3600")
	switch r.URL.Path {
	case "/agent.json":
		text, _ := strictjson.Marshal(a.document)
		_, _ = w.Write(text)
	case "/jwks.json":
		text := a.keySet
		if text == nil {
			text, _ = jws.MarshalSet(a.keys...)
		}
		_, _ = w.Write(text)
	default:
		http.NotFound(w, r)
	}
}

// Claims are those of a correct assertion: for the User ID, or for the client_id in a client assertion. changes replaces some;
// nil removes one.
func (a *Agent) Claims(subject, audience string, changes map[string]any) map[string]any {
	now := a.world.Clock.Now().Unix()
	claims := map[string]any{
		"iss": a.ClientID, "sub": subject, "aud": audience, "iat": now, "exp": now + 60, "jti": rand.Text(),
	}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Sign signs claims with the agent's key.
func (a *Agent) Sign(typ string, claims map[string]any) string {
	a.world.t.Helper()
	signer, err := a.Key.NamingSigner(typ)
	if err != nil {
		a.world.t.Fatal(err)
	}
	compact, err := signer.Sign(claims)
	if err != nil {
		a.world.t.Fatal(err)
	}
	return compact
}

// Form is a token request of the agent with a fresh client assertion for the issuer.
func (a *Agent) Form(issuer, grantType string) url.Values {
	a.world.t.Helper()
	return url.Values{
		poppy.ParamGrantType:           {grantType},
		poppy.ParamClientID:            {a.ClientID},
		poppy.ParamClientAssertionType: {poppy.ClientAssertionType},
		poppy.ParamClientAssertion:     {a.Sign("JWT", a.Claims(a.ClientID, issuer, nil))},
	}
}

// SessionForm is a request that starts a Session for a User, or renews the one given.
func (a *Agent) SessionForm(issuer, userID, sessionID string) url.Values {
	a.world.t.Helper()
	form := a.Form(issuer, poppy.GrantJWTBearer)
	form.Set(poppy.ParamAssertion, a.Sign("JWT", a.Claims(userID, issuer, nil)))
	if sessionID != "" {
		form.Set(poppy.ParamSessionID, sessionID)
	}
	return form
}

// Proof is a correct proof for a request, with a token if one is given.
func (a *Agent) Proof(method, url, token string) string {
	a.world.t.Helper()
	return a.ProofBy(a.Proofs, dpop.Request{Method: method, URL: url, Token: secret.New(token)})
}

// ProofBy is a correct proof by another key, or with a nonce.
func (a *Agent) ProofBy(key *dpop.Key, request dpop.Request) string {
	a.world.t.Helper()
	proof, err := key.Proof(request, a.world.Clock.Now())
	if err != nil {
		a.world.t.Fatal(err)
	}
	return proof
}

// Token asks the token endpoint with a correct proof.
func (a *Agent) Token(endpoint string, form url.Values) Response {
	a.world.t.Helper()
	return a.world.PostForm(endpoint, form.Encode(), a.Proof(http.MethodPost, endpoint, ""))
}

// Send sends a request with a Session Token and a correct proof.
func (a *Agent) Send(method, url, token string, body []byte) Response {
	a.world.t.Helper()
	header := http.Header{"Authorization": {"DPoP " + token}, "Dpop": {a.Proof(method, url, token)}}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	return a.world.Do(method, url, header, body)
}
