// Package wire is what the broker's HTTP surfaces and their clients have in common: one form of error, strict queries, event
// streams, and calls that are repeated when their answer was lost.
package wire
