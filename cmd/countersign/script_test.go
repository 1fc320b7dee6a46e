package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// background is a process that a script started.
type background struct {
	cmd   *exec.Cmd
	ended chan error
}

// processes are those of all scripts that run now, by working folder and name.
var processes = struct {
	sync.Mutex
	running map[string]background
}{running: make(map[string]background)}

// freePort NAME sets a variable to a loopback address that nobody listens on.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: freeport NAME")
	}
	address, err := freeAddress(context.Background())
	ts.Check(err)
	ts.Setenv(args[0], address)
}

// serve NAME COMMAND… starts a serving command in the background and waits until it is ready.
func serve(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: serve NAME COMMAND…")
	}
	program, err := exec.LookPath(args[1])
	if err != nil {
		program = ts.MkAbs(args[1])
	}
	cmd := exec.Command(program, args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "HOME="+ts.Getenv("HOME"))
	log, err := os.OpenFile(ts.MkAbs(args[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Check(log.Close())
	ended := make(chan error, 1)
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), readyPrefix) {
				ready <- true
				break
			}
		}
		for lines.Scan() {
		}
		ended <- cmd.Wait()
	}()
	processes.Lock()
	processes.running[ts.Getenv("WORK")+args[0]] = background{cmd, ended}
	processes.Unlock()
	ts.Defer(func() { _ = cmd.Process.Kill() }) // most have ended by then
	select {
	case <-ready:
	case err := <-ended:
		ts.Fatalf("%s ended before it was ready: %v\n%s", args[0], err, ts.ReadFile(args[0]+".log"))
	case <-time.After(30 * time.Second):
		ts.Fatalf("%s was not ready after 30 s\n%s", args[0], ts.ReadFile(args[0]+".log"))
	}
}

// end NAME [SIGNAL] ends what serve started: with TERM it must end well, with KILL it ends as by a power failure.
func end(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 1 {
		ts.Fatalf("usage: end NAME [KILL]")
	}
	processes.Lock()
	p := processes.running[ts.Getenv("WORK")+args[0]]
	processes.Unlock()
	if p.cmd == nil {
		ts.Fatalf("nothing named %s is running", args[0])
	}
	if len(args) == 2 && args[1] == "KILL" {
		ts.Check(p.cmd.Process.Kill())
		if err := <-p.ended; err == nil {
			ts.Fatalf("%s ended before it was killed", args[0])
		}
		return
	}
	ts.Check(p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.ended:
		if err != nil {
			ts.Fatalf("%s ended badly: %v\n%s", args[0], err, ts.ReadFile(args[0]+".log"))
		}
	case <-time.After(20 * time.Second):
		ts.Fatalf("%s did not end", args[0])
	}
}

// capture NAME FILE PATTERN sets a variable to the first group of a pattern in a file (stdout for the last output).
func capture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: capture NAME FILE PATTERN")
	}
	found := regexp.MustCompile(args[2]).FindStringSubmatch(ts.ReadFile(args[1]))
	if len(found) != 2 {
		ts.Fatalf("%s does not match %s", args[1], args[2])
	}
	ts.Setenv(args[0], found[1])
}
