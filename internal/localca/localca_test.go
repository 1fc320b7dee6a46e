package localca_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/internal/localca"
)

func create(t *testing.T, dir string, now time.Time, domains ...string) *localca.CA {
	t.Helper()
	ca, err := localca.Create(dir, func() time.Time { return now }, domains...)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestIssuedCertificateServesItsHostsAndNoOther(t *testing.T) {
	t.Parallel()
	ca := create(t, t.TempDir(), time.Now())
	certificate, err := ca.Issue("outdoor.example", "auth.outdoor.example", "127.0.0.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"outdoor.example": true, "auth.outdoor.example": true, "127.0.0.1": true, "::1": true,
		"other.example": false, "127.0.0.2": false,
	} {
		server, client := net.Pipe()
		go func() {
			tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate}}).Handshake() //nolint:errcheck // the client's side counts
		}()
		err := tls.Client(client, &tls.Config{RootCAs: ca.Pool(), ServerName: host}).Handshake()
		_ = client.Close()
		if (err == nil) != want {
			t.Errorf("%s: trusted %v, want %v: %v", host, err == nil, want, err)
		}
	}
}

func TestSecondStartReusesAuthorityAndCertificate(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	first, err := create(t, dir, now).Issue("outdoor.example")
	if err != nil {
		t.Fatal(err)
	}
	again := create(t, dir, now.Add(59*24*time.Hour))
	second, err := again.Issue("Outdoor.Example")
	if err != nil {
		t.Fatal(err)
	}
	if !second.Leaf.Equal(first.Leaf) {
		t.Error("a certificate with 31 days left was made anew")
	}
	other, err := again.Issue("outdoor.example", "api.outdoor.example")
	if err != nil {
		t.Fatal(err)
	}
	if other.Leaf.Equal(first.Leaf) {
		t.Error("a certificate for other hosts was reused")
	}
	late := create(t, dir, now.Add(61*24*time.Hour))
	renewed, err := late.Issue("outdoor.example")
	if err != nil {
		t.Fatal(err)
	}
	if renewed.Leaf.Equal(first.Leaf) || renewed.Leaf.NotAfter.Before(now.Add(150*24*time.Hour)) {
		t.Error("a certificate with 29 days left was not renewed")
	}
	if !late.Certificate().Equal(again.Certificate()) {
		t.Error("the authority was made anew")
	}
}

func TestStartsAtOnceShareOneAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := make([]*localca.CA, 8)
	var starts sync.WaitGroup
	for i := range made {
		starts.Go(func() {
			ca, err := localca.Create(dir, time.Now)
			if err != nil {
				t.Error(err)
				return
			}
			made[i] = ca
		})
	}
	starts.Wait()
	for _, ca := range made[1:] {
		if ca == nil || made[0] == nil || !ca.Certificate().Equal(made[0].Certificate()) {
			t.Fatal("two processes have different authorities")
		}
	}
}

func TestKeysAreReadableByTheirOwnerOnlyAndFilesExplainThemselves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := create(t, dir, time.Now())
	if _, err := ca.Issue("outdoor.example"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		mode os.FileMode
		key  bool
		text string
	}{
		ca.File():                           {0o644, false, "told to trust this file"},
		filepath.Join(dir, "ca-key.pem"):    {0o600, true, "SECRET"},
		dir + "/issued/outdoor.example.pem": {0o600, true, "SECRET"},
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want.mode {
			t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want.mode)
		}
		text, _, _ := strings.Cut(string(data), "-----BEGIN")
		if !strings.Contains(text, want.text) {
			t.Errorf("%s says %q, want %q in it", path, text, want.text)
		}
		if strings.Contains(string(data), "PRIVATE KEY") != want.key {
			t.Errorf("%s holds a private key: %v, want %v", path, !want.key, want.key)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files were left: %v %v", left, err)
	}
}

func TestHostsOfTheRealInternetAreRefused(t *testing.T) {
	t.Parallel()
	ca := create(t, t.TempDir(), time.Now())
	for _, hosts := range [][]string{
		{}, {""}, {"outdoor.com"}, {"outdoor.example.com"}, {"notexample"}, {"192.0.2.1"}, {"../outdoor.example"}, {"*.outdoor.example"}, {"outdoor.example", "a..example"},
	} {
		if certificate, err := ca.Issue(hosts...); err == nil || certificate.Certificate != nil {
			t.Errorf("%q: got a certificate", hosts)
		}
	}
}

// The constraint is in the certificate, so it binds a thief of the key too.
func TestStolenKeyCannotVouchForOtherNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := create(t, dir, time.Now())
	data, err := os.ReadFile(filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	found, _ := pem.Decode(data)
	stolen, err := x509.ParsePKCS8PrivateKey(found.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"outdoor.example": true, "outdoor.com": false} {
		forged, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(1), DNSNames: []string{name},
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		}, ca.Certificate(), key.Public(), stolen)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(forged)
		if err != nil {
			t.Fatal(err)
		}
		_, err = leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: name})
		if (err == nil) != want {
			t.Errorf("%s: verified %v, want %v: %v", name, err == nil, want, err)
		}
	}
}

func TestNamedDomainsArePermittedWhenTheAuthorityIsMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := create(t, dir, time.Now(), "shop.invalid")
	if _, err := ca.Issue("auth.shop.invalid"); err != nil {
		t.Error(err)
	}
	if _, err := localca.Create(dir, time.Now, "shop.invalid"); err != nil {
		t.Errorf("same domains again: %v", err)
	}
	if _, err := localca.Create(dir, time.Now, "other.invalid"); err == nil || !strings.Contains(err.Error(), "remove the directory") {
		t.Errorf("another domain: %v, want an error that says what to do", err)
	}
}

func TestUnusableAuthorityIsAnErrorThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, dir string) time.Time{
		"ended": func(t *testing.T, dir string) time.Time {
			create(t, dir, time.Now())
			return time.Now().AddDate(11, 0, 0)
		},
		"damaged": func(t *testing.T, dir string) time.Time {
			if err := os.WriteFile(filepath.Join(dir, "ca-key.pem"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			return time.Now()
		},
		"a leaf": func(t *testing.T, dir string) time.Time {
			if _, err := create(t, dir, time.Now()).Issue("outdoor.example"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(dir+"/issued/outdoor.example.pem", dir+"/ca-key.pem"); err != nil {
				t.Fatal(err)
			}
			return time.Now()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			now := spoil(t, dir)
			ca, err := localca.Create(dir, func() time.Time { return now })
			if err == nil || ca != nil || !strings.Contains(err.Error(), "directory") {
				t.Errorf("got %v, %v, want an error that says what to do with the directory", ca, err)
			}
		})
	}
}
