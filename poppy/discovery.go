package poppy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"countersign/internal/strictjson"
)

// Types of the entries that the protocol defines (6, 7.1).
const (
	APITypeOpenAPI = "openapi"
	APITypeMCP     = "mcp"
	ProtocolPoppy  = "poppy"
)

// Document is a Company's poppy.json (3.1).
type Document struct {
	ProtocolVersion string       `json:"protocol_version"`
	Organization    Organization `json:"organization"`
	Auth            *Auth        `json:"auth,omitzero"`     // nil only if the website is all there is
	Agent           *Agent       `json:"agent,omitzero"`    // nil: no conversations
	Web             Web          `json:"web,omitzero"`      // zero: the website cannot be joined
	Feedback        *Feedback    `json:"feedback,omitzero"` // nil: no feedback wanted
	APIs            []API        `json:"apis,omitempty"`    // those of unknown types have only their Type
	Extensions      Extensions   `json:"extensions,omitempty"`
}

// Organization says who the Company is.
type Organization struct {
	Name   string `json:"name"`   // shown to the User
	Domain string `json:"domain"` // the host that serves the document
}

// Auth describes the issuer, and so the Company (3.2). It is the same in every document that names the issuer.
type Auth struct {
	Issuer   string            `json:"issuer"`
	Mediated *Mediated         `json:"mediated,omitzero"` // nil: no Mediated Sign-In
	Scopes   map[string]string `json:"scopes,omitempty"`  // descriptions of the Company's own scopes (4.4)
}

// Mediated describes Mediated Sign-In (4.7).
type Mediated struct {
	Endpoint string            `json:"endpoint"`
	Fields   []CredentialField `json:"fields"`
	Scopes   Scopes            `json:"scopes"` // the only ones it can grant
}

// CredentialField is one credential that Mediated Sign-In needs (4.7).
type CredentialField struct {
	Name   string `json:"name"`   // the key in credentials
	Label  string `json:"label"`  // what to ask the User for
	Secret bool   `json:"secret"` // never shown, logged or sent elsewhere; true unless the document says false
}

// UnmarshalJSON takes a field that does not say whether it is secret as secret, the safe side.
func (f *CredentialField) UnmarshalJSON(data []byte) error {
	var wire struct {
		Name   string `json:"name"`
		Label  string `json:"label"`
		Secret *bool  `json:"secret"`
	}
	if err := strictjson.Unmarshal(data, &wire); err != nil {
		return err
	}
	*f = CredentialField{Name: wire.Name, Label: wire.Label, Secret: wire.Secret == nil || *wire.Secret}
	return nil
}

// Agent lists the ways to talk with the Company (7.1).
type Agent struct {
	Protocols []Protocol `json:"protocols"` // those of unknown types have only their Type
}

// Protocol is one conversation protocol (7.1).
type Protocol struct {
	Type     string `json:"type"`
	Endpoint string `json:"endpoint,omitempty"`
	Resource string `json:"resource,omitempty"` // "": any of the Company's DPoP Session Tokens will do (4.3)
}

// UnmarshalJSON keeps only the type of a protocol that is not known here, whatever else the entry has.
func (p *Protocol) UnmarshalJSON(data []byte) error {
	entryType, err := entryType(data)
	if err != nil {
		return err
	}
	if *p = (Protocol{Type: entryType}); !p.Known() {
		return nil
	}
	type plain Protocol
	return strictjson.Unmarshal(data, (*plain)(p))
}

// Known tells whether the type is defined by the protocol; readers skip the others (7.1).
func (p Protocol) Known() bool { return p.Type == ProtocolPoppy }

// Web says how the website is browsed in a Session (5).
type Web struct {
	BrowserSessionEndpoint string `json:"browser_session_endpoint,omitempty"` // "": browse as any visitor
}

// Feedback says where reports go (8).
type Feedback struct {
	Endpoint string `json:"endpoint"`
	Resource string `json:"resource,omitempty"`
}

// API is one API for Personal Agents (6).
type API struct {
	Type        string `json:"type"`
	URL         string `json:"url,omitempty"` // the OpenAPI description, or the MCP server itself
	Description string `json:"description,omitempty"`
	Resource    string `json:"resource,omitempty"`
}

// UnmarshalJSON keeps only the type of an API that is not known here, whatever else the entry has.
func (a *API) UnmarshalJSON(data []byte) error {
	entryType, err := entryType(data)
	if err != nil {
		return err
	}
	if *a = (API{Type: entryType}); !a.Known() {
		return nil
	}
	type plain API
	return strictjson.Unmarshal(data, (*plain)(a))
}

// Known tells whether the type is defined by the protocol; readers skip the others (6).
func (a API) Known() bool { return a.Type == APITypeOpenAPI || a.Type == APITypeMCP }

// TokenResource returns the resource that a token for this API must be issued for, "" if any DPoP Session Token will
// do. For an MCP server it is always its url (4.3).
func (a API) TokenResource() string {
	if a.Type == APITypeMCP {
		return a.URL
	}
	return a.Resource
}

func entryType(data []byte) (string, error) {
	var entry struct {
		Type string `json:"type"`
	}
	err := strictjson.Unmarshal(data, &entry)
	return entry.Type, err
}

// ParseDocument reads a poppy.json as a Personal Agent must. The error is [Problems], or a [*VersionError] if the
// document says that it is of another version than 0.3 and cannot be used here. [CheckLink] is still to be done.
func ParseDocument(data []byte) (Document, error) {
	var version struct {
		ProtocolVersion string `json:"protocol_version"`
	}
	if err := decode(data, MaxMetadataBytes, &version); err != nil {
		return Document{}, err
	}
	if major, ok := majorVersion(version.ProtocolVersion); ok && major != 0 {
		return Document{}, &VersionError{Version: version.ProtocolVersion}
	}
	var d Document
	err := decode(data, MaxMetadataBytes, &d)
	if err == nil {
		err = d.Validate()
	}
	if err != nil {
		d.ProtocolVersion = version.ProtocolVersion
		return Document{}, d.ExplainVersion(err)
	}
	return d, nil
}

// Validate checks what a reader must: any 0.x version with the fields that this package needs (docs/decisions.md).
// Entries of unknown types and extensions that are not known here are not looked at. The error is [Problems].
func (d Document) Validate() error {
	var c checker
	major, ok := majorVersion(d.ProtocolVersion)
	c.require(ok && major == 0, "3.1", "protocol_version", `must be a draft version such as "0.3"`)
	c.require(d.Auth != nil || !d.needsAuth(), "3.2", "auth", "is required: only a website for ordinary visitors can do without an issuer")
	d.check(&c)
	return c.err()
}

func (d Document) check(c *checker) {
	c.require(strings.TrimSpace(d.Organization.Name) != "", "3.1", "organization.name", "is required: the name shown to Users")
	c.rule(CheckDomain(d.Organization.Domain), "3.1", "organization.domain")
	if d.Auth != nil {
		d.Auth.check(c)
	}
	if d.Agent != nil {
		c.require(len(d.Agent.Protocols) > 0, "7.1", "agent.protocols", "must list at least one protocol")
		for i, protocol := range d.Agent.Protocols {
			protocol.check(c, fmt.Sprintf("agent.protocols[%d]", i))
		}
	}
	c.optionalURL(d.Web.BrowserSessionEndpoint, "5", "web.browser_session_endpoint")
	if d.Feedback != nil {
		c.url(d.Feedback.Endpoint, "8", "feedback.endpoint")
		c.optionalURL(d.Feedback.Resource, "4.3", "feedback.resource")
	}
	for i, api := range d.APIs {
		api.check(c, fmt.Sprintf("apis[%d]", i))
	}
	if raw, ok := d.Extensions[ExtensionOperations]; ok {
		checkOperationsEntry(c, raw)
	}
}

// needsAuth tells whether the document offers anything that is used with a Session.
func (d Document) needsAuth() bool {
	return d.Agent != nil || len(d.APIs) > 0 || d.Web != Web{} || d.Feedback != nil || d.Extensions.anyEndpoint()
}

func (a Auth) check(c *checker) {
	_, err := ParseIssuer(a.Issuer)
	c.rule(err, "3.2", "auth.issuer")
	if a.Mediated != nil {
		a.Mediated.check(c)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Scopes)) {
		c.require(ValidScope(name), "4.4", "auth.scopes", "must have scope names as keys: no spaces, quotes and backslashes")
	}
}

func (m Mediated) check(c *checker) {
	c.url(m.Endpoint, "4.7", "auth.mediated.endpoint")
	c.require(len(m.Fields) > 0, "4.7", "auth.mediated.fields", "must list the credentials to ask for")
	seen := make(map[string]bool, len(m.Fields))
	for i, field := range m.Fields {
		place := fmt.Sprintf("auth.mediated.fields[%d]", i)
		c.require(field.Name != "", "4.7", place+".name", "is required: the key that is sent")
		c.require(!seen[field.Name], "4.7", place+".name", "must differ from the names of the other fields")
		c.require(field.Label != "", "4.7", place+".label", "is required: what to ask the User for")
		seen[field.Name] = true
	}
	c.require(len(m.Scopes) > 0, "4.4", "auth.mediated.scopes", "must list the scopes that Mediated Sign-In can grant")
	for i, scope := range m.Scopes {
		c.require(ValidScope(scope), "4.4", fmt.Sprintf("auth.mediated.scopes[%d]", i), "must be one scope: no spaces, quotes and backslashes")
	}
}

func (p Protocol) check(c *checker, place string) {
	c.require(p.Type != "", "7.1", place+".type", "is required")
	if p.Known() {
		c.url(p.Endpoint, "7.1", place+".endpoint")
		c.optionalURL(p.Resource, "4.3", place+".resource")
	}
}

func (a API) check(c *checker, place string) {
	c.require(a.Type != "", "6", place+".type", "is required")
	if a.Known() {
		c.url(a.URL, "6", place+".url")
		c.optionalURL(a.Resource, "4.3", place+".resource")
	}
}

// ValidateForPublishing checks what a Company must hold to in addition, so that every Personal Agent can use the
// document. [CheckPublication] compares it with the issuer's metadata. The error is [Problems].
func (d Document) ValidateForPublishing() error {
	var c checker
	c.require(d.ProtocolVersion == Version, "3.1", "protocol_version", `must be "`+Version+`"`)
	c.require(d.Auth != nil, "3.2", "auth", "is required")
	d.check(&c)
	if d.Auth != nil {
		for _, name := range slices.Sorted(maps.Keys(d.Auth.Scopes)) {
			c.require(!strings.HasPrefix(name, ReservedScopePrefix), "4.4", "auth.scopes", "must not name scopes that start with poppy:, they are the protocol's")
			c.require(strings.TrimSpace(d.Auth.Scopes[name]) != "", "4.4", "auth.scopes", "must describe every scope that it names")
		}
	}
	if d.Agent != nil {
		for i, protocol := range d.Agent.Protocols {
			if !protocol.Known() {
				c.url(protocol.Endpoint, "3", fmt.Sprintf("agent.protocols[%d].endpoint", i))
			}
		}
	}
	for i, api := range d.APIs {
		place := fmt.Sprintf("apis[%d]", i)
		c.require(api.Known(), "6", place+".type", "must be openapi or mcp")
		c.require(strings.TrimSpace(api.Description) != "", "6", place+".description", "is required: what the API is for")
		c.require(api.Type != APITypeMCP || api.Resource == "" || api.Resource == api.URL, "4.3", place+".resource", "must be the url for an MCP server")
	}
	d.Extensions.checkForPublishing(&c)
	return c.err()
}

// Issuer returns auth.issuer, "" for a document without auth.
func (d Document) Issuer() string {
	if d.Auth == nil {
		return ""
	}
	return d.Auth.Issuer
}

// Conversations returns the entry of the conversation protocol that is spoken here, if the Company offers it (7.1).
func (d Document) Conversations() (Protocol, bool) {
	if d.Agent == nil {
		return Protocol{}, false
	}
	i := slices.IndexFunc(d.Agent.Protocols, Protocol.Known)
	if i < 0 {
		return Protocol{}, false
	}
	return d.Agent.Protocols[i], true
}

// KnownAPIs returns the APIs of the types that the protocol defines, in their order (6).
func (d Document) KnownAPIs() []API {
	return slices.DeleteFunc(slices.Clone(d.APIs), func(api API) bool { return !api.Known() })
}

// Equal tells whether two documents that name one issuer describe it the same way, as they must (3.2).
func (a Auth) Equal(other Auth) bool {
	if a.Issuer != other.Issuer || !maps.Equal(a.Scopes, other.Scopes) || (a.Mediated == nil) != (other.Mediated == nil) {
		return false
	}
	return a.Mediated == nil || a.Mediated.Endpoint == other.Mediated.Endpoint &&
		slices.Equal(a.Mediated.Fields, other.Mediated.Fields) && a.Mediated.Scopes.Equal(other.Mediated.Scopes)
}

// majorVersion reads major.minor, both whole numbers.
func majorVersion(version string) (major int, ok bool) {
	first, second, ok := strings.Cut(version, ".")
	if !ok || !isDigits(first) || !isDigits(second) {
		return 0, false
	}
	major, err := strconv.Atoi(first)
	return major, err == nil
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
