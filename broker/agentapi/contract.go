package agentapi

import "countersign/internal/strictjson"

// Contract returns the OpenAPI document of the whole surface, in canonical form.
func Contract() strictjson.Raw { return nil }

// ContractDigest is "sha256:" and the SHA-256 of [Contract] in hexadecimal.
func ContractDigest() string { return "" }
