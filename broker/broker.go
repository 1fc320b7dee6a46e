// Package broker is Agent Operations V1: clients submit typed operations, policy and people authorise them, providers
// execute them, and no client ever holds a provider's credential.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/database"
	"countersign/internal/wake"
)

// Options are what a broker needs. DB, Policy, Now and Log must be given.
type Options struct {
	// DB keeps everything. One broker at a time may use it: what is executing when one starts is taken for interrupted.
	DB     *database.DB
	Policy *policy.Engine
	// Operations are all that is offered, of all providers.
	Operations []provider.Operation
	Now        func() time.Time
	Log        *slog.Logger
	// ApprovalTTL is how long a person has to decide, 1 minute to 7 days; zero means an hour.
	ApprovalTTL time.Duration
	// MaxExecuting bounds the calls to providers that are under way at once, 1 to 1024; zero means 64.
	MaxExecuting int
	// ShutdownGrace is how long calls under way may go on when [Broker.Run] is to end; zero means 10 seconds.
	ShutdownGrace time.Duration
	// Faults is called after each durable step and around each call to a provider, with the step's name. It is for tests that
	// stop the process there; nil otherwise.
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
	options.ApprovalTTL = cmp.Or(options.ApprovalTTL, time.Hour)
	options.MaxExecuting = cmp.Or(options.MaxExecuting, 64)
	options.ShutdownGrace = cmp.Or(options.ShutdownGrace, 10*time.Second)
	switch {
	case options.DB == nil || options.Policy == nil || options.Now == nil || options.Log == nil:
		return nil, errors.New("starting the broker: DB, Policy, Now and Log must be given")
	case options.ApprovalTTL < time.Minute || options.ApprovalTTL > 7*24*time.Hour:
		return nil, errors.New("starting the broker: the time for a decision must be 1 minute to 7 days")
	case options.MaxExecuting < 1 || options.MaxExecuting > 1024:
		return nil, errors.New("starting the broker: the number of executions at once must be 1 to 1024")
	case options.ShutdownGrace < 0:
		return nil, errors.New("starting the broker: the grace period must not be negative")
	}
	registry, err := provider.NewRegistry(options.Operations...)
	if err != nil {
		return nil, fmt.Errorf("starting the broker: %w", err)
	}
	if err := errors.Join(operation.Migrate(ctx, options.DB), approval.Migrate(ctx, options.DB)); err != nil {
		return nil, fmt.Errorf("starting the broker: %w", err)
	}
	hub := new(wake.Hub)
	operations := operation.New(operation.Options{
		DB: options.DB, Wake: hub, Registry: registry, Policy: options.Policy, Now: options.Now, Log: options.Log,
		ApprovalTTL: options.ApprovalTTL, MaxExecuting: options.MaxExecuting, ShutdownGrace: options.ShutdownGrace, Faults: options.Faults,
	})
	approvals := approval.New(approval.Options{
		DB: options.DB, Wake: hub, Operations: operations, Now: options.Now, Log: options.Log, Faults: options.Faults,
	})
	return &Broker{Operations: operations, Approvals: approvals, Policy: options.Policy, Registry: registry}, nil
}

// Run takes up what an earlier process left unfinished, executes what is approved, and lets what is not decided in time
// expire, until ctx ends. It returns when the calls that were under way have ended. Call it once.
func (b *Broker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var expiry sync.WaitGroup
	expiry.Go(func() { b.Approvals.Run(ctx) })
	err := b.Operations.Run(ctx)
	cancel()
	expiry.Wait()
	return err
}

// Offered returns the operations that policy could ever let a client submit, sorted by name.
func (b *Broker) Offered(ctx context.Context, clientID string) ([]provider.Descriptor, error) {
	var offered []provider.Descriptor
	for _, descriptor := range b.Registry.Descriptors() {
		could, err := b.Policy.CouldSubmit(ctx, clientID, descriptor.Name, descriptor.Effect)
		if err != nil {
			return nil, err
		}
		if could {
			offered = append(offered, descriptor)
		}
	}
	return offered, nil
}
