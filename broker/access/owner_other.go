//go:build !unix

package access

import "io/fs"

// ownedByUs reports false where a file's owner cannot be told: only loopback addresses are served there.
func ownedByUs(fs.FileInfo) bool { return false }
