package database

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

// timeLimit is how long a callback may hold the writer, how long a Read may hold its snapshot (a long one stops WAL
// checkpoints), and how long a call waits for a connection that reads.
const timeLimit = 10 * time.Second

const (
	memoryReaders = 2
	fileReaders   = 3
)

// OpenMemory opens an empty SQLite database in memory. It lives until Close.
func OpenMemory(opts ...Option) (*DB, error) {
	db, err := openSQLite(&sqliteEngine{uri: "file:/" + rand.Text(), memory: true}, options{readers: memoryReaders, vfs: "memdb"}, opts)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return db, nil
}

// OpenFile opens the SQLite database in the file at path, which is made, for its owner only, if
// missing. An empty file is refused, because a failed copy leaves one. One process may have it
// open, once: a second OpenFile is refused by an OS lock on path + ".lock". Its errors name the file.
func OpenFile(path string, opts ...Option) (*DB, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("database: %s: %w", path, err)
	}
	path = whole
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // one lock, however the file is called
	}
	db, err := openFile(path, opts)
	if err != nil {
		return nil, fmt.Errorf("database: %s: %w", path, err)
	}
	return db, nil
}

func openFile(path string, opts []Option) (*DB, error) {
	lock, err := lockFile(path + ".lock")
	switch {
	case errors.Is(err, errInUse):
		return nil, fmt.Errorf("it is in use: %w", err)
	case err != nil:
		return nil, fmt.Errorf("it cannot be written: %w", withoutFolder(err))
	}
	if err := create(path); err != nil {
		return nil, errors.Join(withoutFolder(err), lock.Close())
	}
	return openSQLite(&sqliteEngine{uri: fileURI(path), lock: lock}, options{readers: fileReaders, vfs: sqlite.FileVFS}, opts)
}

// withoutFolder returns an error of the file, or of one next to it, for a text that has the path.
func withoutFolder(err error) error {
	at, renamed := new(fs.PathError), new(os.LinkError)
	switch {
	case errors.As(err, &at):
		return &fs.PathError{Op: at.Op, Path: filepath.Base(at.Path), Err: at.Err}
	case errors.As(err, &renamed):
		return &fs.PathError{Op: renamed.Op, Path: filepath.Base(renamed.Old), Err: renamed.Err}
	default:
		return err
	}
}

func fileURI(path string) string {
	return "file:///" + strings.TrimPrefix((&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), "/")
}

var (
	errInUse = errors.New("another process has it open, and a file is of one at a time: stop that one first; PostgreSQL takes any number")
	errEmpty = errors.New("the file is empty: it was cut off, or something else made it; " +
		"bring back a backup, or remove it to begin a new database")
)

// create makes the file with its final rights, and its name durable. It is never seen empty, whatever is killed when.
func create(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Size() == 0:
		return errEmpty
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	made := path + ".new"
	f, err := os.OpenFile(made, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(emptyDatabase())
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(made, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// pageSize is that of the files this package makes, SQLite's default.
const pageSize = 4096

// emptyDatabase returns the one page of a database without tables, as sqlite.org/fileformat.html describes it: with a
// write-ahead log, and able to give back free pages, which a file cannot learn later.
func emptyDatabase() []byte {
	page := make([]byte, pageSize)
	copy(page, "SQLite format 3\x00")
	binary.BigEndian.PutUint16(page[16:], pageSize)
	page[18], page[19] = 2, 2                        // written and read with a log
	page[21], page[22], page[23] = 64, 32, 32        // fractions, fixed
	binary.BigEndian.PutUint32(page[28:], 1)         // pages
	binary.BigEndian.PutUint32(page[52:], 1)         // pages know who refers to them
	binary.BigEndian.PutUint32(page[64:], 1)         // and are given back on demand
	page[100] = 13                                   // a leaf of a table's tree
	binary.BigEndian.PutUint16(page[105:], pageSize) // where its cells begin
	return page
}

// sqliteEngine is SQLite: one connection that writes, a few that read.
type sqliteEngine struct {
	uri     string
	memory  bool
	own     bool // test mode: callbacks run in the goroutines of their callers, so that t.Fatal works
	limit   time.Duration
	lock    *os.File // nil in memory
	writer  *writer
	readers chan *reader // those not in use
	closing chan struct{}
	damage  atomic.Pointer[sqlite.Error] // what SQLite has said about a damaged file
}

func openSQLite(e *sqliteEngine, o options, opts []Option) (*DB, error) {
	o.limit = timeLimit
	for _, opt := range opts {
		opt(&o)
	}
	if o.batch == 0 {
		o.batch = batchSize
	}
	if err := e.open(o); err != nil {
		return nil, errors.Join(err, e.unlock())
	}
	return newDB(e, o), nil
}

func (e *sqliteEngine) open(o options) error {
	if o.vfs != "" {
		e.uri += "?vfs=" + o.vfs
	}
	e.own, e.limit = o.testMode, o.limit
	e.closing = make(chan struct{})
	writer, err := e.connect("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 8000; PRAGMA cache_size = -8000;" +
		"PRAGMA journal_size_limit = 67108864;" + // of a log that a long transaction has stretched
		"PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA synchronous = " + o.sync.String() +
		"; PRAGMA temp_store = MEMORY") // a savepoint's journal would take a mapping of memory each time
	if err != nil {
		return err
	}
	if !e.memory {
		if err := requireWAL(writer); err != nil {
			return errors.Join(err, writer.Close())
		}
	}
	e.readers = make(chan *reader, o.readers)
	for range o.readers {
		conn, err := e.connect("PRAGMA query_only = ON; PRAGMA mmap_size = 1073741824")
		if err != nil {
			return errors.Join(err, e.closeReaders(len(e.readers)), writer.Close())
		}
		e.readers <- &reader{Conn: conn}
	}
	e.writer = newWriter(writer, e.readers, o, e.memory, e.closing)
	go e.writer.loop()
	return nil
}

func (e *sqliteEngine) connect(pragmas string) (*sqlite.Conn, error) {
	conn, err := sqlite.Open(e.uri)
	if err != nil {
		return nil, err
	}
	conn.Note(e.note)
	err = conn.Script(context.Background(), "PRAGMA busy_timeout = 10000; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;"+pragmas)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// requireWAL refuses a file system without shared memory, where SQLite would quietly do without its log.
func requireWAL(conn *sqlite.Conn) error {
	cursor, err := sqliteConn{conn}.Query(context.Background(), "PRAGMA journal_mode", nil)
	if err != nil {
		return err
	}
	var mode string
	if cursor.Next() {
		err = cursor.Scan(&mode)
	}
	if err := errors.Join(err, cursor.Close()); err != nil {
		return err
	}
	if mode != "wal" {
		return errors.New("this file system cannot hold SQLite's write-ahead log")
	}
	return nil
}

func (e *sqliteEngine) Dialect() Dialect { return SQLite }

func (e *sqliteEngine) Write(ctx context.Context, long bool, fn func(context.Context, Conn) error) error {
	return e.writer.do(&job{ctx: ctx, alone: long, long: long, own: e.own, fn: fn})
}

func (e *sqliteEngine) Exec(ctx context.Context, query string, args []any) (rows int64, err error) {
	args, err = sqlite.Values(args) // here, because it may call methods of the arguments
	if err != nil {
		return 0, err
	}
	j := &job{ctx: ctx, short: len(args) > 0} // else it may be several
	j.fn = func(ctx context.Context, conn Conn) (err error) {
		before := e.writer.conn.TotalChanges()
		rows, err = conn.Exec(ctx, query, args)
		j.short = j.short && (err == nil || e.writer.conn.TotalChanges() == before) // OR FAIL undoes nothing
		return err
	}
	err = e.writer.do(j)
	return rows, err
}

func (e *sqliteEngine) Read(ctx context.Context, fn func(context.Context, Conn) error) error {
	r, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	defer e.writer.release(r)
	if err := errors.Join(ctx.Err(), r.begin()); err != nil {
		return err
	}
	r.Until(time.Now().Add(e.limit))
	defer r.Until(time.Time{})
	return fn(ctx, sqliteConn{r.Conn})
}

func (e *sqliteEngine) Query(ctx context.Context, query string, args []any) (Cursor, error) {
	args, err := sqlite.Values(args) // before there is a reader to lose, because it may call methods of the arguments
	if err != nil {
		return nil, err
	}
	r, err := e.acquire(ctx)
	if err != nil {
		return nil, err
	}
	c, err := sqliteConn{r.Conn}.query(ctx, query, args)
	if err == nil && !c.stmt.ReadOnly() {
		c.stmt.Reset()
		err = errQueryWrites
	}
	if err != nil {
		e.writer.release(r)
		return nil, err
	}
	c.owner, c.reader = e.writer, r
	return c, nil
}

// acquire takes a reader and prepares it.
func (e *sqliteEngine) acquire(ctx context.Context) (*reader, error) {
	r, err := e.idle(ctx)
	if err != nil {
		return nil, err
	}
	if e.memory {
		return r, nil
	}
	if err := r.enter(e.writer.epoch.Load()); err != nil {
		e.writer.release(r)
		return nil, classify(err)
	}
	return r, nil
}

func (e *sqliteEngine) idle(ctx context.Context) (*reader, error) {
	select {
	case <-e.closing:
		return nil, ErrClosed
	default:
	}
	select {
	case r := <-e.readers:
		return r, nil
	default:
	}
	limit := time.NewTimer(e.limit)
	defer limit.Stop()
	select {
	case r := <-e.readers:
		runtime.Gosched() // else readers that hand connections to one another keep a commit from the processors
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.closing:
		return nil, ErrClosed
	case <-limit.C:
		return nil, errStuck
	}
}

func (e *sqliteEngine) Ping(ctx context.Context) error {
	_, err := e.Exec(ctx, "SELECT 1", nil)
	return err
}

// note remembers damage for Check.
func (e *sqliteEngine) note(refusal *sqlite.Error) {
	if code := refusal.Code & 0xff; code == sqlite.Corrupt || code == sqlite.NotADatabase {
		e.damage.Store(refusal)
	}
}

// Check writes the first page as it is, and looks at the others.
func (e *sqliteEngine) Check(ctx context.Context) error {
	if e.memory {
		return e.Ping(ctx)
	}
	err := e.writer.do(&job{ctx: ctx, fn: func(ctx context.Context, conn Conn) error {
		id, err := e.writer.setting("application_id")
		if err == nil {
			_, err = conn.Exec(ctx, fmt.Sprintf("PRAGMA application_id = %d", id), nil)
		}
		return err
	}})
	if err == nil {
		err = e.look(ctx)
	}
	if damage := e.damage.Load(); damage != nil {
		return fmt.Errorf("database: the file is damaged: %w", damage)
	}
	return err
}

// lookFor is how long a look for damage may take, which reads the whole file if it is small.
const lookFor = 100 * time.Millisecond

func (e *sqliteEngine) look(ctx context.Context) error {
	r, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	defer e.writer.release(r)
	r.Until(time.Now().Add(lookFor))
	defer r.Until(time.Time{})
	cursor, err := sqliteConn{r.Conn}.Query(ctx, "PRAGMA quick_check(1)", nil)
	if err != nil {
		return err
	}
	found := "ok"
	if cursor.Next() {
		err = cursor.Scan(&found)
	}
	switch err := errors.Join(err, cursor.Close()); {
	case errors.Is(err, sqlite.ErrDeadline):
		return nil
	case err != nil:
		return err
	case found != "ok":
		e.damage.Store(&sqlite.Error{Code: sqlite.Corrupt, Message: found})
	}
	return nil
}

// Backup copies into a file of another name first, so that path never holds half a copy.
func (e *sqliteEngine) Backup(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("database: backup: %s exists", path)
	}
	r, err := e.acquire(ctx) // Close waits for it, and in memory the writer does
	if err != nil {
		return err
	}
	defer e.writer.release(r)
	conn, err := e.connect("")
	if err != nil {
		return fmt.Errorf("database: backup: %w", err)
	}
	defer conn.Close()
	partial, err := filepath.Abs(path + ".partial")
	if err != nil {
		return err
	}
	_ = os.Remove(partial)                                    // of a backup that was killed
	if err := os.WriteFile(partial, nil, 0o600); err != nil { // SQLite would let everybody read it
		return fmt.Errorf("database: backup: %w", err)
	}
	if _, err = (sqliteConn{conn}).Exec(ctx, "VACUUM INTO $1", []any{fileURI(partial) + "?vfs=" + sqlite.VFS()}); err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("database: backup: %w", err), os.RemoveAll(partial))
	}
	return syncFolder(filepath.Dir(path))
}

func (e *sqliteEngine) Listen(context.Context, string, func(), func(string)) error {
	return fmt.Errorf("%w: notifications on SQLite", ErrUnsupported)
}

func (e *sqliteEngine) Close() error {
	close(e.closing)
	<-e.writer.ended
	errs := []error{e.closeReaders(cap(e.readers))}
	if !e.memory {
		errs = append(errs, e.writer.script("PRAGMA wal_checkpoint(TRUNCATE)"))
	}
	return errors.Join(append(errs, e.writer.conn.Close(), e.unlock())...)
}

func (e *sqliteEngine) unlock() error {
	if e.lock == nil {
		return nil
	}
	return e.lock.Close()
}

// closeReaders closes n readers. It waits for those in use as long as a Read may take.
func (e *sqliteEngine) closeReaders(n int) error {
	limit := time.After(2 * e.limit)
	var errs []error
	for range n {
		select {
		case r := <-e.readers:
			errs = append(errs, r.Close())
		case <-limit:
			return errors.Join(append(errs, errLeak)...)
		}
	}
	return errors.Join(errs...)
}

// sqliteConn runs statements on a connection.
type sqliteConn struct{ *sqlite.Conn }

func (c sqliteConn) Exec(ctx context.Context, query string, args []any) (int64, error) {
	stmt, err := c.Prepare(query)
	if err == sqlite.ErrScript && len(args) == 0 {
		return 0, classify(c.Script(ctx, query))
	}
	if err != nil {
		return 0, classify(err)
	}
	defer stmt.Reset()
	before := c.TotalChanges()
	err = stmt.Bind(ctx, args)
	for row := err == nil; row; {
		row, err = stmt.Step()
	}
	if err != nil || c.TotalChanges() == before {
		return 0, classify(err)
	}
	return c.Changes(), nil
}

func (c sqliteConn) Query(ctx context.Context, query string, args []any) (Cursor, error) {
	cursor, err := c.query(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return cursor, nil
}

// QuerySQL is Query: every cursor can be lent.
func (c sqliteConn) QuerySQL(ctx context.Context, query string, args []any) (Cursor, error) {
	return c.Query(ctx, query, args)
}

func (c sqliteConn) query(ctx context.Context, query string, args []any) (*sqliteCursor, error) {
	stmt, err := c.Prepare(query)
	if err != nil {
		return nil, classify(err)
	}
	if err := stmt.Bind(ctx, args); err != nil {
		stmt.Reset()
		return nil, classify(err)
	}
	return &sqliteCursor{conn: c.Conn, stmt: stmt, ctx: ctx}, nil
}

// sqliteCursor walks the rows of a statement.
type sqliteCursor struct {
	conn   *sqlite.Conn
	stmt   *sqlite.Stmt
	ctx    context.Context
	owner  *writer // gets reader back at the end; nil inside a transaction
	reader *reader
	ended  bool
	err    error
}

func (c *sqliteCursor) Next() bool {
	if c.ended {
		return false
	}
	var row bool
	if c.err = c.conn.Enter(c.ctx); c.err == nil {
		row, c.err = c.stmt.Step()
	}
	c.ended, c.err = !row, classify(c.err)
	return row
}

func (c *sqliteCursor) Scan(dest ...any) error { return c.stmt.Scan(dest) }

func (c *sqliteCursor) Columns() []string { return c.stmt.Columns() }

func (c *sqliteCursor) Values() ([]any, error) { return c.stmt.Values(), nil }

// Close runs a writing statement to its end, because only there SQLite checks foreign keys.
func (c *sqliteCursor) Close() error {
	for !c.ended && !c.stmt.ReadOnly() {
		c.Next()
	}
	c.stmt.Reset()
	if c.owner != nil {
		c.owner.release(c.reader)
	}
	return c.err
}

// classify makes constraint violations a ConstraintError, and what has nothing to do with the statement
// ErrUnavailable.
func classify(err error) error {
	e, ok := err.(*sqlite.Error)
	if !ok {
		return err
	}
	switch e.Code & 0xff {
	case sqlite.Full:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case sqlite.IOError:
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, errDisk, err)
	case sqlite.Busy, sqlite.CannotOpen, sqlite.NoMemory:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	violation := &ConstraintError{Err: e}
	switch e.Code {
	case sqlite.ConstraintUnique, sqlite.ConstraintPrimaryKey:
		violation.Kind = Unique
	case sqlite.ConstraintCheck:
		violation.Kind = Check
		violation.Name = strings.TrimPrefix(e.Message, "CHECK constraint failed: ")
	case sqlite.ConstraintForeignKey:
		violation.Kind = ForeignKey
	case sqlite.ConstraintNotNull:
		violation.Kind = NotNull
	default:
		return err
	}
	return violation
}
