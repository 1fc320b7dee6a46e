package operation_test

import (
	"bufio"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"countersign/company/operation"
	"countersign/company/script"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/internal/wake"
	"countersign/poppy"
)

// The steps at which a child process kills itself, as a power cut would.
const (
	atConfirmed = "confirmed, not started"
	atStarted   = "started, not performed"
	atPerformed = "performed, outcome not recorded"
	atLookup    = "looked up, outcome not recorded"
	atSettled   = "outcome recorded, not answered"
	never       = "never"
)

func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// killer is a Performer that dies at a step.
type killer struct {
	*script.Performer

	at string
}

func (k killer) Perform(ctx context.Context, a operation.Action) (operation.Outcome, error) {
	if k.at == atStarted {
		kill()
	}
	outcome, err := k.Performer.Perform(ctx, a)
	if k.at == atPerformed {
		kill()
	}
	return outcome, err
}

func (k killer) Lookup(ctx context.Context, a operation.Action) (operation.Outcome, error) {
	outcome, err := k.Performer.Lookup(ctx, a)
	if k.at == atLookup {
		kill()
	}
	return outcome, err
}

// child is the process that is killed: it proposes and confirms operations, many times each, and stops when all are final.
func child() {
	folder := os.Getenv("OPERATION_TEST_FOLDER")
	if folder == "" {
		return
	}
	if err := work(folder, os.Getenv("OPERATION_TEST_AT"), os.Getenv("OPERATION_TEST_NEW")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(folder, at, count string) error {
	ctx := context.Background()
	db, err := database.Open(ctx, filepath.Join(folder, "company.db"))
	if err != nil {
		return err
	}
	if err := operation.Migrate(ctx, db); err != nil {
		return err
	}
	journal, err := script.OpenPerformer(script.Work{Journal: filepath.Join(folder, "journal")}, time.Now)
	if err != nil {
		return err
	}
	o := operation.Options{
		Database: db, Hub: new(wake.Hub), Performer: killer{journal, at}, Log: quiet(), Now: time.Now,
		LookupAfter: time.Millisecond, LookupEvery: 10 * time.Millisecond,
	}
	if at == atConfirmed {
		o.Wait = time.Millisecond
	}
	s := operation.New(o)
	if at != atConfirmed {
		go func() { _ = s.Run(ctx) }()
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			var t operation.Tracked
			proposal := hold()
			proposal.Key = cryptorand.Text()
			if err := db.Write(ctx, func(tx *database.Tx) (err error) { t, err = s.Propose(tx, guest, proposal); return err }); err != nil {
				panic(err)
			}
			for range 3 {
				group.Go(func() {
					if _, err := s.Confirm(ctx, guest, t.OperationID, poppy.Confirm{Revision: 1, ApprovedBy: poppy.ApprovedByUser}); err != nil {
						panic(err)
					}
				})
			}
		})
	}
	group.Wait()
	if at == atSettled || at == atConfirmed {
		kill()
	}
	for {
		var open int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM operation WHERE state = 'in_progress'`).Scan(&open); err != nil || open == 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// run runs a child in the folder until it ends or is killed.
func run(t *testing.T, folder, at string, count int, after time.Duration) (killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0]) // its cancellation is a SIGKILL
	command.Env = append(os.Environ(), "OPERATION_TEST_FOLDER="+folder, "OPERATION_TEST_AT="+at, "OPERATION_TEST_NEW="+strconv.Itoa(count))
	output, err := command.CombinedOutput()
	switch {
	case err == nil:
		return false
	case errors.Is(err, context.DeadlineExceeded): // it ended by itself at the moment it was to be killed
		return true
	}
	failed, ok := errors.AsType[*exec.ExitError](err)
	if !ok || failed.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child: %v\n%s", err, output)
	}
	return true
}

// verify compares the record with what was performed: each operation that succeeded exactly once, and no other.
func verify(t *testing.T, folder string) (succeeded int) {
	t.Helper()
	file, err := os.Open(filepath.Join(folder, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := make(map[string]int)
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var line struct {
			OperationID string `json:"operation_id"`
			Digest      string `json:"digest"`
		}
		if err := strictjson.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if lines[line.OperationID]++; lines[line.OperationID] > 1 {
			t.Errorf("%s was performed %d times", line.OperationID, lines[line.OperationID])
		}
	}
	db, err := database.Open(t.Context(), filepath.Join(folder, "company.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.Query(t.Context(), func(scan func(...any) error) error {
		var id, state string
		if err := scan(&id, &state); err != nil {
			return err
		}
		if performed := lines[id] == 1; performed != (state == "succeeded") || state == "in_progress" {
			t.Errorf("%s is %s, performed: %v", id, state, performed)
		}
		if state == "succeeded" {
			succeeded++
		}
		return nil
	}, `SELECT operation_id, state FROM operation`); err != nil {
		t.Fatal(err)
	}
	if succeeded != len(lines) {
		t.Errorf("%d succeeded, %d were performed", succeeded, len(lines))
	}
	return succeeded
}

// O-6-04, O-6-06
func TestAProcessThatIsKilledAtAnyStepPerformsOnce(t *testing.T) {
	t.Parallel()
	for _, steps := range [][]string{
		{atConfirmed},
		{atStarted},
		{atPerformed},
		{atSettled},
		{atConfirmed, atStarted, atPerformed},
		{atStarted, atStarted},
		{atPerformed, atLookup, atLookup},
		{atStarted, atLookup, atPerformed, atLookup},
	} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for i, step := range steps {
				count := 0
				if i == 0 {
					count = 1
				}
				if !run(t, folder, step, count, time.Minute) {
					t.Fatalf("the child was not killed at %q", step)
				}
			}
			if run(t, folder, never, 0, time.Minute) {
				t.Fatal("the last run did not finish")
			}
			if n := verify(t, folder); n != 1 {
				t.Errorf("%d operations succeeded, want 1", n)
			}
		})
	}
}

// O-6-04
func TestAProcessThatIsKilledAtAnyMomentPerformsOnce(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	kills := 0
	for range 12 {
		if run(t, folder, never, 20, time.Duration(20+rand.IntN(100))*time.Millisecond) {
			kills++
		}
	}
	if run(t, folder, never, 5, time.Minute) {
		t.Fatal("the last run did not finish")
	}
	if n := verify(t, folder); n < 5 {
		t.Errorf("%d operations succeeded; the last run alone confirms 5", n)
	}
	t.Logf("killed %d times", kills)
}
