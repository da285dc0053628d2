package mailcode

import "time"

// Key identifies what a code is for: a kind, which the table lists, and a subject of that kind.
type Key struct{ Kind, Subject string }

// Code is a code that was guessed.
type Code struct {
	Key
	browser    []byte
	salt, hash []byte
	attempts   int64
	expiresAt  time.Time
}

// anywhere is the browser of a code that counts from any client.
var anywhere = []byte{}
