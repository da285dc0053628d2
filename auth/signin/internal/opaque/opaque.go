// Package opaque makes tokens that a client keeps and of which the kit stores the hash alone. The
// packages of signin call it.
package opaque

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/kitbackend/kit/internal/random"
)

// Length is the length of a token in bytes: 32 random bytes as base64.
const Length = 43

// New returns a random token.
func New() string {
	token := random.Bytes(32)
	return base64.RawURLEncoding.EncodeToString(token)
}

// Hash returns the stored form of a token.
func Hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
