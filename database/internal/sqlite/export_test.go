package sqlite

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

func (s *Stmt) Parsed() int {
	return int(lib.Xsqlite3_stmt_status(s.c.tls, s.p, lib.SQLITE_STMTSTATUS_REPREPARE, 0))
}

// A LogTap stands between a connection's log and the system's file.
type LogTap struct {
	methods lib.Tsqlite3_io_methods
	Writes  int
	Full    bool  // the disk is
	Room    int64 // bytes of the log that the disk has room for; 0 means any number
}

var taps = map[uintptr]*LogTap{}

// TapLog must be called once the connection has opened its log, and Untap before it is closed.
func (c *Conn) TapLog() (*LogTap, error) {
	rc, err := inMain(c, func(name uintptr) (int32, error) {
		return lib.Xsqlite3_file_control(c.tls, c.db, name, lib.SQLITE_FCNTL_JOURNAL_POINTER, c.out), nil
	})
	if err != nil || rc != lib.SQLITE_OK {
		return nil, c.fail(rc)
	}
	file := *(*uintptr)(pointer(c.out))
	f := logOf(file)
	tap := &LogTap{methods: *f.below()}
	write := function[ioFunc](tap.methods.FxWrite)
	tap.methods.FxWrite = address[ioFunc](tappedWrite)
	tapped[file] = write
	taps[file] = tap
	f.under = uintptr(unsafe.Pointer(&tap.methods))
	return tap, nil
}

var tapped = map[uintptr]ioFunc{}

func tappedWrite(tls *libc.TLS, file, p uintptr, n int32, at lib.Tsqlite3_int64) int32 {
	tap := taps[file]
	if tap.Full || tap.Room > 0 && at+int64(n) > tap.Room {
		return lib.SQLITE_FULL
	}
	tap.Writes++
	return tapped[file](tls, file, p, n, at)
}

// Memory is what SQLite's memory functions have given to one caller.
type Memory struct{ tls *libc.TLS }

func NewMemory() Memory { return Memory{libc.NewTLS()} }

func (m Memory) Close() { m.tls.Close() }

func (m Memory) Alloc(n int) uintptr { return lib.Xsqlite3_malloc64(m.tls, lib.Tsqlite3_uint64(n)) }

func (m Memory) Realloc(p uintptr, n int) uintptr {
	return lib.Xsqlite3_realloc64(m.tls, p, lib.Tsqlite3_uint64(n))
}

func (m Memory) Free(p uintptr) { lib.Xsqlite3_free(m.tls, p) }

func (m Memory) Size(p uintptr) int { return int(lib.Xsqlite3_msize(m.tls, p)) }

func (m Memory) Bytes(p uintptr, n int) []byte { return bytesAt(p, n) }

// Chunks returns how many chunks there are, and how many of them are empty.
func Chunks() (all, empty int) {
	memory.Lock()
	defer memory.Unlock()
	for _, c := range memory.chunks {
		if c != nil {
			all++
		}
	}
	return all, memory.empty
}

const (
	BlockMost = blockMost
	EmptyMost = emptyMost
)
