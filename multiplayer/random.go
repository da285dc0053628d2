package multiplayer

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/kitbackend/kit/internal/random"
)

// Algorithm names the stream of [Random] in a view's fairness.
const Algorithm = "hmac-sha256-ctr/1"

// SeedSize is the length of a session's seed in bytes.
const SeedSize = 16

const (
	domain       = "kit/rng/v1"
	wordBits     = 53
	span         = 1 << wordBits
	wordsOfBlock = sha256.Size / 8
)

// Random is the random stream of a session: the same seed gives the same draws, in every language.
//
// Block i is HMAC-SHA256 with the seed as key over "kit/rng/v1" and i as 8 bytes, big-endian. Word
// c is the top 53 bits of the (c mod 4)th big-endian 64-bit integer of block c/4, an integer that
// JavaScript represents exactly. Every draw consumes words from the cursor on.
//
// A refused action does not advance the cursor: the next one draws the same words. A model whose
// effects depend on a draw must therefore hold the stake before the draw: a debit that is refused
// would disclose the next draw to a player, at no cost.
//
// A draw with invalid arguments, such as one from an empty range, panics: the session then refuses
// the action as a fault of the model.
type Random struct {
	seed   []byte
	mac    hash.Hash // nil before the first draw
	cursor int64
	block  [sha256.Size]byte
	number int64 // of block
}

// NewRandom returns the stream of a seed from a word on. With a revealed seed everybody can repeat
// the draws of a session.
func NewRandom(seed []byte, cursor int64) *Random {
	return &Random{seed: bytes.Clone(seed), cursor: cursor, number: -1}
}

// SeedHash returns the commitment of a session to its seed, published before the first draw: the
// SHA-256 of the seed, in hex. It hides the seed because the seed is drawn uniformly.
func SeedHash(seed []byte) string {
	sum := sha256.Sum256(seed)
	return hex.EncodeToString(sum[:])
}

func newSeed() []byte {
	return random.Bytes(SeedSize)
}

// Cursor returns the number of words consumed so far.
func (r *Random) Cursor() int64 { return r.cursor }

func (r *Random) word() uint64 {
	if r == nil {
		panic("multiplayer: only Init, Apply, OnJoin, OnLeave and OnTimeout may draw")
	}
	if number := r.cursor / wordsOfBlock; number != r.number {
		if r.number = number; r.mac == nil {
			r.mac = hmac.New(sha256.New, r.seed)
		}
		r.mac.Reset()
		r.mac.Write([]byte(domain))
		r.mac.Write(binary.BigEndian.AppendUint64(nil, uint64(number)))
		r.mac.Sum(r.block[:0])
	}
	word := binary.BigEndian.Uint64(r.block[r.cursor%wordsOfBlock*8:]) >> (64 - wordBits)
	r.cursor++
	return word
}

// Next draws a number in [0, 1): one word divided by 2^53.
func (r *Random) Next() float64 { return float64(r.word()) / span }

// Int draws an integer from least to most, both included, each equally likely: in a range of n
// numbers a word w gives least + w mod n, and words that are not below the largest multiple of n
// are drawn again. The range spans at most 2^53 numbers.
func (r *Random) Int(least, most int64) int64 {
	n := uint64(most) - uint64(least) + 1
	if most < least || n > span || n == 0 {
		panic("multiplayer: Int draws from 1 to 2^53 numbers")
	}
	limit := span / n * n
	for {
		if w := r.word(); w < limit {
			return least + int64(w%n)
		}
	}
}

// Shuffle puts n items in random order: from the last down to the second, item i is swapped with
// item Int(0, i).
func (r *Random) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, int(r.Int(0, int64(i))))
	}
}

// Pick draws one of the items: the one of index Int(0, len(items)-1).
func Pick[T any](r *Random, items []T) T { return items[r.Int(0, int64(len(items)-1))] }
