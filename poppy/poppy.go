// Package poppy is the Personal Agent Protocol, draft 0.3, and its Operations extension, version 1, as values:
// documents, requests, responses, events, operations, errors and IDs.
//
// It does no I/O and reads no clock. A ParseX function takes the bytes that the other party sent, refuses more than
// the bound of that document (a Max…Bytes constant), decodes them strictly and checks what a reader must check. What
// it returns is safe to use as the protocol says; its error is [Problems], every fault with its place and section.
// ValidateForPublishing says in addition what the party that publishes a document owes to all the others.
//
// Sections are those of the protocol ("3.2") or of the extension ("Operations 3"). Where the text of 0.3 leaves a
// question open, docs/decisions.md has the answer that is followed here.
package poppy

// Version is the draft that is spoken here, as it stands in protocol_version (3).
const Version = "0.3"

// Well-known paths: of a Company's document (3), of issuer metadata (3.2, RFC 8414) and of the metadata of an MCP
// server (6, RFC 9728).
const (
	DocumentPath         = "/.well-known/poppy.json"
	IssuerMetadataPath   = "/.well-known/oauth-authorization-server"
	ResourceMetadataPath = "/.well-known/oauth-protected-resource"
)

// Bounds of what is read from the other party, in bytes. The protocol sets none; these are well above what a real
// document needs and well below what could hurt.
const (
	MaxMetadataBytes  = 64 << 10  // poppy.json, issuer, resource and client metadata
	MaxTokenBytes     = 64 << 10  // a token endpoint's or a Mediated Sign-In endpoint's request or response
	MaxMessageBytes   = 256 << 10 // a request that carries a message
	MaxPageBytes      = 1 << 20   // one read of events, so a Company must keep its pages below it
	MaxOperationBytes = 256 << 10 // an operation, or a response that holds one
	MaxReportBytes    = 16 << 10  // a feedback report
	MaxErrorBytes     = 256 << 10 // an error body, which may hold an operation
)
