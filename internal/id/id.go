// Package id makes the kit's identifiers: opaque, unguessable, and sorted by the time of their
// creation, so that inserts touch few index pages and lists of one process keep their order within
// a millisecond.
package id

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"math/bits"
	"sync"
	"time"
)

// alphabet is Crockford's base 32 in lower case: its byte order is its value order.
var alphabet = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Len is the length of every identifier in bytes.
const Len = 26

// last is the previous identifier, 128 bits in two halves.
var last struct {
	sync.Mutex
	high, low uint64
}

// New returns a new identifier: 48 bits of milliseconds since 1970 and 80 random bits, as in the
// ULID specification, in lower case. Within a millisecond, and while a clock that jumped back
// catches up, it is the one before plus a random step of 40 bits.
func New(now time.Time) string {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	high := uint64(max(now.UnixMilli(), 0))<<16 | uint64(binary.BigEndian.Uint16(random[:2]))
	low := binary.BigEndian.Uint64(random[2:])

	last.Lock()
	if high>>16 <= last.high>>16 {
		var carry uint64
		low, carry = bits.Add64(last.low, low>>24+1, 0)
		high = last.high + carry
	}
	last.high, last.low = high, low
	last.Unlock()

	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], high)
	binary.BigEndian.PutUint64(raw[8:], low)
	var text [Len]byte
	alphabet.Encode(text[:], raw[:])
	return string(text[:])
}
