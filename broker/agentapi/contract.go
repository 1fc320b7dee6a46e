package agentapi

import (
	_ "embed"
	"sync"

	"countersign/internal/strictjson"
)

// ContractName labels the contract. It is for people: two sides understand each other if their [ContractDigest] is the same.
const ContractName = "countersign/agent-operations/v1"

//go:embed openapi.json
var openapi []byte

var contract = sync.OnceValue(func() strictjson.Raw {
	canonical, err := strictjson.Canonical(openapi)
	if err != nil {
		panic("agentapi: openapi.json: " + err.Error()) // part of the program
	}
	return canonical
})

// Contract returns the OpenAPI document of the whole surface, in canonical form.
func Contract() strictjson.Raw { return contract() }

// ContractDigest is "sha256:" and the SHA-256 of [Contract] in hexadecimal.
func ContractDigest() string { return "sha256:" + strictjson.Digest(contract()) }
