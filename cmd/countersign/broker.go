package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"countersign/broker"
	"countersign/broker/access"
	"countersign/broker/agentapi"
	"countersign/broker/mcp"
	"countersign/broker/operatorapi"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/config"
	"countersign/internal/database"
	"countersign/internal/secret"
	"countersign/internal/web"
	companyprovider "countersign/provider/company"
	"countersign/provider/demo"
)

const (
	brokerFile = "broker.toml"
	policyFile = "policy.cedar"
)

// brokerConfig is a broker.toml.
type brokerConfig struct {
	State        string          `toml:"state"`
	Policy       string          `toml:"policy"`
	AgentAPI     string          `toml:"agent_api"`
	OperatorAPI  string          `toml:"operator_api"`
	MCP          string          `toml:"mcp"`
	ToolPrefix   string          `toml:"tool_prefix"`
	ApprovalTTL  config.Duration `toml:"approval_ttl"`
	MaxExecuting int             `toml:"max_executing"`
	Clients      []callerConfig  `toml:"client"`
	Operators    []callerConfig  `toml:"operator"`
	Demo         *struct {
		Journal string `toml:"journal"`
	} `toml:"demo"`
	Company *struct {
		Agent  string `toml:"agent"`
		Person string `toml:"person"`
	} `toml:"company"`
	Log logConfig `toml:"log"`
}

// callerConfig is a client or an operator: who, and the hash of their secret.
type callerConfig struct {
	ID         string `toml:"id"`
	SecretHash string `toml:"secret_hash"`
}

// endpoint reads an endpoint of the configuration; a Unix socket may be named relative to the file.
func endpoint(f *config.File, field, text string) (access.Endpoint, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && !strings.HasPrefix(path, "//") {
		absolute, err := filepath.Abs(f.Beside(path))
		if err != nil {
			return access.Endpoint{}, err
		}
		text = "unix://" + absolute
	}
	e, err := access.ParseEndpoint(text)
	if err != nil {
		return access.Endpoint{}, usageError{f.Problem(field, "cannot be used: "+err.Error(), `write "unix:agent.sock", or "http://127.0.0.1:8790"`)}
	}
	return e, nil
}

func callers(f *config.File, field, realm string, list []callerConfig) (*access.Callers, error) {
	var all []access.Caller
	for _, c := range list {
		all = append(all, access.Caller{ID: c.ID, Hash: c.SecretHash})
	}
	made, err := access.NewCallers(realm, all)
	if err != nil {
		return nil, usageError{f.Problem(field, "cannot be used: "+err.Error(), "")}
	}
	return made, nil
}

// brokerSide is the broker of a configuration, opened to be served.
type brokerSide struct {
	config    brokerConfig
	file      *config.File
	log       *slog.Logger
	broker    *broker.Broker
	clients   *access.Callers
	operators *access.Callers
	closers   []func() error
}

// openBroker opens the broker of the configuration at path. Close it when done, also after an error.
func openBroker(ctx context.Context, t *terminal, path string) (*brokerSide, error) {
	b := &brokerSide{config: brokerConfig{State: "broker.db", Policy: policyFile}}
	var err error
	if b.file, err = loadConfig(path, brokerFile, &b.config); err != nil {
		return b, err
	}
	if b.log, err = b.config.Log.logger(b.file, "log", t.errs); err != nil {
		return b, err
	}
	if b.clients, err = callers(b.file, "client", "countersign agents", b.config.Clients); err != nil {
		return b, err
	}
	if b.operators, err = callers(b.file, "operator", "countersign operators", b.config.Operators); err != nil {
		return b, err
	}
	engine, err := policy.Load(b.file.Beside(b.config.Policy))
	if err != nil {
		return b, usageError{err}
	}
	release, err := alone(b.file.Beside(b.config.State))
	if err != nil {
		return b, err
	}
	b.closers = append(b.closers, release)
	operations, err := b.providers(ctx, t)
	if err != nil {
		return b, err
	}
	db, err := database.Open(ctx, b.file.Beside(b.config.State))
	if err != nil {
		return b, err
	}
	b.closers = append(b.closers, db.Close)
	b.broker, err = broker.New(ctx, broker.Options{
		DB: db, Policy: engine, Operations: operations, Now: time.Now, Log: b.log,
		ApprovalTTL: time.Duration(b.config.ApprovalTTL), MaxExecuting: b.config.MaxExecuting,
	})
	return b, err
}

// providers opens the providers that the configuration names.
func (b *brokerSide) providers(ctx context.Context, t *terminal) ([]provider.Operation, error) {
	var all []provider.Operation
	if b.config.Demo != nil {
		journal, err := demo.OpenFile(b.file.Beside(b.config.Demo.Journal))
		if err != nil {
			return nil, usageError{b.file.Problem("demo.journal", "cannot be used: "+err.Error(), "name a file that can be written")}
		}
		b.closers = append(b.closers, journal.Close)
		all = append(all, demo.Operations(journal)...)
	}
	if b.config.Company != nil {
		side, err := openAgent(ctx, t, b.file.Beside(b.config.Company.Agent), nil)
		if err != nil {
			return nil, fmt.Errorf("opening the agent that the broker acts through: %w", err)
		}
		b.closers = append(b.closers, side.Close)
		person := b.config.Company.Person
		if person == "" {
			person = "me"
		}
		all = append(all, companyprovider.Operations(companyprovider.Options{Agent: side.Agent, Person: person})...)
	}
	return all, nil
}

// close closes what was opened, the last first.
func (b *brokerSide) close() error {
	var all []error
	for _, closer := range slices.Backward(b.closers) {
		all = append(all, closer())
	}
	return errors.Join(all...)
}

// door is one way into the broker.
type door struct {
	name, field, address string
	handler              http.Handler
}

// doors are the ways in that the configuration opens.
func (b *brokerSide) doors(ctx context.Context) ([]door, error) {
	everything, err := catalogue()
	if err != nil {
		return nil, err
	}
	for _, warning := range b.broker.Policy.Unknown(b.clients.IDs(), names(everything)) {
		b.log.Warn("the policy has a rule that never matches", "rule", warning)
	}
	offered := make(map[string][]provider.Descriptor)
	for _, id := range b.clients.IDs() {
		list, err := b.broker.Offered(ctx, id)
		if err != nil {
			return nil, err
		}
		offered[id] = list
	}
	operators, err := operatorapi.NewHandler(operatorapi.Options{
		Approvals: b.broker.Approvals, Operations: b.broker.Operations, Operators: b.operators, Clients: b.clients, Log: b.log,
	})
	if err != nil {
		return nil, usageError{err}
	}
	doors := []door{
		{"agents", "agent_api", b.config.AgentAPI, agentapi.NewHandler(agentapi.Options{
			Operations: b.broker.Operations, Clients: b.clients, Build: version(), Log: b.log,
			Offered: func(clientID string) []provider.Descriptor { return offered[clientID] },
		})},
		{"operators", "operator_api", b.config.OperatorAPI, operators},
	}
	if b.config.MCP != "" {
		handler, err := mcp.NewHandler(mcp.HandlerOptions{
			Clients: b.clients, Log: b.log,
			Server: func(clientID string) (*sdk.Server, error) {
				return mcp.NewServer(mcp.Options{
					Operations: mcp.ForClient(b.broker.Operations, clientID), Offered: offered[clientID],
					Prefix: b.config.ToolPrefix, Build: version(), Log: b.log,
				})
			},
		})
		if err != nil {
			return nil, usageError{err}
		}
		doors = append(doors, door{"MCP", "mcp", b.config.MCP, handler})
	}
	return doors, nil
}

// serve serves every door and executes until the command is stopped or a part of it fails.
func (b *brokerSide) serve(ctx context.Context, t *terminal) error {
	doors, err := b.doors(ctx)
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{b.broker.Run}
	var at []string
	for _, d := range doors {
		e, err := endpoint(b.file, d.field, d.address)
		if err != nil {
			return err
		}
		listener, err := e.Listen(ctx, false)
		if err != nil {
			return usageError{b.file.Problem(d.field, "cannot be listened on: "+err.Error(), "")}
		}
		at = append(at, d.name+" at "+e.String())
		parts = append(parts, func(ctx context.Context) error {
			return web.Serve(ctx, web.Options{Listener: listener, Handler: d.handler, Log: b.log})
		})
	}
	t.say("%s%s", readyPrefix, strings.Join(at, ", "))
	return together(ctx, parts...)
}

func newBroker(t *terminal) *cobra.Command {
	var path string
	cmd := group("broker", "Typed operations for a language model, decided by policy and people",
		`A model submits operations over MCP, HTTP or the command and gets a durable operation back at once. Policy decides what may be
submitted and what may run unattended; the rest waits for a person. No credential ever comes near the model.

Start with: countersign broker init FOLDER`,
		newBrokerInit(t), newBrokerServe(t, &path), newBrokerMCP(t, &path))
	configFlag(cmd, &path, brokerFile)
	return cmd
}

// brokerInit is what broker init writes.
type brokerInit struct {
	agent, client, operator string
	approvalTTL             string
}

func newBrokerInit(t *terminal) *cobra.Command {
	var init brokerInit
	cmd := &cobra.Command{
		Use: "init FOLDER", Short: "Write a configuration, a policy and the secrets of one client and one operator", Args: arguments("FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if init.agent != "" { // before anything is written, so that trying again meets no leftovers
				if _, err := os.Stat(filepath.Join(init.agent, agentFile)); err != nil {
					return usage("--agent " + plain(init.agent) + ": there is no " + agentFile + " in it\nmake an agent first: countersign agent init FOLDER")
				}
			}
			if err := init.write(args[0]); err != nil {
				return err
			}
			b, err := openBroker(cmd.Context(), t, args[0]) // proves that what was written works
			if err := errors.Join(err, b.close()); err != nil {
				return err
			}
			t.say("Wrote %s and %s: read both, they say what may happen.", filepath.Join(args[0], brokerFile), filepath.Join(args[0], policyFile))
			t.say("The secrets are in %s. A client needs its own file and nothing else.", filepath.Join(args[0], "*.secret"))
			t.say("Next: countersign broker serve -c %s", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&init.agent, "agent", "", "folder of an agent (see countersign agent init): lets the model reach Companies through it")
	cmd.Flags().StringVar(&init.client, "client", "assistant", "the name of the client that submits")
	cmd.Flags().StringVar(&init.operator, "operator", "me", "the name of the operator who approves")
	return cmd
}

func (i brokerInit) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	hashes := make(map[string]string)
	for _, role := range []struct{ file, id string }{{"client-" + i.client, i.client}, {"operator-" + i.operator, i.operator}} {
		made := access.NewSecret()
		hash, err := access.Hash(made)
		if err != nil {
			return err
		}
		if err := writeNew(filepath.Join(dir, role.file+".secret"), []byte(made.Reveal()+"\n"), 0o600); err != nil {
			return err
		}
		hashes[role.file] = hash
	}
	companies := "# [company]                     # lets the model reach Companies; needs an agent: countersign agent init FOLDER\n# agent = \"../me\"\n# person = \"me\"\n"
	if i.agent != "" {
		from, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		to, err := filepath.Abs(i.agent)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, to)
		if err != nil {
			return err
		}
		companies = "# Companies, reached through this agent. The model never sees its keys and tokens.\n[company]\nagent = " + tomlString(relative) + "\n# person = \"me\"                 # whom it acts for; never sent to anyone\n"
	}
	text := fmt.Sprintf(`# A broker: clients submit typed operations, the policy and people decide, providers execute.
# Lines that begin with # and a setting show what it is when left out, or an example.

# state = "broker.db"
# policy = "policy.cedar"       # what may be submitted, and what may run without asking; check it with: countersign policy check

# Where the broker listens: a Unix socket beside this file that only you can open, or a loopback address.
agent_api = "unix:agent.sock"       # for clients
operator_api = "unix:operator.sock" # for people who approve
# mcp = "http://127.0.0.1:8791"     # MCP over Streamable HTTP at /mcp, too; over stdio see: countersign broker mcp
# tool_prefix = ""                  # stands before the name of each MCP tool

approval_ttl = %s             # how long a person has to decide
# max_executing = 64            # calls to providers at once

# Who may submit, and who may approve. Only hashes of the secrets stand here; the secrets are in the files beside.
[[client]]
id = %s
secret_hash = %s

[[operator]]
id = %s
secret_hash = %s

# The demo provider: operations that succeed, fail, hang and leak, to try things out. Remove it when you have seen enough.
[demo]
journal = "demo.jsonl"

%s
[log]
# level = "info"                # debug, info, warn, error
# format = "text"               # text, json
`, tomlString(cmp.Or(i.approvalTTL, "1h")), tomlString(i.client), tomlString(hashes["client-"+i.client]),
		tomlString(i.operator), tomlString(hashes["operator-"+i.operator]), companies)
	if err := writeNew(filepath.Join(dir, policyFile), []byte(policy.Default()), 0o600); err != nil {
		return err
	}
	return writeNew(filepath.Join(dir, brokerFile), []byte(text), 0o600)
}

func newBrokerServe(t *terminal, path *string) *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Run the broker", Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := openBroker(cmd.Context(), t, *path)
			if err == nil {
				err = b.serve(cmd.Context(), t)
			}
			return errors.Join(err, b.close())
		},
	}
}

func newBrokerMCP(t *terminal, path *string) *cobra.Command {
	var as clientFlags
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve MCP on standard input and output, for a host that starts this process", Args: arguments(),
		Long: `A host of a language model starts this process. It speaks to the broker as one client; the model behind it sees tools, operations and
results, and neither the client's secret nor any other.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, prefix, err := as.client(*path)
			if err != nil {
				return err
			}
			defer client.Close()
			found, err := client.Discover(cmd.Context())
			if err != nil {
				return brokerError(err)
			}
			server, err := mcp.NewServer(mcp.Options{
				Operations: client, Offered: found.Operations, Prefix: prefix, Build: version(),
				Log: slog.New(slog.NewTextHandler(t.errs, nil)),
			})
			if err != nil {
				return err
			}
			return mcp.ServeStdio(cmd.Context(), server)
		},
	}
	as.add(cmd, roleClient)
	return cmd
}

// The roles in which a command calls a broker: each is a flag, a table of the configuration and a part of a secret file's name.
const (
	roleClient   = "client"
	roleOperator = "operator"
)

// clientFlags say whom a command calls the broker as.
type clientFlags struct{ endpoint, secretFile, id string }

func (c *clientFlags) add(cmd *cobra.Command, role string) {
	cmd.PersistentFlags().StringVar(&c.id, role, "", "the "+role+" to act as, if the configuration has several")
	cmd.PersistentFlags().StringVar(&c.endpoint, "endpoint", os.Getenv("COUNTERSIGN_ENDPOINT"), "the broker's endpoint, where there is no configuration (COUNTERSIGN_ENDPOINT)")
	cmd.PersistentFlags().StringVar(&c.secretFile, "secret-file", os.Getenv("COUNTERSIGN_SECRET_FILE"), "the file with the secret (COUNTERSIGN_SECRET_FILE)")
}

// client is the client that a command calls the broker with, and the prefix of its tools.
func (c *clientFlags) client(path string) (*agentapi.Client, string, error) {
	e, s, prefix, err := c.resolve(path, roleClient, func(b brokerConfig) (string, []callerConfig) { return b.AgentAPI, b.Clients }, "agent_api")
	if err != nil {
		return nil, "", err
	}
	return agentapi.NewClient(agentapi.ClientOptions{Endpoint: e, Secret: s}), prefix, nil
}

// operator is the client that a command calls the broker's operator API with.
func (c *clientFlags) operator(path string) (*operatorapi.Client, error) {
	e, s, _, err := c.resolve(path, roleOperator, func(b brokerConfig) (string, []callerConfig) { return b.OperatorAPI, b.Operators }, "operator_api")
	if err != nil {
		return nil, err
	}
	return operatorapi.NewClient(operatorapi.ClientOptions{Endpoint: e, Secret: s}), nil
}

// resolve finds the endpoint and the secret: from the flags, or from the configuration and the secret file beside it.
func (c *clientFlags) resolve(path, role string, from func(brokerConfig) (string, []callerConfig), field string) (access.Endpoint, secret.Text, string, error) {
	var none access.Endpoint
	if c.endpoint != "" && c.secretFile == "" {
		return none, secret.Text{}, "", usage("--endpoint needs the secret for it\nname its file with --secret-file")
	}
	if c.endpoint != "" {
		e, err := access.ParseEndpoint(c.endpoint)
		if err != nil {
			return none, secret.Text{}, "", usage("--endpoint " + plain(c.endpoint) + ": " + err.Error())
		}
		s, err := readSecret(c.secretFile)
		return e, s, "", err
	}
	var b brokerConfig
	f, err := loadConfig(path, brokerFile, &b)
	if err != nil {
		return none, secret.Text{}, "", err
	}
	address, known := from(b)
	e, err := endpoint(f, field, address)
	if err != nil {
		return none, secret.Text{}, "", err
	}
	id := c.id
	if id == "" {
		if len(known) != 1 {
			return none, secret.Text{}, "", usage("which " + role + "?\nname one with --" + role)
		}
		id = known[0].ID
	}
	file := c.secretFile
	if file == "" {
		file = f.Beside(role + "-" + id + ".secret")
	}
	s, err := readSecret(file)
	return e, s, b.ToolPrefix, err
}

func readSecret(path string) (secret.Text, error) {
	data, err := readPrivate(path)
	if err != nil {
		return secret.Text{}, usage("the secret cannot be read: " + err.Error() + "\nname its file with --secret-file")
	}
	return secret.New(strings.TrimSpace(string(data))), nil
}

// catalogue is everything that a broker can offer, for looking at. Nothing of it can be executed: it reaches no Company and has
// no file.
func catalogue() (*provider.Registry, error) {
	return provider.NewRegistry(append(demo.Operations(nil), companyprovider.Operations(companyprovider.Options{})...)...)
}

// names are the names of what a registry offers.
func names(r *provider.Registry) []string {
	var all []string
	for _, d := range r.Descriptors() {
		all = append(all, d.Name)
	}
	return all
}
