package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"countersign/agent/conversation"
	"countersign/agent/discovery"
	"countersign/agent/operation"
	"countersign/agent/session"
	"countersign/poppy"
)

// world is what a demo plays in: a shop and the agent's identity documents, each served by a process of its own, and the
// agent itself in this one. All of it lies in one folder.
type world struct {
	t       *terminal
	dir     string
	address struct{ shop, agent string }
	shop    *process
	docs    *process
	agent   *agentSide
	keep    bool // whether the folder stays, for its logs
}

// newWorld writes both sides' configurations, starts them, and opens the agent. What the shop offers can be confirmed for a time
// such as "20m". Close it, also after an error.
func newWorld(ctx context.Context, t *terminal, offersFor string) (*world, error) {
	w := &world{t: t}
	var err error
	if w.dir, err = os.MkdirTemp("", "countersign-demo-"); err != nil {
		return w, err
	}
	if w.address.shop, err = freeAddress(ctx); err != nil {
		return w, err
	}
	if w.address.agent, err = freeAddress(ctx); err != nil {
		return w, err
	}
	authority := filepath.Join(w.dir, "countersign-ca")
	shop := companyInit{
		domain: "outdoor.example", name: "Example Outdoor", address: w.address.shop, authority: authority, offersFor: offersFor,
		resolve: []string{"agent.example=" + w.address.agent},
	}
	if err := shop.write(filepath.Join(w.dir, "shop")); err != nil {
		return w, err
	}
	me := agentInit{
		clientID: "https://agent.example/agent.json", name: "Example Agent", address: w.address.agent, authority: authority,
		resolve: storyHosts(w.address.shop),
	}
	if err := me.write(filepath.Join(w.dir, "me")); err != nil {
		return w, err
	}
	if err := w.startShop(ctx); err != nil {
		return w, err
	}
	if w.docs, err = startProcess(ctx, "the agent's documents", filepath.Join(w.dir, "me.log"), nil, "agent", "serve", "-c", filepath.Join(w.dir, "me")); err != nil {
		return w, err
	}
	w.agent, err = openAgent(ctx, t, filepath.Join(w.dir, "me"), nil)
	return w, err
}

func (w *world) startShop(ctx context.Context) (err error) {
	w.shop, err = startProcess(ctx, "the shop", filepath.Join(w.dir, "shop.log"), nil, "company", "serve", "-c", filepath.Join(w.dir, "shop"))
	return err
}

// close stops what runs and removes the folder.
func (w *world) close() error {
	var all []error
	if w.agent != nil {
		all = append(all, w.agent.Close())
	}
	for _, p := range []*process{w.shop, w.docs} {
		if p != nil {
			all = append(all, p.stop())
		}
	}
	if w.dir != "" && !w.keep {
		all = append(all, os.RemoveAll(w.dir))
	}
	return errors.Join(all...)
}

// story is the first story: discovery, Session, conversation, operation.
type story struct {
	*world
	once    bool
	company discovery.Company
	in      *session.Session
	talk    *conversation.Conversation
	offer   poppy.Operation
	asked   operation.Approval
}

// step is a part of a story. Its name completes "could not …".
type step struct {
	name, title string
	play        func(context.Context) error
}

const question = "Is the insulated jacket there in medium? The user could pick it up tomorrow."

func (s *story) steps() []step {
	return []step{
		{"discover the shop", "The agent finds the shop", s.discover},
		{"start a Session", "The agent starts a Session, signed out", s.session},
		{"talk with the shop", "The agent asks, the shop's clerk answers and proposes", s.converse},
		{"ask the person", "The person sees the exact terms, and is asked", s.ask},
		{"confirm the operation", "The agent confirms that revision, the shop performs it", s.confirm},
		{"read the result", "Both sides have one record of it", s.read},
	}
}

func (s *story) discover(ctx context.Context) (err error) {
	s.explain(`Anyone can publish a poppy.json, and anyone can name an issuer in it. So two checks tie the two together: the document must
		speak for the host that served it, and the issuer must list that domain on its side.`)
	if s.company, err = s.agent.Discovery.Resolve(ctx, "outdoor.example"); err != nil {
		return err
	}
	printSteps(s.t, s.company.Steps)
	s.t.say("%s (%s) offers:", bold.Render(plain(s.company.Name)), s.company.Domain)
	for _, endpoint := range s.company.Endpoints() {
		s.t.say("  %-14s %s", endpoint.Kind, endpoint.URL)
	}
	return nil
}

func (s *story) session(ctx context.Context) (err error) {
	s.explain(`The agent sends two signed assertions and a proof of its key to the token endpoint. The shop fetches
		https://agent.example/agent.json to learn who signs, and issues a token that works only with proofs of that key. It learns which agent is asking, and
		recognises the same user next time by an ID made for this shop alone. Who the user is it does not learn.`)
	if s.in, err = s.agent.Sessions.Open(ctx, s.company, session.Which{Person: "demo"}); err != nil {
		return err
	}
	s.t.say("%s Session %s, scope %q: signed out", good.Render("✓"), s.in.ID(), s.in.Scopes().String())
	return nil
}

func (s *story) converse(ctx context.Context) (err error) {
	if s.talk, err = s.agent.say(ctx, s.in, conversation.Draft{Text: question}, true); err != nil {
		return err
	}
	err = reply(ctx, s.talk, question, func(event conversation.Event) error {
		if m := event.Message; m != nil {
			printMessage(s.t, s.company, m)
			if m.Operation != nil {
				s.offer = *m.Operation
			}
		}
		return nil
	})
	if err == nil && s.offer.OperationID == "" {
		err = errors.New("the shop proposed nothing")
	}
	if err != nil {
		return err
	}
	s.explain(`Beside the text came an operation: what the shop would do, as revision 1 of its terms, with a date by which it can be confirmed.
		Nothing has happened yet, and no message can make it happen.`)
	s.t.say("%s operation %s, revision %d, %s", good.Render("✓"), s.offer.OperationID, s.offer.Revision, s.offer.State)
	return nil
}

func (s *story) ask(ctx context.Context) (err error) {
	s.explain(`The agent shows the Company's name, its domain and the summary, and takes the answer through its own interface. The approval it
		gets holds the digest of exactly this revision.`)
	printOperation(s.t, s.company, s.offer)
	s.asked, err = operation.Ask(ctx, s.company, s.offer, storyAsker{s.t, s.once})
	if errors.Is(err, operation.ErrDeclined) {
		declined, cancelErr := s.agent.Operations.Cancel(ctx, s.in, s.offer.OperationID)
		if cancelErr != nil {
			return cancelErr
		}
		s.t.say("\nYou said no, and the agent told the shop: the operation is %s. Nothing was done.", declined.State)
		return errSilent(exitFailed)
	}
	return err
}

// storyAsker asks the person at the terminal. With once it says yes in their place, and says so.
type storyAsker struct {
	t    *terminal
	once bool
}

// Ask implements operation.Asker.
func (a storyAsker) Ask(ctx context.Context, _ operation.Question) (bool, error) {
	if a.once {
		a.t.say("\nConfirm exactly these terms? [y/n] y   %s", faint.Render("(--once plays the person's yes)"))
		return true, nil
	}
	return a.t.ask(ctx, "\nConfirm exactly these terms?")
}

func (s *story) confirm(ctx context.Context) error {
	s.explain(`The confirmation names the revision. The shop checks and records it in one step, so fifty copies of the request perform it once; had
		the terms changed, it would answer with the new ones and do nothing.`)
	o, err := s.agent.Operations.Confirm(ctx, s.in, s.offer, s.asked)
	if err == nil && o.State == poppy.OperationInProgress {
		o, err = s.agent.Operations.Wait(ctx, s.in, o.OperationID)
	}
	if err != nil {
		return err
	}
	s.t.say("%s revision %d confirmed, approved by %s: %s", good.Render("✓"), o.Confirmation.Revision, o.Confirmation.ApprovedBy, o.State)
	return nil
}

func (s *story) read(ctx context.Context) error {
	o, err := s.agent.Operations.Get(ctx, s.in, s.offer.OperationID)
	if err != nil {
		return err
	}
	printOperation(s.t, s.company, o)
	if o.State != poppy.OperationSucceeded {
		return fmt.Errorf("the operation ended as %s", o.State)
	}
	journal, err := os.ReadFile(filepath.Join(s.dir, "shop", "journal.jsonl"))
	if err != nil {
		return fmt.Errorf("reading the shop's journal: %w", err)
	}
	if n := strings.Count(string(journal), "\n"); n != 1 {
		return fmt.Errorf("the shop's journal has %d lines instead of one", n)
	}
	s.t.say("\nThe shop's own journal has one line for it:")
	s.t.say("%s", indent("  ", string(journal)))
	return nil
}

// explain prints what a newcomer should know, folded to the width of a narrow terminal.
func (w *world) explain(text string) {
	const width = 96
	line := ""
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			w.t.say("%s", faint.Render(line))
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	w.t.say("%s", faint.Render(line))
}

// play plays steps one after the other, and names the one that failed.
func (w *world) play(ctx context.Context, steps []step) error {
	for i, s := range steps {
		w.t.say("\n%s", bold.Render(fmt.Sprintf("%d. %s", i+1, s.title)))
		if err := s.play(ctx); err != nil {
			if _, ok := errors.AsType[errSilent](err); ok {
				return err
			}
			if _, ok := errors.AsType[pendingError](err); ok && ctx.Err() == nil {
				return pendingError("neither yes nor no: nothing was decided, and nothing is done")
			}
			if ctx.Err() != nil {
				return pendingError("stopped in step " + strconv.Itoa(i+1) + ": nothing goes on")
			}
			w.keep = true
			return fmt.Errorf("step %d, could not %s: %w\nthe logs are kept in %s", i+1, s.name, err, w.dir)
		}
	}
	return nil
}

func newDemo(t *terminal) *cobra.Command {
	var once bool
	var story, branch string
	cmd := &cobra.Command{
		Use: "demo", Short: "Play a whole story on this machine: no network, no account", Args: arguments(),
		Long: `Starts a shop and a personal agent on loopback, as two processes that speak over TLS with certificates made for the occasion, and
plays how the agent gets a jacket held at the shop: found, asked, proposed, approved by you, confirmed, performed once.`,
		Example: "  countersign demo\n  countersign demo --once\n  countersign demo --story broker --branch changed --once",
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGPIPE) // who stops reading leaves a demo that still ends and removes its folder
			switch story {
			case "shop":
				if cmd.Flags().Changed("branch") {
					return usage("--branch is about the broker's story\nadd --story broker")
				}
				return playDemo(cmd.Context(), t, once)
			case "broker":
				return playBrokerDemo(cmd.Context(), t, branch, once)
			}
			return usage("there is no story " + plain(story) + "\nchoose shop or broker")
		},
	}
	cmd.Flags().StringVar(&story, "story", "shop", "shop: an agent and a shop; broker: a model gets the same done through a broker")
	cmd.Flags().StringVar(&branch, "branch", branchApprove, "how the broker's story ends: "+strings.Join(branches, ", "))
	cmd.Flags().BoolVar(&once, "once", false, "play it without asking, and end")
	return cmd
}

func playDemo(ctx context.Context, t *terminal, once bool) (err error) {
	began := time.Now()
	t.say("%s", bold.Render("A shop, a personal agent, and one jacket"))
	w, err := newWorld(ctx, t, "20m")
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return err
	}
	t.say("The shop is outdoor.example, the agent is agent.example. Both run on this machine, in %s.", w.dir)
	s := &story{world: w, once: once}
	if err := w.play(ctx, s.steps()); err != nil {
		return err
	}
	t.say("\nDone in %.1f s.", time.Since(began).Seconds())
	if once {
		return nil
	}
	t.say("\n%s", bold.Render("Both sides go on running. In another terminal, try:"))
	self := commandName()
	t.say(`
  export COUNTERSIGN_CONFIG=%s
  %[2]s agent chat outdoor.example "The insulated jacket in medium, please"
  %[2]s agent chat outdoor.example "Or rather in large?"         %[3]s
  %[2]s agent operations list outdoor.example
  %[2]s agent operations confirm outdoor.example OPERATION
  %[2]s company agents block https://agent.example/agent.json -c %[4]s
`, filepath.Join(w.dir, "me"), self, faint.Render("# while nothing is confirmed: new terms, revision 2"), filepath.Join(w.dir, "shop"))
	t.say("What the shop says is in %s. Ctrl-C ends the demo and removes the folder.", filepath.Join(w.dir, "shop", companyFile))
	select {
	case <-ctx.Done():
		t.say("")
		return nil
	case <-w.shop.done:
		return fmt.Errorf("the shop ended: %w\n%s", w.shop.err, w.shop.lastLines())
	case <-w.docs.done:
		return fmt.Errorf("the agent's documents ended: %w\n%s", w.docs.err, w.docs.lastLines())
	}
}

// commandName is how this program is called again: by its name, or through go run when that built it.
func commandName() string {
	self, err := os.Executable()
	if err != nil || strings.Contains(self, string(filepath.Separator)+"go-build") {
		return "go run ./cmd/countersign"
	}
	return "countersign"
}
