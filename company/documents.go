package company

import (
	"slices"

	"countersign/assertion"
	"countersign/company/discovery"
	"countersign/poppy"
)

// documents writes the configuration as the documents that the Company publishes.
func (c Config) documents() (discovery.Documents, error) {
	extensions, err := c.extensionEntries()
	if err != nil {
		return discovery.Documents{}, err
	}
	documents := discovery.Documents{Issuer: c.issuerMetadata(), Resources: c.resourceMetadata(), MaxAge: c.DocumentMaxAge}
	for _, domain := range c.Domains {
		document := poppy.Document{
			ProtocolVersion: poppy.Version,
			Organization:    poppy.Organization{Name: domain.Name, Domain: domain.Host},
			Auth:            &poppy.Auth{Issuer: c.Issuer, Scopes: c.scopeDescriptions()},
			Extensions:      extensions,
		}
		if c.Conversations.URL != "" {
			document.Agent = &poppy.Agent{Protocols: []poppy.Protocol{
				{Type: poppy.ProtocolPoppy, Endpoint: c.Conversations.URL, Resource: c.Conversations.Resource},
			}}
		}
		for _, api := range domain.APIs {
			document.APIs = append(document.APIs, poppy.API{
				Type: api.Type, URL: api.URL, Description: api.Description, Resource: api.Resource,
			})
		}
		documents.Domains = append(documents.Domains, discovery.Domain{Document: document, Aliases: domain.Aliases})
	}
	return documents, nil
}

// issuerMetadata lists the grant types that a Company must have (3.2) and no other: each sign-in type brings its own.
func (c Config) issuerMetadata() poppy.PublishedIssuerMetadata {
	metadata := poppy.PublishedIssuerMetadata{
		IssuerMetadata: poppy.IssuerMetadata{
			Issuer:                        c.Issuer,
			TokenEndpoint:                 c.TokenEndpoint,
			RevocationEndpoint:            c.RevocationEndpoint,
			GrantTypesSupported:           []string{poppy.GrantJWTBearer, poppy.GrantRefreshToken},
			DPoPSigningAlgValuesSupported: c.Proof.Algorithms,
			ScopesSupported:               c.scopeNames(),
		},
		TokenEndpointAuthMethodsSupported:          []string{poppy.AuthMethodPrivateKeyJWT},
		TokenEndpointAuthSigningAlgValuesSupported: assertion.Algorithms(),
		ClientIDMetadataDocumentSupported:          true,
	}
	for _, domain := range c.Domains {
		metadata.ProtectedResources = append(metadata.ProtectedResources, poppy.DomainResource(domain.Host))
	}
	for _, use := range c.resources() {
		if !slices.Contains(metadata.ProtectedResources, use.name) {
			metadata.ProtectedResources = append(metadata.ProtectedResources, use.name)
		}
	}
	return metadata
}

// resourceMetadata describes the MCP servers. That of a server elsewhere is its own to publish; a copy here is never asked for.
func (c Config) resourceMetadata() []poppy.ResourceMetadata {
	var all []poppy.ResourceMetadata
	for _, domain := range c.Domains {
		for _, api := range domain.APIs {
			if api.Type != poppy.APITypeMCP {
				continue
			}
			metadata := poppy.ResourceMetadata{
				Resource:               api.URL,
				AuthorizationServers:   []string{c.Issuer},
				ScopesSupported:        c.scopeNames(),
				BearerMethodsSupported: []string{"header"},
			}
			if !api.BearerOnly {
				metadata.DPoPSigningAlgValuesSupported = c.Proof.Algorithms
			}
			all = append(all, metadata)
		}
	}
	return all
}

// extensions are those that the Company supports: name to version (3.3).
func (c Config) extensions() map[string]string {
	extensions := make(map[string]string)
	if c.Operations.URL != "" {
		extensions[poppy.ExtensionOperations] = poppy.OperationsVersion
	}
	return extensions
}

func (c Config) extensionEntries() (poppy.Extensions, error) {
	if c.Operations.URL == "" {
		return nil, nil
	}
	entries := poppy.Extensions{}
	err := entries.Set(poppy.ExtensionOperations, poppy.OperationsEntry{
		Version: poppy.OperationsVersion, Endpoint: c.Operations.URL, Resource: c.Operations.Resource,
	})
	return entries, err
}

func (c Config) scopeNames() poppy.Scopes {
	var names poppy.Scopes
	for _, scope := range c.Scopes {
		names = append(names, scope.Name)
	}
	return names
}

func (c Config) scopeDescriptions() map[string]string {
	descriptions := make(map[string]string)
	for _, scope := range c.Scopes {
		if scope.Description != "" {
			descriptions[scope.Name] = scope.Description
		}
	}
	return descriptions
}
