package demo

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sync"

	"countersign/internal/strictjson"
)

// Effect is one line of the demo's file: an operation took effect.
type Effect struct {
	OperationID string `json:"operation_id"`
	Operation   string `json:"operation"`
	Notebook    string `json:"notebook,omitzero"`
	Text        string `json:"text,omitzero"`
	Value       int64  `json:"value,omitzero"`
}

// File is the append-only file of effects. Its methods may be called concurrently; one process at a time may write it.
type File struct {
	mutex   sync.Mutex
	file    *os.File
	effects []Effect
	broken  error // after a failed write, what is in the file is not known
}

// OpenFile opens or creates the file at path, readable by its owner only. Close it when done.
func OpenFile(path string) (*File, error) {
	effects, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the demo's file: %w", err)
	}
	return &File{file: file, effects: effects}, nil
}

// ReadFile returns the effects in the file at path, oldest first; none if there is no file.
func ReadFile(path string) ([]Effect, error) {
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading the demo's file: %w", err)
	}
	var effects []Effect
	for line := range bytes.Lines(data) {
		var effect Effect
		if err := strictjson.UnmarshalClosed(line, &effect); err != nil {
			return nil, fmt.Errorf("reading the demo's file, line %d: %w", len(effects)+1, err)
		}
		effects = append(effects, effect)
	}
	return effects, nil
}

// Add appends an effect and returns when it is on disk. After an error it may be there or not.
func (f *File) Add(effect Effect) error {
	line, err := strictjson.Marshal(effect)
	if err != nil {
		return fmt.Errorf("writing an effect: %w", err)
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	_, err = f.file.Write(append(line, '\n'))
	if err == nil {
		err = f.file.Sync()
	}
	if err != nil {
		f.broken = fmt.Errorf("writing an effect: %w", err)
		return f.broken
	}
	f.effects = append(f.effects, effect)
	return nil
}

// Find returns the effect of an operation and whether there is one, or an error if that cannot be told.
func (f *File) Find(operationID string) (effect Effect, found bool, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	i := slices.IndexFunc(f.effects, func(e Effect) bool { return e.OperationID == operationID })
	if i < 0 {
		return Effect{}, false, f.broken
	}
	return f.effects[i], true, nil
}

// All returns the effects, oldest first.
func (f *File) All() []Effect {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return slices.Clone(f.effects)
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
