package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/agent/conversation"
	"countersign/agent/discovery"
	"countersign/agent/operation"
	"countersign/agent/session"
	"countersign/internal/strictjson"
	"countersign/poppy"
)

// replyTimeout bounds how long chat waits for a Company to finish its reply.
const replyTimeout = 2 * time.Minute

// withSession gives work the Session of a person at the Company of a domain.
func (s *agentSide) withSession(ctx context.Context, domain string, which session.Which, work func(*session.Session) error) error {
	company, err := s.Discovery.Resolve(ctx, domain)
	if err != nil {
		return err
	}
	in, err := s.Sessions.Open(ctx, company, which)
	if poppy.CodeOf(err) == poppy.ErrInvalidClient {
		return fmt.Errorf("%w\nthe Company could not make sure who the agent is: is 'countersign agent serve' running, and can the Company reach %s?\nor the Company has blocked the agent", err, s.config.ClientID)
	}
	if err != nil {
		return err
	}
	err = work(in)
	if changed, ok := errors.AsType[*session.ChangedError](err); ok {
		return fmt.Errorf("%w\nrun the command again: it then uses the new Session", changed)
	}
	return err
}

func personFlags(cmd *cobra.Command, which *session.Which) {
	cmd.PersistentFlags().StringVar(&which.Person, "person", "me", "whom the agent acts for; never sent to anyone")
	cmd.PersistentFlags().StringVar(&which.Name, "session", "", "a Session of that name, to keep tasks apart")
}

func (s *agentSide) discover(ctx context.Context, t *terminal, domain string) error {
	company, err := s.Discovery.Resolve(ctx, domain)
	if refusal, ok := errors.AsType[*discovery.Refusal](err); ok && !t.json {
		printSteps(t, refusal.Steps)
	}
	if err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(map[string]any{
			"domain": company.Domain, "name": company.Name, "issuer": company.Issuer, "version": company.Version,
			"document": company.Document, "metadata": company.Metadata,
		})
	}
	printSteps(t, company.Steps)
	t.say("\n%s (%s)", bold.Render(plain(company.Name)), company.Domain)
	t.say("  issuer         %s", company.Issuer)
	for _, endpoint := range company.Endpoints() {
		t.say("  %-14s %s  %s", endpoint.Kind, endpoint.URL, faint.Render(plain(endpoint.Description)))
	}
	return nil
}

// stepWords says what each step of discovery is about; the two checks of section 3 are numbered.
var stepWords = map[string]string{
	discovery.CheckDomain:   "looking for",
	discovery.CheckDocument: "read",
	discovery.CheckHost:     "check 1, the document speaks for the host that served it:",
	discovery.CheckMetadata: "read",
	discovery.CheckIssuer:   "check 2, the metadata is that of the issuer, to the character:",
	discovery.CheckListed:   "check 2, the issuer lists the domain on its side:",
}

func printSteps(t *terminal, steps []discovery.Step) {
	for _, step := range steps {
		mark := good.Render("✓")
		if !step.OK {
			mark = bad.Render("✗")
		}
		t.say("%s %s %s", mark, stepWords[step.Check], plain(step.Text))
	}
}

func newAgentSession(t *terminal, open func(*cobra.Command) (*agentSide, error)) *cobra.Command {
	var which session.Which
	var end bool
	cmd := &cobra.Command{
		Use: "session DOMAIN", Short: "Start or resume a Session at a Company", Args: arguments("DOMAIN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			side, err := open(cmd)
			if err != nil {
				return err
			}
			err = side.withSession(cmd.Context(), args[0], which, func(in *session.Session) error {
				if end {
					if err := in.End(cmd.Context()); err != nil {
						return err
					}
					t.say("The Session is ended here. The next command starts a new one.")
					return nil
				}
				if t.json {
					return t.writeJSON(map[string]any{
						"domain": in.Company.Domain, "issuer": in.Company.Issuer, "session_id": in.ID(),
						"signed_in": in.SignedIn(), "scopes": in.Scopes(),
					})
				}
				state := "signed out: the Company knows the agent, and can recognise this user, but not who they are"
				if in.SignedIn() {
					state = "signed in, scopes " + in.Scopes().String()
				}
				t.say("%s (%s)\n  Session  %s\n  %s", bold.Render(plain(in.Company.Name)), in.Company.Domain, in.ID(), state)
				return nil
			})
			return errors.Join(err, side.Close())
		},
	}
	personFlags(cmd, &which)
	cmd.Flags().BoolVar(&end, "end", false, "stop using the Session")
	return cmd
}

func newAgentChat(t *terminal, open func(*cobra.Command) (*agentSide, error)) *cobra.Command {
	var which session.Which
	var fresh, human bool
	cmd := &cobra.Command{
		Use: "chat DOMAIN TEXT", Short: "Say something to a Company and read its reply", Args: arguments("DOMAIN", "TEXT"),
		Long: `Sends one message, in the conversation that you had last with the Company or in a new one, and prints what the Company answers.
What it proposes is not done: see 'countersign agent operations'.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			side, err := open(cmd)
			if err != nil {
				return err
			}
			draft := conversation.Draft{Text: args[1]}
			if human {
				draft.Sender = poppy.SenderHuman
			}
			err = side.withSession(cmd.Context(), args[0], which, func(in *session.Session) error {
				return side.chat(cmd.Context(), t, in, draft, fresh)
			})
			return errors.Join(err, side.Close())
		},
	}
	personFlags(cmd, &which)
	cmd.Flags().BoolVar(&fresh, "new", false, "start a new conversation")
	cmd.Flags().BoolVar(&human, "human", false, "the words are the user's own, as they wrote them (protocol 7.8)")
	return cmd
}

// say sends a draft in the latest conversation, or in a new one.
func (s *agentSide) say(ctx context.Context, in *session.Session, draft conversation.Draft, fresh bool) (*conversation.Conversation, error) {
	if !fresh {
		latest, err := s.Conversations.Latest(ctx, in)
		if err != nil {
			return nil, err
		}
		if latest != nil {
			_, err := latest.Send(ctx, draft)
			if poppy.CodeOf(err) != poppy.ErrConversationClosed && poppy.CodeOf(err) != poppy.ErrConversationNotFound {
				return latest, err
			}
		}
	}
	started, _, err := s.Conversations.Start(ctx, in, draft)
	return started, err
}

// reply follows a conversation until the Company has nothing more to say to what was just sent.
func reply(ctx context.Context, c *conversation.Conversation, sent string, handle func(conversation.Event) error) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	answered := false // whether what was sent has been seen among the events
	err := c.Follow(ctx, func(_ context.Context, event conversation.Event) error {
		if err := handle(event); err != nil {
			return err
		}
		if m := event.Message; m != nil && m.Role == poppy.RoleUser && m.Text.Verbatim() == sent {
			answered = true
		}
		if answered && event.Type == poppy.EventState && event.State.Status != poppy.StatusWorking {
			return conversation.ErrStop
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return pendingError("the Company is still working on its reply\nits answer is read with the next message: countersign agent chat")
	}
	return err
}

func (s *agentSide) chat(ctx context.Context, t *terminal, in *session.Session, draft conversation.Draft, fresh bool) error {
	c, err := s.say(ctx, in, draft, fresh)
	if err != nil {
		return err
	}
	type line struct {
		Role      poppy.Role     `json:"role"`
		Sender    poppy.Sender   `json:"sender"`
		Text      string         `json:"text"`
		Data      poppy.Object   `json:"data,omitzero"`
		Operation *operationView `json:"operation,omitzero"`
	}
	lines := []line{}
	err = reply(ctx, c, draft.Text, func(event conversation.Event) error {
		if event.Type == conversation.Gap && !t.json {
			t.say("%s", faint.Render("(the Company no longer has the earlier part of the conversation)"))
		}
		m := event.Message
		if m == nil {
			return nil
		}
		if t.json {
			l := line{m.Role, m.Sender, m.Text.Verbatim(), m.Data, nil}
			if m.Operation != nil {
				v := newOperationView(*m.Operation)
				l.Operation = &v
			}
			lines = append(lines, l)
			return nil
		}
		printMessage(t, in.Company, m)
		if m.Operation != nil {
			printOperation(t, in.Company, *m.Operation)
			if m.Operation.State == poppy.OperationProposed {
				t.say("%s", faint.Render("Not done until it is confirmed: countersign agent operations confirm "+in.Company.Domain+" "+m.Operation.OperationID))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(map[string]any{"conversation_id": c.ID(), "messages": lines})
	}
	return nil
}

func printMessage(t *terminal, company discovery.Company, m *conversation.Message) {
	who := "your side, as " + company.Domain + " has it" // all that it knows of us it may have made up (9.1)
	switch {
	case m.Role != poppy.RoleUser && m.Sender == poppy.SenderHuman:
		who = company.Domain + ", a person"
	case m.Role != poppy.RoleUser:
		who = company.Domain
	case m.Sender == poppy.SenderAgent:
		who = "your agent, as " + company.Domain + " has it"
	}
	t.say("%s", bold.Render(who))
	t.say("%s", indent("  ", m.Text.Verbatim()))
}

// printOperation shows an operation to a person: whose it is, the summary, and what is needed to decide.
func printOperation(t *terminal, company discovery.Company, o poppy.Operation) {
	t.say("\n%s (%s) %s", bold.Render(plain(company.Name)), company.Domain, stateWords(o.State))
	t.say("%s", indent("  │ ", o.Summary))
	if len(o.Terms) > 0 {
		terms := strictjson.Raw(o.Terms).Clone()
		if err := terms.Indent(); err == nil {
			t.say("%s", indent("  │ ", string(terms)))
		}
	}
	t.say("  operation  %s, revision %d", plain(o.OperationID), o.Revision)
	if o.State == poppy.OperationProposed {
		if digest, err := o.TermsDigest(); err == nil {
			t.say("  digest     %s", digest)
		}
		t.say("  until      %s", o.ExpiresAt.Local().Format("Mon 2 Jan 15:04:05"))
	}
	if o.UserApprovalRequired {
		t.say("  The Company accepts nothing but the user's own answer.")
	}
	if o.Confirmation != nil {
		t.say("  confirmed  revision %d, approved by %s, %s", o.Confirmation.Revision, o.Confirmation.ApprovedBy,
			o.Confirmation.ConfirmedAt.Local().Format("Mon 2 Jan 15:04:05"))
	}
	if o.Result != nil {
		t.say("  %s says:", company.Domain)
		t.say("%s", indent("  │ ", o.Result.Summary))
		if len(o.Result.Data) > 0 {
			t.say("%s", indent("  │ ", string(o.Result.Data)))
		}
	}
}

// operationView is an operation for a program, with the digest that confirm takes while it is proposed.
type operationView struct {
	poppy.Operation
	Digest string `json:"digest,omitempty"`
}

func newOperationView(o poppy.Operation) operationView {
	v := operationView{Operation: o}
	if o.State == poppy.OperationProposed {
		if digest, err := o.TermsDigest(); err == nil { // without one the operation cannot be confirmed
			v.Digest = digest
		}
	}
	return v
}

func stateWords(state poppy.OperationState) string {
	switch state {
	case poppy.OperationProposed:
		return "proposes:"
	case poppy.OperationInProgress:
		return "is performing:"
	case poppy.OperationSucceeded:
		return good.Render("has performed:")
	case poppy.OperationFailed:
		return bad.Render("could not complete:")
	case poppy.OperationCancelled:
		return "no longer goes on with (cancelled):"
	case poppy.OperationExpired:
		return "no longer offers (expired):"
	}
	return string(state) + ":"
}

// operationExit is the exit code that a state stands for.
func operationExit(state poppy.OperationState) error {
	switch state {
	case poppy.OperationSucceeded:
		return nil
	case poppy.OperationProposed, poppy.OperationInProgress:
		return errSilent(exitPending)
	default:
		return errSilent(exitFailed)
	}
}

func newAgentOperations(t *terminal, open func(*cobra.Command) (*agentSide, error)) *cobra.Command {
	var which session.Which
	var digest string
	// with gives work the Session at the Company of the first argument.
	with := func(cmd *cobra.Command, args []string, work func(*agentSide, *session.Session) error) error {
		side, err := open(cmd)
		if err != nil {
			return err
		}
		err = side.withSession(cmd.Context(), args[0], which, func(in *session.Session) error { return work(side, in) })
		return errors.Join(err, side.Close())
	}
	show := func(in *session.Session, o poppy.Operation) error {
		if t.json {
			return t.writeJSON(newOperationView(o))
		}
		printOperation(t, in.Company, o)
		return nil
	}
	list := &cobra.Command{
		Use: "list DOMAIN", Short: "List the operations that are not final", Args: arguments("DOMAIN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, args, func(side *agentSide, in *session.Session) error {
				all, err := side.Operations.Unsettled(cmd.Context(), in)
				if err != nil {
					return err
				}
				if t.json {
					views := []operationView{}
					for _, o := range all {
						views = append(views, newOperationView(o))
					}
					return t.writeJSON(map[string]any{"operations": views})
				}
				if len(all) == 0 {
					t.say("Nothing is open at %s.", in.Company.Domain)
				}
				for _, o := range all {
					printOperation(t, in.Company, o)
				}
				return nil
			})
		},
	}
	get := &cobra.Command{
		Use: "show DOMAIN OPERATION", Short: "Read an operation", Args: arguments("DOMAIN", "OPERATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, args, func(side *agentSide, in *session.Session) error {
				o, err := side.Operations.Get(cmd.Context(), in, args[1])
				if err != nil {
					return err
				}
				return show(in, o)
			})
		},
	}
	confirm := &cobra.Command{
		Use: "confirm DOMAIN OPERATION", Short: "Show the exact terms, ask, and confirm them", Args: arguments("DOMAIN", "OPERATION"),
		Long: `Shows the Company's name and the terms of the latest revision, and asks. On yes that revision is confirmed and no other; on no the
Company is told that it is declined. A script that has shown the terms itself gives --digest instead of being asked.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, args, func(side *agentSide, in *session.Session) error {
				o, err := side.Operations.Get(cmd.Context(), in, args[1])
				if err != nil {
					return err
				}
				if o.State == poppy.OperationProposed {
					if o, err = side.confirm(cmd.Context(), t, in, o, asker{t, o, digest}); err != nil {
						return err
					}
				}
				return errors.Join(show(in, o), operationExit(o.State))
			})
		},
	}
	confirm.Flags().StringVar(&digest, "digest", "", "the digest that show printed: approves exactly these terms without asking")
	cancel := &cobra.Command{
		Use: "cancel DOMAIN OPERATION", Short: "Decline an operation, or ask the Company to stop it", Args: arguments("DOMAIN", "OPERATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, args, func(side *agentSide, in *session.Session) error {
				o, err := side.Operations.Cancel(cmd.Context(), in, args[1])
				if err != nil {
					return err
				}
				if err := show(in, o); err != nil || o.State == poppy.OperationCancelled {
					return err
				}
				if o.State == poppy.OperationInProgress {
					return pendingError("the Company was asked to stop it, and does not know yet whether it could")
				}
				return fmt.Errorf("too late: the operation is %s", o.State)
			})
		},
	}
	cmd := group("operations", "Read, confirm and cancel what Companies propose", "", list, get, confirm, cancel)
	personFlags(cmd, &which)
	return cmd
}

// confirm asks and confirms; when the terms change meanwhile it asks again. It returns the operation as it then is.
func (s *agentSide) confirm(ctx context.Context, t *terminal, in *session.Session, o poppy.Operation, ask operation.Asker) (poppy.Operation, error) {
	approval, err := operation.Ask(ctx, in.Company, o, ask)
	if errors.Is(err, operation.ErrDeclined) {
		return s.Operations.Cancel(ctx, in, o.OperationID)
	}
	if err != nil {
		return poppy.Operation{}, err
	}
	confirmed, err := s.Operations.Confirm(ctx, in, o, approval)
	if changed, ok := errors.AsType[*operation.TermsChangedError](err); ok {
		return poppy.Operation{}, fmt.Errorf("%s changed the terms before you confirmed: nothing was confirmed\nlook at revision %d: countersign agent operations confirm %s %s",
			in.Company.Domain, changed.Operation.Revision, in.Company.Domain, o.OperationID)
	}
	if err != nil {
		return poppy.Operation{}, err
	}
	if confirmed.State == poppy.OperationInProgress {
		if !t.json {
			t.say("%s", faint.Render("Confirmed. Waiting for "+in.Company.Domain+"; it goes on without you if you stop here."))
		}
		return s.Operations.Wait(ctx, in, o.OperationID)
	}
	return confirmed, nil
}

// asker asks a person at the terminal, or takes the digest of the terms that they were shown before.
type asker struct {
	t         *terminal
	operation poppy.Operation
	digest    string
}

// Ask implements operation.Asker.
func (a asker) Ask(ctx context.Context, q operation.Question) (bool, error) {
	if a.digest != "" {
		current, err := a.operation.TermsDigest()
		if err != nil {
			return false, err
		}
		if !strings.EqualFold(current, a.digest) {
			return false, errors.New("the terms are not those of this digest any more: nothing was confirmed\nread them again: countersign agent operations show")
		}
		return true, nil
	}
	fmt.Fprintf(a.t.errs, "%s (%s) proposes, revision %d:\n%s\n", bold.Render(plain(q.Company)), plain(q.Domain), q.Revision, indent("  │ ", q.Summary.Verbatim()))
	if q.Terms != "" {
		fmt.Fprintln(a.t.errs, indent("  │ ", q.Terms))
	}
	return a.t.ask(ctx, "Confirm exactly these terms? On no the Company is told that you decline.")
}
