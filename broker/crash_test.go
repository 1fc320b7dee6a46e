package broker_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"countersign/broker/operation"
	"countersign/broker/provider"
	"countersign/provider/demo"
)

var kills = flag.Int("kills", 0, "broker processes to kill in TestKilledBrokers; 0 means 500, or 25 with -short")

// B-recover-02 B-ambiguous-01 B-ambiguous-02 B-ambiguous-03
//
// Broker processes are killed at every durable step and at any moment, again and again over the same files. Afterwards
// nothing was executed twice, nothing that was acknowledged is forgotten or changed, and every operation ended truthfully.
func TestKilledBrokers(t *testing.T) {
	t.Parallel()
	want := *kills
	if want == 0 {
		want = 500
		if testing.Short() {
			want = 25
		}
	}
	const lanes = 4
	var (
		mutex sync.Mutex
		at    = map[string]int{}
		group sync.WaitGroup
	)
	for lane := range lanes {
		group.Go(func() {
			for killed := 0; killed < want/lanes+1; {
				// A few kills over the same files, then a look at what is left.
				killed += sequence(t, min(12, want/lanes+1-killed), rand.New(rand.NewPCG(uint64(lane), uint64(killed))), func(where string) {
					mutex.Lock()
					at[where]++
					mutex.Unlock()
				})
				if t.Failed() {
					return
				}
			}
		})
	}
	group.Wait()
	total := 0
	for where, n := range at {
		t.Logf("%4d kills at %s", n, where)
		total += n
	}
	t.Logf("%4d kills", total)
	if total < want && !t.Failed() {
		t.Errorf("%d kills, want %d", total, want)
	}
	for _, step := range steps {
		if at[step] == 0 && want >= 250 {
			t.Errorf("no process was killed at %q", step)
		}
	}
}

// sequence kills the brokers of one folder until n have died, lets a last one finish, and checks what is left. It returns n.
func sequence(t *testing.T, n int, random *rand.Rand, died func(where string)) int {
	folder := t.TempDir()
	facts := map[string][]string{} // operation ID -> what was acknowledged about it
	round := 1
	for killed := 0; killed < n; round++ {
		kill, where := fmt.Sprintf("%dus", random.IntN(60_000)), "any moment"
		if random.IntN(4) > 0 {
			where = steps[random.IntN(len(steps))]
			kill = fmt.Sprintf("%s#%d", where, 1+random.IntN(9))
		}
		dead, err := spawn(folder, round, kill, facts)
		if err != nil {
			t.Error(err)
			return n
		}
		if dead {
			killed++
			died(where)
		}
	}
	if dead, err := spawn(folder, round, "", facts); err != nil || dead {
		t.Errorf("the last process died: %v, %v", dead, err)
		return n
	}
	inspect(t, folder, facts)
	return n
}

// spawn runs a child until it is dead or done, and adds what it acknowledged to facts.
func spawn(folder string, round int, kill string, facts map[string][]string) (dead bool, err error) {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+folder, fmt.Sprintf("%s=%d", roundVariable, round), killVariable+"="+kill)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !ok {
		return false, err
	}
	dead = ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if ok && !dead {
		return false, fmt.Errorf("child: %w: %s%s", err, output, stderr.Bytes())
	}
	for line := range strings.Lines(string(output)) {
		words := strings.Fields(line)
		if words[0] == "error" {
			return false, fmt.Errorf("child: %s", line)
		}
		facts[words[1]] = append(facts[words[1]], strings.Join(append(words[:1], words[2:]...), " "))
	}
	return dead, nil
}

// inspect checks the files that a sequence left.
func inspect(t *testing.T, folder string, facts map[string][]string) {
	ctx := context.Background()
	b, closeAll, err := childOpen(folder, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	}()
	all, err := demo.ReadFile(filepath.Join(folder, "effects"))
	if err != nil {
		t.Error(err)
		return
	}
	effects := map[string]int{}
	for _, effect := range all {
		effects[effect.OperationID]++
	}
	stored := map[string]operation.Operation{}
	for _, client := range []string{"free", "asked"} {
		for cursor := ""; ; {
			page, err := b.Operations.List(ctx, client, operation.Filter{}, 50, cursor)
			if err != nil {
				t.Error(err)
				return
			}
			for _, item := range page.Operations {
				op, err := b.Operations.Get(ctx, client, item.ID)
				if err != nil {
					t.Error(err)
					return
				}
				events, err := b.Operations.Events(ctx, client, item.ID, 0)
				if err != nil {
					t.Error(err)
					return
				}
				stored[op.ID] = op
				if problem := untrue(op, events, effects[op.ID]); problem != "" {
					t.Errorf("%s %s is %s (%+v) with %d effects: %s\n%+v", op.Name, op.ID, op.State, op.Error, effects[op.ID], problem, events)
				}
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	for id := range effects {
		if _, ok := stored[id]; !ok {
			t.Errorf("an effect of the operation %s, which is forgotten", id)
		}
	}
	for id, said := range facts {
		op, ok := stored[id]
		if !ok {
			t.Errorf("%s was acknowledged (%q) and is forgotten", id, said)
			continue
		}
		for _, fact := range said {
			if problem := broken(op, fact); problem != "" {
				t.Errorf("%s: it was said %q, and now %s", id, fact, problem)
			}
		}
	}
}

// untrue returns what is wrong with how an operation ended, "" if nothing is.
func untrue(op operation.Operation, events []operation.Event, effects int) string {
	dispatched := 0
	for i, e := range events {
		if e.Kind == operation.EventDispatched {
			dispatched++
		}
		if e.Revision != int64(i+1) || i > 0 && !slices.Contains(append(moves[events[i-1].State], operation.Expired), e.State) {
			return "its history has a gap or an illegal move"
		}
	}
	problem := ""
	if op.Error != nil {
		problem = op.Error.Code
	}
	switch {
	case op.State == operation.Pending && effects == 0 && len(events) == 1:
		return "" // its caller died before a person was asked
	case !op.State.Terminal():
		return "it did not end"
	case int64(len(events)) != op.Revision || events[len(events)-1].State != op.State:
		return "its history ends elsewhere"
	case effects > 1:
		return "it was executed twice"
	case effects > 0 && dispatched == 0:
		return "it was executed and never dispatched"
	case dispatched > 1 && op.Effect == provider.Change:
		return "a change was dispatched twice"
	case op.State == operation.Succeeded && op.Effect != provider.Read && effects != 1:
		return "a success without an effect"
	case problem == operation.CodeNotPerformed && effects != 0:
		return "performed after all"
	case problem == operation.CodeOutcomeUnknown && op.Name != "demo.vanish_for_good" && op.Name != "demo.fail":
		return "its outcome can be looked up"
	case op.State == operation.Succeeded && (op.Name == "demo.vanish_for_good" || op.Name == "demo.fail"):
		return "nobody can know that it succeeded"
	case op.State == operation.Failed && problem == "no" && op.Name != "demo.fail":
		return "the refusal of another operation"
	case op.State == operation.Failed && op.Effect == provider.Read:
		return "a read that could run again"
	}
	return ""
}

// broken returns how an operation contradicts what a caller was told, "" if it does not.
func broken(op operation.Operation, fact string) string {
	word, rest, _ := strings.Cut(fact, " ")
	switch word {
	case "stored":
		if rest != op.ClientID+" "+op.RequestID {
			return "it is another request"
		}
	case "approved":
		if !slices.Contains([]operation.State{operation.Succeeded, operation.Failed}, op.State) {
			return "it is " + string(op.State)
		}
	default: // a terminal state, or denied
		if operation.State(word).Terminal() && operation.State(word) != op.State {
			return "it is " + string(op.State)
		}
	}
	return ""
}
