package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"countersign/broker"
	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/policy"
	"countersign/internal/database"
	"countersign/internal/strictjson"
	"countersign/provider/demo"
)

// A client submits a change, a person approves it, and it is executed once.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	folder, err := os.MkdirTemp("", "broker")
	if err != nil {
		log.Fatal(err)
	}
	file, err := demo.OpenFile(filepath.Join(folder, "notes"))
	if err != nil {
		log.Fatal(err)
	}
	db, err := database.Open(ctx, filepath.Join(folder, "broker.db"))
	if err != nil {
		log.Fatal(err)
	}
	rules, err := policy.Parse("policy.cedar", []byte(policy.Default()))
	if err != nil {
		log.Fatal(err)
	}

	b, err := broker.New(ctx, broker.Options{
		DB: db, Policy: rules, Operations: demo.Operations(file), Now: time.Now, Log: slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()

	op, _, err := b.Operations.Submit(ctx, "assistant", operation.Request{
		RequestID: "shopping-1", Operation: "demo.note.write", Reason: "You asked me to remember it.",
		Target: strictjson.Raw(`{"notebook":"shopping"}`), Arguments: strictjson.Raw(`{"text":"milk"}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(op.State, op.Title, op.Summary)

	_, _, err = b.Approvals.Approve(ctx, approval.Decision{ApprovalID: op.ApprovalID, ExpectedRevision: 1, Key: "1", OperatorID: "alex"})
	if err != nil {
		log.Fatal(err)
	}
	for !op.State.Terminal() {
		if op, err = b.Operations.Wait(ctx, "assistant", op.ID, op.Revision, operation.MaxWait); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(op.State, len(file.All()))

	stop()
	if err := errors.Join(<-done, db.Close(), file.Close(), os.RemoveAll(folder)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// pending Write a note Add one note to the notebook "shopping".
	// succeeded 1
}
