package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// alone makes sure that this is the only process that serves the state at path, until release is called or the process ends,
// however it ends. A second one would take what the first is doing for interrupted.
func alone(path string) (release func() error, err error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = usage(path + " is served by another process already\nstop that one first, or name other state in the configuration")
		}
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}

// together runs the parts of a serving command until ctx ends. One that ends earlier takes the others along: a server of which a
// part stands still must not go on as if nothing was. It returns when all have ended.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan error, len(parts))
	for _, part := range parts {
		go func() { results <- part(ctx) }()
	}
	var failed error
	for range parts {
		failed = errors.Join(failed, <-results)
		stop()
	}
	return failed
}
