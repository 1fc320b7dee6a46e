package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"

	"countersign/internal/strictjson"
)

// terminal is where a command reads and writes: data on out, everything said to a person on errs or out by the command's
// choice. Styles vanish by themselves where out is not a terminal or NO_COLOR is set.
type terminal struct {
	in        *bufio.Reader
	out, errs io.Writer
	json      bool // set by --json
}

func newTerminal(in io.Reader, out, errs io.Writer) *terminal {
	return &terminal{
		in:   bufio.NewReader(in),
		out:  colorprofile.NewWriter(out, os.Environ()),
		errs: colorprofile.NewWriter(errs, os.Environ()),
	}
}

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	good  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad   = lipgloss.NewStyle().Foreground(lipgloss.Red)
)

// say prints a line for a person.
func (t *terminal) say(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// fail prints an error to a person: first line behind the program's name, hints each on a line of its own.
func (t *terminal) fail(err error) {
	if _, ok := errors.AsType[errSilent](err); ok {
		return
	}
	for i, line := range strings.Split(strings.TrimRight(err.Error(), "\n"), "\n") {
		if i == 0 {
			fmt.Fprintf(t.errs, "countersign: %s\n", plain(line))
		} else {
			fmt.Fprintf(t.errs, "  %s\n", plain(strings.TrimSpace(line)))
		}
	}
}

// writeJSON prints v for a program, indented.
func (t *terminal) writeJSON(v any) error {
	data, err := strictjson.Marshal(v)
	if err != nil {
		return err
	}
	value := strictjson.Raw(data)
	if err := value.Indent(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.out, string(value))
	return err
}

// ask puts a question that is answered with yes or no, on the stream for errors, so that data stays clean. Anything but
// one of the two is no answer: an error that tells so, as an end of the input or of ctx is.
func (t *terminal) ask(ctx context.Context, question string) (yes bool, err error) {
	fmt.Fprintf(t.errs, "%s [y/n] ", question)
	type input struct {
		line string
		err  error
	}
	read := make(chan input, 1)
	go func() { // ends with the process: reading from a terminal cannot be cancelled
		line, err := t.in.ReadString('\n')
		read <- input{line, err}
	}()
	select {
	case got := <-read:
		if ctx.Err() != nil {
			break // Ctrl-C came before the answer
		}
		if got.err != nil && (!errors.Is(got.err, io.EOF) || got.line == "") {
			fmt.Fprintln(t.errs)
			return false, usage("no answer: there is no terminal to ask at\nrun it in a terminal, or give the digest that was shown with --digest")
		}
		switch strings.ToLower(strings.TrimSpace(got.line)) {
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		default:
			return false, pendingError("neither yes nor no: nothing was decided")
		}
	case <-ctx.Done():
	}
	fmt.Fprintln(t.errs)
	return false, pendingError("stopped: nothing was decided")
}

// plain makes text from outside safe to print: control characters, which could move the cursor or forge lines, and
// characters that reorder a line become a visible replacement.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return '\uFFFD'
		}
		return r
	}, text)
}

// indent puts prefix before every line of a text from outside, each made plain.
func indent(prefix, text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = prefix + plain(strings.TrimSuffix(lines[i], "\r"))
	}
	return strings.Join(lines, "\n")
}
