package mcp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/broker/access"
	"countersign/broker/internal/brokertest"
	"countersign/broker/mcp"
	"countersign/broker/operation"
)

func TestHTTPRefuses(t *testing.T) {
	t.Parallel()
	url := serveHTTP(t, brokertest.Start(t, operations...))
	good := "Bearer " + brokertest.Secret("alice").Reveal()
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for name, test := range map[string]struct {
		method, path, body string
		header             map[string]string
		host               string
		status             int
	}{
		"served":                      {"POST", "", call, map[string]string{"Authorization": good}, "", 200},
		"no secret":                   {"POST", "", call, nil, "", 401},
		"unknown secret":              {"POST", "", call, map[string]string{"Authorization": "Bearer " + strings.Repeat("x", 40)}, "", 401},
		"an operator's secret":        {"POST", "", call, map[string]string{"Authorization": "Bearer " + brokertest.Secret("root").Reveal()}, "", 401},
		"page of another origin":      {"POST", "", call, map[string]string{"Authorization": good, "Origin": "https://outdoor.example"}, "", 403},
		"page of another site":        {"POST", "", call, map[string]string{"Authorization": good, "Sec-Fetch-Site": "cross-site"}, "", 403},
		"name that was rebound":       {"POST", "", call, map[string]string{"Authorization": good}, "outdoor.example", 403},
		"a batch":                     {"POST", "", " \n[" + call + "]", map[string]string{"Authorization": good}, "", 400},
		"space before the message":    {"POST", "", "\r\n\t " + call, map[string]string{"Authorization": good}, "", 200},
		"nothing":                     {"POST", "", "", map[string]string{"Authorization": good}, "", 400},
		"no JSON":                     {"POST", "", "{", map[string]string{"Authorization": good}, "", 400},
		"other media type":            {"POST", "", call, map[string]string{"Authorization": good, "Content-Type": "text/plain"}, "", 415},
		"too large":                   {"POST", "", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 4<<20) + `"}`, map[string]string{"Authorization": good}, "", 413},
		"stream without a session":    {"GET", "", "", map[string]string{"Authorization": good, "Accept": "text/event-stream"}, "", 405},
		"end of a session":            {"DELETE", "", "", map[string]string{"Authorization": good}, "", 405},
		"another path":                {"POST", "/more", call, map[string]string{"Authorization": good}, "", 404},
		"protocol that nobody speaks": {"POST", "", call, map[string]string{"Authorization": good, "Mcp-Protocol-Version": "1999-01-01"}, "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request, err := http.NewRequestWithContext(t.Context(), test.method, url+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Accept", "application/json, text/event-stream")
			for name, value := range test.header {
				request.Header.Set(name, value)
			}
			if test.host != "" {
				request.Host = test.host
			}
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.status {
				t.Errorf("got %d %.200s, %v", response.StatusCode, body, err)
			}
			if response.Header.Get("Cache-Control") == "" || response.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("got %v", response.Header)
			}
			if (test.status == http.StatusUnauthorized) != (response.Header.Get("WWW-Authenticate") != "") {
				t.Errorf("challenge %q", response.Header.Get("WWW-Authenticate"))
			}
			if test.status != http.StatusOK {
				return
			}
			// A number of a provider's schema that floating point would round.
			for _, want := range []string{"cs_operation_wait", `"maximum":9007199254740993`} {
				if !strings.Contains(string(body), want) {
					t.Errorf("%s is not in %s", want, body)
				}
			}
		})
	}
}

func TestStoppingServerEndsWaits(t *testing.T) {
	t.Parallel()
	core := brokertest.Start(t, operations...)
	endpoint := brokertest.Serve(t, http.NotFoundHandler()) // for a free address
	other, err := access.ParseEndpoint(endpoint.String() + "2")
	if err != nil {
		t.Fatal(err)
	}
	stop := brokertest.ServeAt(t, other, newHandler(t, core))
	transport := other.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	b := &bundle{core, t, start(t, &sdk.StreamableClientTransport{
		Endpoint: other.URL() + mcp.Path, HTTPClient: &http.Client{Transport: bearer{"alice", transport}}, DisableStandaloneSSE: true,
	})}
	pending, _ := b.call("cs_asked_act", input("x"))
	ended := make(chan document)
	go func() {
		d, _ := b.call("cs_operation_wait", map[string]any{"id": pending.ID})
		ended <- d
	}()
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	stop()
	if d := <-ended; d.State != operation.Pending || time.Since(began) > 5*time.Second {
		t.Errorf("got %+v after %s", d, time.Since(began))
	}
}

// One client that holds requests open without end is refused more, and holds up no other one.
func TestRequestsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	core := brokertest.Start(t, operations...)
	url := serveHTTP(t, core)
	send := func(client, body string) (status int) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		request.Header.Set("Authorization", "Bearer "+brokertest.Secret(client).Reveal())
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	pending, _, err := core.Operations.Submit(t.Context(), "alice", operation.Request{
		RequestID: "r1", Operation: "asked.act", Target: []byte(`{"place":"here"}`), Arguments: []byte(`{"text":"x"}`), Reason: "testing",
	})
	if err != nil {
		t.Fatal(err)
	}
	wait := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cs_operation_wait","arguments":{"id":"` + pending.ID + `"}}}`
	statuses := make(chan int)
	for range 65 {
		go func() { statuses <- send("alice", wait) }()
	}
	if status := <-statuses; status != http.StatusTooManyRequests { // the others wait
		t.Errorf("the one too many got %d", status)
	}
	if status := send("bob", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`); status != http.StatusOK {
		t.Errorf("another client got %d", status)
	}
	if _, err := core.Operations.Cancel(t.Context(), "alice", pending.ID); err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("a wait got %d", status)
		}
	}
	if status := send("alice", wait); status != http.StatusOK {
		t.Errorf("the next one got %d", status)
	}
}
