// Package broker is Agent Operations V1: clients submit typed operations, policy and people authorise them, providers
// execute them, and no client ever holds a provider's credential.
package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/database"
)

// Options are what a broker needs. DB, Policy, Now and Log must be given.
type Options struct {
	DB     *database.DB
	Policy *policy.Engine
	// Operations are all that is offered, of all providers.
	Operations []provider.Operation
	Now        func() time.Time
	Log        *slog.Logger
	// ApprovalTTL is how long a person has to decide; zero means an hour.
	ApprovalTTL time.Duration
	// MaxExecuting bounds the calls to providers that are under way at once; zero means 64.
	MaxExecuting int
	// Faults is called after each durable step with its name. For tests that stop the process there; nil otherwise.
	Faults func(step string)
}

// Broker is the rooms joined.
type Broker struct {
	Operations *operation.Service
	Approvals  *approval.Service
	Policy     *policy.Engine
	Registry   *provider.Registry
}

// New joins the rooms and brings their tables up to date. Nothing is executed before [Broker.Run].
func New(ctx context.Context, options Options) (*Broker, error) {
	return nil, errors.New("not there yet")
}

// Run executes what is approved, expires what is not decided in time, and returns when ctx has ended and the calls that
// were under way have ended too. It first takes up what an earlier process left unfinished.
func (b *Broker) Run(ctx context.Context) error { return nil }
