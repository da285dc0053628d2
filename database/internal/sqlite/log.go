package sqlite

import (
	"encoding/binary"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"
)

// FileVFS is the name of the SQLite VFS for databases in files. It is the one of the operating system, but for the
// write-ahead log: SQLite writes each page there by two system calls, and this VFS gathers many pages for one. What a
// commit wrote is in the file before other connections are shown the commit, as it is without.
const FileVFS = "kit"

const (
	gathered    = 127 << 10 // bytes of the log that one system call writes at most; SQLite's own bound is below 128 KiB
	frameHeader = 24        // bytes in front of each page of the log (sqlite.org/fileformat.html, section 4.2)
)

// logFile is what a file of the log has in addition to the system's own part, in the memory that SQLite provides for it.
type logFile struct {
	methods lib.Tsqlite3_io_methods // those of the VFS below, with the functions of this file in their places
	under   uintptr                 // those of the VFS below
	buf     uintptr                 // C memory of the bytes that wait; 0 before the first of them
	used    int                     // bytes that wait
	at      int64                   // offset of the first of them, and of the next write if none waits
	commits bool                    // the last write was the header of the page that ends a transaction
}

// ownOffset is the offset of logFile in the memory of an open file.
var ownOffset uintptr

// RegisterVFS registers a VFS that gathers the writes of the log in front of another one, the system's if under is
// empty, and reports whether it could. All that are registered must need the same memory for a file.
func RegisterVFS(name, under string) bool {
	tls := libc.NewTLS()
	defer tls.Close()
	found := findVFS(tls, under)
	p := libc.Xmalloc(tls, types.Size_t(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	zName, err := libc.CString(name)
	if found == 0 || p == 0 || err != nil {
		return false
	}
	vfs := (*lib.Tsqlite3_vfs)(pointer(p))
	*vfs = *(*lib.Tsqlite3_vfs)(pointer(found))
	offset := uintptr(vfs.FszOsFile+7) &^ 7
	if ownOffset != 0 && ownOffset != offset {
		return false
	}
	ownOffset = offset
	vfs.FszOsFile = int32(ownOffset + unsafe.Sizeof(logFile{}))
	vfs.FpNext, vfs.FzName, vfs.FxOpen, vfs.FpAppData = 0, zName, address(openFile), found
	return lib.Xsqlite3_vfs_register(tls, p, 0) == lib.SQLITE_OK
}

func findVFS(tls *libc.TLS, name string) uintptr {
	if name == "" {
		return lib.Xsqlite3_vfs_find(tls, 0)
	}
	zName, err := libc.CString(name)
	if err != nil {
		return 0
	}
	defer libc.Xfree(tls, zName)
	return lib.Xsqlite3_vfs_find(tls, zName)
}

// The types of the functions of a VFS and of an open file.
type (
	openFunc  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	ioFunc    = func(tls *libc.TLS, file, p uintptr, n int32, at lib.Tsqlite3_int64) int32
	syncFunc  = func(tls *libc.TLS, file uintptr, flags int32) int32
	sizeFunc  = func(tls *libc.TLS, file, size uintptr) int32
	truncFunc = func(tls *libc.TLS, file uintptr, size lib.Tsqlite3_int64) int32
	closeFunc = func(tls *libc.TLS, file uintptr) int32
	hookFunc  = func(tls *libc.TLS, db uintptr)
)

// address returns what C calls fn by, and function what it is called by from Go.
func address[F any](fn F) uintptr { return *(*uintptr)(unsafe.Pointer(&fn)) }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

func openFile(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	under := (*lib.Tsqlite3_vfs)(pointer(vfs)).FpAppData
	open := function[openFunc]((*lib.Tsqlite3_vfs)(pointer(under)).FxOpen)
	rc := open(tls, under, name, file, flags, outFlags)
	if rc != lib.SQLITE_OK || flags&lib.SQLITE_OPEN_WAL == 0 {
		return rc
	}
	f, opened := logOf(file), (*lib.Tsqlite3_file)(pointer(file))
	*f = logFile{under: opened.FpMethods, methods: *(*lib.Tsqlite3_io_methods)(pointer(opened.FpMethods))}
	f.methods.FxRead = address[ioFunc](readLog)
	f.methods.FxWrite = address[ioFunc](writeLog)
	f.methods.FxSync = address[syncFunc](syncLog)
	f.methods.FxFileSize = address[sizeFunc](sizeOfLog)
	f.methods.FxTruncate = address[truncFunc](truncateLog)
	f.methods.FxClose = address[closeFunc](closeLog)
	opened.FpMethods = methodsOf(file)
	return lib.SQLITE_OK
}

func logOf(file uintptr) *logFile { return (*logFile)(pointer(file + ownOffset)) }

func methodsOf(file uintptr) uintptr { return file + ownOffset + unsafe.Offsetof(logFile{}.methods) }

func (f *logFile) below() *lib.Tsqlite3_io_methods {
	return (*lib.Tsqlite3_io_methods)(pointer(f.under))
}

// flush writes the bytes that wait. They stay if that fails, as SQLite takes them for written.
func (f *logFile) flush(tls *libc.TLS, file uintptr) int32 {
	if f.used == 0 {
		return lib.SQLITE_OK
	}
	rc := function[ioFunc](f.below().FxWrite)(tls, file, f.buf, int32(f.used), f.at)
	if rc == lib.SQLITE_OK {
		f.at += int64(f.used)
		f.used = 0
	}
	return rc
}

// writeLog lets bytes that follow those before wait, until the page that ends a transaction is among them. Without
// PRAGMA synchronous = FULL no sync comes before the commit is shown.
func writeLog(tls *libc.TLS, file, p uintptr, n int32, at lib.Tsqlite3_int64) int32 {
	f := logOf(file)
	last := f.commits
	f.commits = n == frameHeader && binary.BigEndian.Uint32(bytesAt(p+4, 4)) != 0
	if at != f.at+int64(f.used) || f.used+int(n) > gathered {
		if rc := f.flush(tls, file); rc != lib.SQLITE_OK {
			return rc
		}
	}
	if at != f.at+int64(f.used) || !f.room(tls) || int(n) > gathered {
		rc := function[ioFunc](f.below().FxWrite)(tls, file, p, n, at)
		if rc == lib.SQLITE_OK {
			f.at = at + int64(n)
		}
		return rc
	}
	copy(bytesAt(f.buf+uintptr(f.used), int(n)), bytesAt(p, int(n)))
	f.used += int(n)
	if !last {
		return lib.SQLITE_OK
	}
	rc := f.flush(tls, file)
	if rc != lib.SQLITE_OK {
		f.used = 0 // the transaction is rolled back, and must not commit when there is space again
	}
	return rc
}

// room reports whether the buffer is there.
func (f *logFile) room(tls *libc.TLS) bool {
	if f.buf == 0 {
		f.buf = libc.Xmalloc(tls, gathered)
	}
	return f.buf != 0
}

func readLog(tls *libc.TLS, file, p uintptr, n int32, at lib.Tsqlite3_int64) int32 {
	f := logOf(file)
	if rc := f.flush(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[ioFunc](f.below().FxRead)(tls, file, p, n, at)
}

func syncLog(tls *libc.TLS, file uintptr, flags int32) int32 {
	f := logOf(file)
	if rc := f.flush(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[syncFunc](f.below().FxSync)(tls, file, flags)
}

func sizeOfLog(tls *libc.TLS, file, size uintptr) int32 {
	f := logOf(file)
	if rc := f.flush(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[sizeFunc](f.below().FxFileSize)(tls, file, size)
}

func truncateLog(tls *libc.TLS, file uintptr, size lib.Tsqlite3_int64) int32 {
	f := logOf(file)
	if rc := f.flush(tls, file); rc != lib.SQLITE_OK {
		return rc
	}
	return function[truncFunc](f.below().FxTruncate)(tls, file, size)
}

// rolledBack drops what waits when a connection's transaction is rolled back: another connection may write at its place
// next, and a disk that had no room for it may have room for less.
func rolledBack(tls *libc.TLS, db uintptr) {
	p := tls.Alloc(int(pointerSize))
	defer tls.Free(int(pointerSize))
	if lib.Xsqlite3_file_control(tls, db, 0, lib.SQLITE_FCNTL_JOURNAL_POINTER, p) != lib.SQLITE_OK {
		return
	}
	file := *(*uintptr)(pointer(p))
	if file != 0 && (*lib.Tsqlite3_file)(pointer(file)).FpMethods == methodsOf(file) {
		f := logOf(file)
		f.used, f.commits = 0, false
	}
}

// closeLog drops what waits, which no commit has: SQLite closes a file whose transaction it has rolled back.
func closeLog(tls *libc.TLS, file uintptr) int32 {
	f := logOf(file)
	libc.Xfree(tls, f.buf)
	f.buf, f.used = 0, 0
	return function[closeFunc](f.below().FxClose)(tls, file)
}
