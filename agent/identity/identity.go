// Package identity is who a Personal Agent is to Companies: its client_id, the two documents that it publishes there, and
// the keys that sign its assertions (section 4.1).
//
// [Open] makes the first key, [Identity.Handler] serves the documents, or [Identity.Export] writes them to be hosted
// anywhere, and [Identity.Signer] signs. The keys are in the vault and are read from there at each use, so that a key
// rotated by one process is seen by all.
package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"time"

	"countersign/agent/vault"
	"countersign/assertion"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// Options says who the Personal Agent is. Everything but the vault and the clock is public.
type Options struct {
	// Vault keeps the signing keys.
	Vault *vault.Vault
	// ClientID is the https URL of the client metadata document, such as https://agent.example/agent.json.
	ClientID string
	// Name is shown to Users on Companies' pages.
	Name string
	// LogoURI is the https URL of a picture for the same pages; "" for none.
	LogoURI string
	// RedirectURIs are where Direct Sign-In may send the User back to: https URLs on the domain of ClientID. None without
	// Direct Sign-In.
	RedirectURIs []string
	// JWKSURI is the https URL of the key set, on the domain of ClientID; jwks.json beside ClientID by default.
	JWKSURI string
	// Log takes a line for each request to [Identity.Handler]; none by default.
	Log *slog.Logger
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Identity is a Personal Agent's identity. Its methods may be called concurrently.
type Identity struct {
	metadata  poppy.ClientMetadata
	published []byte // metadata as it is served
	keys      store
	log       *slog.Logger
	now       func() time.Time
}

// Open checks that Companies will accept the identity, and makes its first signing key if the vault has none. What is
// wrong with the options is a [poppy.Problems].
func Open(ctx context.Context, options Options) (*Identity, error) {
	i := &Identity{
		metadata: poppy.ClientMetadata{
			ClientID:                options.ClientID,
			ClientName:              options.Name,
			LogoURI:                 options.LogoURI,
			JWKSURI:                 cmp.Or(options.JWKSURI, beside(options.ClientID, "jwks.json")),
			RedirectURIs:            slices.Clone(options.RedirectURIs),
			TokenEndpointAuthMethod: poppy.AuthMethodPrivateKeyJWT,
			Extensions:              poppy.Extensions{},
		},
		keys: store{options.Vault},
		log:  options.Log,
		now:  options.Now,
	}
	if i.log == nil {
		i.log = slog.New(slog.DiscardHandler)
	}
	if i.now == nil {
		i.now = time.Now
	}
	err := i.metadata.Extensions.Set(poppy.ExtensionOperations, map[string]string{"version": poppy.OperationsVersion})
	if err != nil {
		return nil, err
	}
	if err := i.metadata.ValidateForPublishing(); err != nil {
		return nil, fmt.Errorf("the identity cannot be published: %w", err)
	}
	if pathOf(i.metadata.JWKSURI) == pathOf(i.metadata.ClientID) {
		return nil, errors.New("the identity cannot be published: client_id and jwks_uri have the same path, but are two documents")
	}
	if i.published, err = strictjson.Marshal(i.metadata); err != nil {
		return nil, err
	}
	if err := i.keys.open(ctx, i.now()); err != nil {
		return nil, fmt.Errorf("opening the signing keys: %w", err)
	}
	return i, nil
}

// beside returns the URL of another file in the folder of a URL; what is no URL is left to the checks.
func beside(text, name string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.Path, u.RawPath, u.RawQuery = path.Join("/", path.Dir(u.Path), name), "", ""
	return u.String()
}

// pathOf returns the path of a URL that was checked before.
func pathOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return cmp.Or(u.Path, "/")
}

// ClientID returns the client_id.
func (i *Identity) ClientID() string { return i.metadata.ClientID }

// RedirectURIs returns where Direct Sign-In may send the User back to.
func (i *Identity) RedirectURIs() []string { return slices.Clone(i.metadata.RedirectURIs) }

// Signer returns what signs assertions now: with the newest key that every Company can have read.
func (i *Identity) Signer(ctx context.Context) (*assertion.Signer, error) {
	keys, err := i.keys.all(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the signing keys: %w", err)
	}
	return assertion.NewSigner(i.metadata.ClientID, signing(keys, i.now()).key)
}

// Rotate adds a new key. It is published at once, signs an hour later, and the one before it stays published for another
// hour, so that no Company meets an assertion whose key it cannot find. A key set that was exported must be exported and
// hosted again after both steps.
func (i *Identity) Rotate(ctx context.Context) error {
	if err := i.keys.rotate(ctx, i.now()); err != nil {
		return fmt.Errorf("rotating the signing key: %w", err)
	}
	return nil
}

// keySet returns the document at jwks_uri.
func (i *Identity) keySet(ctx context.Context) ([]byte, error) {
	keys, err := i.keys.all(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the signing keys: %w", err)
	}
	var public []*assertion.Key
	for _, k := range published(keys, i.now()) {
		public = append(public, k.key)
	}
	return assertion.MarshalKeySet(public...)
}
