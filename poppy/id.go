package poppy

import "strings"

// Longest IDs, in characters.
const (
	MaxIDLength     = 256 // conversation, message, event, operation and Session IDs
	MaxUserIDLength = 255 // User IDs (OpenID Connect Core section 8, which 4.2 names)
)

const (
	alphanumeric  = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	idAlphabet    = alphanumeric + "-_"
	segmentLetter = alphanumeric + "-._~!$&'()*+,;=:@" // pchar of RFC 3986 without percent-encoding
)

// ValidID tells whether text is a Conversation ID, message ID or event ID: 1 to 256 letters, digits, - and _ (7.2).
func ValidID(text string) bool {
	return text != "" && len(text) <= MaxIDLength && strings.Trim(text, idAlphabet) == ""
}

// ValidOperationID tells whether text can be an operation ID. The extension leaves its form to the Company but puts it
// into a path, so it is 1 to 256 characters that a path segment may hold as they are, and not . or .. (Operations 3).
func ValidOperationID(text string) bool {
	return text != "" && len(text) <= MaxIDLength && text != "." && text != ".." && strings.Trim(text, segmentLetter) == ""
}

// ValidSessionID tells whether text can be a session_id, whose form is the Company's: 1 to 256 printable ASCII
// characters (4.2).
func ValidSessionID(text string) bool { return printable(text, MaxIDLength) }

// ValidUserID tells whether text can be a User ID, whose form is the Personal Agent's: 1 to 255 printable ASCII
// characters (4.2).
func ValidUserID(text string) bool { return printable(text, MaxUserIDLength) }

func printable(text string, longest int) bool {
	return text != "" && len(text) <= longest && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
