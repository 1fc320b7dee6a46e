package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/broker/agentapi"
	"countersign/broker/operation"
	"countersign/broker/page"
	"countersign/internal/id"
	"countersign/internal/strictjson"
)

// brokerError turns an error of the broker's clients into one that tells a person what to do.
func brokerError(err error) error {
	refused, ok := errors.AsType[*operation.Error](err)
	if !ok {
		return err
	}
	lines := []string{string(refused.Code) + ": " + refused.Message}
	for _, field := range refused.Fields {
		lines = append(lines, field.Pointer+" "+field.Problem)
	}
	if refused.Code == operation.Unavailable {
		lines = append(lines, "is the broker running? start it with: countersign broker serve")
	}
	return errors.New(strings.Join(lines, "\n"))
}

func newOperation(t *terminal) *cobra.Command {
	var path string
	var as clientFlags
	// with gives work a client of the broker.
	with := func(work func(context.Context, *agentapi.Client) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, _ []string) error {
			client, _, err := as.client(path)
			if err != nil {
				return err
			}
			defer client.Close()
			return brokerError(work(cmd.Context(), client))
		}
	}
	cmd := group("operation", "Submit operations to a broker, and follow them",
		`An operation is submitted once, under a request ID: submitting the same again returns the same operation. It is durable, so a lost
connection or a restart loses nothing.`,
		newOperationSubmit(t, &path, &as), newOperationWait(t, &path, &as), newOperationList(t, with),
		one(t, with, "get", "Read an operation", func(ctx context.Context, c *agentapi.Client, id string) (operation.Operation, error) {
			return c.Get(ctx, id)
		}),
		one(t, with, "cancel", "Cancel an operation that has not been dispatched", func(ctx context.Context, c *agentapi.Client, id string) (operation.Operation, error) {
			return c.Cancel(ctx, id)
		}),
		newOperationEvents(t, with))
	configFlag(cmd, &path, brokerFile)
	as.add(cmd, roleClient)
	cmd.PersistentFlags().BoolVar(&t.json, "json", false, "print data as JSON")
	return cmd
}

type withClient = func(func(context.Context, *agentapi.Client) error) func(*cobra.Command, []string) error

// one is a command about one operation.
func one(t *terminal, with withClient, use, short string, act func(context.Context, *agentapi.Client, string) (operation.Operation, error)) *cobra.Command {
	return &cobra.Command{
		Use: use + " OPERATION", Short: short, Args: arguments("OPERATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(func(ctx context.Context, c *agentapi.Client) error {
				op, err := act(ctx, c, args[0])
				if err != nil {
					return err
				}
				return t.showOperation(op)
			})(cmd, args)
		},
	}
}

// showOperation prints an operation, and nothing of it is an error: only submit --wait and wait exit by its state.
func (t *terminal) showOperation(op operation.Operation) error {
	if t.json {
		return t.writeJSON(agentapi.NewDocument(op))
	}
	t.say("%s  %s", bold.Render(op.ID), stateOf(op.State))
	t.say("  %s", plain(op.Title))
	if op.Summary != "" {
		t.say("%s", indent("  │ ", op.Summary))
	}
	t.say("  operation   %s", plain(op.Name))
	t.say("  request ID  %s, revision %d", plain(op.RequestID), op.Revision)
	if op.PlanDigest != "" {
		t.say("  plan        %s", op.PlanDigest)
	}
	if op.Error != nil {
		t.say("  %s", bad.Render(plain(op.Error.Code)))
		t.say("%s", indent("  │ ", op.Error.Message))
	}
	if len(op.Result) > 0 {
		result := op.Result.Clone()
		if err := result.Indent(); err != nil {
			return err
		}
		t.say("%s", indent("  ", string(result)))
		if op.ResultCut {
			t.say("%s", faint.Render("  (not all of the result is shown)"))
		}
	}
	return nil
}

func stateOf(state operation.State) string {
	switch state {
	case operation.Succeeded:
		return good.Render(string(state))
	case operation.Failed, operation.Denied, operation.Expired, operation.Canceled:
		return bad.Render(string(state))
	case operation.Pending:
		return "pending: waits for a person"
	default:
		return string(state)
	}
}

// stateExit is the exit code that a state stands for.
func stateExit(state operation.State) error {
	switch {
	case state == operation.Succeeded:
		return nil
	case state.Terminal():
		return errSilent(exitFailed)
	default:
		return errSilent(exitPending)
	}
}

func newOperationSubmit(t *terminal, path *string, as *clientFlags) *cobra.Command {
	var request operation.Request
	var target, argumentsJSON string
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "submit NAME", Short: "Submit an operation", Args: arguments("NAME"),
		Example: `  countersign operation submit demo.echo --arguments-json '{"text":"hello"}' --reason "to try it" --wait`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(request.Reason) == "" {
				return usage("--reason is missing\nit tells the person who approves why this is wanted")
			}
			for flag, text := range map[string]string{"--target-json": target, "--arguments-json": argumentsJSON} {
				if _, err := strictjson.Canonical([]byte(text)); err != nil {
					return usage(flag + ": " + err.Error())
				}
			}
			client, _, err := as.client(*path)
			if err != nil {
				return err
			}
			defer client.Close()
			request.Operation, request.Target, request.Arguments = args[0], strictjson.Raw(target), strictjson.Raw(argumentsJSON)
			if request.RequestID == "" {
				request.RequestID = id.New("cli")
			}
			op, _, err := client.Submit(cmd.Context(), request)
			if err != nil {
				return submitError(err, request.RequestID)
			}
			if !wait {
				return t.showOperation(op)
			}
			return waitFor(cmd.Context(), t, client, op, timeout)
		},
	}
	cmd.Flags().StringVar(&target, "target-json", "{}", "what it is about, a JSON object")
	cmd.Flags().StringVar(&argumentsJSON, "arguments-json", "{}", "its arguments, a JSON object")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why it is wanted, for the person who approves")
	cmd.Flags().StringVar(&request.RequestID, "request-id", "", "your own handle: use the same one again when you retry (made for you if left out)")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end, after submitting")
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Minute, "how long to wait with --wait")
	return cmd
}

// submitError says how to submit the same again, where it may be stored although no answer came: under another request ID it
// could be done twice.
func submitError(err error, requestID string) error {
	if refused, ok := errors.AsType[*operation.Error](err); ok && refused.Code != operation.Unavailable {
		return brokerError(err)
	}
	return fmt.Errorf("%w\nrepeat it only with the same request ID: --request-id %s", brokerError(err), requestID)
}

// waitFor follows an operation to its end and exits by its state.
func waitFor(ctx context.Context, t *terminal, client *agentapi.Client, op operation.Operation, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if op.State == operation.Pending && !t.json {
		fmt.Fprintln(t.errs, faint.Render("waiting for someone to decide: countersign approval list"))
	}
	for !op.State.Terminal() && ctx.Err() == nil {
		later, err := client.Wait(ctx, op.ID, op.Revision, operation.MaxWait)
		if ctx.Err() != nil {
			break
		}
		if err != nil { // it goes on without us
			return pendingError(fmt.Sprintf("%v\nit was submitted; follow it with: countersign operation wait %s", brokerError(err), op.ID))
		}
		op = later
	}
	return errors.Join(t.showOperation(op), stateExit(op.State))
}

func newOperationWait(t *terminal, path *string, as *clientFlags) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait OPERATION", Short: "Wait for the end of an operation", Args: arguments("OPERATION"),
		Long: `Exits with 0 when it succeeded, 1 when it ended otherwise, 3 when it is not over when the time is.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, _, err := as.client(*path)
			if err != nil {
				return err
			}
			defer client.Close()
			op, err := client.Get(cmd.Context(), args[0])
			if err != nil {
				return brokerError(err)
			}
			return waitFor(cmd.Context(), t, client, op, timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", operation.MaxWait, "how long to wait")
	return cmd
}

func newOperationList(t *terminal, with withClient) *cobra.Command {
	var filter operation.Filter
	var limit int
	var cursor string
	cmd := &cobra.Command{
		Use: "list", Short: "List the client's operations, newest first", Args: arguments(),
		RunE: with(func(ctx context.Context, c *agentapi.Client) error {
			found, err := c.List(ctx, filter, limit, cursor)
			if err != nil {
				return err
			}
			if t.json {
				return t.writeJSON(agentapi.NewPageDocument(found))
			}
			for _, item := range found.Operations {
				t.say("%s  %-10s %s  %s", item.ID, item.State, faint.Render(timeText(item.CreatedAt)), plain(item.Title))
			}
			if found.Next != "" {
				t.say("%s", faint.Render("more: --cursor "+found.Next))
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&filter.RequestID, "request-id", "", "only the operation with this request ID")
	cmd.Flags().StringVar((*string)(&filter.State), "state", "", "only those in this state")
	cmd.Flags().IntVar(&limit, "limit", page.DefaultLimit, fmt.Sprintf("how many, at most %d", page.MaxLimit))
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on after an earlier page")
	return cmd
}

func newOperationEvents(t *terminal, with withClient) *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use: "events OPERATION", Short: "Follow every durable change of an operation", Args: arguments("OPERATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(func(ctx context.Context, c *agentapi.Client) error {
				for event, err := range c.Events(ctx, args[0], after) {
					if err != nil {
						return err
					}
					if t.json {
						data, err := strictjson.Marshal(agentapi.NewEventDocument(event))
						if err != nil {
							return err
						}
						t.say("%s", data)
						continue
					}
					t.say("%d  %s  %-10s by %-8s %s", event.Revision, event.At.Local().Format("15:04:05.000"), event.Kind, event.Actor, plain(event.Detail))
				}
				return nil
			})(cmd, args)
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "only changes after this revision")
	return cmd
}
