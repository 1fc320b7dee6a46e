package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/agent"
	"countersign/internal/config"
	"countersign/internal/fetch"
	"countersign/internal/localca"
	"countersign/internal/web"
	"countersign/poppy"
)

const agentFile = "agent.toml"

// agentConfig is an agent.toml.
type agentConfig struct {
	ClientID     string        `toml:"client_id"`
	Name         string        `toml:"name"`
	LogoURI      string        `toml:"logo_uri"`
	RedirectURIs []string      `toml:"redirect_uris"`
	State        string        `toml:"state"`
	Key          string        `toml:"key"`
	Listen       listenConfig  `toml:"listen"`
	Network      networkConfig `toml:"network"`
	Log          logConfig     `toml:"log"`
}

// agentSide is a Personal Agent as its configuration describes it, opened for one command.
type agentSide struct {
	*agent.Agent
	config agentConfig
	file   *config.File
	log    *slog.Logger
}

// openAgent opens the agent of the configuration at path. Close it when done.
func openAgent(ctx context.Context, t *terminal, path string, resolve []string) (*agentSide, error) {
	s := &agentSide{config: agentConfig{State: "agent.db", Key: "agent.key"}}
	var err error
	if s.file, err = loadConfig(path, agentFile, &s.config); err != nil {
		return nil, err
	}
	if s.log, err = s.config.Log.logger(s.file, "log", t.errs); err != nil {
		return nil, err
	}
	if _, err := s.config.Network.mappings(s.file, "network"); err != nil {
		return nil, err
	}
	for _, text := range resolve {
		if _, err := fetch.ParseResolve(text); err != nil {
			return nil, usage("--resolve " + plain(text) + ": " + err.Error())
		}
	}
	authorities, err := s.config.Network.pool(s.file, "network")
	if err != nil {
		return nil, err
	}
	s.Agent, err = agent.New(ctx, agent.Options{
		VaultFile: s.file.Beside(s.config.State), KeyFile: s.file.Beside(s.config.Key),
		ClientID: s.config.ClientID, Name: s.config.Name, LogoURI: s.config.LogoURI, RedirectURIs: s.config.RedirectURIs,
		Network: agent.Network{Resolve: append(s.config.Network.Resolve, resolve...), Authorities: authorities},
		Log:     s.log,
	})
	if err != nil {
		return nil, problems(s.file, err)
	}
	return s, nil
}

// problems puts the faults of protocol values at the lines of the file they came from.
func problems(f *config.File, err error) error {
	list, ok := errors.AsType[poppy.Problems](err)
	if !ok {
		return err
	}
	var all []error
	for _, p := range list {
		what := p.Rule
		if p.Section != "" {
			what += " (protocol section " + p.Section + ")"
		}
		all = append(all, f.Problem(p.Field, what, ""))
	}
	return usageError{errors.Join(all...)}
}

func newAgent(t *terminal) *cobra.Command {
	var path string
	var resolve []string
	open := func(cmd *cobra.Command) (*agentSide, error) { return openAgent(cmd.Context(), t, path, resolve) }
	cmd := group("agent", "A Personal Agent's side of the protocol",
		`A Personal Agent acts for its User at Companies. These commands do each step of the protocol, so that you can see it, script it, or
try a Company with it. A program uses the library behind them: go doc countersign/agent.

Start with: countersign agent init FOLDER`,
		newAgentInit(t), newAgentServe(t, open), newAgentExport(t, open), newAgentDiscover(t, open),
		newAgentSession(t, open), newAgentChat(t, open), newAgentOperations(t, open))
	configFlag(cmd, &path, agentFile)
	cmd.PersistentFlags().StringArrayVar(&resolve, "resolve", nil, "HOST=ADDR:PORT: reach a host at this address, private ones too (repeatable)")
	cmd.PersistentFlags().BoolVar(&t.json, "json", false, "print data as JSON")
	return cmd
}

// agentInit is what agent init writes.
type agentInit struct {
	clientID, name, address, authority string
	resolve                            []string
}

func newAgentInit(t *terminal) *cobra.Command {
	var init agentInit
	cmd := &cobra.Command{
		Use: "init FOLDER", Short: "Write a configuration for an agent on this machine", Args: arguments("FOLDER"),
		Long: `Writes FOLDER/agent.toml, which works as it is with the shop that 'countersign company init' writes, and makes the agent's
keys. Both sides trust a certificate authority that is made for this machine and can vouch for nothing but local names.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := init.write(args[0]); err != nil {
				return err
			}
			side, err := openAgent(cmd.Context(), t, args[0], nil) // makes the keys, and proves that what was written works
			if err != nil {
				return err
			}
			if err := side.Close(); err != nil {
				return err
			}
			t.say("Wrote %s: %s is %s.", filepath.Join(args[0], agentFile), plain(init.clientID), plain(init.name))
			t.say("Its keys are in %s. Keep that file to yourself.", filepath.Join(args[0], "agent.key"))
			t.say("Next: countersign agent serve -c %s", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&init.clientID, "client-id", "https://agent.example/agent.json", "the https URL at which the agent publishes who it is")
	cmd.Flags().StringVar(&init.name, "name", "Example Agent", "the name that Companies show to Users")
	cmd.Flags().StringVar(&init.address, "address", "127.0.0.1:9443", "where 'agent serve' listens")
	cmd.Flags().StringVar(&init.authority, "authority", "countersign-ca", "folder of the certificate authority for this machine; shared with the shop")
	cmd.Flags().StringArrayVar(&init.resolve, "resolve", storyHosts("127.0.0.1:8443"), "HOST=ADDR:PORT: where Companies on this machine are")
	return cmd
}

func (i agentInit) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	id, err := poppy.ParseURL(i.clientID)
	if err != nil {
		return usage("--client-id " + plain(i.clientID) + " " + err.Error())
	}
	authority, err := authorityFor(dir, i.authority, id.Hostname())
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`# A Personal Agent. Lines that begin with # and a setting show what it is when left out, or an example.

# Who the agent is to Companies: the https URL where they read its name and its public keys (protocol 4.1).
client_id = %s
name = %s
# logo_uri = "https://agent.example/logo.png"
# redirect_uris = []            # where signing in on a Company's page may return to

# Everything that the agent must remember, encrypted, and the key it is encrypted with.
# state = "agent.db"
# key = "agent.key"

# 'countersign agent serve' publishes the two documents here. 'countersign agent export' writes them to host anywhere.
[listen]
address = %s
# certificate = "chain.pem"     # a real certificate; without one it comes from the local authority
# key = "key.pem"

[network]
# For development on one machine: certificates come from an authority in this folder, and it is trusted.
local_authority = %s
# authorities = []              # files of more authorities to trust
# Where hosts are that exist on this machine only. Naming one is what allows a private address for it.
resolve = %s

[log]
# level = "info"                # debug, info, warn, error
# format = "text"               # text, json
`, tomlString(i.clientID), tomlString(i.name), tomlString(i.address), tomlString(authority), tomlList(i.resolve))
	return writeNew(filepath.Join(dir, agentFile), []byte(text), 0o600)
}

// authorityFor makes the local authority and returns its folder as a file in dir names it.
func authorityFor(dir, authority string, hosts ...string) (string, error) {
	if _, err := localca.Create(authority, time.Now, hosts...); err != nil {
		return "", err
	}
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(authority)
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// tomlList writes a list of texts for a TOML file, one a line.
func tomlList(texts []string) string {
	if len(texts) == 0 {
		return "[]"
	}
	var list strings.Builder
	for _, text := range texts {
		list.WriteString("  " + tomlString(text) + ",\n")
	}
	return "[\n" + list.String() + "]"
}

func newAgentServe(t *terminal, open func(*cobra.Command) (*agentSide, error)) *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Publish who the agent is: its client metadata and public keys", Args: arguments(),
		Long: `Companies fetch the client_id to learn who the agent is and which keys it signs with. Serve answers them until it is stopped.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			side, err := open(cmd)
			if err != nil {
				return err
			}
			return errors.Join(side.serve(cmd, t), side.Close())
		},
	}
}

func (s *agentSide) serve(cmd *cobra.Command, t *terminal) error {
	host, err := url.Parse(s.config.ClientID) // identity.Open has checked it
	if err != nil {
		return err
	}
	certificate, err := s.config.Listen.certificate(s.file, "listen", s.config.Network, []string{host.Hostname()})
	if err != nil {
		return err
	}
	listener, err := s.config.Listen.listen(cmd, s.file, "listen")
	if err != nil {
		return err
	}
	t.say("%s%s on %s", readyPrefix, s.config.ClientID, listener.Addr())
	return web.Serve(cmd.Context(), web.Options{Listener: listener, Certificate: certificate, Handler: s.Identity.Handler(), Log: s.log})
}

func newAgentExport(t *terminal, open func(*cobra.Command) (*agentSide, error)) *cobra.Command {
	return &cobra.Command{
		Use: "export FOLDER", Short: "Write the two documents to files, to host anywhere", Args: arguments("FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			side, err := open(cmd)
			if err != nil {
				return err
			}
			files, err := side.Identity.Export(cmd.Context(), args[0])
			if err != nil {
				return errors.Join(err, side.Close())
			}
			if t.json {
				return errors.Join(t.writeJSON(map[string]any{"files": files}), side.Close())
			}
			for _, file := range files {
				t.say("%s", file)
			}
			return side.Close()
		},
	}
}

func newAgentDiscover(t *terminal, open func(*cobra.Command) (*agentSide, error)) *cobra.Command {
	return &cobra.Command{
		Use: "discover DOMAIN", Short: "Find a Company and check that its domain and its issuer belong together", Args: arguments("DOMAIN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			side, err := open(cmd)
			if err != nil {
				return err
			}
			return errors.Join(side.discover(cmd.Context(), t, args[0]), side.Close())
		},
	}
}
