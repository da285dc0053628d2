package database_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

// faultFS is a VFS of SQLite between the system's own and the one that gathers writes of the log. It knows what of each
// file has been synced, so that a test can cut the power: what was written since the last sync is then on the disk, or
// not, or in part.
type faultFS struct {
	name    string       // of the VFS that gathers in front of it
	refuse  atomic.Bool  // syncs of the log fail
	unread  atomic.Int64 // so many reads fail
	mu      sync.Mutex
	files   map[string]*faultFile
	handles map[uintptr]*faultFile // open files by SQLite's handle
	syncs   int
}

type faultFile struct {
	durable []byte
	pending []change
}

// change is a write, or with data nil a truncation to offset.
type change struct {
	offset int64
	data   []byte
}

func (c change) apply(image []byte) []byte {
	if c.data == nil {
		if int64(len(image)) > c.offset {
			return image[:c.offset]
		}
		return append(image, make([]byte, c.offset-int64(len(image)))...)
	}
	if end := c.offset + int64(len(c.data)); int64(len(image)) < end {
		image = append(image, make([]byte, end-int64(len(image)))...)
	}
	copy(image[c.offset:], c.data)
	return image
}

// state returns the number of syncs so far, and of changes to a file that a power cut now may undo.
func (f *faultFS) state(path string) (syncs, unsynced int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.syncs, len(f.files[path].pending)
}

// cut copies the files as a power cut now might leave them to another folder. keep is the chance of each write since
// the last sync to have reached the disk.
func (f *faultFS) cut(t testing.TB, folder string, keep float64) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, file := range f.files {
		image := slices.Clone(file.durable)
		for _, c := range file.pending {
			if rand.Float64() < keep {
				image = c.apply(image)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(path)), image, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The functions below are called by SQLite. ptr is the address of C memory as a pointer.
func ptr[T any](p uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&p))) }

// fn is the address by which SQLite calls a Go function, and call the way back. SQLite's memory keeps nothing alive, so
// called does.
func fn[F any](f F) uintptr {
	called.Store(new(byte), f)
	return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f}))
}

var called sync.Map

func call[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&struct{ p uintptr }{p})) }

type (
	openFunc     = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	deleteFunc   = func(tls *libc.TLS, vfs, name uintptr, sync int32) int32
	writeFunc    = func(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32
	readFunc     = func(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32
	truncateFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFunc     = func(tls *libc.TLS, file uintptr, flags int32) int32
	closeFunc    = func(tls *libc.TLS, file uintptr) int32
)

var faultFSs atomic.Int64

// newFaultFS registers a VFS for the rest of the process.
func newFaultFS(t testing.TB) *faultFS {
	t.Helper()
	number := faultFSs.Add(1)
	f := &faultFS{
		name:    fmt.Sprintf("gathered%d", number),
		files:   map[string]*faultFile{},
		handles: map[uintptr]*faultFile{},
	}
	tls := libc.NewTLS()
	defer tls.Close()
	if rc := lib.Xsqlite3_initialize(tls); rc != lib.SQLITE_OK {
		t.Fatal(rc)
	}
	system := lib.Xsqlite3_vfs_find(tls, 0)
	vfs := libc.Xmalloc(tls, types.Size_t(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	under := fmt.Sprintf("fault%d", number)
	name, err := libc.CString(under)
	if vfs == 0 || err != nil {
		t.Fatal(errors.Join(err, errors.New("no memory")))
	}
	v := ptr[lib.Tsqlite3_vfs](vfs)
	*v = *ptr[lib.Tsqlite3_vfs](system)
	v.FpNext, v.FzName = 0, name
	open, remove := call[openFunc](v.FxOpen), call[deleteFunc](v.FxDelete)
	methods := map[uintptr]uintptr{} // the system's to ours
	v.FxOpen = fn[openFunc](func(tls *libc.TLS, _, name, file uintptr, flags int32, out uintptr) int32 {
		rc := open(tls, system, name, file, flags, out)
		if rc != lib.SQLITE_OK || name == 0 {
			return rc
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		path := libc.GoString(name)
		if f.files[path] == nil {
			content, _ := os.ReadFile(path)
			f.files[path] = &faultFile{durable: content}
		}
		f.handles[file] = f.files[path]
		handle := ptr[lib.Tsqlite3_file](file)
		if methods[handle.FpMethods] == 0 {
			methods[handle.FpMethods] = f.methods(tls, handle.FpMethods, path)
		}
		handle.FpMethods = methods[handle.FpMethods]
		return rc
	})
	v.FxDelete = fn[deleteFunc](func(tls *libc.TLS, _, name uintptr, sync int32) int32 {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.files, libc.GoString(name))
		return remove(tls, system, name, sync)
	})
	if rc := lib.Xsqlite3_vfs_register(tls, vfs, 0); rc != lib.SQLITE_OK {
		t.Fatal(rc)
	}
	if !sqlite.RegisterVFS(f.name, under) {
		t.Fatal("the VFS that gathers is refused")
	}
	return f
}

// methods returns a copy of a file's methods that records.
func (f *faultFS) methods(tls *libc.TLS, system uintptr, path string) uintptr {
	ours := libc.Xmalloc(tls, types.Size_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
	m := ptr[lib.Tsqlite3_io_methods](ours)
	*m = *ptr[lib.Tsqlite3_io_methods](system)
	write, truncate, sync, closeFile := call[writeFunc](m.FxWrite), call[truncateFunc](m.FxTruncate), call[syncFunc](m.FxSync), call[closeFunc](m.FxClose)
	m.FxWrite = fn[writeFunc](func(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
		f.note(file, change{offset, slices.Clone(unsafe.Slice(ptr[byte](data), n))})
		return write(tls, file, data, n, offset)
	})
	m.FxTruncate = fn[truncateFunc](func(tls *libc.TLS, file uintptr, size int64) int32 {
		f.note(file, change{size, nil})
		return truncate(tls, file, size)
	})
	read := call[readFunc](m.FxRead)
	m.FxRead = fn[readFunc](func(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
		if f.unread.Load() > 0 {
			f.unread.Add(-1)
			return lib.SQLITE_IOERR_READ
		}
		return read(tls, file, data, n, offset)
	})
	m.FxSync = fn[syncFunc](func(tls *libc.TLS, file uintptr, flags int32) int32 {
		if f.refuse.Load() {
			return lib.SQLITE_IOERR_FSYNC
		}
		rc := sync(tls, file, flags)
		if rc == lib.SQLITE_OK {
			f.synced(file)
		}
		return rc
	})
	m.FxClose = fn[closeFunc](func(tls *libc.TLS, file uintptr) int32 {
		f.mu.Lock()
		delete(f.handles, file)
		f.mu.Unlock()
		return closeFile(tls, file)
	})
	return ours
}

func (f *faultFS) note(handle uintptr, c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.handles[handle]
	file.pending = append(file.pending, c)
}

func (f *faultFS) synced(handle uintptr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs++
	file := f.handles[handle]
	for _, c := range file.pending {
		file.durable = c.apply(file.durable)
	}
	file.pending = nil
}
