package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/company"
	"countersign/company/registry"
	"countersign/company/script"
	"countersign/internal/config"
	"countersign/internal/database"
	"countersign/internal/fetch"
	"countersign/internal/secret"
	"countersign/internal/web"
	"countersign/poppy"
)

const companyFile = "company.toml"

// hostConfig is a company.toml: one process that serves one or several Companies.
type hostConfig struct {
	State     string          `toml:"state"`
	Listen    listenConfig    `toml:"listen"`
	Network   networkConfig   `toml:"network"`
	Log       logConfig       `toml:"log"`
	Companies []companyConfig `toml:"company"`
}

// companyConfig is one Company. Its keys are the field names of company.Config's mistakes.
type companyConfig struct {
	Issuer             string          `toml:"issuer"`
	TokenEndpoint      string          `toml:"token_endpoint"`
	RevocationEndpoint string          `toml:"revocation_endpoint"`
	Resources          []string        `toml:"resources"`
	DocumentMaxAge     config.Duration `toml:"document_max_age"`
	TokenLifetime      config.Duration `toml:"token_lifetime"`
	SessionLifetime    config.Duration `toml:"session_lifetime"`
	Domains            []domainConfig  `toml:"domains"`
	Conversations      endpointConfig  `toml:"conversations"`
	Operations         endpointConfig  `toml:"operations"`
	Scopes             []struct {
		Name        string `toml:"name"`
		Description string `toml:"description"`
	} `toml:"scopes"`
	Proof struct {
		Algorithms    []string        `toml:"algorithms"`
		Window        config.Duration `toml:"window"`
		Nonces        string          `toml:"nonces"`
		NonceLifetime config.Duration `toml:"nonce_lifetime"`
	} `toml:"proof"`
	Agents struct {
		Mode       string `toml:"mode"`
		NewPerHour int    `toml:"new_per_hour"`
	} `toml:"agents"`
	Limits struct {
		StartsPerMinute         int `toml:"starts_per_minute"`
		RequestsPerMinute       int `toml:"requests_per_minute"`
		UnknownFetchesPerMinute int `toml:"unknown_fetches_per_minute"`
		CachedAgents            int `toml:"cached_agents"`
	} `toml:"limits"`
	Clerk     script.Rules `toml:"clerk"`
	Performer script.Work  `toml:"performer"`
}

type domainConfig struct {
	Host    string   `toml:"host"`
	Name    string   `toml:"name"`
	Aliases []string `toml:"aliases"`
	APIs    []struct {
		Type        string `toml:"type"`
		URL         string `toml:"url"`
		Description string `toml:"description"`
		Resource    string `toml:"resource"`
		BearerOnly  bool   `toml:"bearer_only"`
	} `toml:"apis"`
}

type endpointConfig struct {
	URL      string `toml:"url"`
	Resource string `toml:"resource"`
}

// values is the configuration as the library takes it.
func (c companyConfig) values() company.Config {
	v := company.Config{
		Issuer: c.Issuer, TokenEndpoint: c.TokenEndpoint, RevocationEndpoint: c.RevocationEndpoint, Resources: c.Resources,
		DocumentMaxAge: time.Duration(c.DocumentMaxAge), TokenLifetime: time.Duration(c.TokenLifetime),
		SessionLifetime: time.Duration(c.SessionLifetime),
		Conversations:   company.Endpoint(c.Conversations), Operations: company.Endpoint(c.Operations),
		Proof: company.Proof{
			Algorithms: c.Proof.Algorithms, Window: time.Duration(c.Proof.Window),
			Nonces: company.NonceUse(c.Proof.Nonces), NonceLifetime: time.Duration(c.Proof.NonceLifetime),
		},
		Agents: company.Agents{Mode: registry.Mode(c.Agents.Mode), NewPerHour: c.Agents.NewPerHour},
		Limits: company.Limits(c.Limits),
	}
	for _, scope := range c.Scopes {
		v.Scopes = append(v.Scopes, company.Scope(scope))
	}
	for _, d := range c.Domains {
		domain := company.Domain{Host: d.Host, Name: d.Name, Aliases: d.Aliases}
		for _, api := range d.APIs {
			domain.APIs = append(domain.APIs, company.API(api))
		}
		v.Domains = append(v.Domains, domain)
	}
	return v
}

// hosts are the names that a certificate for the Companies must have, in the order of the file.
func (h hostConfig) hosts() []string {
	var hosts []string
	seen := make(map[string]bool)
	add := func(host string) {
		if host = strings.ToLower(host); host != "" && !seen[host] {
			seen[host] = true
			hosts = append(hosts, host)
		}
	}
	for _, c := range h.Companies {
		for _, d := range c.Domains {
			add(d.Host)
			for _, alias := range d.Aliases {
				add(alias)
			}
			for _, api := range d.APIs {
				if api.Type == poppy.APITypeMCP {
					add(hostOf(api.URL)) // its RFC 9728 metadata is served here
				}
			}
		}
		for _, u := range []string{c.Issuer, c.TokenEndpoint, c.RevocationEndpoint, c.Conversations.URL, c.Operations.URL} {
			add(hostOf(u))
		}
	}
	return hosts
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// host is the Companies of a configuration, opened.
type host struct {
	config    hostConfig
	file      *config.File
	log       *slog.Logger
	client    *fetch.Client
	companies []*company.Company
	closers   []func() error
}

// openHost opens the Companies that the configuration at path describes. Close it when done, also after an error.
func openHost(ctx context.Context, t *terminal, path string) (*host, error) {
	h := &host{config: hostConfig{State: "state"}}
	var err error
	if h.file, err = loadConfig(path, companyFile, &h.config); err != nil {
		return h, err
	}
	if err := h.config.check(h.file); err != nil {
		return h, err
	}
	if h.log, err = h.config.Log.logger(h.file, "log", t.errs); err != nil {
		return h, err
	}
	if h.client, err = h.config.Network.client(h.file, "network"); err != nil {
		return h, err
	}
	h.closers = append(h.closers, func() error { h.client.Close(); return nil })
	state := h.file.Beside(h.config.State)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return h, fmt.Errorf("making the folder for the state: %w", err)
	}
	master, err := masterSecret(filepath.Join(state, "secret.key"))
	if err != nil {
		return h, err
	}
	for i := range h.config.Companies {
		if err := h.open(ctx, i, state, master); err != nil {
			return h, err
		}
	}
	return h, nil
}

// check finds every mistake that needs no state to be found.
func (h hostConfig) check(f *config.File) error {
	var all []error
	if len(h.Companies) == 0 {
		all = append(all, f.Problem("company", "is missing", "add a [[company]] table, or write a new file with: countersign company init FOLDER"))
	}
	issuers := make(map[string]bool)
	for i, c := range h.Companies {
		if issuers[c.Issuer] {
			all = append(all, f.Problem(fmt.Sprintf("company[%d].issuer", i), "is that of another Company of this file, though an issuer is exactly one (section 3.2)", "give each its own"))
		}
		issuers[c.Issuer] = true
		at := func(field string) string { return fmt.Sprintf("company[%d].%s", i, field) }
		if mistakes, ok := errors.AsType[company.Mistakes](c.values().Validate()); ok {
			for _, m := range mistakes {
				all = append(all, f.Problem(at(m.Field), m.What, m.Fix))
			}
		}
		if c.Conversations.URL != "" {
			if _, err := script.NewClerk(c.Clerk); err != nil {
				all = append(all, scriptProblems(f, at("clerk"), err)...)
			}
		}
		if c.Operations.URL != "" && c.Performer.Journal == "" {
			all = append(all, f.Problem(at("performer.journal"), "is missing", "name the file that gets a line for each operation that is performed"))
		}
	}
	if len(all) > 0 {
		return usageError{errors.Join(all...)}
	}
	return nil
}

// scriptProblems puts the problems of a script at their lines.
func scriptProblems(f *config.File, prefix string, err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the parts of errors.Join, not one in a chain
		var all []error
		for _, part := range joined.Unwrap() {
			all = append(all, scriptProblems(f, prefix, part)...)
		}
		return all
	}
	if p, ok := errors.AsType[script.Problem](err); ok {
		return []error{f.Problem(prefix+"."+p.Field, p.What, p.Fix)}
	}
	return []error{f.Problem(prefix, err.Error(), "")}
}

// open opens one Company with a database of its own.
func (h *host) open(ctx context.Context, i int, state string, master secret.Text) error {
	c := h.config.Companies[i]
	log := h.log.With("issuer", c.Issuer)
	file := filepath.Join(state, stateName(c.Issuer)+".db")
	release, err := alone(file)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, release)
	db, err := database.Open(ctx, file)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, db.Close)
	options := company.Options{Database: db, Client: h.client, Log: log, Now: time.Now, Secret: master}
	if c.Conversations.URL != "" {
		if options.Clerk, err = script.NewClerk(c.Clerk); err != nil {
			return err
		}
	}
	if c.Operations.URL != "" {
		work := c.Performer
		work.Journal = h.file.Beside(work.Journal)
		performer, err := script.OpenPerformer(work, time.Now)
		if err != nil {
			return usageError{errors.Join(scriptProblems(h.file, fmt.Sprintf("company[%d].performer", i), err)...)}
		}
		h.closers = append(h.closers, performer.Close)
		options.Performer = performer
	}
	opened, err := company.New(ctx, c.values(), options)
	if err != nil {
		return fmt.Errorf("opening the Company %s: %w", c.Issuer, err)
	}
	h.companies = append(h.companies, opened)
	return nil
}

// close closes what was opened, the last first.
func (h *host) close() error {
	var all []error
	for _, closer := range slices.Backward(h.closers) {
		all = append(all, closer())
	}
	return errors.Join(all...)
}

// stateName is the file name for a Company's state: its issuer without scheme, with what no file name should have replaced.
func stateName(issuer string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '+'
	}, strings.TrimPrefix(issuer, "https://"))
}

// masterSecret reads the secret that nonces are made with, or makes it.
func masterSecret(path string) (secret.Text, error) {
	data, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		random := make([]byte, 32)
		if _, err := rand.Read(random); err != nil {
			return secret.Text{}, err
		}
		if err := writeNew(path, []byte(base64.StdEncoding.EncodeToString(random)+"\n"), 0o600); err != nil {
			return secret.Text{}, err
		}
		return secret.New(string(random)), nil
	}
	if err != nil {
		return secret.Text{}, err
	}
	random, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data)))
	if err != nil || len(random) < 32 {
		return secret.Text{}, fmt.Errorf("%s does not hold 32 random bytes in base64\nrestore it from a backup, or remove it: agents then fetch a new nonce and notice nothing else", path)
	}
	return secret.New(string(random)), nil
}

func newCompany(t *terminal) *cobra.Command {
	var path string
	cmd := group("company", "A front door for a business that personal agents can use",
		`A Company publishes who it is, gives Personal Agents Sessions, talks with them, and proposes operations that are performed only once
their exact terms were confirmed.

Start with: countersign company init FOLDER`,
		newCompanyInit(t), newCompanyServe(t, &path), newCompanyCheck(t, &path), newCompanyAgents(t, &path))
	configFlag(cmd, &path, companyFile)
	cmd.PersistentFlags().BoolVar(&t.json, "json", false, "print data as JSON")
	return cmd
}

// companyInit is what company init writes.
type companyInit struct {
	domain, name, address, authority string
	resolve                          []string
	offersFor                        string // how long what the clerk proposes can be confirmed
}

//go:embed company.toml.tmpl
var companyTemplate string

// storyHosts maps the hosts of the shop that init writes to one address.
func storyHosts(address string) []string {
	var hosts []string
	for _, prefix := range []string{"", "www.", "auth.", "api."} {
		hosts = append(hosts, prefix+"outdoor.example="+address)
	}
	return hosts
}

func newCompanyInit(t *terminal) *cobra.Command {
	init := companyInit{offersFor: "20m"}
	cmd := &cobra.Command{
		Use: "init FOLDER", Short: "Write a configuration for a shop on this machine", Args: arguments("FOLDER"),
		Long: `Writes FOLDER/company.toml, which works as it is with the agent that 'countersign agent init' writes. The clerk in it answers by
rules, and what is performed is written into a journal: change both and try.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := init.write(args[0]); err != nil {
				return err
			}
			file := filepath.Join(args[0], companyFile)
			h, err := openHost(cmd.Context(), t, file) // proves that what was written works
			if err := errors.Join(err, h.close()); err != nil {
				return err
			}
			t.say("Wrote %s: %s at https://%s.", file, plain(init.name), plain(init.domain))
			t.say("Next: countersign company serve -c %s", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&init.domain, "domain", "outdoor.example", "the Company's domain")
	cmd.Flags().StringVar(&init.name, "name", "Example Outdoor", "the name that Users know the Company by")
	cmd.Flags().StringVar(&init.address, "address", "127.0.0.1:8443", "where 'company serve' listens")
	cmd.Flags().StringVar(&init.authority, "authority", "countersign-ca", "folder of the certificate authority for this machine; shared with agents")
	cmd.Flags().StringArrayVar(&init.resolve, "resolve", []string{"agent.example=127.0.0.1:9443"}, "HOST=ADDR:PORT: where agents on this machine publish who they are")
	return cmd
}

func (i companyInit) write(dir string) error {
	if err := poppy.CheckDomain(i.domain); err != nil {
		return usage("--domain " + plain(i.domain) + " " + err.Error())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	authority, err := authorityFor(dir, i.authority, i.domain)
	if err != nil {
		return err
	}
	text := strings.NewReplacer(
		"{{domain}}", i.domain, "{{name}}", tomlString(i.name), "{{address}}", tomlString(i.address),
		"{{authority}}", tomlString(authority), "{{resolve}}", tomlList(i.resolve), "{{offers_for}}", tomlString(i.offersFor),
	).Replace(companyTemplate)
	return writeNew(filepath.Join(dir, companyFile), []byte(text), 0o600)
}

func newCompanyServe(t *terminal, path *string) *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Run the front door", Args: arguments(),
		Long: `Serves every Company of the configuration until it is stopped. A second signal stops it at once; nothing that was
acknowledged is lost either way.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := openHost(cmd.Context(), t, *path)
			if err == nil {
				err = h.serve(cmd, t)
			}
			return errors.Join(err, h.close())
		},
	}
}

// serve serves and works until the command is stopped or a part of it fails.
func (h *host) serve(cmd *cobra.Command, t *terminal) error {
	handler, err := company.Handler(h.log, h.companies...)
	if err != nil {
		return usageError{err}
	}
	certificate, err := h.config.Listen.certificate(h.file, "listen", h.config.Network, h.config.hosts())
	if err != nil {
		return err
	}
	listener, err := h.config.Listen.listen(cmd, h.file, "listen")
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{func(ctx context.Context) error {
		return web.Serve(ctx, web.Options{Listener: listener, Certificate: certificate, Handler: handler, Log: h.log})
	}}
	for _, c := range h.companies {
		parts = append(parts, c.Run)
	}
	for _, c := range h.config.Companies {
		for _, d := range c.Domains {
			t.say("%shttps://%s on %s", readyPrefix, d.Host, listener.Addr())
		}
	}
	return together(cmd.Context(), parts...)
}

func newCompanyCheck(t *terminal, path *string) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check a configuration without serving it", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var c hostConfig
			f, err := loadConfig(*path, companyFile, &c)
			if err != nil {
				return err
			}
			if err := c.check(f); err != nil {
				return err
			}
			if _, err := c.Log.logger(f, "log", t.errs); err != nil {
				return err
			}
			client, err := c.Network.client(f, "network")
			if err != nil {
				return err
			}
			client.Close()
			if _, err := c.Listen.certificate(f, "listen", c.Network, c.hosts()); err != nil {
				return err
			}
			if t.json {
				return t.writeJSON(map[string]any{"file": f.Path, "ok": true, "hosts": c.hosts()})
			}
			t.say("%s is right.", f.Path)
			for _, company := range c.Companies {
				for _, d := range company.Domains {
					t.say("  %s  https://%s/.well-known/poppy.json  issuer %s", plain(d.Name), d.Host, company.Issuer)
				}
			}
			return nil
		},
	}
}

func newCompanyAgents(t *terminal, path *string) *cobra.Command {
	var issuer string
	// with gives work the registry of the Company that is meant.
	with := func(cmd *cobra.Command, work func(*registry.Registry) error) error {
		var c hostConfig
		c.State = "state"
		f, err := loadConfig(*path, companyFile, &c)
		if err != nil {
			return err
		}
		chosen, err := c.choose(issuer)
		if err != nil {
			return err
		}
		file := filepath.Join(f.Beside(c.State), stateName(chosen.Issuer)+".db")
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("the Company %s has no state yet\nstart it once: countersign company serve", chosen.Issuer)
		}
		db, err := database.Open(cmd.Context(), file)
		if err != nil {
			return err
		}
		return errors.Join(work(registry.New(registry.Options{Database: db, Now: time.Now, Mode: registry.Mode(chosen.Agents.Mode)})), db.Close())
	}
	decide := func(use, short, done string, decide func(*registry.Registry, context.Context, string) error) *cobra.Command {
		return &cobra.Command{
			Use: use + " CLIENT_ID", Short: short, Args: arguments("CLIENT_ID"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return with(cmd, func(r *registry.Registry) error {
					if err := decide(r, cmd.Context(), args[0]); err != nil {
						return err
					}
					t.say("%s %s", plain(args[0]), done)
					return nil
				})
			},
		}
	}
	list := &cobra.Command{
		Use: "list", Short: "List the agents that came, or were decided about", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, func(r *registry.Registry) error { return listAgents(cmd.Context(), t, r) })
		},
	}
	cmd := group("agents", "See, block and allow the agents of a Company", `A decision holds at once, also for a Company that is being served, and for tokens that an agent holds already.`,
		list,
		decide("block", "Keep an agent out", "is blocked.", (*registry.Registry).Block),
		decide("allow", "Let an agent in, and undo block", "is allowed.", (*registry.Registry).Allow),
		decide("forget", "Remove what is known and decided about an agent", "is forgotten.", func(r *registry.Registry, ctx context.Context, id string) error {
			if found, err := r.Forget(ctx, id); err != nil || found {
				return err
			}
			return fmt.Errorf("nothing is known about %s\nsee countersign company agents list", plain(id))
		}))
	cmd.PersistentFlags().StringVar(&issuer, "issuer", "", "the issuer of the Company that is meant, if the configuration has several")
	return cmd
}

// choose returns the Company with an issuer, or the only one.
func (h hostConfig) choose(issuer string) (companyConfig, error) {
	if issuer == "" && len(h.Companies) == 1 {
		return h.Companies[0], nil
	}
	var known []string
	for _, c := range h.Companies {
		if c.Issuer == issuer {
			return c, nil
		}
		known = append(known, c.Issuer)
	}
	return companyConfig{}, usage("which Company?\nname one with --issuer: " + strings.Join(known, ", "))
}

func listAgents(ctx context.Context, t *terminal, r *registry.Registry) error {
	type row struct {
		ClientID  string `json:"client_id"`
		Name      string `json:"name"`
		Status    string `json:"status"`
		FirstSeen string `json:"first_seen,omitempty"`
		LastSeen  string `json:"last_seen,omitempty"`
	}
	rows := []row{}
	for after := ""; ; {
		page, err := r.List(ctx, after, 100)
		if err != nil {
			return err
		}
		for _, e := range page {
			rows = append(rows, row{e.ClientID, e.Name, string(e.Status), timeText(e.FirstSeen), timeText(e.LastSeen)})
		}
		if len(page) < 100 {
			break
		}
		after = page[len(page)-1].ClientID
	}
	if t.json {
		return t.writeJSON(map[string]any{"agents": rows})
	}
	if len(rows) == 0 {
		t.say("No agent has come yet.")
	}
	for _, e := range rows {
		seen := "never came"
		if e.LastSeen != "" {
			seen = "last seen " + e.LastSeen
		}
		t.say("%-8s %s  %s  %s", e.Status, plain(e.ClientID), plain(e.Name), faint.Render(seen))
	}
	return nil
}

func timeText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
