package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// readyPrefix begins the line that a serving command prints on its standard output once it accepts connections.
const readyPrefix = "ready: "

// process is another countersign, running a serving command: the two sides of a demo are separate processes, as in life.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // the file that holds what it said
	done chan struct{} // closed when it has ended
	err  error         // how it ended, once done is closed
}

// startProcess runs the command line and returns when it is ready. What it logs goes to the file log.
func startProcess(ctx context.Context, name, log string, env []string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's own file: %w", err)
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer file.Close() // the child has its own
	p := &process{name: name, cmd: exec.CommandContext(context.WithoutCancel(ctx), self, args...), log: log, done: make(chan struct{})}
	p.cmd.Stderr = file
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true} // Ctrl-C is ours to pass on
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	ready := make(chan struct{})
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		lines := bufio.NewScanner(out)
		for announced := false; lines.Scan(); {
			if !announced && strings.HasPrefix(lines.Text(), readyPrefix) {
				announced = true
				close(ready)
			}
		}
		_, _ = io.Copy(io.Discard, out) // a line too long for the scanner must not block the child
	}()
	go func() {
		<-drained
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", name, p.err, p.lastLines())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.kill())
	case <-time.After(30 * time.Second):
		return nil, errors.Join(fmt.Errorf("%s was not ready after 30 s\n%s", name, p.lastLines()), p.kill())
	}
}

// stop asks the process to end and waits for it.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already; what counts is how
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		return errors.Join(fmt.Errorf("%s did not end within 15 s", p.name), p.kill())
	}
	if p.err != nil {
		return fmt.Errorf("%s ended badly: %w\n%s", p.name, p.err, p.lastLines())
	}
	return nil
}

// kill ends the process as a power failure would.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// lastLines is the end of what the process logged, for a person to read.
func (p *process) lastLines() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// freeAddress returns a loopback address that nobody listens on now.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}
