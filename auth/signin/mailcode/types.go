package mailcode

import "time"

// Key is what a code is for: a kind, which the table lists, and whose or which.
type Key struct{ Kind, Subject string }

// Code is one that was guessed right.
type Code struct {
	Key
	browser    []byte
	salt, hash []byte
	attempts   int64
	expiresAt  time.Time
}

// anywhere is the browser of a code that counts from any client.
var anywhere = []byte{}
