// Package sqlite binds the SQLite library for the engine of package database: connections, cached statements and result
// codes, without the conversions, locks and goroutines a general driver needs. A Conn and its statements belong to one
// goroutine at a time.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"
)

const (
	cacheSize     = 512  // statements a connection keeps; queries are constants of the program
	progressSteps = 4096 // instructions of SQLite's machine between two looks at context and deadline
	pointerSize   = types.Size_t(unsafe.Sizeof(uintptr(0)))
)

// Result codes that callers tell apart: a primary code, and extended ones.
const (
	Busy                 = lib.SQLITE_BUSY
	CannotOpen           = lib.SQLITE_CANTOPEN
	Corrupt              = lib.SQLITE_CORRUPT
	Full                 = lib.SQLITE_FULL
	IOError              = lib.SQLITE_IOERR
	NoMemory             = lib.SQLITE_NOMEM
	NotADatabase         = lib.SQLITE_NOTADB
	ConstraintUnique     = lib.SQLITE_CONSTRAINT_UNIQUE
	ConstraintPrimaryKey = lib.SQLITE_CONSTRAINT_PRIMARYKEY
	ConstraintCheck      = lib.SQLITE_CONSTRAINT_CHECK
	ConstraintForeignKey = lib.SQLITE_CONSTRAINT_FOREIGNKEY
	ConstraintNotNull    = lib.SQLITE_CONSTRAINT_NOTNULL
)

func init() {
	lib.PatchIssue199()
	registerMemory()
	RegisterVFS(FileVFS, "") // Open fails where it could not
}

// Error is a refusal by SQLite.
type Error struct {
	Code    int // extended result code
	Message string
	cause   error // the context's or the deadline's error behind SQLITE_INTERRUPT
}

// Error returns SQLite's message with its code.
func (e *Error) Error() string { return fmt.Sprintf("sqlite: %s (%d)", e.Message, e.Code) }

// Unwrap returns the reason of an interruption.
func (e *Error) Unwrap() error { return e.cause }

// ErrDeadline reports a statement stopped because its connection's deadline had passed.
var ErrDeadline = fmt.Errorf("sqlite: the time a transaction may take is over: %w", context.DeadlineExceeded)

// Conn is a connection.
type Conn struct {
	tls      *libc.TLS
	db       uintptr
	out      uintptr // room in C memory for two pointers that calls return
	cache    map[string]*Stmt
	ctx      context.Context // of the statement that runs
	deadline time.Time       // of the transaction that runs; zero: none
	noted    func(*Error)    // gets every refusal; may be nil
}

// open connections by handle, for the progress handler
var conns sync.Map

// Open opens a connection; uri is a file: URI.
func Open(uri string) (*Conn, error) {
	c := &Conn{tls: libc.NewTLS(), cache: map[string]*Stmt{}}
	if c.out = libc.Xmalloc(c.tls, 2*pointerSize); c.out == 0 {
		c.tls.Close()
		return nil, errNoMemory
	}
	name, err := libc.CString(uri)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	defer libc.Xfree(c.tls, name)
	const flags = lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_CREATE | lib.SQLITE_OPEN_URI |
		lib.SQLITE_OPEN_NOMUTEX | lib.SQLITE_OPEN_EXRESCODE
	rc := lib.Xsqlite3_open_v2(c.tls, name, c.out, flags, 0)
	c.db = *(*uintptr)(pointer(c.out))
	if rc != lib.SQLITE_OK {
		return nil, errors.Join(c.fail(rc), c.Close())
	}
	if err := c.planOnce(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	lib.Xsqlite3_rollback_hook(c.tls, c.db, address[hookFunc](rolledBack), c.db)
	conns.Store(c.db, c)
	handler := progress
	lib.Xsqlite3_progress_handler(c.tls, c.db, progressSteps, *(*uintptr)(unsafe.Pointer(&struct {
		f func(*libc.TLS, uintptr) int32
	}{handler})), c.db)
	return c, nil
}

// planOnce keeps the planner from looking at the values of parameters. A plan made by a value, such as one after LIMIT,
// expires when the statement gets another, and parsing it anew costs more than most statements do.
func (c *Conn) planOnce() error {
	args := libc.NewVaList(int32(1), uintptr(0))
	defer libc.Xfree(c.tls, args)
	if rc := lib.Xsqlite3_db_config(c.tls, c.db, lib.SQLITE_DBCONFIG_ENABLE_QPSG, args); rc != lib.SQLITE_OK {
		return c.fail(rc)
	}
	return nil
}

// VFS returns the name of the VFS that stands for the operating system's files.
func VFS() string {
	tls := libc.NewTLS()
	defer tls.Close()
	return libc.GoString((*lib.Tsqlite3_vfs)(pointer(lib.Xsqlite3_vfs_find(tls, 0))).FzName)
}

// Close finalizes the statements and closes the connection.
func (c *Conn) Close() error {
	for _, s := range c.cache {
		s.finalize()
	}
	c.cache = nil
	var err error
	if c.db != 0 {
		conns.Delete(c.db)
		if rc := lib.Xsqlite3_close_v2(c.tls, c.db); rc != lib.SQLITE_OK {
			err = c.fail(rc)
		}
		c.db = 0
	}
	libc.Xfree(c.tls, c.out)
	c.tls.Close()
	return err
}

// Until sets the time after which statements are refused or stopped; the zero time means never.
func (c *Conn) Until(deadline time.Time) { c.deadline = deadline }

// Note makes the connection hand every refusal to fn too.
func (c *Conn) Note(fn func(*Error)) { c.noted = fn }

// InTransaction reports whether a transaction is open. Some errors end it: SQLITE_FULL, IOERR, NOMEM, INTERRUPT.
func (c *Conn) InTransaction() bool { return lib.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// Changes returns the number of rows that the last statement changed which changed rows.
func (c *Conn) Changes() int64 { return lib.Xsqlite3_changes64(c.tls, c.db) }

// TotalChanges returns the number of rows that all statements together changed.
func (c *Conn) TotalChanges() int64 { return lib.Xsqlite3_total_changes64(c.tls, c.db) }

// Script runs any number of statements without arguments, rows thrown away. Context and deadline bind it too.
func (c *Conn) Script(ctx context.Context, text string) error {
	if err := c.Enter(ctx); err != nil {
		return err
	}
	p, err := libc.CString(text)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, p)
	if rc := lib.Xsqlite3_exec(c.tls, c.db, p, 0, 0, 0); rc != lib.SQLITE_OK {
		return c.fail(rc)
	}
	return nil
}

// Enter checks that a statement may run and makes ctx the one the progress handler looks at.
func (c *Conn) Enter(ctx context.Context) error {
	c.ctx = ctx
	return c.expired()
}

func (c *Conn) expired() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if !c.deadline.IsZero() && time.Now().After(c.deadline) {
		return ErrDeadline
	}
	return nil
}

func (c *Conn) fail(rc int32) error {
	e := &Error{Code: int(rc), Message: libc.GoString(lib.Xsqlite3_errmsg(c.tls, c.db))}
	if rc&0xff == lib.SQLITE_INTERRUPT && c.ctx != nil {
		e.cause = c.expired()
	}
	if c.noted != nil {
		c.noted(e)
	}
	return e
}

// progress is called by SQLite in the goroutine that runs the statement; a result other than 0 interrupts it.
func progress(_ *libc.TLS, db uintptr) int32 {
	if c, ok := conns.Load(db); ok && c.(*Conn).expired() != nil {
		return 1
	}
	return 0
}

var errNoMemory = &Error{Code: lib.SQLITE_NOMEM, Message: "out of memory"}

// pointer is the address of C memory as a pointer; C memory is outside the Go heap and does not move.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func bytesAt(p uintptr, n int) []byte { return unsafe.Slice((*byte)(pointer(p)), n) }
