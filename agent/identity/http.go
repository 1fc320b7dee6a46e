package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/internal/web"
)

// Handler serves the two documents at the paths of client_id and jwks_uri, for any host name, with headers that let
// Companies keep them for five minutes. Everything else is 404.
func (i *Identity) Handler() http.Handler {
	mux := web.NewMux(web.MuxOptions{Log: i.log})
	mux.Handle("GET /", func(w http.ResponseWriter, r *http.Request) error {
		documents := i.documents()
		at := slices.IndexFunc(documents, func(d document) bool { return d.path == r.URL.Path })
		if at < 0 {
			return web.NotFound()
		}
		text, err := documents[at].read(r.Context())
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(maxAge.Seconds())))
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text)) // answers If-None-Match and HEAD
		return nil
	})
	return mux
}

// document is one of the two that are published.
type document struct {
	path string
	read func(context.Context) ([]byte, error)
}

func (i *Identity) documents() []document {
	return []document{
		{pathOf(i.metadata.ClientID), func(context.Context) ([]byte, error) { return i.published, nil }},
		{pathOf(i.metadata.JWKSURI), i.keySet},
	}
}

// Export writes the two documents into files below dir, at the paths that their URLs have below the host, to be hosted by
// any web server. It returns the names of the files: the client metadata, then the key set.
func (i *Identity) Export(ctx context.Context, dir string) ([]string, error) {
	var files []string
	for _, d := range i.documents() {
		name := filepath.FromSlash(strings.TrimPrefix(d.path, "/"))
		if strings.HasSuffix(d.path, "/") || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s is not the path of a file: give client_id and jwks_uri a path such as /agent.json", d.path)
		}
		text, err := d.read(ctx)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // for everyone to read
			return nil, fmt.Errorf("exporting the documents: %w", err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // for everyone to read
			return nil, fmt.Errorf("exporting the documents: %w", err)
		}
		files = append(files, file)
	}
	return files, nil
}
