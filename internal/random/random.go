// Package random draws keys, salts and tokens.
package random

import "crypto/rand"

// Bytes returns n random bytes. It never fails: crypto/rand ends the process instead.
func Bytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}
