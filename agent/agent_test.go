package agent_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"countersign/agent"
	"countersign/agent/internal/fakecompany"
	"countersign/agent/session"
	"countersign/poppy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outdoorCompany is the Company of the example.
type outdoorCompany struct {
	network agent.Network
	trust   func(*agent.Agent)
	stop    func()
}

// startOutdoor starts a Company that proposes an exchange.
func startOutdoor() outdoorCompany {
	tb, stop := fakecompany.ForExample()
	c := fakecompany.New(tb)
	o := poppy.Operation{
		OperationID: "exc_1", Revision: 1, State: poppy.OperationProposed,
		Summary: "Exchange the jacket for the insulated one, for $70.00 more.", ExpiresAt: poppy.At(time.Now().Add(time.Hour)),
	}
	c.Handle("POST api.outdoor.example/orders/{id}/exchanges", c.Guard("", func(rw http.ResponseWriter, _ *http.Request, _ *fakecompany.Token) {
		fakecompany.WriteJSON(rw, http.StatusAccepted, map[string]any{"operation": o})
	}))
	c.Handle("POST api.outdoor.example/poppy/operations/{id}/confirm", c.Guard("", func(rw http.ResponseWriter, _ *http.Request, _ *fakecompany.Token) {
		o.State, o.Result = poppy.OperationSucceeded, &poppy.Result{Summary: "Exchange placed. $70.00 was charged."}
		o.Confirmation = &poppy.Confirmation{Revision: 1, ApprovedBy: poppy.ApprovedByUser, ConfirmedAt: poppy.At(time.Now())}
		fakecompany.WriteJSON(rw, http.StatusOK, o)
	}))
	started := outdoorCompany{trust: func(a *agent.Agent) { c.Trust(tb, a.Identity) }, stop: stop}
	for _, mapping := range c.Fetch.Resolve {
		started.network.Resolve = append(started.network.Resolve, mapping.String())
	}
	started.network.Authorities = c.Fetch.Authorities
	return started
}

func TestAnAgentThatCannotWorkDoesNotOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*agent.Options)
		says   string
	}{
		"identity that no Company takes": {func(o *agent.Options) { o.ClientID = "http://agent.example/agent.json" }, "client_id"},
		"host that maps to nothing":      {func(o *agent.Options) { o.Network.Resolve = []string{"outdoor.example"} }, "HOST=ADDR:PORT"},
		"vault in no folder":             {func(o *agent.Options) { o.KeyFile = filepath.Join(filepath.Dir(o.KeyFile), "none", "x") }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			options := agent.Options{
				VaultFile: filepath.Join(dir, "agent.db"), KeyFile: filepath.Join(dir, "agent.keys"),
				ClientID: "https://agent.example/agent.json", Name: "Agent",
			}
			c.change(&options)
			if a, err := agent.New(t.Context(), options); err == nil || a != nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, %v", a, err)
			}
		})
	}
}

func TestAnAgentGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	a := fakecompany.NewAgent(t, fakecompany.New(t))
	a.Open(t, session.Which{Person: "person"})
	a.Restart(t)
	list, err := a.Sessions.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
