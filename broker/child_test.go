package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"countersign/broker"
	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/provider/demo"
)

// The environment of a child process: the folder of its files, the round, and where it kills itself: "STEP#N" for the Nth
// time at a step, a duration, or nothing.
const (
	childVariable = "COUNTERSIGN_BROKER_CHILD"
	roundVariable = "COUNTERSIGN_BROKER_ROUND"
	killVariable  = "COUNTERSIGN_BROKER_KILL"
)

// steps are all places where a child can kill itself.
var steps = []string{
	"submit: stored", "decide: recorded", "expire: recorded", "cancel: recorded",
	"execute: taken", "execute: dispatched", "execute: called", "execute: looked up", "execute: recorded",
}

// killed ends this process at once, as a crash would: nothing is closed, flushed or deferred.
func killed() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until it arrives
}

// faults returns the hook that kills the process where the parent wants it.
func faults(kill string) func(string) {
	var step string
	var nth int64
	if wait, err := time.ParseDuration(kill); err == nil {
		time.AfterFunc(wait, killed)
	} else if i := len(kill) - 2; i > 0 && kill[i] == '#' {
		step, nth = kill[:i], int64(kill[i+1]-'0')
	}
	var seen atomic.Int64
	return func(at string) {
		if at == step && seen.Add(1) == nth {
			killed()
		}
	}
}

// said tells the parent what was acknowledged to a caller: from then on it must never be lost.
func said(words ...any) { _, _ = fmt.Fprintln(os.Stdout, words...) }

// child is a broker process with its callers. It takes up what the last one left, does the work of its round, and ends with
// status 0 when everything is done, if it lives so long.
func child() {
	if err := childBroker(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func childBroker() error {
	folder := os.Getenv(childVariable)
	round, err := strconv.Atoi(os.Getenv(roundVariable))
	if err != nil {
		return err
	}
	b, closeAll, err := childOpen(folder, faults(os.Getenv(killVariable)))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			said("error", err)
		}
	})
	// The last round again: what was stored is a replay, what was lost is new. And the work of this one.
	var callers sync.WaitGroup
	for _, r := range []int{round - 1, round} {
		for i := range len(work) {
			callers.Go(func() {
				if err := caller(b, r, i); err != nil {
					said("error", err)
				}
			})
		}
	}
	callers.Wait()
	stop()
	running.Wait()
	return closeAll()
}

// childOpen makes the broker of a folder. It does not run it.
func childOpen(folder string, faults func(string)) (b *broker.Broker, closeAll func() error, err error) {
	file, err := demo.OpenFile(filepath.Join(folder, "effects"))
	if err != nil {
		return nil, nil, err
	}
	db, err := database.Open(context.Background(), filepath.Join(folder, "broker.db"))
	if err != nil {
		return nil, nil, err
	}
	engine, err := policy.Parse("test.cedar", []byte(rules+policy.Default()))
	if err != nil {
		return nil, nil, err
	}
	b, err = broker.New(context.Background(), broker.Options{
		DB: db, Policy: engine, Now: time.Now, Log: slog.New(slog.DiscardHandler), Faults: faults,
		Operations: append(demo.Operations(file), custom{
			name: "test.soon", effect: provider.Change,
			resolve: func(context.Context, provider.Call) (provider.Plan, error) {
				return provider.Plan{Content: []byte(`{}`), ExpiresAt: time.Now().Add(time.Duration(rand.IntN(20)) * time.Millisecond)}, nil
			},
			execute: func(context.Context, provider.Dispatch) provider.Outcome { panic("nobody approves this") },
		}),
	})
	return b, func() error { return errors.Join(db.Close(), file.Close()) }, err
}

// work is what the callers of a round do: one request each, and what becomes of it at a person's hand.
var work = []struct {
	client, operation, target, arguments string
	then                                 string // approve, deny, cancel or nothing
}{
	{"free", "demo.note.write", `{"notebook":"work"}`, `{"text":"x"}`, ""},
	{"free", "demo.note.write", `{"notebook":"work"}`, `{"text":"x"}`, "cancel"},
	{"asked", "demo.note.write", `{"notebook":"work"}`, `{"text":"x"}`, "approve"},
	{"asked", "demo.note.write", `{"notebook":"work"}`, `{"text":"x"}`, "deny"},
	{"asked", "demo.note.write", `{"notebook":"work"}`, `{"text":"x"}`, "cancel"},
	{"free", "demo.counter.set", `{"notebook":"work"}`, `{"value":1}`, ""},
	{"free", "demo.hang", `{}`, `{"milliseconds":3}`, ""},
	{"free", "demo.vanish", `{}`, `{"milliseconds":0}`, ""},
	{"asked", "demo.vanish", `{}`, `{"milliseconds":2}`, "approve"},
	{"free", "demo.vanish_for_good", `{}`, `{"milliseconds":1}`, ""},
	{"free", "demo.echo", `{}`, `{"text":"x"}`, ""},
	{"free", "demo.fail", `{}`, `{"code":"no","message":"No."}`, ""},
	{"asked", "test.soon", `{}`, `{}`, ""},
}

// caller does one piece of work and waits for its end.
func caller(b *broker.Broker, round, i int) error {
	ctx, w := context.Background(), work[i]
	op, _, err := b.Operations.Submit(ctx, w.client, request(fmt.Sprintf("%d-%d", round, i), w.operation, w.target, w.arguments))
	if err != nil {
		return err
	}
	said("stored", op.ID, w.client, op.RequestID)
	d := decision(op)
	d.Key = "key-" + op.ID
	switch w.then {
	case "approve":
		_, _, err = b.Approvals.Approve(ctx, d)
		if err == nil {
			said("approved", op.ID)
		}
	case "deny":
		_, _, err = b.Approvals.Deny(ctx, d)
		if err == nil {
			said("denied", op.ID)
		}
	case "cancel":
		var canceled operation.Operation
		canceled, err = b.Operations.Cancel(ctx, w.client, op.ID)
		if err == nil {
			said(canceled.State, op.ID)
		}
	}
	if err != nil && code(err) != operation.NotCancelable {
		if refused, ok := errors.AsType[*approval.Error](err); !ok || refused.Code != approval.RevisionConflict {
			return err
		}
	}
	for after := int64(0); !op.State.Terminal(); after = op.Revision {
		if op, err = b.Operations.Wait(ctx, w.client, op.ID, after, operation.MaxWait); err != nil {
			return err
		}
	}
	said(op.State, op.ID)
	return nil
}
