package poppy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// VersionError says that a Company's documents are of a version of the protocol that is not spoken here.
type VersionError struct {
	Version string // protocol_version as the document has it
	Cause   error  // what could not be used; nil if the version alone rules the document out
}

// Error names both versions, and the cause if there is one.
func (e *VersionError) Error() string {
	text := fmt.Sprintf("unsupported version: the document says protocol_version %q, and %q is spoken here", e.Version, Version)
	if e.Cause != nil {
		text += "\n" + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *VersionError) Unwrap() error { return e.Cause }

// ExplainVersion returns err, inside a [*VersionError] if the document says that it is not of version 0.3: the likeliest
// reason why it, or its issuer's metadata, could not be used. A version that cannot be read explains nothing.
func (d Document) ExplainVersion(err error) error {
	if _, ok := majorVersion(d.ProtocolVersion); err == nil || !ok || d.ProtocolVersion == Version {
		return err
	}
	return &VersionError{Version: d.ProtocolVersion, Cause: err}
}

// LinkFault is which part of the link between a domain and an issuer does not hold (3).
type LinkFault string

// The parts of the link, in the order in which they are checked.
const (
	WrongHost       LinkFault = "wrong_host"        // the document is about another host than the one that served it
	IssuerDiffers   LinkFault = "issuer_differs"    // the metadata is another issuer's
	DomainNotListed LinkFault = "domain_not_listed" // the issuer does not know the domain
)

// LinkError says why a document cannot be used with its issuer's metadata. All its strings are public, and are shown
// as they are, since the difference is often one character.
type LinkError struct {
	Fault  LinkFault
	Want   string   // what had to be there
	Found  string   // what was there; for DomainNotListed the entry that comes nearest, "" if none does
	Listed []string // for DomainNotListed: protected_resources
}

// Error tells what differs and who can put it right.
func (e *LinkError) Error() string {
	switch e.Fault {
	case WrongHost:
		return fmt.Sprintf("organization.domain is %q, but the document was served by %q: a poppy.json speaks only for the host that serves it (section 3)", e.Found, e.Want)
	case IssuerDiffers:
		return fmt.Sprintf("auth.issuer is %q, but the metadata found there says issuer %q: both must be the same to the character (section 3.2)", e.Want, e.Found)
	case DomainNotListed:
		if e.Found != "" {
			return fmt.Sprintf("protected_resources in the issuer's metadata lists %q, but must list %q, exactly in that form (section 3.2)", e.Found, e.Want)
		}
		return fmt.Sprintf("protected_resources in the issuer's metadata does not list %q: the issuer must name every domain it belongs to (section 3.2)", e.Want)
	}
	return string(e.Fault)
}

// CheckLink checks both directions of the link between a domain and its issuer, which must hold before the document is
// used (3): the document is about the host servedBy, which served it after all redirects and has a port only if that is
// not 443; the metadata is that of auth.issuer, to the character; and the issuer lists the domain. The error is a [*LinkError], inside a
// [*VersionError] if the document is of another version. A document without auth has only the first direction.
func CheckLink(d Document, servedBy string, m IssuerMetadata) error {
	if !SpeaksForHost(d.Organization.Domain, servedBy) {
		return &LinkError{Fault: WrongHost, Want: servedBy, Found: d.Organization.Domain}
	}
	if d.Auth == nil {
		return nil
	}
	if m.Issuer != d.Auth.Issuer {
		return d.ExplainVersion(&LinkError{Fault: IssuerDiffers, Want: d.Auth.Issuer, Found: m.Issuer})
	}
	if !ListsDomain(m.ProtectedResources, d.Organization.Domain) {
		return d.ExplainVersion(&LinkError{
			Fault: DomainNotListed, Want: DomainResource(d.Organization.Domain),
			Found: nearest(m.ProtectedResources, d.Organization.Domain), Listed: m.ProtectedResources,
		})
	}
	return nil
}

// nearest returns the entry that somebody probably meant for the domain: the bare domain, or a URL on its host.
func nearest(resources []string, domain string) string {
	for _, resource := range resources {
		_, host, _ := strings.Cut(resource, "://")
		if host == "" {
			host = resource
		}
		host, _, _ = strings.Cut(host, "/")
		host, _, _ = strings.Cut(host, ":")
		if equalFold(strings.TrimSuffix(host, "."), domain) {
			return resource
		}
	}
	return ""
}

// CheckPublication checks what must agree between a poppy.json and its issuer's metadata when the Company publishes them
// (3.2); each is checked by its own ValidateForPublishing. The error is [Problems].
func CheckPublication(d Document, m IssuerMetadata) error {
	var c checker
	c.require(m.Issuer == d.Issuer(), "3.2", "issuer", "must be auth.issuer of poppy.json, character for character")
	c.require(ListsDomain(m.ProtectedResources, d.Organization.Domain), "3.2", "protected_resources", "must list https://{organization.domain} of poppy.json, without port, path and last slash")
	if d.Auth != nil {
		own := Scopes(slices.Collect(maps.Keys(d.Auth.Scopes)))
		c.require(m.ScopesSupported.Covers(own), "3.2", "scopes_supported", "must include every scope of auth.scopes in poppy.json")
		if d.Auth.Mediated != nil {
			c.require(m.ScopesSupported.Covers(d.Auth.Mediated.Scopes), "3.2", "scopes_supported", "must include every scope of auth.mediated.scopes in poppy.json")
		}
	}
	return c.err()
}
