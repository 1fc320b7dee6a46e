// Package id makes unguessable identifiers.
package id

import "crypto/rand"

// New returns prefix, an underscore and 26 random characters (130 bits) from A-Z and 2-7: valid wherever the protocol takes
// an ID (7.2) and safe in a URL.
func New(prefix string) string { return prefix + "_" + rand.Text() }
