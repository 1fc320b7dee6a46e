// Package discovery finds a Company by its domain, and establishes that the domain and the issuer belong to each other
// before anything else is used (section 3).
//
// [Resolver.Resolve] returns a [Company], the value that every other room of the agent starts from.
package discovery

import (
	"countersign/poppy"
)

// Company is a Company as one of its domains describes it. Whoever has one can rely on the checks of section 3: the
// document speaks for Domain, and the issuer knows that domain. It is a value; its documents are not to be changed.
type Company struct {
	Domain   string               // the host that serves the document, in lower case; the issuer is the identity, not this
	Name     string               // as the Company calls itself, to show to the User together with Domain
	Issuer   string               // auth.issuer, which identifies the Company (3.2); "" if it has only a website
	Version  string               // protocol_version of the document
	Document poppy.Document       // poppy.json
	Metadata poppy.IssuerMetadata // the issuer's metadata; zero without an issuer
	Steps    []Step               // what was fetched and checked, in order
}

// Kind says what an endpoint is for.
type Kind string

// The kinds of endpoints, as the documents name them.
const (
	Token               Kind = "token"                // 4.2
	Revocation          Kind = "revocation"           // 4.9
	Authorization       Kind = "authorization"        // 4.5, opened in the User's browser
	DeviceAuthorization Kind = "device_authorization" // 4.6
	MediatedSignIn      Kind = "mediated"             // 4.7
	BrowserSession      Kind = "browser_session"      // 5, opened in the agent's browser
	OpenAPI             Kind = "openapi"              // 6, the API's description
	MCP                 Kind = "mcp"                  // 6
	Conversations       Kind = "conversations"        // 7
	Feedback            Kind = "feedback"             // 8
	Operations          Kind = "operations"           // Operations 2
)

// Endpoint is one place where the Company is asked for something.
type Endpoint struct {
	Kind        Kind
	URL         string
	Resource    string // what a Session Token for it must be issued for; "" if the Session's general one will do (4.3)
	Description string // of an API, in the Company's words
}

// Endpoints returns everything that the Company offers in a form known here, in the order of the sections. A Company can
// have several APIs, and one of everything else.
func (c Company) Endpoints() []Endpoint {
	var all []Endpoint
	add := func(e Endpoint) {
		if e.URL != "" {
			all = append(all, e)
		}
	}
	add(Endpoint{Kind: Token, URL: c.Metadata.TokenEndpoint})
	add(Endpoint{Kind: Revocation, URL: c.Metadata.RevocationEndpoint})
	if c.Metadata.OffersDirectSignIn() {
		add(Endpoint{Kind: Authorization, URL: c.Metadata.AuthorizationEndpoint})
	}
	if c.Metadata.OffersDeviceSignIn() {
		add(Endpoint{Kind: DeviceAuthorization, URL: c.Metadata.DeviceAuthorizationEndpoint})
	}
	if auth := c.Document.Auth; auth != nil && auth.Mediated != nil {
		add(Endpoint{Kind: MediatedSignIn, URL: auth.Mediated.Endpoint})
	}
	add(Endpoint{Kind: BrowserSession, URL: c.Document.Web.BrowserSessionEndpoint})
	for _, api := range c.Document.KnownAPIs() {
		add(Endpoint{Kind: Kind(api.Type), URL: api.URL, Resource: api.TokenResource(), Description: api.Description})
	}
	if p, ok := c.Document.Conversations(); ok {
		add(Endpoint{Kind: Conversations, URL: p.Endpoint, Resource: p.Resource})
	}
	if f := c.Document.Feedback; f != nil {
		add(Endpoint{Kind: Feedback, URL: f.Endpoint, Resource: f.Resource})
	}
	if o, ok := c.Document.Extensions.Operations(); ok {
		add(Endpoint{Kind: Operations, URL: o.Endpoint, Resource: o.Resource})
	}
	return all
}

// Endpoint returns the Company's first endpoint of a kind, and whether it has one.
func (c Company) Endpoint(kind Kind) (Endpoint, bool) {
	for _, e := range c.Endpoints() {
		if e.Kind == kind {
			return e, true
		}
	}
	return Endpoint{}, false
}
