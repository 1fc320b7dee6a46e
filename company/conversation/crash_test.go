package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/company/conversation"
	"countersign/internal/database"
	"countersign/internal/wake"
	"countersign/poppy"
)

// child is a process that is killed: it sends the same messages as every run before it, and stops when all are answered.
func child() {
	folder := os.Getenv("CONVERSATION_TEST_FOLDER")
	if folder == "" {
		return
	}
	if err := converse(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const crashUsers = 20

func converse(folder string) error {
	ctx := context.Background()
	db, err := database.Open(ctx, filepath.Join(folder, "company.db"))
	if err != nil {
		return err
	}
	if err := conversation.Migrate(ctx, db); err != nil {
		return err
	}
	s := conversation.New(conversation.Options{
		Database: db, Hub: new(wake.Hub), Log: quiet(), Now: time.Now,
		Clerk: clerk(func(ctx context.Context, turn conversation.Turn) (conversation.Reply, error) {
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			return echo(ctx, turn)
		}),
	})
	go func() { _ = s.Run(ctx) }()
	failed := make(chan error, crashUsers)
	for i := range crashUsers {
		go func() { failed <- sendAll(ctx, s, i) }()
	}
	for range crashUsers {
		err = errors.Join(err, <-failed)
	}
	return err
}

// sendAll sends one User's three messages, as a Personal Agent that does not know which of them came through.
func sendAll(ctx context.Context, s *conversation.Service, user int) error {
	by := guest
	by.UserID = "u-" + strconv.Itoa(user)
	first := poppy.Message{ID: "msg_0", Sender: poppy.SenderAgent, Text: "0"}
	started, err := s.Start(ctx, by, poppy.StartRequest{Message: first})
	if err != nil {
		return err
	}
	for i := 1; i < 3; i++ {
		m := poppy.Message{ID: "msg_" + strconv.Itoa(i), Sender: poppy.SenderAgent, Text: strconv.Itoa(i)}
		if _, err := s.Send(ctx, by, started.ConversationID, poppy.SendRequest{Message: m}); err != nil {
			return err
		}
	}
	for cursor := ""; ; {
		page, err := s.Read(ctx, by, started.ConversationID, cursor, 20*time.Second)
		if err != nil || page.Status != poppy.StatusWorking {
			return err
		}
		cursor = page.Cursor
	}
}

// P-7.3-06, P-7.3-07, P-7.3-09: over crashes too, each message is there once and answered once.
func TestAProcessThatIsKilledLosesNoMessageAndAnswersNoneTwice(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	kills := 0
	for range 15 {
		if runChild(t, folder, time.Duration(20+rand.IntN(120))*time.Millisecond) {
			kills++
		}
	}
	if runChild(t, folder, time.Minute) {
		t.Fatal("the last run did not finish")
	}
	t.Logf("killed %d times", kills)
	db, err := database.Open(t.Context(), filepath.Join(folder, "company.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	s := conversation.New(conversation.Options{Database: db, Hub: new(wake.Hub), Clerk: clerk(echo), Log: quiet(), Now: time.Now})
	conversations := map[string]string{}
	if err := db.Query(t.Context(), func(scan func(...any) error) error {
		var user, id string
		if err := scan(&user, &id); err != nil {
			return err
		}
		if conversations[user] != "" {
			t.Errorf("%s has two conversations", user)
		}
		conversations[user] = id
		return nil
	}, `SELECT user_id, conversation_id FROM conversation`); err != nil {
		t.Fatal(err)
	}
	if len(conversations) != crashUsers {
		t.Errorf("%d conversations", len(conversations))
	}
	for user, id := range conversations {
		by := guest
		by.UserID = user
		page, err := s.Read(t.Context(), by, id, "", 0)
		if err != nil || page.Status != poppy.StatusIdle {
			t.Fatalf("%s: %s, %v", user, page.Status, err)
		}
		said, answered := "", ""
		for _, e := range page.Events {
			switch {
			case e.Message == nil:
			case e.Message.Role == poppy.RoleUser:
				said += e.Message.Text
			default:
				answered += strings.NewReplacer("You said: ", "", " / ", "").Replace(e.Message.Text)
			}
		}
		if said != "012" || answered != "012" {
			t.Errorf("%s said %q and was answered %q:\n%s", user, said, answered, outline(page.Events))
		}
	}
}

// runChild runs a child in the folder until it ends or is killed.
func runChild(t *testing.T, folder string, after time.Duration) (killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0]) // its cancellation is a SIGKILL
	command.Env = append(os.Environ(), "CONVERSATION_TEST_FOLDER="+folder)
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
