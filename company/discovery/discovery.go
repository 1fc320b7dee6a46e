// Package discovery publishes what a Company says about itself: its poppy.json on every domain (protocol 3), its issuer's
// metadata (3.2, RFC 8414), and the metadata of its MCP servers (6, RFC 9728).
package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Documents is all that one issuer publishes.
type Documents struct {
	Domains []Domain // at least one
	Issuer  poppy.PublishedIssuerMetadata
	// Resources are the metadata of the Company's MCP servers.
	Resources []poppy.ResourceMetadata
	// MaxAge is how long others may keep a document before they ask again; whole seconds.
	MaxAge time.Duration
}

// Domain is a document and the other hosts that lead to it.
type Domain struct {
	Document poppy.Document
	// Aliases are host names, such as www.outdoor.example, whose well-known URL redirects to that of the domain. A document
	// speaks only for the host that serves it, so an alias never serves one (3).
	Aliases []string
}

// Handler serves one document, for GET and HEAD requests.
type Handler = func(http.ResponseWriter, *http.Request) error

// Publish checks what each document must hold to and what must agree between them, writes them, and returns a handler for
// each by its URL. The error is for whoever configures the Company.
func Publish(documents Documents) (map[string]Handler, error) {
	handlers := make(map[string]Handler)
	caching := "public, max-age=" + strconv.FormatInt(int64(documents.MaxAge/time.Second), 10)
	if err := documents.Issuer.ValidateForPublishing(); err != nil {
		return nil, fmt.Errorf("the issuer's metadata: %w", err)
	}
	for _, domain := range documents.Domains {
		if err := domain.Document.ValidateForPublishing(); err != nil {
			return nil, fmt.Errorf("the document of %s: %w", domain.Document.Organization.Domain, err)
		}
		if err := poppy.CheckPublication(domain.Document, documents.Issuer.IssuerMetadata); err != nil {
			return nil, fmt.Errorf("the issuer's metadata and the document of %s: %w", domain.Document.Organization.Domain, err)
		}
		if !domain.Document.Auth.Equal(*documents.Domains[0].Document.Auth) {
			return nil, errors.New("the documents of one issuer must have the same auth (section 3.2)")
		}
		location := poppy.DomainResource(domain.Document.Organization.Domain) + poppy.DocumentPath
		handler, err := serve(domain.Document, caching)
		if err != nil {
			return nil, err
		}
		handlers[location] = handler
		for _, alias := range domain.Aliases {
			handlers[poppy.DomainResource(alias)+poppy.DocumentPath] = redirect(location, caching)
		}
	}
	location, err := poppy.MetadataURL(documents.Issuer.Issuer)
	if err != nil {
		return nil, err
	}
	if handlers[location], err = serve(documents.Issuer, caching); err != nil {
		return nil, err
	}
	for _, metadata := range documents.Resources {
		if err := metadata.ValidateForPublishing(); err != nil {
			return nil, fmt.Errorf("the metadata of %s: %w", metadata.Resource, err)
		}
		if location, err = poppy.ResourceMetadataURL(metadata.Resource); err != nil {
			return nil, err
		}
		if handlers[location], err = serve(metadata, caching); err != nil {
			return nil, err
		}
	}
	return handlers, nil
}

// serve writes a document once. It is public, so a page of any origin may read it too.
func serve(document any, caching string) (Handler, error) {
	text, err := strictjson.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("writing a document: %w", err)
	}
	sum := sha256.Sum256(text)
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return func(w http.ResponseWriter, r *http.Request) error {
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Cache-Control", caching)
		header.Set("Etag", etag)
		header.Set("Access-Control-Allow-Origin", "*")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text)) // answers HEAD and If-None-Match
		return nil
	}, nil
}

// redirect leads an alias to the document. Permanently: the alias is configured to mean the domain (3).
func redirect(location, caching string) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Cache-Control", caching)
		http.Redirect(w, r, location, http.StatusPermanentRedirect)
		return nil
	}
}
