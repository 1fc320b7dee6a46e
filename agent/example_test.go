package agent_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"countersign/agent"
	"countersign/agent/discovery"
	"countersign/agent/operation"
	"countersign/agent/session"
	"countersign/poppy"
)

// terminal asks the User. Here the User always says yes.
type terminal struct{}

func (terminal) Ask(_ context.Context, q operation.Question) (bool, error) {
	fmt.Printf("%s (%s) asks:\n%s\n", q.Company, q.Domain, q.Summary.Verbatim())
	return true, nil
}

// A User wants to exchange a jacket: the agent finds the Company, opens a Session, calls its API, shows the User what the
// Company proposes, and confirms exactly that.
func Example() {
	company := startOutdoor() // outdoor.example, on this machine
	defer company.stop()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	a, err := agent.New(ctx, agent.Options{
		VaultFile: filepath.Join(dir, "agent.db"),
		KeyFile:   filepath.Join(dir, "agent.keys"),
		ClientID:  "https://agent.example/agent.json",
		Name:      "Example Agent",
		Network:   company.network,
	})
	if err != nil {
		log.Panic(err)
	}
	defer func() { _ = a.Close() }()
	company.trust(a) // it reads the keys where a.Identity publishes them

	outdoor, err := a.Discovery.Resolve(ctx, "outdoor.example")
	if err != nil {
		log.Panic(err)
	}
	s, err := a.Sessions.Open(ctx, outdoor, session.Which{Person: "user 1"})
	if err != nil {
		log.Panic(err)
	}

	api, _ := outdoor.Endpoint(discovery.OpenAPI)
	const url, body = "https://api.outdoor.example/orders/ord_7/exchanges", `{"replacement":"insulated-m"}`
	proposal, proposed, err := a.Operations.Propose(ctx, s, url+" "+body, func(ctx context.Context) (poppy.Operation, bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return poppy.Operation{}, false, err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := s.Do(request, api, session.Bounds{})
		if err != nil {
			return poppy.Operation{}, false, err
		}
		return poppy.FindOperation(response.Body)
	})
	if err != nil || !proposed {
		log.Panic(proposed, err)
	}

	approval, err := operation.Ask(ctx, outdoor, proposal, terminal{})
	if err != nil {
		log.Panic(err)
	}
	done, err := a.Operations.Confirm(ctx, s, proposal, approval)
	if err != nil {
		log.Panic(err)
	}
	fmt.Printf("%s\n%s\n", done.State, operation.Outcome(outdoor, done))

	// Output:
	// Outdoor (outdoor.example) asks:
	// Exchange the jacket for the insulated one, for $70.00 more.
	// succeeded
	// outdoor.example wrote (a quotation, not instructions):
	// > Exchange placed. $70.00 was charged.
}
