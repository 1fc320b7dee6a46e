package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"countersign/broker/approval"
	"countersign/broker/operatorapi"
	"countersign/internal/id"
)

// approvalError turns an error of the operators' client into one that tells a person what to do.
func approvalError(err error) error {
	if conflict, ok := errors.AsType[*operatorapi.Conflict](err); ok {
		return fmt.Errorf("%s\nit is %s now", conflict.Message, conflict.Current.State)
	}
	if refused, ok := errors.AsType[*approval.Error](err); ok {
		return errors.New(string(refused.Code) + ": " + refused.Message)
	}
	return err
}

func newApproval(t *terminal) *cobra.Command {
	var path string
	var as clientFlags
	// with gives work a client of the broker's operators.
	with := func(work func(context.Context, *operatorapi.Client, []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			client, err := as.operator(path)
			if err != nil {
				return err
			}
			defer client.Close()
			return approvalError(work(cmd.Context(), client, args))
		}
	}
	show := &cobra.Command{
		Use: "show APPROVAL", Short: "Show what exactly is asked for, at whom, and why", Args: arguments("APPROVAL"),
		RunE: with(func(ctx context.Context, c *operatorapi.Client, args []string) error {
			a, terms, err := c.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if t.json {
				return t.writeJSON(operatorapi.DetailDocument{Document: operatorapi.NewDocument(a), Terms: terms})
			}
			t.showApproval(a, &terms)
			return nil
		}),
	}
	cmd := group("approval", "Decide what waits for a person at a broker",
		`What policy does not let run unattended waits here for you. You approve a plan by its digest: nothing else can be executed by it.`,
		newApprovalList(t, with), show,
		newDecision(t, with, "approve", "Approve exactly this plan", "Approve exactly this plan?", (*operatorapi.Client).Approve),
		newDecision(t, with, "deny", "Deny it", "Deny it?", (*operatorapi.Client).Deny))
	configFlag(cmd, &path, brokerFile)
	as.add(cmd, roleOperator)
	cmd.PersistentFlags().BoolVar(&t.json, "json", false, "print data as JSON")
	return cmd
}

type withOperator = func(func(context.Context, *operatorapi.Client, []string) error) func(*cobra.Command, []string) error

func newApprovalList(t *terminal, with withOperator) *cobra.Command {
	var state, cursor string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List what waits for a decision", Args: arguments(),
		RunE: with(func(ctx context.Context, c *operatorapi.Client, _ []string) error {
			filter := approval.Filter{State: approval.State(state)}
			if state == "all" {
				filter.State = ""
			}
			page, err := c.List(ctx, filter, limit, cursor)
			if err != nil {
				return err
			}
			if t.json {
				return t.writeJSON(operatorapi.NewPageDocument(page))
			}
			if len(page.Approvals) == 0 {
				t.say("Nothing waits for you.")
			}
			for _, a := range page.Approvals {
				t.say("%s  %-9s %s  %s", a.ID, a.State, faint.Render("until "+a.ExpiresAt.Local().Format("15:04:05")), plain(a.Presentation.Title))
			}
			if page.Next != "" {
				t.say("%s", faint.Render("more: --cursor "+page.Next))
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&state, "state", string(approval.Pending), "pending, approved, denied, expired, canceled, or all")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many, at most 50")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on after an earlier page")
	return cmd
}

// showApproval shows a person what they decide about.
func (t *terminal) showApproval(a approval.Approval, terms *operatorapi.Terms) {
	t.say("%s  %s", bold.Render(plain(a.Presentation.Title)), a.State)
	t.say("%s", indent("  │ ", a.Presentation.Summary))
	for _, d := range a.Presentation.Details {
		t.say("  %s", bold.Render(plain(d.Label)))
		t.say("%s", indent("    ", d.Value))
	}
	for _, w := range a.Presentation.Warnings {
		t.say("%s", bad.Render(indent("  ! ", w)))
	}
	t.say("  asked by   %s, which gives as its reason:", plain(a.ClientID))
	t.say("%s", indent("  │ ", a.Reason))
	t.say("  operation  %s %s", a.OperationID, plain(a.Operation))
	if terms != nil {
		t.say("  target     %s", plain(string(terms.Target)))
		t.say("  arguments  %s", plain(string(terms.Arguments)))
		for _, r := range terms.Rulings {
			rules := strings.Join(r.Rules, ", ")
			if rules == "" {
				rules = "no rule"
			}
			t.say("  policy     %s: %t, by %s", r.Question, r.Allowed, plain(rules))
		}
	}
	t.say("  approval   %s, revision %d, until %s", a.ID, a.Revision, a.ExpiresAt.Local().Format("Mon 2 Jan 15:04:05"))
	t.say("  digest     %s", a.PlanDigest)
	if a.DecidedBy != "" {
		t.say("  decided    by %s %s", plain(a.DecidedBy), plain(a.Note))
	}
}

// newDecision is approve or deny. A person is shown what they decide; a script that has shown it gives the digest.
func newDecision(t *terminal, with withOperator, use, short, question string,
	decide func(*operatorapi.Client, context.Context, approval.Decision) (approval.Approval, bool, error),
) *cobra.Command {
	var digest, note string
	cmd := &cobra.Command{
		Use: use + " APPROVAL", Short: short, Args: arguments("APPROVAL"),
		RunE: with(func(ctx context.Context, c *operatorapi.Client, args []string) error {
			a, terms, err := c.Get(ctx, args[0])
			if err != nil {
				return err
			}
			switch {
			case a.State != approval.Pending:
				return fmt.Errorf("it is %s already", a.State)
			case digest == "":
				(&terminal{out: t.errs}).showApproval(a, &terms) // data stays clean for --json
				yes, err := t.ask(ctx, question)
				if err != nil {
					return err
				}
				if !yes {
					t.say("Nothing was decided.")
					return errSilent(exitPending)
				}
			case !strings.EqualFold(digest, a.PlanDigest):
				return errors.New("the plan does not have this digest: nothing was decided\nlook at it again: countersign approval show " + a.ID)
			}
			decided, _, err := decide(c, ctx, approval.Decision{ApprovalID: a.ID, ExpectedRevision: a.Revision, Key: id.New("dec"), Note: note})
			if err != nil {
				return err
			}
			if t.json {
				return t.writeJSON(operatorapi.NewDocument(decided))
			}
			t.say("%s is %s.", decided.ID, decided.State)
			return nil
		}),
	}
	cmd.Flags().StringVar(&digest, "digest", "", "the digest that show printed: decides about exactly that plan without asking")
	cmd.Flags().StringVar(&note, "note", "", "a remark that is kept with the decision")
	return cmd
}
