// Package agent is the Personal Agent's side of the Personal Agent Protocol, draft 0.3, and its Operations extension: a
// library for whoever makes an agent that works with Companies on its Users' behalf.
//
// [New] opens an [Agent], whose rooms are named like the protocol's sections: Discovery finds a Company by its domain,
// Sessions open a User's Session there and send requests in it, Conversations talk with the Company, and Operations ask the
// User for the terms of an action and confirm it. Identity publishes who the agent is.
//
// Everything that must survive a restart is in one encrypted vault. No token, key or credential is ever part of an error, a
// log line or a URL, and every text that a Company wrote is marked as a quotation (package quote).
package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"countersign/agent/conversation"
	"countersign/agent/discovery"
	"countersign/agent/identity"
	"countersign/agent/operation"
	"countersign/agent/session"
	"countersign/agent/vault"
	"countersign/internal/fetch"
)

// Options say who the agent is and where it keeps its state.
type Options struct {
	// VaultFile is the file of the vault, KeyFile that of its keys. Both are created when they do not exist.
	VaultFile, KeyFile string

	// ClientID is the https URL at which the agent publishes its metadata document, such as https://agent.example/agent.json.
	// Name, LogoURI and RedirectURIs are what that document says of it (4.1); the last two may be empty.
	ClientID     string
	Name         string
	LogoURI      string
	RedirectURIs []string

	// Network says which exceptions to make for a Company on the developer's own machine. None by default.
	Network Network

	// Log takes what happens in the background; none by default. It never gets a secret.
	Log *slog.Logger
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Network names exceptions to the rule that a Company's URLs are only used over HTTPS at public addresses (section 3).
type Network struct {
	// Resolve sends single hosts to other addresses, which then may be private: HOST=ADDR:PORT or HOST:PORT=ADDR:PORT.
	Resolve []string
	// Allow lists networks that may be connected to although they are not public.
	Allow []netip.Prefix
	// Authorities replaces the system's certificate authorities.
	Authorities *x509.CertPool
}

// Agent is a Personal Agent. Its rooms may be used concurrently.
type Agent struct {
	Identity      *identity.Identity
	Discovery     *discovery.Resolver
	Sessions      *session.Service
	Conversations *conversation.Service
	Operations    *operation.Service

	vault  *vault.Vault
	client *fetch.Client
}

// New opens an agent. Its errors say what to change. Close the agent when done.
func New(ctx context.Context, options Options) (*Agent, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	network := fetch.Options{Allow: options.Network.Allow, Authorities: options.Network.Authorities, Now: options.Now}
	for _, text := range options.Network.Resolve {
		mapping, err := fetch.ParseResolve(text)
		if err != nil {
			return nil, err
		}
		network.Resolve = append(network.Resolve, mapping)
	}
	kept, err := vault.Open(ctx, options.VaultFile, options.KeyFile)
	if err != nil {
		return nil, err
	}
	a := &Agent{vault: kept, client: fetch.New(network)}
	if err := a.open(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the agent: %w", err), a.Close())
	}
	return a, nil
}

// open joins the rooms, from those that rest on nothing to those that rest on others.
func (a *Agent) open(ctx context.Context, options Options) (err error) {
	a.Discovery = discovery.New(a.client, options.Now)
	if a.Identity, err = identity.Open(ctx, identity.Options{
		Vault: a.vault, ClientID: options.ClientID, Name: options.Name, LogoURI: options.LogoURI,
		RedirectURIs: options.RedirectURIs, Log: options.Log, Now: options.Now,
	}); err != nil {
		return err
	}
	if a.Sessions, err = session.New(ctx, session.Options{
		Vault: a.vault, Identity: a.Identity, Client: a.client, Log: options.Log, Now: options.Now,
	}); err != nil {
		return err
	}
	if a.Operations, err = operation.New(ctx, operation.Options{Vault: a.vault, Now: options.Now}); err != nil {
		return err
	}
	a.Conversations, err = conversation.New(ctx, conversation.Options{
		Vault: a.vault, Operations: a.Operations, Log: options.Log, Now: options.Now,
	})
	return err
}

// Close closes the vault and the connections. Nothing may be in use any more.
func (a *Agent) Close() error {
	a.client.Close()
	return a.vault.Close()
}
