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
	Full    bool // the disk is
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
	tap := &LogTap{methods: *f.system()}
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
	if tap.Full {
		return lib.SQLITE_FULL
	}
	tap.Writes++
	return tapped[file](tls, file, p, n, at)
}
