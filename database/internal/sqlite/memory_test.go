package sqlite_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

// block is a block with the byte that all of it holds.
type block struct {
	p    uintptr
	n    int
	fill byte
}

// TestBlocksAreTheirOwn allocates, resizes and frees blocks of all sizes in several goroutines: no two share a byte, and
// resizing keeps what is in them.
func TestBlocksAreTheirOwn(t *testing.T) {
	before, _ := sqlite.Chunks()
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() { useBlocks(t, rand.New(rand.NewPCG(seed, 1))) })
	}
	all.Wait()
	if after, empty := sqlite.Chunks(); after > before+sqlite.EmptyMost || empty > sqlite.EmptyMost {
		t.Errorf("%d chunks, %d of them empty, after all blocks were freed; there were %d before, and %d empty ones stay at most",
			after, empty, before, sqlite.EmptyMost)
	}
}

func useBlocks(t *testing.T, r *rand.Rand) {
	m := sqlite.NewMemory()
	defer m.Close()
	size := func() int {
		most := []int{64, 600, 5000, sqlite.BlockMost, 3 * sqlite.BlockMost}[r.IntN(5)]
		return 1 + r.IntN(most)
	}
	var blocks []block
	check := func(b block, n int) {
		if !bytes.Equal(m.Bytes(b.p, n), bytes.Repeat([]byte{b.fill}, n)) {
			t.Errorf("a block of %d bytes no longer holds what was written to it", b.n)
		}
	}
	write := func(b block) block {
		if b.p%8 != 0 || m.Size(b.p) < b.n {
			t.Errorf("a block of %d bytes at %x has %d bytes", b.n, b.p, m.Size(b.p))
		}
		b.fill = byte(r.IntN(256))
		for i, to := 0, m.Bytes(b.p, b.n); i < len(to); i++ {
			to[i] = b.fill
		}
		return b
	}
	for i := range 8_000 {
		if len(blocks) == 0 || r.IntN(2000) > len(blocks) && i < 5_000 {
			n := size()
			blocks = append(blocks, write(block{p: m.Alloc(n), n: n}))
			continue
		}
		at := r.IntN(len(blocks))
		b := blocks[at]
		check(b, b.n)
		if r.IntN(4) == 0 {
			n := size()
			b.p = m.Realloc(b.p, n)
			check(b, min(n, b.n))
			b.n = n
			blocks[at] = write(b)
			continue
		}
		m.Free(b.p)
		blocks[at] = blocks[len(blocks)-1]
		blocks = blocks[:len(blocks)-1]
	}
	for _, b := range blocks {
		check(b, b.n)
		m.Free(b.p)
	}
}

// TestEveryClassHoldsItsSizes allocates each size that chunks are cut for.
func TestEveryClassHoldsItsSizes(t *testing.T) {
	m := sqlite.NewMemory()
	defer m.Close()
	var before block
	for n := 1; n <= sqlite.BlockMost+1; n++ {
		b := block{p: m.Alloc(n), n: n, fill: byte(n)}
		if m.Size(b.p) < n {
			t.Fatalf("a block of %d bytes has %d", n, m.Size(b.p))
		}
		for i, to := 0, m.Bytes(b.p, n); i < len(to); i++ {
			to[i] = b.fill
		}
		if before.p != 0 {
			if !bytes.Equal(m.Bytes(before.p, before.n), bytes.Repeat([]byte{before.fill}, before.n)) {
				t.Fatalf("the block of %d bytes overlaps the one of %d", n, before.n)
			}
			m.Free(before.p)
		}
		before = b
	}
	m.Free(before.p)
}
