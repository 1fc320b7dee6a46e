// Package operation is the lifecycle of Agent Operations V1: submitted work, from its request to its one outcome.
package operation
