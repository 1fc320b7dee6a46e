// Package localca is a certificate authority for host names that exist on a developer's machine only.
//
// The authority cannot vouch for anything else: its certificate carries name constraints, so whoever trusts it, and whoever
// steals its key, gains nothing about the names of the real Internet.
package localca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 90 * 24 * time.Hour
	leafRenewal       = 30 * 24 * time.Hour // a leaf with less left is not reused
	clockSkew         = time.Hour           // certificates start this much earlier, for other machines' clocks
)

// reserved lists the top-level domains that nobody can own (RFC 2606, RFC 6761, and .internal by ICANN).
var reserved = []string{"example", "internal", "localhost", "test"}

// CA is an authority that was made on this machine and is trusted only by who is told to.
type CA struct {
	dir         string
	now         func() time.Time
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Create makes an authority in dir, or loads the one that is there. It may only vouch for names that nobody can own
// (.example, .internal, .localhost, .test), for loopback addresses, and for the given domains and what is below them.
func Create(dir string, now func() time.Time, domains ...string) (*CA, error) {
	ca := &CA{dir: dir, now: now}
	if err := os.MkdirAll(filepath.Join(dir, "issued"), 0o700); err != nil {
		return nil, fmt.Errorf("making the local authority: %w", err)
	}
	err := ca.load()
	if errors.Is(err, fs.ErrNotExist) {
		if err = ca.make(domains); err == nil {
			err = ca.load() // what is in the file counts, should two processes have started at once
		}
	}
	if err != nil {
		return nil, fmt.Errorf("local authority in %s: %w", dir, err)
	}
	for _, domain := range domains {
		if !ca.permits(domain) {
			return nil, fmt.Errorf("local authority in %s: may not vouch for %s; remove the directory to have one made that may", dir, domain)
		}
	}
	public := explained(publicText, block("CERTIFICATE", ca.certificate.Raw))
	if err := replace(filepath.Join(dir, "ca.pem"), 0o644, public); err != nil {
		return nil, fmt.Errorf("local authority in %s: %w", dir, err)
	}
	return ca, nil
}

// Issue returns a certificate with its key for hosts (names or addresses, at least one), valid for 90 days. It is kept in
// a file named after the first host and reused while it names the same hosts and has 30 days left.
func (ca *CA) Issue(hosts ...string) (tls.Certificate, error) {
	names, addresses, err := ca.check(hosts)
	if err != nil {
		return tls.Certificate{}, err
	}
	path := filepath.Join(ca.dir, "issued", strings.ToLower(hosts[0])+".pem")
	if kept, err := os.ReadFile(path); err == nil {
		if certificate, err := tls.X509KeyPair(kept, kept); err == nil && ca.reusable(certificate.Leaf, names, addresses) {
			return certificate, nil
		}
	}
	made, err := ca.issue(names, addresses)
	if err == nil {
		err = replace(path, 0o600, made)
	}
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issuing a certificate for %s: %w", hosts[0], err)
	}
	return tls.X509KeyPair(made, made)
}

// Certificate returns the authority's own certificate, to add to other pools.
func (ca *CA) Certificate() *x509.Certificate { return ca.certificate }

// Pool returns a pool with this authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	return pool
}

// File returns the path of the PEM file with the authority's certificate, the one that other programs are told to trust.
func (ca *CA) File() string { return filepath.Join(ca.dir, "ca.pem") }

// make writes the key and certificate of a new authority. Both are in one file that appears whole, so that two processes
// that start at once end with the same authority: the second one's link fails.
func (ca *CA) make(domains []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	_, loopback4, _ := net.ParseCIDR("127.0.0.0/8")
	_, loopback6, _ := net.ParseCIDR("::1/128")
	template := &x509.Certificate{
		Subject:                     pkix.Name{CommonName: "Countersign local authority", Organization: []string{"Development on one machine"}},
		NotBefore:                   ca.now().Add(-clockSkew),
		NotAfter:                    ca.now().Add(authorityLifetime),
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         append(slices.Clone(reserved), domains...),
		PermittedIPRanges:           []*net.IPNet{loopback4, loopback6},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	temporary, err := writeTemporary(ca.dir, 0o600, explained(privateText, block("PRIVATE KEY", private), block("CERTIFICATE", signed)))
	if err != nil {
		return err
	}
	err = os.Link(temporary, ca.keyFile())
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(temporary))
}

func (ca *CA) load() error {
	data, err := os.ReadFile(ca.keyFile())
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return fmt.Errorf("%s cannot be read (%w); remove the directory to have a new one made", ca.keyFile(), err)
	}
	key, isECDSA := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !isECDSA || !pair.Leaf.IsCA {
		return fmt.Errorf("%s holds something else; name another directory", ca.keyFile())
	}
	if ca.now().After(pair.Leaf.NotAfter) {
		return fmt.Errorf("it ended on %s; remove the directory to have a new one made", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	ca.certificate, ca.key = pair.Leaf, key
	return nil
}

func (ca *CA) keyFile() string { return filepath.Join(ca.dir, "ca-key.pem") }

// check sorts hosts into names and addresses that the authority may vouch for.
func (ca *CA) check(hosts []string) (names []string, addresses []net.IP, err error) {
	if len(hosts) == 0 {
		return nil, nil, errors.New("a certificate needs at least one host")
	}
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host); err == nil {
			if !address.IsLoopback() {
				return nil, nil, fmt.Errorf("the local authority does not vouch for %s, only for loopback addresses", host)
			}
			addresses = append(addresses, address.AsSlice())
			continue
		}
		name := strings.ToLower(host)
		if !isHostName(name) {
			return nil, nil, fmt.Errorf("%q is not a host name", host)
		}
		if !ca.permits(name) {
			return nil, nil, fmt.Errorf("the local authority in %s may not vouch for %s, only for names below %s; remove the directory and name the domain when a new one is made",
				ca.dir, host, strings.Join(ca.certificate.PermittedDNSDomains, ", "))
		}
		names = append(names, name)
	}
	return names, addresses, nil
}

func (ca *CA) permits(name string) bool {
	return slices.ContainsFunc(ca.certificate.PermittedDNSDomains, func(domain string) bool {
		return strings.EqualFold(name, domain) || strings.HasSuffix(strings.ToLower(name), "."+strings.ToLower(domain))
	})
}

func (ca *CA) reusable(leaf *x509.Certificate, names []string, addresses []net.IP) bool {
	return leaf.CheckSignatureFrom(ca.certificate) == nil &&
		leaf.NotAfter.Sub(ca.now()) >= leafRenewal &&
		slices.Equal(leaf.DNSNames, names) &&
		slices.EqualFunc(leaf.IPAddresses, addresses, net.IP.Equal)
}

// issue returns the PEM text of a new key and its certificate.
func (ca *CA) issue(names []string, addresses []net.IP) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	end := ca.now().Add(leafLifetime)
	if end.After(ca.certificate.NotAfter) {
		end = ca.certificate.NotAfter
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{Organization: []string{"Development on one machine"}},
		NotBefore:   ca.now().Add(-clockSkew),
		NotAfter:    end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    names,
		IPAddresses: addresses,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return explained(leafText, block("PRIVATE KEY", private), block("CERTIFICATE", signed)), nil
}

// The texts stand before the first block of each file, where readers of PEM skip them (RFC 7468 section 5.2).
const (
	publicText = `The certificate of a certificate authority that countersign made for development on this machine.
Programs that shall reach your local hosts are told to trust this file. It can vouch for local names only.
`
	privateText = `The SECRET key of a certificate authority that countersign made for development on this machine.
Keep it here. Nothing but countersign needs it. To start anew, remove the directory.
`
	leafText = `The SECRET key and the certificate of a local host, made by countersign for development on this machine.
A server of that host uses it. countersign makes a new one before it ends.
`
)

func block(kind string, bytes []byte) *pem.Block { return &pem.Block{Type: kind, Bytes: bytes} }

func explained(text string, blocks ...*pem.Block) []byte {
	var file bytes.Buffer
	file.WriteString(text)
	for _, block := range blocks {
		file.Write(pem.EncodeToMemory(block))
	}
	return file.Bytes()
}

// replace puts data at path whole or not at all.
func replace(path string, mode fs.FileMode, data []byte) error {
	temporary, err := writeTemporary(filepath.Dir(path), mode, data)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

func writeTemporary(dir string, mode fs.FileMode, data []byte) (path string, err error) {
	file, err := os.CreateTemp(dir, ".new-*") // readable by its owner only
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// isHostName reports whether name is a lower-case DNS name, which also makes it a safe file name.
func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}
