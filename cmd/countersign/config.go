package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"countersign/internal/config"
	"countersign/internal/fetch"
	"countersign/internal/localca"
)

// listenConfig is where a serving command accepts connections.
type listenConfig struct {
	Address     string `toml:"address"`
	Certificate string `toml:"certificate"`
	Key         string `toml:"key"`
}

// networkConfig is how a side reaches the other one.
type networkConfig struct {
	LocalAuthority string   `toml:"local_authority"`
	Authorities    []string `toml:"authorities"`
	Resolve        []string `toml:"resolve"`
}

// logConfig is what a serving command logs on standard error.
type logConfig struct {
	Level  string `toml:"level"`
	Format string `toml:"format"`
}

// configFlag adds -c to a command: the file, or the folder that holds file.
func configFlag(cmd *cobra.Command, path *string, file string) {
	initial := os.Getenv("COUNTERSIGN_CONFIG")
	if initial == "" {
		initial = "."
	}
	cmd.PersistentFlags().StringVarP(path, "config", "c", initial, "the "+file+" to use, or the folder it lies in (COUNTERSIGN_CONFIG)")
}

// loadConfig reads the file at path, or the file of that name in the folder path, and makes a mistake in it a usage error.
func loadConfig(path, file string, v any) (*config.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, file)
	}
	f, err := config.Load(path, v)
	if err != nil {
		return nil, usageError{err}
	}
	return f, nil
}

// mappings reads resolve.
func (n networkConfig) mappings(f *config.File, field string) ([]fetch.Mapping, error) {
	var all []fetch.Mapping
	for i, text := range n.Resolve {
		mapping, err := fetch.ParseResolve(text)
		if err != nil {
			return nil, usageError{f.Problem(fmt.Sprintf("%s.resolve[%d]", field, i), "cannot be used: "+err.Error(), "")}
		}
		all = append(all, mapping)
	}
	return all, nil
}

// pool is the certificate authorities to trust: the system's and those that are named. Nil means the system's alone.
func (n networkConfig) pool(f *config.File, field string) (*x509.CertPool, error) {
	if n.LocalAuthority == "" && len(n.Authorities) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificate authorities: %w", err)
	}
	if n.LocalAuthority != "" {
		ca, err := localca.Create(f.Beside(n.LocalAuthority), time.Now)
		if err != nil {
			return nil, usageError{f.Problem(field+".local_authority", "cannot be used: "+err.Error(), "")}
		}
		pool.AddCert(ca.Certificate())
	}
	for i, path := range n.Authorities {
		data, err := os.ReadFile(f.Beside(path))
		if err == nil && !pool.AppendCertsFromPEM(data) {
			err = errors.New("it holds no PEM certificate")
		}
		if err != nil {
			return nil, usageError{f.Problem(fmt.Sprintf("%s.authorities[%d]", field, i), "cannot be used: "+err.Error(), "name a PEM file with the certificate of an authority")}
		}
	}
	return pool, nil
}

// client is the client for everything that the other side names.
func (n networkConfig) client(f *config.File, field string) (*fetch.Client, error) {
	resolve, err := n.mappings(f, field)
	if err != nil {
		return nil, err
	}
	authorities, err := n.pool(f, field)
	if err != nil {
		return nil, err
	}
	return fetch.New(fetch.Options{Resolve: resolve, Authorities: authorities}), nil
}

// certificate is the server's certificate for hosts: the files that are named, or one from the local authority.
func (l listenConfig) certificate(f *config.File, field string, n networkConfig, hosts []string) (*tls.Certificate, error) {
	if l.Certificate != "" || l.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Beside(l.Certificate), f.Beside(l.Key))
		if err != nil {
			return nil, usageError{f.Problem(field+".certificate", "cannot be used: "+err.Error(), "name PEM files with the certificate chain and its key")}
		}
		return &pair, nil
	}
	if n.LocalAuthority == "" {
		return nil, usageError{f.Problem(field+".certificate", "is needed: everything is served over HTTPS",
			"name certificate and key, or for development set network.local_authority to a folder")}
	}
	ca, err := localca.Create(f.Beside(n.LocalAuthority), time.Now)
	if err != nil {
		return nil, usageError{f.Problem("network.local_authority", "cannot be used: "+err.Error(), "")}
	}
	pair, err := ca.Issue(hosts...)
	if err != nil {
		return nil, usageError{f.Problem("network.local_authority", "cannot be used: "+err.Error(), "")}
	}
	return &pair, nil
}

// listen opens the listener.
func (l listenConfig) listen(cmd *cobra.Command, f *config.File, field string) (net.Listener, error) {
	var c net.ListenConfig
	listener, err := c.Listen(cmd.Context(), "tcp", l.Address)
	if err != nil {
		return nil, usageError{f.Problem(field+".address", "cannot be listened on: "+err.Error(), `choose a free one, such as "127.0.0.1:8444"`)}
	}
	return listener, nil
}

// logger is the log that is asked for.
func (l logConfig) logger(f *config.File, field string, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if l.Level != "" {
		if err := level.UnmarshalText([]byte(l.Level)); err != nil {
			return nil, usageError{f.Problem(field+".level", "is not a level", "write debug, info, warn or error")}
		}
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.Format {
	case "", "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usageError{f.Problem(field+".format", "is not a format", "write text or json")}
}

// writeNew writes a file that is not there yet: init commands never overwrite what a person may have changed.
func writeNew(path string, data []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return usage(path + " is there already\nremove it, or name another folder")
	}
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// readPrivate reads a file that holds a secret, unless others can read it too.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, usage("others can read " + path + ", which holds a secret\nkeep it to yourself: chmod 600 " + path)
	}
	return os.ReadFile(path)
}

// tomlString quotes a text for a TOML file.
func tomlString(text string) string { return strconv.Quote(text) }
