package agentapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"countersign/broker/agentapi"
	"countersign/broker/operation"
	"countersign/internal/strictjson"
)

// openapi is what the tests read of the contract.
type openapi struct {
	Paths      map[string]map[string]strictjson.Raw `json:"paths"`
	Components struct {
		Schemas struct {
			Error struct {
				Properties struct {
					Error struct {
						Properties struct {
							Code struct {
								Enum []string `json:"enum"`
							} `json:"code"`
						} `json:"properties"`
					} `json:"error"`
				} `json:"properties"`
			} `json:"Error"`
		} `json:"schemas"`
	} `json:"components"`
}

func contract(t *testing.T) openapi {
	t.Helper()
	var document openapi
	if err := strictjson.Unmarshal(agentapi.Contract(), &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// B-discovery-01
func TestDigestIsThatOfTheContractAsItIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	served := b.send("alice", "GET", "/api/agent/v1/openapi.json", "")
	sum := sha256.Sum256(served.body)
	want := "sha256:" + hex.EncodeToString(sum[:])
	a := b.send("alice", "GET", discoveryPath, "") // B-routes-02
	var discovery struct {
		Digest string `json:"contract_digest"`
		Build  string `json:"build_id"`
	}
	if err := strictjson.Unmarshal(a.body, &discovery); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %v", a.status, err)
	}
	if discovery.Digest != want || agentapi.ContractDigest() != want {
		t.Errorf("discovery says %s, the package %s, the document has %s", discovery.Digest, agentapi.ContractDigest(), want)
	}
	if discovery.Build != "test-build" { // B-discovery-02
		t.Errorf("build %q", discovery.Build)
	}
	changed, err := strictjson.Canonical([]byte(strings.Replace(string(agentapi.Contract()), `"maxLength":2000`, `"maxLength":2001`, 1)))
	if err != nil || "sha256:"+strictjson.Digest(changed) == want {
		t.Errorf("a changed contract has the same digest, %v", err)
	}
}

func TestDiscoveryOffersWhatTheClientCouldBeAllowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for client, want := range map[string]int{"alice": 3, "bob": 0} {
		discovery, err := b.client(client).Discover(t.Context())
		if err != nil || len(discovery.Operations) != want {
			t.Errorf("%s: %+v, %v", client, discovery, err)
		}
		for _, d := range discovery.Operations {
			if faults, err := d.Arguments.Validate(strictjson.Raw(`{"text":"x"}`)); err != nil || len(faults) != 0 || d.Title == "" || d.Summary == "" || d.Effect == "" {
				t.Errorf("the descriptor is not whole: %+v, %v, %v", d, faults, err)
			}
		}
	}
}

// Every path and method of the contract is served, with a challenge unless it says that it needs none.
func TestContractListsWhatIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	count := 0
	for path, methods := range contract(t).Paths {
		for method := range methods {
			if method == "parameters" {
				continue
			}
			count++
			a := b.send("", strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "op_x"), "")
			want := http.StatusUnauthorized
			if path == "/healthz" {
				want = http.StatusOK
			}
			if a.status != want {
				t.Errorf("%s %s: %d", method, path, a.status)
			}
		}
	}
	if count != 8 { // and TestAuthentication sends each of them too
		t.Errorf("the contract has %d routes", count)
	}
}

func TestContractListsEveryCode(t *testing.T) {
	t.Parallel()
	listed := contract(t).Components.Schemas.Error.Properties.Error.Properties.Code.Enum
	for _, code := range []operation.Code{
		operation.InvalidRequest, operation.AuthenticationFailed, operation.NotFound, operation.RequestIDConflict, operation.NotCancelable,
		operation.NotRegistered, operation.InputInvalid, operation.TargetRefused, operation.Unavailable,
		"method_not_allowed", "request_timeout", "request_too_large", "unsupported_media_type", "too_many_waiting", "server_error",
	} {
		if !slices.Contains(listed, string(code)) {
			t.Errorf("%s is missing", code)
		}
	}
	if len(listed) != 15 {
		t.Errorf("the contract has %d codes", len(listed))
	}
}

// What is served is what the contract's schemas describe.
func TestAnswersFitTheContract(t *testing.T) {
	t.Parallel()
	var document any
	if err := strictjson.Unmarshal(agentapi.Contract(), &document); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource("contract:openapi.json", document); err != nil {
		t.Fatal(err)
	}
	fits := func(schema string, data []byte) {
		t.Helper()
		compiled, err := compiler.Compile("contract:openapi.json#/components/schemas/" + schema)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := strictjson.Unmarshal(data, &value); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if err := compiled.Validate(value); err != nil {
			t.Errorf("%v in %s", err, data)
		}
	}
	b := setup(t)
	fits("Discovery", b.send("alice", "GET", discoveryPath, "").body)
	for _, name := range []string{"free.act", "asked.act", "denied.act"} {
		body := submission("r-"+name, name, "x")
		fits("Submission", []byte(body))
		a := b.send("alice", "POST", operationsPath, body)
		fits("Operation", a.body)
		one := operationsPath + "/" + decode(t, a).ID
		if name == "asked.act" {
			fits("Operation", b.send("alice", "POST", one+"/cancel", "").body)
		}
		fits("Operation", b.send("alice", "GET", one+"/events?after_revision=9&wait_seconds=10", "").body)
		stream := b.send("alice", "GET", one+"/events", "", "Accept", "text/event-stream").body
		for _, data := range regexp.MustCompile(`(?m)^data: (.*)$`).FindAllSubmatch(stream, -1) {
			fits("Event", data[1])
		}
	}
	fits("Page", b.send("alice", "GET", operationsPath, "").body)
	fits("Page", b.send("alice", "GET", operationsPath+"?limit=1", "").body)
	fits("Error", b.send("alice", "GET", "/nothing", "").body)
	fits("Error", b.send("alice", "DELETE", operationsPath, "").body)
	fits("Error", b.send("", "GET", operationsPath, "").body)
	fits("Error", b.send("alice", "POST", operationsPath, strings.Replace(submission("r9", "asked.act", "x"), `"text"`, `"test"`, 1)).body)
}
