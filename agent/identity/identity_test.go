package identity_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent/identity"
	"countersign/agent/vault"
	"countersign/assertion"
	"countersign/poppy"
)

const issuer = "https://auth.outdoor.example"

// bundle is an identity whose clock the test turns.
type bundle struct {
	*identity.Identity
	options identity.Options
	mutex   sync.Mutex
	time    time.Time
	files   [2]string
}

func setup(t *testing.T, change func(*identity.Options)) *bundle {
	t.Helper()
	dir := t.TempDir()
	b := &bundle{time: time.Now(), files: [2]string{filepath.Join(dir, "agent.db"), filepath.Join(dir, "agent.keys")}}
	b.options = identity.Options{
		ClientID: "https://agent.example/agent.json", Name: "Example Agent", LogoURI: "https://agent.example/logo.png",
		RedirectURIs: []string{"https://agent.example/oauth/callback"}, Now: b.now,
	}
	if change != nil {
		change(&b.options)
	}
	b.open(t)
	return b
}

func (b *bundle) open(t *testing.T) {
	t.Helper()
	v, err := vault.Open(t.Context(), b.files[0], b.files[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	b.options.Vault = v
	if b.Identity, err = identity.Open(t.Context(), b.options); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) now() time.Time {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.time
}

func (b *bundle) advance(d time.Duration) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.time = b.time.Add(d)
}

func (b *bundle) get(t *testing.T, path string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://agent.example"+path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w.Result()
}

func (b *bundle) body(t *testing.T, path string) []byte {
	t.Helper()
	response := b.get(t, path, nil)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		t.Fatalf("%s: %d, %v", path, response.StatusCode, err)
	}
	return data
}

func TestTheMetadataDocumentIsWhatCompaniesNeed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	// P-4.1-01
	response := b.get(t, "/agent.json", nil)
	defer response.Body.Close()
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
	document := b.body(t, "/agent.json")
	var got map[string]any
	if err := json.Unmarshal(document, &got); err != nil {
		t.Fatal(err)
	}
	// P-4.1-03, P-4.1-04, P-4.1-08, P-3.3-03, P-3.3-04, O-2-04
	want := `{"client_id":"https://agent.example/agent.json","client_name":"Example Agent","logo_uri":"https://agent.example/logo.png",` +
		`"jwks_uri":"https://agent.example/jwks.json","redirect_uris":["https://agent.example/oauth/callback"],` +
		`"token_endpoint_auth_method":"private_key_jwt","extensions":{"operations":{"version":"1"}}}`
	if string(document) != want {
		t.Errorf("document %s", document)
	}
	// P-4.1-05, P-4.1-06, P-3-15: what a strict Company checks
	if _, err := poppy.ParseClientMetadata(document, "https://agent.example/agent.json"); err != nil {
		t.Error(err)
	}
}

// P-4.1-01, P-4.1-05, P-4.1-06, P-3-15: an agent that Companies would refuse does not start.
func TestAnIdentityThatCompaniesWouldRefuseDoesNotOpen(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*identity.Options){
		"http client_id":                 func(o *identity.Options) { o.ClientID = "http://agent.example/agent.json" },
		"no client_id":                   func(o *identity.Options) { o.ClientID = "" },
		"client_id without path":         func(o *identity.Options) { o.ClientID = "https://agent.example" },
		"no name":                        func(o *identity.Options) { o.Name = " " },
		"http logo":                      func(o *identity.Options) { o.LogoURI = "http://agent.example/logo.png" },
		"keys on another domain":         func(o *identity.Options) { o.JWKSURI = "https://keys.agent.example/jwks.json" },
		"keys over http":                 func(o *identity.Options) { o.JWKSURI = "http://agent.example/jwks.json" },
		"keys and metadata on one path":  func(o *identity.Options) { o.JWKSURI = "https://agent.example/agent.json" },
		"redirect to another domain":     func(o *identity.Options) { o.RedirectURIs = []string{"https://other.example/callback"} },
		"redirect over http":             func(o *identity.Options) { o.RedirectURIs = []string{"http://agent.example/callback"} },
		"redirect to a scheme of an app": func(o *identity.Options) { o.RedirectURIs = []string{"agent:/callback"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			options := b.options
			change(&options)
			if i, err := identity.Open(t.Context(), options); err == nil || i != nil {
				t.Errorf("got %v, %v", i, err)
			}
		})
	}
}

func (b *bundle) keyIDs(t *testing.T) []string {
	t.Helper()
	var set struct{ Keys []map[string]any }
	if err := json.Unmarshal(b.body(t, "/jwks.json"), &set); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, key := range set.Keys {
		// P-4.1-07
		for _, private := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} {
			if _, has := key[private]; has {
				t.Errorf("the key set has %q: %v", private, key)
			}
		}
		ids = append(ids, key["kid"].(string))
	}
	return ids
}

// sign signs an assertion, which must verify with what is published now, and returns the key's ID.
func (b *bundle) sign(t *testing.T) string {
	t.Helper()
	signer, err := b.Signer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compact, err := signer.ClientAssertion(issuer, b.now())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := assertion.ParseKeySet(b.body(t, "/jwks.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := assertion.Verify(compact.Reveal(), keys, assertion.Expected{
		Kind: assertion.Client, ClientID: "https://agent.example/agent.json", Audience: issuer,
	}, b.now()); err != nil {
		t.Errorf("an assertion does not verify with the published keys: %v", err)
	}
	header, _, _ := strings.Cut(compact.Reveal(), ".")
	return keyID(t, header)
}

func TestKeysRotateWithoutAGap(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first := b.sign(t)
	if ids := b.keyIDs(t); !slices.Equal(ids, []string{first}) {
		t.Fatalf("published %v", ids)
	}
	if err := b.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Published at once, not used yet: a Company may still have the old key set.
	ids := b.keyIDs(t)
	if len(ids) != 2 || b.sign(t) != first {
		t.Fatalf("published %v", ids)
	}
	second := ids[1]
	b.advance(59 * time.Minute)
	if b.sign(t) != first {
		t.Error("the new key signs too early")
	}
	b.advance(time.Minute)
	if b.sign(t) != second || len(b.keyIDs(t)) != 2 {
		t.Error("the new key does not sign, or the old one is gone while its assertions are under way")
	}
	b.advance(time.Hour)
	if got := b.keyIDs(t); !slices.Equal(got, []string{second}) || b.sign(t) != second {
		t.Errorf("published %v", got)
	}
	// The next rotation forgets what is no longer published; a restart changes nothing.
	if err := b.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.open(t)
	if ids := b.keyIDs(t); len(ids) != 2 || ids[0] != second || b.sign(t) != second {
		t.Errorf("after a restart: %v", ids)
	}
}

func TestTwoRotationsAtOnceLeaveNoGap(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first := b.sign(t)
	for range 2 {
		if err := b.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if ids := b.keyIDs(t); len(ids) != 3 || b.sign(t) != first {
		t.Errorf("published %v", ids)
	}
	b.advance(time.Hour)
	b.sign(t)
	b.advance(time.Hour)
	b.sign(t)
}

func TestDocumentsCanBeCachedAndRevalidated(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, path := range []string{"/agent.json", "/jwks.json"} {
		response := b.get(t, path, nil)
		response.Body.Close()
		if response.Header.Get("Cache-Control") != "public, max-age=300" || response.Header.Get("ETag") == "" {
			t.Errorf("%s: %v", path, response.Header)
		}
		again := b.get(t, path, http.Header{"If-None-Match": {response.Header.Get("ETag")}})
		again.Body.Close()
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: revalidated with %d", path, again.StatusCode)
		}
	}
	before := b.get(t, "/jwks.json", nil)
	before.Body.Close()
	if err := b.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := b.get(t, "/jwks.json", http.Header{"If-None-Match": {before.Header.Get("ETag")}})
	after.Body.Close()
	if after.StatusCode != 200 {
		t.Errorf("a changed key set was answered with %d", after.StatusCode)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, path := range []string{"/", "/agent.json/", "/agent.jso", "/private.json", "/../agent.keys"} {
		response := b.get(t, path, nil)
		response.Body.Close()
		if response.StatusCode < 300 {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://agent.example/agent.json", nil)
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestExportWritesWhatIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *identity.Options) {
		o.ClientID, o.JWKSURI = "https://agent.example/about/agent.json", "https://agent.example/keys/set.json"
	})
	dir := t.TempDir()
	files, err := b.Export(t.Context(), dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for i, path := range []string{"/about/agent.json", "/keys/set.json"} {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil || !bytes.Equal(data, b.body(t, path)) || files[i] != filepath.Join(dir, filepath.FromSlash(path)) {
			t.Errorf("%s: %s, %v", path, data, err)
		}
	}
	folder := setup(t, func(o *identity.Options) {
		o.ClientID, o.JWKSURI = "https://agent.example/agent/", "https://agent.example/jwks.json"
	})
	if files, err := folder.Export(t.Context(), t.TempDir()); err == nil || files != nil {
		t.Errorf("a folder was exported as a file: %v", files)
	}
	if document := folder.body(t, "/agent/"); len(document) == 0 {
		t.Error("but it can be served")
	}
}

func TestTheKeySetIsBesideTheDocumentByDefault(t *testing.T) {
	t.Parallel()
	for clientID, want := range map[string]string{
		"https://agent.example/agent.json":         "https://agent.example/jwks.json",
		"https://agent.example/a/b.json?version=1": "https://agent.example/a/jwks.json",
		"https://agent.example:8443/agent.json":    "https://agent.example:8443/jwks.json",
	} {
		u, err := url.Parse(clientID)
		if err != nil {
			t.Fatal(err)
		}
		b := setup(t, func(o *identity.Options) { o.ClientID, o.LogoURI, o.RedirectURIs = clientID, "", nil })
		if document := b.body(t, u.Path); !strings.Contains(string(document), `"jwks_uri":"`+want+`"`) {
			t.Errorf("%s: %s", clientID, document)
		}
	}
}

func TestPrivateKeysAreNotInTheClear(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	signer := b.sign(t)
	data, err := os.ReadFile(b.files[0])
	if err != nil {
		t.Fatal(err)
	}
	wal, err := os.ReadFile(b.files[0] + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, wal...)
	if !bytes.Contains(data, []byte(signer)) {
		t.Fatal("the key's public ID is not in the file, so this proves nothing")
	}
	// The beginning of every PKCS #8 P-256 key.
	if bytes.Contains(data, []byte("\x06\x07\x2a\x86\x48\xce\x3d\x02\x01")) {
		t.Error("a private key is in the clear")
	}
}

func TestDocumentsThatCannotBeReadAreNotServed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	_ = b.options.Vault.Close()
	response := b.get(t, "/jwks.json", nil)
	response.Body.Close()
	if response.StatusCode != http.StatusInternalServerError {
		t.Errorf("%d", response.StatusCode)
	}
	if _, err := b.Signer(context.Background()); err == nil {
		t.Error("signing without keys")
	}
}

func keyID(t *testing.T, header string) string {
	t.Helper()
	var h struct{ Kid string }
	data, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &h); err != nil {
		t.Fatal(err)
	}
	return h.Kid
}
