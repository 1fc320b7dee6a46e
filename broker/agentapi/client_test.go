package agentapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/broker/access"
	"countersign/broker/agentapi"
	"countersign/broker/internal/brokertest"
	"countersign/broker/operation"
)

// A broker whose contract differs is told by its digest, whatever it calls itself, and nothing is submitted to it.
func TestClientDetectsDriftByDigestAndNeverByLabel(t *testing.T) {
	t.Parallel()
	other := "sha256:" + strings.Repeat("0", 64)
	for name, test := range map[string]struct {
		label, digest string
		drift         bool
	}{
		// B-discovery-03, B-discovery-04
		"same label, other digest":   {agentapi.ContractName, other, true},
		"other label, same digest":   {"another/agent/v9", agentapi.ContractDigest(), false},
		"same label, no digest":      {agentapi.ContractName, "", true},
		"same label, digest shorter": {agentapi.ContractName, agentapi.ContractDigest()[:40], true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var submitted bool
			endpoint := brokertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				submitted = submitted || r.Method == http.MethodPost
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path == discoveryPath {
					// The rest of the document is one that this program cannot know.
					fmt.Fprintf(w, `{"api_version":%q,"contract_digest":%q,"build_id":"v9","operations":[],"MARKER":{"x":1}}`, test.label, test.digest)
					return
				}
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"error":{"code":"not_found","message":"no"}}`)
			}))
			client := agentapi.NewClient(agentapi.ClientOptions{Endpoint: endpoint, Secret: brokertest.Secret("alice")})
			defer client.Close()
			_, _, err := client.Submit(t.Context(), request("r1", "free.act", "x"))
			drift, is := errors.AsType[*agentapi.DriftError](err)
			if is != test.drift || submitted == test.drift {
				t.Fatalf("got %v, submitted: %v", err, submitted)
			}
			if is && (drift.Build != "v9" || drift.Theirs != test.digest || strings.Contains(err.Error(), "MARKER")) {
				t.Errorf("got %v", err)
			}
			if !test.drift && code(err) != operation.NotFound {
				t.Errorf("got %v", err)
			}
		})
	}
}

// B-ambiguous-05
func TestLostAnswerIsRepeatedUnderTheSameRequestID(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t, brokertest.Operation{Name: "asked.act"})
	real := handler(t, b)
	var mutex sync.Mutex
	var bodies [][]byte
	endpoint := brokertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			real.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mutex.Lock()
		bodies = append(bodies, body)
		first := len(bodies) == 1
		mutex.Unlock()
		if first {
			real.ServeHTTP(&swallowed{}, r) // it is stored, and the answer is lost
			panic(http.ErrAbortHandler)
		}
		real.ServeHTTP(w, r)
	}))
	client := agentapi.NewClient(agentapi.ClientOptions{Endpoint: endpoint, Secret: brokertest.Secret("alice")})
	defer client.Close()
	op, replayed, err := client.Submit(t.Context(), request("r1", "asked.act", "x"))
	if err != nil || !replayed || op.RequestID != "r1" {
		t.Errorf("got %+v, replayed %v, %v", op, replayed, err)
	}
	if len(bodies) != 2 || !bytes.Equal(bodies[0], bodies[1]) {
		t.Errorf("sent %q", bodies)
	}
	if page, err := client.List(t.Context(), operation.Filter{}, 0, ""); err != nil || len(page.Operations) != 1 { // B-recover-01
		t.Errorf("got %+v, %v", page, err)
	}
}

type swallowed struct{ header http.Header }

func (s *swallowed) Header() http.Header {
	if s.header == nil {
		s.header = http.Header{}
	}
	return s.header
}
func (*swallowed) WriteHeader(int)                {}
func (*swallowed) Write(data []byte) (int, error) { return len(data), nil }

func TestClientTellsWhatToDoWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	endpoint, err := access.ParseEndpoint("unix:///nonexistent/agent.sock")
	if err != nil {
		t.Fatal(err)
	}
	client := agentapi.NewClient(agentapi.ClientOptions{Endpoint: endpoint, Secret: brokertest.Secret("alice")})
	defer client.Close()
	_, _, err = client.Submit(t.Context(), request("r1", "asked.act", "x"))
	if code(err) != operation.Unavailable || !strings.Contains(err.Error(), "is it running?") || strings.Contains(err.Error(), brokertest.Secret("alice").Reveal()) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := client.Get(ctx, "op_x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that was given up ends with %v", err)
	}
}

func TestClientRefusesAnswersThatAreNotTheBrokers(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		},
		"page": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>MARKER</html>") },
		"proxy's error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "MARKER", http.StatusBadGateway)
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for range 33 {
				fmt.Fprint(w, strings.Repeat("x", 1<<20))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := agentapi.NewClient(agentapi.ClientOptions{Endpoint: brokertest.Serve(t, handle), Secret: brokertest.Secret("alice")})
			defer client.Close()
			discovery, err := client.Discover(t.Context())
			if err == nil || strings.Contains(err.Error(), "MARKER") || len(discovery.Operations) != 0 {
				t.Errorf("got %+v, %v", discovery, err)
			}
		})
	}
}

func TestRefusalsReachTheClientWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wrong := request("r1", "asked.act", "x")
	wrong.Arguments = []byte(`{"test":1}`)
	_, _, err := b.client("alice").Submit(t.Context(), wrong)
	refused, ok := errors.AsType[*operation.Error](err)
	if !ok || refused.Code != operation.InputInvalid || refused.Message == "" || len(refused.Fields) == 0 || !strings.HasPrefix(refused.Fields[0].Pointer, "/arguments") {
		t.Errorf("got %v", err)
	}
	stranger := agentapi.NewClient(agentapi.ClientOptions{Endpoint: b.endpoint, Secret: brokertest.Secret("mallory")})
	defer stranger.Close()
	if _, err := stranger.Get(t.Context(), "op_x"); code(err) != operation.AuthenticationFailed {
		t.Errorf("got %v", err)
	}
}
