package company

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"countersign/company/registry"
	"countersign/dpop"
	"countersign/poppy"
)

// Config is a Company as its operator describes it: plain values, of which a zero one means what its comment says.
// A limit of 0 is the default, a negative one is none.
type Config struct {
	// Issuer is the URL that identifies the Company (3.2). Companies never share one.
	Issuer string
	// Domains are the Company's domains, at least one. Each publishes a poppy.json of its own, with the same auth.
	Domains []Domain
	// TokenEndpoint is where tokens are issued; {issuer}/oauth/token by default.
	TokenEndpoint string
	// RevocationEndpoint is where tokens are revoked; {issuer}/oauth/revoke by default.
	RevocationEndpoint string
	// Conversations is the endpoint of conversations (7); without URL the Company offers none.
	Conversations Endpoint
	// Operations is the endpoint of the Operations extension; without URL the Company does not support it.
	Operations Endpoint
	// Scopes are all the account scopes that a Personal Agent can be granted (4.4).
	Scopes []Scope
	// Resources are further resources that tokens can be asked for (RFC 8707), such as services of the Company's own that
	// are behind its guard.
	Resources []string
	// DocumentMaxAge is how long others may keep the Company's documents; 1 h by default.
	DocumentMaxAge time.Duration

	Proof Proof
	// TokenLifetime is that of a Session Token, at most 24 h; 1 h by default.
	TokenLifetime time.Duration
	// SessionLifetime is how long a Session lasts after its last token was issued; 30 days by default.
	SessionLifetime time.Duration

	Agents Agents
	Limits Limits
}

// Domain is one of the Company's domains, and what its poppy.json says in particular.
type Domain struct {
	// Host is the domain itself, such as outdoor.example: the host that serves the document.
	Host string
	// Name is the Company's name, for Users to read.
	Name string
	// Aliases are other hosts, such as www.outdoor.example, whose well-known URL redirects to that of Host.
	Aliases []string
	// APIs are the APIs for Personal Agents (6).
	APIs []API
}

// API is one API of the Company (6).
type API struct {
	// Type is openapi or mcp.
	Type string
	// URL is that of the OpenAPI description, or of the MCP server itself.
	URL string
	// Description says what the API is for.
	Description string
	// Resource is what tokens must be issued for, if not any of the Company's will do. An MCP server has none: its URL is it.
	Resource string
	// BearerOnly is for an MCP server whose software cannot verify DPoP Proofs yet. It gets Bearer tokens, of which a copy is
	// as good as the original.
	BearerOnly bool
}

// Endpoint is an endpoint of the protocol.
type Endpoint struct {
	URL string
	// Resource is what tokens must be issued for, if not any of the Company's will do (4.3).
	Resource string
}

// Scope is an account scope (4.4).
type Scope struct {
	Name string
	// Description says what it allows. Only the Company's own scopes have one, unless a listed OpenAPI description does it.
	Description string
}

// NonceUse says where proofs need a nonce (4.3).
type NonceUse string

// Where proofs need a nonce.
const (
	NoncesOff        NonceUse = "off"        // nowhere
	NoncesToken      NonceUse = "token"      // at the token endpoint
	NoncesEverywhere NonceUse = "everywhere" // there and wherever a DPoP Session Token is used
)

// Proof says which DPoP Proofs are accepted (4.3).
type Proof struct {
	// Algorithms are the accepted ones, ES256 among them; ES256 alone by default.
	Algorithms []string
	// Window is how long after it was made a proof is accepted, at most 10 min; 1 min by default.
	Window time.Duration
	// Nonces says where a nonce is needed; off by default.
	Nonces NonceUse
	// NonceLifetime is how long a nonce is accepted; 5 min by default.
	NonceLifetime time.Duration
}

// Agents says which Personal Agents may come (4.1).
type Agents struct {
	// Mode is open or allowlist; open by default. Who is allowed or blocked lies in the database.
	Mode registry.Mode
	// NewPerHour is how many that were never here before may come within an hour; 1,000 by default.
	NewPerHour int
}

// Limits bounds what Personal Agents can ask for.
type Limits struct {
	// StartsPerMinute is how many Sessions one Personal Agent may start in a minute; 600 by default.
	StartsPerMinute int
	// RequestsPerMinute is how many requests one Session may send in a minute; 600 by default.
	RequestsPerMinute int
	// UnknownFetchesPerMinute is how many documents of Personal Agents that were never here before are fetched in a minute;
	// 120 by default.
	UnknownFetchesPerMinute int
	// CachedAgents is how many Personal Agents' documents are kept in memory; 1,000 by default.
	CachedAgents int
}

const (
	maxTokenLifetime = 24 * time.Hour // Session Tokens last hours, not days (4.2)
	maxProofWindow   = 10 * time.Minute
)

// Mistake is one thing that is wrong with a [Config].
type Mistake struct {
	Field string // where, such as domains[0].apis[1].url
	What  string // what is wrong, in words that follow the field's name
	Fix   string // what to write instead
}

// Error returns all three.
func (m *Mistake) Error() string { return m.Field + " " + m.What + "; " + m.Fix }

// Mistakes is everything that is wrong with a [Config], in the order of its fields.
type Mistakes []*Mistake

// Error returns a line for each.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, mistake := range m {
		lines[i] = mistake.Error()
	}
	return strings.Join(lines, "\n")
}

func (m *Mistakes) add(ok bool, field, what, fix string) {
	if !ok {
		*m = append(*m, &Mistake{field, what, fix})
	}
}

// withDefaults returns the configuration with every default filled in.
func (c Config) withDefaults() Config {
	base := strings.TrimSuffix(c.Issuer, "/")
	c.TokenEndpoint = cmp.Or(c.TokenEndpoint, base+"/oauth/token")
	c.RevocationEndpoint = cmp.Or(c.RevocationEndpoint, base+"/oauth/revoke")
	c.DocumentMaxAge = cmp.Or(c.DocumentMaxAge, time.Hour)
	if len(c.Proof.Algorithms) == 0 {
		c.Proof.Algorithms = []string{poppy.AlgorithmES256}
	}
	c.Proof.Window = cmp.Or(c.Proof.Window, time.Minute)
	c.Proof.Nonces = cmp.Or(c.Proof.Nonces, NoncesOff)
	c.Proof.NonceLifetime = cmp.Or(c.Proof.NonceLifetime, dpop.DefaultNonceLifetime)
	c.TokenLifetime = cmp.Or(c.TokenLifetime, time.Hour)
	c.SessionLifetime = cmp.Or(c.SessionLifetime, 30*24*time.Hour)
	c.Agents.Mode = cmp.Or(c.Agents.Mode, registry.Open)
	c.Agents.NewPerHour = limitOr(c.Agents.NewPerHour, 1000)
	c.Limits.StartsPerMinute = limitOr(c.Limits.StartsPerMinute, 600)
	c.Limits.RequestsPerMinute = limitOr(c.Limits.RequestsPerMinute, 600)
	c.Limits.UnknownFetchesPerMinute = limitOr(c.Limits.UnknownFetchesPerMinute, 120)
	c.Limits.CachedAgents = cmp.Or(c.Limits.CachedAgents, 1000)
	return c
}

// limitOr returns the default for 0 and 0, which the rooms take as no limit, for a negative limit.
func limitOr(limit, byDefault int) int { return max(0, cmp.Or(limit, byDefault)) }

// Validate returns [Mistakes] with everything that is wrong, or nil.
func (c Config) Validate() error {
	written := c
	c = c.withDefaults()
	var m Mistakes
	_, err := poppy.ParseIssuer(c.Issuer)
	m.rule(err, "issuer", "write the URL that identifies the Company, such as https://auth.outdoor.example")
	m.add(len(c.Domains) > 0, "domains", "has no entry", "add the Company's domain, such as outdoor.example")
	for i, domain := range c.Domains {
		domain.check(&m, fmt.Sprintf("domains[%d]", i))
	}
	if err == nil || written.TokenEndpoint != "" { // the default follows from the issuer
		m.endpoint(c.TokenEndpoint, "token_endpoint")
	}
	if err == nil || written.RevocationEndpoint != "" {
		m.endpoint(c.RevocationEndpoint, "revocation_endpoint")
	}
	c.Conversations.check(&m, "conversations")
	c.Operations.check(&m, "operations")
	for i, scope := range c.Scopes {
		scope.check(&m, fmt.Sprintf("scopes[%d]", i))
	}
	for i, resource := range c.Resources {
		_, err := poppy.ParseURL(resource)
		m.rule(err, fmt.Sprintf("resources[%d]", i), "write the service's URL")
	}
	c.checkResources(&m)
	m.add(c.DocumentMaxAge >= time.Second, "document_max_age", "is too short", "write at least 1s")
	c.Proof.check(&m)
	m.add(c.TokenLifetime >= time.Second && c.TokenLifetime%time.Second == 0, "token_lifetime",
		"is not a number of whole seconds", `write a time such as "1h"`)
	m.add(c.TokenLifetime <= maxTokenLifetime, "token_lifetime",
		"is longer than 24h, though Session Tokens last hours, not days (section 4.2)", `write a time such as "1h"`)
	m.add(c.SessionLifetime >= c.TokenLifetime, "session_lifetime",
		"is shorter than token_lifetime, though a token ends with its Session", "write a longer time")
	m.add(c.Agents.Mode == registry.Open || c.Agents.Mode == registry.Allowlist, "agents.mode", "is not a mode", "write open or allowlist")
	m.add(c.Limits.CachedAgents > 0, "limits.cached_agents", "is negative", "write a number of agents, or leave it out")
	if len(m) > 0 {
		return m
	}
	return nil
}

// rule adds the mistake that err describes, if any. Its text is a rule, as those of [poppy.ParseURL] are.
func (m *Mistakes) rule(err error, field, fix string) {
	if err != nil {
		m.add(false, field, err.Error(), fix)
	}
}

// endpoint requires a URL that can be served here: one exact path, which a request's path can be compared with.
func (m *Mistakes) endpoint(text, field string) {
	const fix = "write a URL such as https://api.outdoor.example/poppy/conversations"
	u, err := poppy.ParseURL(text)
	if err != nil {
		m.rule(err, field, fix)
		return
	}
	m.add(u.RawQuery == "" && !u.ForceQuery, field, "must be a URL without query (?)", fix)
	m.add(len(u.Path) > 1 && path.Clean(u.Path) == u.Path && strings.Trim(u.Path, pathLetters) == "", field,
		"must be a URL with a path of letters, digits, - . _ ~ and single slashes, without one at its end", fix)
}

const pathLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/"

func (d Domain) check(m *Mistakes, field string) {
	m.rule(poppy.CheckDomain(d.Host), field+".host", "write the host name alone, such as outdoor.example")
	m.add(strings.TrimSpace(d.Name) != "", field+".name", "is missing", "write the name that Users know the Company by")
	for i, alias := range d.Aliases {
		place := fmt.Sprintf("%s.aliases[%d]", field, i)
		m.rule(poppy.CheckDomain(alias), place, "write the host name alone, such as www.outdoor.example")
		m.add(!strings.EqualFold(alias, d.Host), place, "is the domain itself", "remove it")
	}
	for i, api := range d.APIs {
		api.check(m, fmt.Sprintf("%s.apis[%d]", field, i))
	}
}

func (a API) check(m *Mistakes, field string) {
	m.add(a.Type == poppy.APITypeOpenAPI || a.Type == poppy.APITypeMCP, field+".type", "is not a type of API", "write openapi or mcp")
	_, err := poppy.ParseURL(a.URL)
	m.rule(err, field+".url", "write the URL of the OpenAPI description or of the MCP server")
	m.add(strings.TrimSpace(a.Description) != "", field+".description", "is missing", "say what the API is for")
	if a.Resource != "" {
		_, err := poppy.ParseURL(a.Resource)
		m.rule(err, field+".resource", "write the URL that tokens for this API are issued for")
	}
	m.add(a.Type != poppy.APITypeMCP || a.Resource == "" || a.Resource == a.URL, field+".resource",
		"is not the MCP server's url, which is what its tokens are issued for (section 4.3)", "remove it")
	m.add(!a.BearerOnly || a.Type == poppy.APITypeMCP, field+".bearer_only", "is for MCP servers alone (section 4.3)", "remove it")
}

func (e Endpoint) check(m *Mistakes, field string) {
	if e.URL == "" {
		m.add(e.Resource == "", field+".resource", "has no endpoint beside it", "write the endpoint's url too, or remove it")
		return
	}
	m.endpoint(e.URL, field+".url")
	if e.Resource != "" {
		_, err := poppy.ParseURL(e.Resource)
		m.rule(err, field+".resource", "write the URL that tokens for this endpoint are issued for")
	}
}

func (s Scope) check(m *Mistakes, field string) {
	m.add(poppy.ValidScope(s.Name), field+".name", "is not a scope", `write one without spaces, " and \, such as addresses`)
	m.add(!poppy.ReservedScope(s.Name), field+".name", "starts with poppy:, which only the protocol may use (section 4.4)",
		"write another name, or poppy:read or poppy:write")
	m.add(s.Description == "" || !strings.HasPrefix(s.Name, poppy.ReservedScopePrefix), field+".description",
		"is given, though the protocol says what this scope means", "remove it")
}

func (p Proof) check(m *Mistakes) {
	for i, algorithm := range p.Algorithms {
		m.add(slices.Contains(dpop.Algorithms(), algorithm), fmt.Sprintf("proof.algorithms[%d]", i), "is not supported",
			"choose from "+strings.Join(dpop.Algorithms(), ", "))
	}
	m.add(slices.Contains(p.Algorithms, poppy.AlgorithmES256), "proof.algorithms", "must include ES256 (section 3.2)", "add ES256")
	m.add(p.Window >= time.Second && p.Window <= maxProofWindow, "proof.window", "is not between 1s and 10m", `write a time such as "1m"`)
	m.add(p.Nonces == NoncesOff || p.Nonces == NoncesToken || p.Nonces == NoncesEverywhere, "proof.nonces",
		"is not a place", "write off, token or everywhere")
	m.add(p.NonceLifetime >= time.Second, "proof.nonce_lifetime", "is too short", `write a time such as "5m"`)
}

// checkResources finds a resource that would have to take Bearer and DPoP tokens alike: a Bearer token works at one MCP
// server and nowhere else (4.3).
func (c Config) checkResources(m *Mistakes) {
	types := make(map[string]poppy.TokenType)
	for _, use := range c.resources() {
		earlier, used := types[use.name]
		m.add(!used || earlier == use.tokenType, use.field,
			"is also a resource that takes tokens of the other type, DPoP or Bearer (section 4.3)", "give each its own URL")
		types[use.name] = use.tokenType
	}
}

// resourceUse is a resource that tokens can be asked for, and where the configuration says so.
type resourceUse struct {
	name      string
	tokenType poppy.TokenType
	field     string
}

// resources lists every resource with the type of token that it takes (4.3), in the order of the configuration.
func (c Config) resources() []resourceUse {
	var uses []resourceUse
	for i, domain := range c.Domains {
		for j, api := range domain.APIs {
			place := fmt.Sprintf("domains[%d].apis[%d]", i, j)
			switch {
			case api.Type == poppy.APITypeMCP && api.BearerOnly:
				uses = append(uses, resourceUse{api.URL, poppy.TokenBearer, place + ".url"})
			case api.Type == poppy.APITypeMCP:
				uses = append(uses, resourceUse{api.URL, poppy.TokenDPoP, place + ".url"})
			case api.Resource != "":
				uses = append(uses, resourceUse{api.Resource, poppy.TokenDPoP, place + ".resource"})
			}
		}
	}
	if c.Conversations.Resource != "" {
		uses = append(uses, resourceUse{c.Conversations.Resource, poppy.TokenDPoP, "conversations.resource"})
	}
	if c.Operations.Resource != "" {
		uses = append(uses, resourceUse{c.Operations.Resource, poppy.TokenDPoP, "operations.resource"})
	}
	for i, resource := range c.Resources {
		uses = append(uses, resourceUse{resource, poppy.TokenDPoP, fmt.Sprintf("resources[%d]", i)})
	}
	return uses
}
