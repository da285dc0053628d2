package sqlite

import (
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"
)

// The memory of SQLite. The allocator of libc rounds a size up to the next power of two, so that a page of 4 KiB with
// what the cache adds to it takes 8, and gives memory back to the system as soon as nothing in it is used: for a cache
// that the write of another connection empties, or what a statement needs for a moment, that is every time. Here a block
// is 15 bytes or a quarter larger than requested at most, and some of the chunks that blocks are cut from stay when they
// are empty. Larger blocks are those of libc.

const (
	blockMost  = 20 << 10  // bytes of a block that is cut from a chunk
	chunkSize  = 256 << 10 // bytes
	emptyMost  = 32        // empty chunks that are kept, 8 MiB
	headerSize = 8         // bytes in front of a block: the requested size and the number of the chunk, 0 for libc's
)

// chunk is C memory that is divided into blocks of one size.
type chunk struct {
	number uintptr
	base   uintptr
	class  int
	free   uintptr // the block that was given back last; it begins with the address of the one before it
	fresh  uintptr // offset of what no block was cut from yet
	used   int     // blocks
}

// memory is shared by all connections.
var memory struct {
	sync.Mutex
	libc   lib.Tsqlite3_mem_methods
	chunks []*chunk     // by number; there is no chunk 0
	unused []uintptr    // numbers
	room   [41][]*chunk // by class, those with a free block; the last is used first
	empty  int          // chunks
}

// The types of the functions that give and take memory.
type (
	mallocFunc  = func(tls *libc.TLS, n int32) uintptr
	freeFunc    = func(tls *libc.TLS, p uintptr)
	reallocFunc = func(tls *libc.TLS, p uintptr, n int32) uintptr
	sizeOfFunc  = func(tls *libc.TLS, p uintptr) int32
)

// registerMemory makes SQLite use malloc, release, realloc and sizeOf. Its own functions stay if it refuses them.
func registerMemory() {
	tls := libc.NewTLS()
	defer tls.Close()
	var own lib.Tsqlite3_mem_methods
	p := libc.Xmalloc(tls, types.Size_t(unsafe.Sizeof(own)))
	if p == 0 {
		return
	}
	defer libc.Xfree(tls, p)
	arguments := libc.NewVaList(p)
	defer libc.Xfree(tls, arguments)
	if lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_GETMALLOC, arguments) != lib.SQLITE_OK {
		return
	}
	own = *(*lib.Tsqlite3_mem_methods)(pointer(p))
	memory.libc, memory.chunks = own, []*chunk{nil}
	own.FxMalloc, own.FxFree = address[mallocFunc](malloc), address[freeFunc](release)
	own.FxRealloc, own.FxSize = address[reallocFunc](realloc), address[sizeOfFunc](sizeOf)
	*(*lib.Tsqlite3_mem_methods)(pointer(p)) = own
	lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_MALLOC, arguments)
}

// classOf returns the class of blocks of n bytes, and their size: a multiple of 16 up to 256, then four sizes for each
// power of two.
func classOf(n int32) (class int, size uintptr) {
	if n <= 256 {
		class = int(n-1) >> 4
		return class, uintptr(class+1) << 4
	}
	power := bits.Len32(uint32(n - 1))
	quarters := uintptr(n-1) >> (power - 3)
	return 16 + (power-9)*4 + int(quarters&3), (quarters + 1) << (power - 3)
}

func headerOf(p uintptr) *int64 { return (*int64)(pointer(p - headerSize)) }

func linkOf(p uintptr) *uintptr { return (*uintptr)(pointer(p)) }

func sizeOf(_ *libc.TLS, p uintptr) int32 { return int32(*headerOf(p)) }

func numberOf(p uintptr) uintptr { return uintptr(*headerOf(p) >> 32) }

func setHeader(p, number uintptr, n int32) { *headerOf(p) = int64(number)<<32 | int64(n) }

func malloc(tls *libc.TLS, n int32) uintptr {
	if n > blockMost {
		p := function[mallocFunc](memory.libc.FxMalloc)(tls, n+headerSize)
		if p != 0 {
			p += headerSize
			setHeader(p, 0, n)
		}
		return p
	}
	class, size := classOf(n)
	memory.Lock()
	defer memory.Unlock()
	if len(memory.room[class]) == 0 && !addChunk(tls, class) {
		return 0
	}
	c := memory.room[class][len(memory.room[class])-1]
	p := c.take(size)
	setHeader(p, c.number, n)
	return p
}

// addChunk adds an empty chunk to a class and reports whether there was memory for it.
func addChunk(tls *libc.TLS, class int) bool {
	base := libc.Xmalloc(tls, chunkSize)
	if base == 0 {
		return false
	}
	c := &chunk{base: base, class: class}
	if n := len(memory.unused); n > 0 {
		c.number, memory.unused = memory.unused[n-1], memory.unused[:n-1]
		memory.chunks[c.number] = c
	} else {
		c.number = uintptr(len(memory.chunks))
		memory.chunks = append(memory.chunks, c)
	}
	memory.room[class] = append(memory.room[class], c)
	memory.empty++
	return true
}

// take returns a free block of a chunk, which must have room.
func (c *chunk) take(size uintptr) (p uintptr) {
	if c.used == 0 {
		memory.empty--
	}
	c.used++
	if c.free != 0 {
		p, c.free = c.free, *linkOf(c.free)
	} else {
		p = c.base + c.fresh + headerSize
		c.fresh += headerSize + size
	}
	if !c.hasRoom(size) {
		room := memory.room[c.class]
		memory.room[c.class] = room[:len(room)-1] // blocks are taken from the last
	}
	return p
}

func (c *chunk) hasRoom(size uintptr) bool {
	return c.free != 0 || c.fresh+headerSize+size <= chunkSize
}

func release(tls *libc.TLS, p uintptr) {
	number := numberOf(p)
	if number == 0 {
		function[freeFunc](memory.libc.FxFree)(tls, p-headerSize)
		return
	}
	_, size := classOf(sizeOf(tls, p))
	memory.Lock()
	defer memory.Unlock()
	c := memory.chunks[number]
	if !c.hasRoom(size) {
		memory.room[c.class] = append(memory.room[c.class], c)
	}
	*linkOf(p), c.free = c.free, p
	c.used--
	if c.used > 0 {
		return
	}
	if memory.empty < emptyMost {
		memory.empty++
		return
	}
	room := memory.room[c.class]
	i := slices.Index(room, c)
	memory.room[c.class] = slices.Delete(room, i, i+1)
	memory.chunks[number] = nil
	memory.unused = append(memory.unused, number)
	libc.Xfree(tls, c.base)
}

func realloc(tls *libc.TLS, p uintptr, n int32) uintptr {
	number, had := numberOf(p), sizeOf(tls, p)
	if number == 0 && n > blockMost {
		q := function[reallocFunc](memory.libc.FxRealloc)(tls, p-headerSize, n+headerSize)
		if q != 0 {
			q += headerSize
			setHeader(q, 0, n)
		}
		return q
	}
	if number != 0 && n <= blockMost {
		class, _ := classOf(n)
		if before, _ := classOf(had); before == class {
			setHeader(p, number, n)
			return p
		}
	}
	q := malloc(tls, n)
	if q != 0 {
		least := int(min(n, had))
		copy(bytesAt(q, least), bytesAt(p, least))
		release(tls, p)
	}
	return q
}
