// Package localca is a certificate authority for host names that exist on a developer's machine only.
package localca

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"
)

// CA is an authority that was made on this machine and is trusted only by who is told to.
type CA struct {
	dir         string
	now         func() time.Time
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Create makes an authority in dir, or loads the one that is there. It may only vouch for names that nobody can own
// (.example, .test, .localhost, .internal), for loopback addresses, and for the given domains and what is below them.
func Create(dir string, now func() time.Time, domains ...string) (*CA, error) {
	return nil, errors.ErrUnsupported
}

// Issue returns a certificate with its key for hosts (names or addresses, at least one), valid for 90 days. It is kept in
// a file named after the first host and reused while it names the same hosts and has 30 days left.
func (ca *CA) Issue(hosts ...string) (tls.Certificate, error) {
	return tls.Certificate{}, errors.ErrUnsupported
}

// Certificate returns the authority's own certificate, to add to other pools.
func (ca *CA) Certificate() *x509.Certificate { return ca.certificate }

// Pool returns a pool with this authority alone.
func (ca *CA) Pool() *x509.CertPool { return nil }
