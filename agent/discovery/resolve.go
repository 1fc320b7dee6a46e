package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"countersign/internal/fetch"
	"countersign/poppy"
)

// maxRedirects is how many redirects of the well-known URL are followed. From a bare domain over www to a provider takes two.
const maxRedirects = 5

// Step is one thing that was fetched or checked while a Company was resolved.
type Step struct {
	Check string // what: one of the Check constants
	OK    bool
	Text  string // for a person: what was found
}

// What a [Step] is about, in the order of the steps.
const (
	CheckDomain   = "domain"   // the name that was asked for
	CheckDocument = "document" // poppy.json could be fetched and read (3, 3.1)
	CheckHost     = "host"     // organization.domain is the host that served it (3, 3.1)
	CheckMetadata = "metadata" // the issuer's metadata could be fetched and read (3.2)
	CheckIssuer   = "issuer"   // the metadata is that issuer's, to the character (3.2)
	CheckListed   = "listed"   // the issuer lists the domain (3.2)
)

// Refusal is why a Company cannot be used. Its text tells a person what is wrong and, where the two sides disagree, both
// strings.
type Refusal struct {
	Domain string // as it was asked for
	Steps  []Step // up to the one that failed
	Err    error  // often a [poppy.LinkError], [poppy.VersionError], [poppy.Problems] or [fetch.Error]
}

// Error returns the domain and the reason.
func (r *Refusal) Error() string { return r.Domain + " cannot be used: " + r.Err.Error() }

// Unwrap returns the reason.
func (r *Refusal) Unwrap() error { return r.Err }

// Resolver finds Companies. Its methods may be called concurrently.
type Resolver struct {
	documents *fetch.Cache[served]
	metadata  *fetch.Cache[poppy.IssuerMetadata]
}

// served is a poppy.json and where it came from.
type served struct {
	document  poppy.Document
	host      string   // that served it, with its port if that is not 443
	redirects []string // the URLs before the one that served it
	url       string
}

// New returns a Resolver that fetches with client. Both documents are kept as their caching headers say, by the clock now.
func New(client *fetch.Client, now func() time.Time) *Resolver {
	return &Resolver{
		documents: fetch.NewCache(client, fetch.CacheOptions{
			Get: fetch.GetOptions{MaxBytes: poppy.MaxMetadataBytes, MaxRedirects: maxRedirects},
			Now: now,
		}, readDocument),
		// Only the well-known URL of a Company may redirect (3).
		metadata: fetch.NewCache(client, fetch.CacheOptions{
			Get: fetch.GetOptions{MaxBytes: poppy.MaxMetadataBytes},
			Now: now,
		}, readMetadata),
	}
}

// Resolve finds the Company at a domain. Its poppy.json may redirect, always to https, and speaks for the host that serves
// it in the end. Any reason not to use it is a [*Refusal]; then nothing of the document was used.
func (r *Resolver) Resolve(ctx context.Context, domain string) (Company, error) {
	t := &trace{asked: domain}

	domain, err := ParseDomain(domain)
	if err != nil {
		return Company{}, t.refuse(CheckDomain, err)
	}
	t.passed(CheckDomain, domain)

	found, err := r.documents.Get(ctx, "https://"+domain+poppy.DocumentPath)
	if err != nil {
		return Company{}, t.refuse(CheckDocument, explainMissing(err))
	}
	d := found.document
	t.passed(CheckDocument, strings.Join(append(found.redirects, found.url), " redirects to "))

	// The first direction (3): the document is about the host that served it.
	if !poppy.SpeaksForHost(d.Organization.Domain, found.host) {
		return Company{}, t.refuse(CheckHost, poppy.CheckLink(d, found.host, poppy.IssuerMetadata{}))
	}
	t.passed(CheckHost, found.host+" is organization.domain")
	company := Company{
		Domain:   strings.ToLower(found.host),
		Name:     d.Organization.Name,
		Issuer:   d.Issuer(),
		Version:  d.ProtocolVersion,
		Document: d,
	}
	if company.Issuer == "" {
		company.Steps = t.steps
		return company, nil // a website for ordinary visitors
	}

	// The second direction (3.2): the issuer is the one that the document names, and knows the domain.
	at, err := poppy.MetadataURL(company.Issuer)
	if err != nil {
		return Company{}, t.refuse(CheckMetadata, err)
	}
	company.Metadata, err = r.metadata.Get(ctx, at)
	if err != nil {
		return Company{}, t.refuse(CheckMetadata, d.ExplainVersion(err))
	}
	t.passed(CheckMetadata, at)
	if err := poppy.CheckLink(d, found.host, company.Metadata); err != nil {
		failed := CheckListed
		if link, ok := errors.AsType[*poppy.LinkError](err); ok && link.Fault == poppy.IssuerDiffers {
			failed = CheckIssuer
		} else {
			t.passed(CheckIssuer, company.Issuer)
		}
		return Company{}, t.refuse(failed, err)
	}
	t.passed(CheckIssuer, company.Issuer)
	t.passed(CheckListed, poppy.DomainResource(d.Organization.Domain)+" is in protected_resources")
	company.Steps = t.steps
	return company, nil
}

// trace gathers the steps.
type trace struct {
	asked string
	steps []Step
}

func (t *trace) passed(check, text string) {
	t.steps = append(t.steps, Step{Check: check, OK: true, Text: text})
}

func (t *trace) refuse(check string, err error) error {
	return &Refusal{Domain: t.asked, Steps: append(t.steps, Step{Check: check, Text: err.Error()}), Err: err}
}

func readDocument(r *fetch.Response) (served, error) {
	if bytes.HasPrefix(bytes.TrimSpace(r.Body), []byte("<")) {
		return served{}, errors.New("there is a web page where its poppy.json should be: it does not take part in the protocol")
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return served{}, err
	}
	document, err := poppy.ParseDocument(r.Body)
	if err != nil {
		return served{}, err
	}
	return served{document: document, host: strings.TrimSuffix(u.Host, ":443"), redirects: r.Redirects, url: r.URL}, nil
}

func readMetadata(r *fetch.Response) (poppy.IssuerMetadata, error) {
	return poppy.ParseIssuerMetadata(r.Body)
}

// explainMissing says what an answer without a document means.
func explainMissing(err error) error {
	failed, ok := errors.AsType[*fetch.Error](err)
	if ok && failed.Kind == fetch.ErrStatus && (failed.Status == http.StatusNotFound || failed.Status == http.StatusGone) {
		return fmt.Errorf("it has no poppy.json, so it does not take part in the protocol (%w)", err)
	}
	return err
}
