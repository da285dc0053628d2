package sqlite

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Image returns the database as the bytes a file of it would have.
func (c *Conn) Image() ([]byte, error) {
	return inMain(c, func(name uintptr) ([]byte, error) {
		p := lib.Xsqlite3_serialize(c.tls, c.db, name, c.out, 0)
		if p == 0 {
			return nil, errNoMemory
		}
		defer lib.Xsqlite3_free(c.tls, p)
		size := *(*lib.Tsqlite3_int64)(pointer(c.out))
		return append([]byte{}, unsafe.Slice((*byte)(pointer(p)), size)...), nil
	})
}

// Fill makes an image the content of an empty database in memory. The connection must be in no transaction, and no other
// may read. The bytes go where the pages of the database are: in the caches, to which a backup would write, each page is
// a piece of memory of its own, and most of them are never read. Connections see in the header that what they know is old.
func (c *Conn) Fill(image []byte) error {
	const piece = 16 << 10
	from := libc.Xmalloc(c.tls, piece)
	if from == 0 {
		return errNoMemory
	}
	defer libc.Xfree(c.tls, from)
	_, err := inMain(c, func(name uintptr) (none struct{}, err error) {
		if rc := lib.Xsqlite3_file_control(c.tls, c.db, name, lib.SQLITE_FCNTL_FILE_POINTER, c.out); rc != lib.SQLITE_OK {
			return none, c.fail(rc)
		}
		file := *(*uintptr)(pointer(c.out))
		methods := (*lib.Tsqlite3_io_methods)(pointer((*lib.Tsqlite3_file)(pointer(file)).FpMethods))
		write := function[ioFunc](methods.FxWrite)
		for end := len(image); end > 0; { // the last piece first: the database grows once
			start := (end - 1) / piece * piece
			n := copy(bytesAt(from, piece), image[start:end])
			if rc := write(c.tls, file, from, int32(n), int64(start)); rc != lib.SQLITE_OK {
				return none, c.fail(rc)
			}
			end = start
		}
		return none, nil
	})
	return err
}

// Restore replaces the database by an image, in one transaction. The connection must be in none.
func (c *Conn) Restore(image []byte) error {
	from, err := Open("file::memory:")
	if err != nil {
		return err
	}
	if err := from.Script(context.Background(), "PRAGMA cache_size = 16"); err != nil { // pages are read once
		return errors.Join(err, from.Close())
	}
	_, err = inMain(c, func(name uintptr) (none struct{}, err error) {
		if err := from.load(name, image); err != nil {
			return none, err
		}
		backup := lib.Xsqlite3_backup_init(c.tls, c.db, name, from.db, name)
		if backup == 0 {
			return none, c.fail(lib.Xsqlite3_errcode(c.tls, c.db))
		}
		stepped := lib.Xsqlite3_backup_step(c.tls, backup, -1)
		if rc := lib.Xsqlite3_backup_finish(c.tls, backup); rc != lib.SQLITE_OK {
			return none, c.fail(rc)
		}
		if stepped != lib.SQLITE_DONE {
			return none, fmt.Errorf("sqlite: the image was not copied whole (%d)", stepped)
		}
		return none, nil
	})
	return errors.Join(err, from.Close())
}

// load puts an image in the place of a connection's own database.
func (c *Conn) load(name uintptr, image []byte) error {
	size := lib.Tsqlite3_int64(len(image))
	p := lib.Xsqlite3_malloc64(c.tls, lib.Tsqlite3_uint64(size))
	if p == 0 {
		return errNoMemory
	}
	copy(unsafe.Slice((*byte)(pointer(p)), len(image)), image)
	const flags = lib.SQLITE_DESERIALIZE_FREEONCLOSE | lib.SQLITE_DESERIALIZE_READONLY // p is SQLite's from here
	if rc := lib.Xsqlite3_deserialize(c.tls, c.db, name, p, size, size, flags); rc != lib.SQLITE_OK {
		return c.fail(rc)
	}
	return nil
}

// inMain calls fn with the name of a connection's own database in C memory.
func inMain[T any](c *Conn, fn func(name uintptr) (T, error)) (value T, err error) {
	name, err := libc.CString("main")
	if err != nil {
		return value, err
	}
	defer libc.Xfree(c.tls, name)
	return fn(name)
}
