// Command countersign lets AI agents act for people without holding their credentials: a front door for a Company, a
// Personal Agent, and a broker between a language model and both.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes that scripts can trust.
const (
	exitDone    = 0
	exitFailed  = 1 // failed, denied or refused
	exitUsage   = 2 // the command line or the configuration is wrong
	exitPending = 3 // not decided yet
)

func main() { os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// execute runs one command line and returns its exit code.
func execute(args []string, in io.Reader, out, errs io.Writer) int {
	// A closed terminal stops it too, so that what it started is stopped and what it made is removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	t := newTerminal(in, out, errs)
	root := newRoot(t)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err != nil {
		t.fail(err)
	}
	return exitCode(err)
}

func newRoot(t *terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   "countersign",
		Short: "Let AI agents act for people without holding their credentials",
		Long: `Countersign stands on both sides of the counter.

  company   a front door for a business: agents find it, say who they are, talk, propose and confirm
  agent     a Personal Agent's side of the same protocol
  broker    typed operations for a language model, decided by policy and people

Nothing with an effect happens until its exact terms were approved, and it happens at most once.
Start with: countersign demo`,
		SilenceUsage:  true,
		SilenceErrors: true, // execute prints them
		Version:       version(),
		Args:          cobra.ArbitraryArgs,
		RunE:          runGroup,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Sprintf("%v\nsee %s --help", err, cmd.CommandPath()))
	})
	root.AddCommand(newDemo(t), newCompany(t), newAgent(t), newBroker(t), newOperation(t), newApproval(t), newPolicy(t))
	return root
}

// group is a command that only has commands of its own.
func group(use, short, long string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, RunE: runGroup,
	}
	cmd.AddCommand(children...)
	return cmd
}

// runGroup shows what a group has, and names a word that it has not.
func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Sprintf("there is no command %q\nsee %s --help", cmd.CommandPath()+" "+plain(args[0]), cmd.CommandPath()))
	}
	return cmd.Help()
}

// usageError is a wrong command line or configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usage(text string) error { return usageError{errors.New(text)} }

// errSilent ends a command whose output has already said everything, with the code that it carries.
type errSilent int

func (e errSilent) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// pendingError says that something is not decided yet.
type pendingError string

func (e pendingError) Error() string { return string(e) }

func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if silent, ok := errors.AsType[errSilent](err); ok {
		return int(silent)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[pendingError](err); ok {
		return exitPending
	}
	return exitFailed
}

// arguments checks the number of arguments and names the missing one, which cobra's own text does not.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(fmt.Sprintf("%s is missing\nusage: %s", names[len(args)], cmd.UseLine()))
		case len(args) > len(names):
			return usage(fmt.Sprintf("%q is one word too many; quote a text that has spaces\nusage: %s", plain(args[len(names)]), cmd.UseLine()))
		}
		return nil
	}
}

// optional is [arguments] for one that may be left out.
func optional(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return arguments(name)(cmd, args)
	}
}

// version is that of the module, and the commit when built from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
			return info.Main.Version + " " + setting.Value[:12]
		}
	}
	return info.Main.Version
}
