package company_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"countersign/company"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

const (
	documentURL   = "https://outdoor.example" + poppy.DocumentPath
	documentUKURL = "https://outdoor-uk.example" + poppy.DocumentPath
	metadataURL   = issuer + poppy.IssuerMetadataPath
)

func TestEveryDomainServesADocumentThatItsIssuerConfirms(t *testing.T) {
	t.Parallel()
	s := open(t)
	// P-3.2-10, P-3.2-22
	metadata, err := poppy.ParseIssuerMetadata(s.Get(metadataURL).Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"outdoor.example", "outdoor-uk.example"} {
		// P-3-01, P-3-02: over HTTPS, with the certificate verified
		response := s.Get("https://" + host + poppy.DocumentPath)
		if response.Status != http.StatusOK || response.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s", host, response.Status, response.Header.Get("Content-Type"))
		}
		document, err := poppy.ParseDocument(response.Body)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		// P-3-03, P-3-09: the Company's own domain serves it, without a redirect
		// P-3-10, P-3.2-11, P-3.2-12
		if err := poppy.CheckLink(document, host, metadata); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		// P-3-30, P-3-31
		if document.ProtocolVersion != "0.3" || document.Organization.Name == "" {
			t.Errorf("%s: version %q, name %q", host, document.ProtocolVersion, document.Organization.Name)
		}
	}
}

func TestDomainsOfOneIssuerShareAuthAndDifferInTheRest(t *testing.T) {
	t.Parallel()
	s := open(t)
	first, err := poppy.ParseDocument(s.Get(documentURL).Body)
	if err != nil {
		t.Fatal(err)
	}
	second, err := poppy.ParseDocument(s.Get(documentUKURL).Body)
	if err != nil {
		t.Fatal(err)
	}
	// P-3.2-02, P-3.2-05
	if !first.Auth.Equal(*second.Auth) {
		t.Errorf("auth differs: %+v and %+v", first.Auth, second.Auth)
	}
	// P-3.2-06
	if len(first.APIs) == 0 || len(second.APIs) != 0 {
		t.Errorf("APIs: %d and %d, want some and none", len(first.APIs), len(second.APIs))
	}
	// P-3-33
	for _, api := range first.APIs {
		if api.Type == "" || api.URL == "" || api.Description == "" {
			t.Errorf("API %+v", api)
		}
	}
	// P-4.3-69
	if first.APIs[1].Resource != paymentsURL {
		t.Errorf("resource %q, want %q", first.APIs[1].Resource, paymentsURL)
	}
}

func TestAnAliasRedirectsToTheDomainAndServesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	// P-3-04, P-3-06, P-3-08
	response := s.Get("https://www.outdoor.example" + poppy.DocumentPath)
	if response.Status != http.StatusPermanentRedirect || response.Header.Get("Location") != documentURL {
		t.Errorf("answer %d to %q, want 308 to %q", response.Status, response.Header.Get("Location"), documentURL)
	}
	if response := s.Get("https://www.outdoor.example/"); response.Status != http.StatusNotFound {
		t.Errorf("another path of the alias: %d, want 404", response.Status)
	}
}

func TestEveryPublishedURLIsHTTPS(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, location := range []string{
		documentURL, documentUKURL, metadataURL,
		"https://mcp.outdoor.example" + poppy.ResourceMetadataPath + "/mcp", "https://mcp.outdoor.example" + poppy.ResourceMetadataPath + "/legacy",
	} {
		var document any
		response := s.Get(location)
		if err := strictjson.Unmarshal(response.Body, &document); err != nil || response.Status != http.StatusOK {
			t.Fatalf("%s: %d, %v", location, response.Status, err)
		}
		// P-3-13, P-3-14, P-3-16
		walk(document, func(text string) {
			if strings.Contains(text, "://") && !strings.HasPrefix(text, "https://") {
				t.Errorf("%s has the URL %s", location, text)
			}
		})
	}
	t.Run("a configuration with another scheme is refused", func(t *testing.T) {
		t.Parallel()
		config := outdoor()
		config.Domains[0].APIs[0].URL = "http://api.outdoor.example/openapi.json"
		config.Conversations.URL = "http://api.outdoor.example/poppy/conversations"
		mistakes, ok := errors.AsType[company.Mistakes](config.Validate())
		if !ok || len(mistakes) != 2 {
			t.Errorf("mistakes %v, want two", mistakes)
		}
	})
}

func walk(value any, visit func(string)) {
	switch v := value.(type) {
	case string:
		visit(v)
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	case map[string]any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}

func TestIssuerMetadataSaysWhatWorks(t *testing.T) {
	t.Parallel()
	s := open(t)
	response := s.Get(metadataURL)
	metadata, err := poppy.ParseIssuerMetadata(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	// P-3.2-23, P-3.2-24, P-4-10
	if metadata.TokenEndpoint != tokenURL || metadata.RevocationEndpoint != revokeURL {
		t.Errorf("endpoints %s and %s", metadata.TokenEndpoint, metadata.RevocationEndpoint)
	}
	// P-3.2-25, P-3.2-26; P-3.2-27 to 30: no sign-in is offered, so neither grant type nor endpoint of one is there
	if !slices.Equal(metadata.GrantTypesSupported, []string{poppy.GrantJWTBearer, poppy.GrantRefreshToken}) {
		t.Errorf("grant types %v", metadata.GrantTypesSupported)
	}
	if metadata.AuthorizationEndpoint != "" || metadata.DeviceAuthorizationEndpoint != "" {
		t.Error("there is the endpoint of a sign-in that is not offered")
	}
	// P-3.2-35, P-3.2-36
	if !slices.Equal(metadata.DPoPSigningAlgValuesSupported, []string{"ES256"}) {
		t.Errorf("proof algorithms %v", metadata.DPoPSigningAlgValuesSupported)
	}
	// P-3.2-11, P-3.2-12, P-3.2-13
	for _, want := range []string{"https://outdoor.example", "https://outdoor-uk.example", mcpURL, legacyURL, paymentsURL} {
		if !slices.Contains(metadata.ProtectedResources, want) {
			t.Errorf("protected_resources %v lacks %s", metadata.ProtectedResources, want)
		}
	}
	if !metadata.ScopesSupported.Equal(poppy.Scopes{"poppy:read", "poppy:write", "addresses"}) {
		t.Errorf("scopes %v", metadata.ScopesSupported)
	}
	// P-3.2-38: what Personal Agents ignore and RFC 8414 wants
	if response.JSON("response_types_supported") == nil || response.JSON("client_id_metadata_document_supported") != true {
		t.Errorf("metadata %s", response.Body)
	}
}

func TestExtensionsAreListedWithTheirVersion(t *testing.T) {
	t.Parallel()
	s := open(t)
	document, err := poppy.ParseDocument(s.Get(documentURL).Body)
	if err != nil {
		t.Fatal(err)
	}
	// P-3.3-01, P-3.3-03; P-3.3-02: it is the protocol's own, so its name is plain
	entry, ok := document.Extensions.Operations()
	if !ok || entry.Version != "1" || entry.Endpoint != operations || len(document.Extensions) != 1 {
		t.Errorf("extensions %v", document.Extensions)
	}
	without := open(t, func(c *company.Config) { c.Operations = company.Endpoint{} })
	if strings.Contains(string(without.Get(documentURL).Body), "extensions") {
		t.Error("a Company without operations lists an extension")
	}
}

func TestMCPServersSayWhichTokensTheyTake(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *company.Config) { c.Proof.Algorithms = []string{"ES256", "EdDSA"} })
	get := func(server string) poppy.ResourceMetadata {
		location, err := poppy.ResourceMetadataURL(server)
		if err != nil {
			t.Fatal(err)
		}
		metadata, err := poppy.ParseResourceMetadata(s.Get(location).Body, server, issuer) // P-6-09: it names the issuer
		if err != nil {
			t.Fatal(err)
		}
		return metadata
	}
	// P-4.3-46, P-4.3-59, P-4.3-60: DPoP unless the configuration says otherwise, with ES256
	if metadata := get(mcpURL); !slices.Equal(metadata.DPoPSigningAlgValuesSupported, []string{"ES256", "EdDSA"}) {
		t.Errorf("algorithms %v, want those configured", metadata.DPoPSigningAlgValuesSupported)
	}
	if metadata := get(legacyURL); metadata.SupportsDPoP() {
		t.Errorf("a server that takes Bearer tokens only says that it does DPoP: %v", metadata.DPoPSigningAlgValuesSupported)
	}
}

func TestDocumentsAreCachedByValidator(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.Get(documentURL)
	etag := first.Header.Get("Etag")
	if first.Header.Get("Cache-Control") != "public, max-age=3600" || etag == "" || strings.HasPrefix(etag, "W/") {
		t.Fatalf("Cache-Control %q, Etag %q", first.Header.Get("Cache-Control"), etag)
	}
	again := s.Do(http.MethodGet, documentURL, http.Header{"If-None-Match": {etag}}, nil)
	if again.Status != http.StatusNotModified || len(again.Body) != 0 {
		t.Errorf("with the validator: %d and %d bytes, want 304 and none", again.Status, len(again.Body))
	}
	head := s.Do(http.MethodHead, documentURL, nil, nil)
	if head.Status != http.StatusOK || len(head.Body) != 0 || head.Header.Get("Etag") != etag {
		t.Errorf("HEAD: %d, %d bytes, Etag %q", head.Status, len(head.Body), head.Header.Get("Etag"))
	}
	if second := s.Get(documentUKURL); second.Header.Get("Etag") == etag {
		t.Error("two documents have one validator")
	}
	if origin := first.Header.Get("Access-Control-Allow-Origin"); origin != "*" {
		t.Errorf("Access-Control-Allow-Origin %q, want *", origin)
	}
}

func TestHostNamesHaveNoCase(t *testing.T) {
	t.Parallel()
	s := open(t)
	wantOK(t, s.Get("https://OUTDOOR.example"+poppy.DocumentPath))
}
