package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	xterm "github.com/charmbracelet/x/term"

	"countersign/internal/strictjson"
)

// terminal is where a command reads and writes: data on out, everything said to a person on errs or out by the command's
// choice. Styles vanish by themselves where out is not a terminal or NO_COLOR is set.
type terminal struct {
	in          *bufio.Reader
	out, errs   io.Writer
	interactive bool // a person sits at both ends
	json        bool // set by --json
}

func newTerminal(in io.Reader, out, errs io.Writer) *terminal {
	return &terminal{
		in:          bufio.NewReader(in),
		out:         colorprofile.NewWriter(out, os.Environ()),
		errs:        colorprofile.NewWriter(errs, os.Environ()),
		interactive: isTerminal(in) && isTerminal(out),
	}
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && xterm.IsTerminal(file.Fd())
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

// ask puts a question that is answered with yes or no. Anything but a clear yes is no.
func (t *terminal) ask(question string) (bool, error) {
	fmt.Fprintf(t.out, "%s [y/N] ", question)
	line, err := t.in.ReadString('\n')
	if err != nil && (!errors.Is(err, io.EOF) || line == "") {
		fmt.Fprintln(t.out)
		return false, usage("no answer: there is no terminal to ask at\nrun it in a terminal, or answer with --yes where the command offers it")
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	default:
		return false, nil
	}
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
