package database

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Sync says what an acknowledged commit survives on SQLite.
type Sync int

const (
	// SyncFull is the default: every acknowledged commit survives a power cut.
	SyncFull Sync = iota
	// SyncNormal is cheaper: every acknowledged commit survives the end of the process, a power cut may lose the last
	// ones, never one before a kept one.
	SyncNormal
)

// String returns the word SQLite has for it.
func (s Sync) String() string {
	if s == SyncNormal {
		return "NORMAL"
	}
	return "FULL"
}

type options struct {
	sync     Sync
	readers  int
	testMode bool
	vfs      string        // of SQLite; empty: the operating system's
	limit    time.Duration // of a transaction on SQLite
	batch    int           // transactions that share a commit at most
}

// Option adjusts [OpenMemory], [OpenFile] or [New].
type Option func(*options)

// WithSync chooses what an acknowledged commit survives. Default [SyncFull].
func WithSync(s Sync) Option { return func(o *options) { o.sync = s } }

// WithReaders sets the number of SQLite connections that read, 2 to 4; other values are moved to the nearest bound.
func WithReaders(n int) Option { return func(o *options) { o.readers = min(max(n, 2), 4) } }

// WithTestMode is for tests. Every InTx callback runs twice, the first run rolled back, in the goroutine of its caller.
// A goroutine that uses the database while it occupies a part of it, inside a callback without the callback's
// context or with rows open, panics: in production it would wait for itself, at once or under load.
func WithTestMode() Option { return func(o *options) { o.testMode = true } }

// DB is a database. It is safe for concurrent use.
type DB struct {
	engine      Engine
	clock       func() time.Time
	testMode    bool
	occupations atomic.Int64              // how many there are
	occupied    sync.Map                  // in test mode: goroutines that occupy a part of the database, and how
	disk        atomic.Pointer[diskFault] // of the last write that found the disk full or failing
	closed      atomic.Bool
}

// New returns a DB on an engine, for packages that bring one; applications call [OpenMemory], [OpenFile] or
// postgres.Open. Of the options only [WithTestMode] has an effect.
func New(e Engine, opts ...Option) *DB {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return newDB(e, o)
}

func newDB(e Engine, o options) *DB {
	return &DB{engine: e, clock: time.Now, testMode: o.testMode}
}

// InTx runs fn in a writing transaction and returns nil only when it is durable; with an error nothing of it is.
// Inside a transaction of the same DB it joins: the error of a joined fn fails the whole. The rules for fn are those of
// the package documentation. [ErrUnknownOutcome] is the one error that leaves open what happened.
func (d *DB) InTx(ctx context.Context, fn func(ctx context.Context) error) error {
	if tx := d.current(ctx); tx != nil {
		if tx.readOnly {
			return errReadOnly
		}
		return tx.join(ctx, fn)
	}
	if err := d.outside(); err != nil {
		return err
	}
	tx := &transaction{db: d}
	if d.testMode {
		if err := d.rehearse(ctx, tx, fn); err != nil {
			return err
		}
	}
	return d.write(ctx, false, tx, fn)
}

func (d *DB) write(ctx context.Context, long bool, tx *transaction, fn func(context.Context) error) error {
	err := d.engine.Write(ctx, long, func(ctx context.Context, conn Conn) error { return tx.run(ctx, conn, fn) })
	if err == nil {
		tx.finish()
	}
	return d.noted(err)
}

// diskFault is a write that the disk refused.
type diskFault struct {
	err error
	at  time.Time
}

// noted remembers err if the disk refused a write, and returns it.
func (d *DB) noted(err error) error {
	if err != nil && (errors.Is(err, ErrFull) || errors.Is(err, errDisk)) {
		d.disk.Store(&diskFault{err, d.now()})
	}
	return err
}

// rehearse runs fn in a transaction that is rolled back.
func (d *DB) rehearse(ctx context.Context, tx *transaction, fn func(context.Context) error) error {
	err := d.engine.Write(ctx, false, func(ctx context.Context, conn Conn) error {
		if err := tx.run(ctx, conn, fn); err != nil {
			return err
		}
		return errRehearsal
	})
	if err == errRehearsal {
		return nil
	}
	return err
}

// Read runs fn on one snapshot of the database, for 10 seconds at most. Inside a transaction of the same DB it joins,
// and sees what that one has written.
func (d *DB) Read(ctx context.Context, fn func(ctx context.Context) error) error {
	if tx := d.current(ctx); tx != nil {
		if err := tx.usable(); err != nil {
			return err
		}
		return fn(ctx)
	}
	if err := d.outside(); err != nil {
		return err
	}
	tx := &transaction{db: d, readOnly: true}
	err := d.engine.Read(ctx, func(ctx context.Context, conn Conn) error { return tx.run(ctx, conn, fn) })
	if err == nil {
		tx.finish()
	}
	return err
}

// Exec runs a statement and returns the number of rows it changed. Outside a transaction it is one of its own. Without
// arguments the text may hold several statements, which succeed or fail together and count nothing.
func (d *DB) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	if controls(query) {
		return 0, errControl
	}
	if tx := d.current(ctx); tx != nil {
		return tx.exec(ctx, query, args)
	}
	if err := d.outside(); err != nil {
		return 0, err
	}
	rows, err = d.engine.Exec(ctx, query, args)
	return rows, d.noted(err)
}

// QueryRow returns the first row of a query, which runs in [Row.Scan]. Outside a transaction it may only read.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) *Row {
	return &Row{ctx: ctx, db: d, query: query, args: args}
}

// Query returns the rows of a query. Outside a transaction it may only read.
func (d *DB) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	if controls(query) {
		return nil, errControl
	}
	return d.query(ctx, d.current(ctx), func(ctx context.Context, conn Conn) (Cursor, error) { return conn.Query(ctx, query, args) })
}

func (d *DB) query(ctx context.Context, tx *transaction, start func(context.Context, Conn) (Cursor, error)) (*Rows, error) {
	rows := &Rows{tx: tx}
	if tx != nil {
		tx.mu.Lock()
		defer tx.mu.Unlock()
	}
	var err error
	if rows.cursor, err = d.open(ctx, tx, start); err != nil {
		return nil, err
	}
	switch {
	case tx != nil:
		tx.rows = rows
	case d.testMode:
		rows.closed = d.occupy(inRows)
	}
	return rows, nil
}

// open starts a query in tx, which is locked, or outside a transaction.
func (d *DB) open(ctx context.Context, tx *transaction, start func(context.Context, Conn) (Cursor, error)) (Cursor, error) {
	if tx == nil {
		if err := d.outside(); err != nil {
			return nil, err
		}
		return start(ctx, d.engine)
	}
	if err := tx.check(); err != nil {
		return nil, err
	}
	cursor, err := start(ctx, tx.conn)
	if err != nil {
		tx.fail(err)
	}
	return cursor, err
}

// Now returns the time in UTC, in whole milliseconds. Inside a transaction it stands still: the outermost one has one
// time in all its runs.
func (d *DB) Now(ctx context.Context) time.Time {
	tx := d.current(ctx)
	if tx == nil {
		return d.now()
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.now.IsZero() {
		tx.now = d.now()
	}
	return tx.now
}

func (d *DB) now() time.Time { return d.clock().UTC().Truncate(time.Millisecond) }

// UseClock replaces the clock behind Now. It must be called before the first use.
func (d *DB) UseClock(now func() time.Time) { d.clock = now }

// InTransaction reports whether ctx carries a transaction of this DB, be it of InTx or of Read.
func (d *DB) InTransaction(ctx context.Context) bool { return d.current(ctx) != nil }

// Lock has transactions that lock the same name follow each other: the one of ctx waits for those that hold the lock, and
// holds it until it ends. Names begin with that of the package. On SQLite, which has one writer, there is nothing to do. It
// refuses outside of a transaction, where it would hold nothing.
func (d *DB) Lock(ctx context.Context, name string) error {
	switch {
	case !d.InTransaction(ctx):
		return errors.New("database: Lock is called outside of a transaction")
	case d.Dialect() == SQLite:
		return nil
	}
	_, err := d.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, name)
	return err
}

// Dialect names the database.
func (d *DB) Dialect() Dialect { return d.engine.Dialect() }

// Ping reports whether the database responds.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.outside(); err != nil {
		return err
	}
	return d.engine.Ping(ctx)
}

// faultFor is how long [DB.Check] reports a write that the disk refused: the small write of Check
// may succeed where others fail.
const faultFor = 30 * time.Second

// Check commits a write that changes nothing. It fails if the disk was full or failing within the
// last 30 seconds, if a PostgreSQL server is read-only, and if a SQLite file is damaged, as far as
// a check of 100 milliseconds or an earlier statement has shown. It costs a commit: call it a few
// times a minute at most.
func (d *DB) Check(ctx context.Context) error {
	if err := d.outside(); err != nil {
		return err
	}
	if err := d.noted(d.engine.Check(ctx)); err != nil {
		return err
	}
	if fault := d.disk.Load(); fault != nil && d.now().Sub(fault.at).Abs() < faultFor {
		return fault.err
	}
	return nil
}

// Backup writes a consistent copy of a SQLite database to path, which must not exist and is made for its owner only;
// writers go on meanwhile. PostgreSQL returns [ErrUnsupported] and names pg_dump.
func (d *DB) Backup(ctx context.Context, path string) error {
	if err := d.outside(); err != nil {
		return err
	}
	return d.engine.Backup(ctx, path)
}

// Listen calls fn for every notification on a PostgreSQL channel, and ready after every (re)connect, before which
// notifications are lost. It returns when ctx ends or the DB is closed. SQLite returns [ErrUnsupported].
func (d *DB) Listen(ctx context.Context, channel string, ready func(), fn func(payload string)) error {
	if err := d.outside(); err != nil {
		return err
	}
	return d.engine.Listen(ctx, channel, ready, fn)
}

// Close ends the database; calls under way finish first, later ones return [ErrClosed].
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return d.engine.Close()
}
