package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kitbackend/kit/database"
)

const (
	maxRuns       = 5
	retryPause    = 5 * time.Millisecond // doubled with every run, and drawn by lot up to there
	readLimit     = 10 * time.Second
	commitTimeout = 30 * time.Second
	closeTimeout  = 30 * time.Second
)

// Codes of PostgreSQL, appendix A of its manual.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	diskFull             = "53100"
	queryCanceled        = "57014"
	lockNotAvailable     = "55P03"
	idleInTransaction    = "25P03"
	readOnlyTransaction  = "25006" // a server that has become a standby
)

// unavailable lists the classes of codes that say that the server cannot work now: connection
// exceptions, insufficient resources, operator intervention and system errors.
var unavailable = []string{"08", "53", "57P", "58"}

var kinds = map[string]database.ConstraintKind{
	"23505": database.Unique,
	"23514": database.Check,
	"23503": database.ForeignKey,
	"23502": database.NotNull,
}

// engine is PostgreSQL as [database.Engine].
type engine struct {
	pool      *pgxpool.Pool
	listening *pgx.ConnConfig // of connections that wait for notifications, where there is no statement to stop
	closing   context.Context // ended by close
	close     context.CancelFunc
}

func (e *engine) Dialect() database.Dialect { return database.PostgreSQL }

func (e *engine) Write(ctx context.Context, long bool, fn func(context.Context, database.Conn) error) error {
	return e.retry(ctx, func() (conflict bool, err error) {
		err = e.transaction(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(c *conn) error {
			if long {
				if _, err := c.Exec(ctx, "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)", nil); err != nil {
					return err
				}
			}
			err := fn(ctx, c)
			conflict = c.conflict // whatever fn made of it
			return err
		})
		return conflict || isConflict(err), err
	})
}

func (e *engine) Read(ctx context.Context, fn func(context.Context, database.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return e.transaction(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(c *conn) error {
		return fn(ctx, c)
	})
}

// retry repeats a transaction that collided with another.
func (e *engine) retry(ctx context.Context, run func() (conflict bool, err error)) error {
	for runs := 1; ; runs++ {
		conflict, err := run()
		if err == nil || !conflict {
			return err
		}
		if runs == maxRuns {
			return fmt.Errorf("%w: %w", database.ErrConflict, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(retryPause << runs)):
		}
	}
}

// transaction runs fn once.
func (e *engine) transaction(ctx context.Context, o pgx.TxOptions, fn func(*conn) error) error {
	tx, err := e.pool.BeginTx(ctx, o)
	if err != nil {
		return e.classify(err)
	}
	ended := context.WithoutCancel(ctx) // also a cancelled caller gives the connection back and learns the outcome
	defer func() { _ = tx.Rollback(ended) }()
	if err := fn(&conn{db: tx}); err != nil {
		return err
	}
	if o.AccessMode == pgx.ReadOnly || ctx.Err() != nil {
		return ctx.Err()
	}
	ended, cancel := context.WithTimeout(ended, commitTimeout)
	defer cancel()
	return e.classify(commit(tx.Conn(), func() error { return tx.Commit(ended) }))
}

// commit calls fn, which commits, and adds ErrUnknownOutcome where the connection was lost on the way and the server
// has not refused. (pgconn.SafeToRetry does not help: it also says yes when the server's reply was lost.)
func commit(c *pgx.Conn, fn func() error) error {
	if c.IsClosed() {
		return pgconn.ErrConnClosed
	}
	err := fn()
	var refusal *pgconn.PgError
	if err == nil || !c.IsClosed() || errors.As(err, &refusal) && refusal.SeverityUnlocalized == "ERROR" {
		return err
	}
	return fmt.Errorf("%w: %w", database.ErrUnknownOutcome, err)
}

// Exec commits by itself, so it may end as a commit may.
func (e *engine) Exec(ctx context.Context, query string, args []any) (rows int64, err error) {
	err = e.retry(ctx, func() (bool, error) {
		c, err := e.pool.Acquire(ctx)
		if err != nil {
			return false, e.classify(err)
		}
		defer c.Release()
		err = commit(c.Conn(), func() (err error) {
			rows, err = (&conn{db: c}).Exec(ctx, query, args)
			return err
		})
		return isConflict(err), e.classify(err)
	})
	return rows, err
}

func (e *engine) Query(ctx context.Context, query string, args []any) (database.Cursor, error) {
	args, err := values(args)
	if err != nil {
		return nil, err
	}
	cursor, err := (&conn{db: e.pool}).Query(ctx, query, args)
	return cursor, e.classify(err)
}

// values converts the arguments that have methods for it before a connection is taken from the
// pool: a panic in such a method would leak the connection.
func values(args []any) ([]any, error) {
	hasMethod := func(arg any) bool {
		_, ok := arg.(driver.Valuer)
		return ok
	}
	if !slices.ContainsFunc(args, hasMethod) {
		return args, nil
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if !hasMethod(arg) {
			continue
		}
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, fmt.Errorf("database: argument %d: %w", i+1, err)
		}
		args[i] = value
	}
	return args, nil
}

func (e *engine) Ping(ctx context.Context) error { return e.classify(e.pool.Ping(ctx)) }

// Check writes a message to the write-ahead log, which only a server that takes writes can do;
// nothing reads it.
func (e *engine) Check(ctx context.Context) error {
	_, err := e.Exec(ctx, "SELECT pg_logical_emit_message(true, 'kit', '')", nil)
	return err
}

func (e *engine) Backup(context.Context, string) error {
	return fmt.Errorf("%w: PostgreSQL is backed up by pg_dump or by archiving its log", database.ErrUnsupported)
}

// Close waits for the connections in use as long as a statement may take.
func (e *engine) Close() error {
	e.close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		e.pool.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(closeTimeout):
		return errors.New("database: closed while rows or a transaction were still in use")
	}
}

// classify makes constraint violations a ConstraintError, and errors of a closed pool ErrClosed.
func (e *engine) classify(err error) error {
	if err != nil && e.closing.Err() != nil && !errors.Is(err, database.ErrUnknownOutcome) {
		return database.ErrClosed
	}
	return classify(err)
}

func classify(err error) error {
	if err == nil || errors.Is(err, database.ErrUnknownOutcome) || errors.Is(err, database.ErrUnavailable) {
		return err
	}
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		if isLost(err) {
			err = fmt.Errorf("%w: %w", database.ErrUnavailable, err)
		}
		return err
	}
	switch code := refusal.Code; {
	case kinds[code] != 0:
		return &database.ConstraintError{Kind: kinds[code], Name: refusal.ConstraintName, Err: err}
	case code == diskFull:
		return fmt.Errorf("%w: %w", database.ErrFull, err)
	case code == lockNotAvailable, code == idleInTransaction, code == readOnlyTransaction, code == queryCanceled,
		slices.ContainsFunc(unavailable, func(class string) bool { return strings.HasPrefix(code, class) }):
		return fmt.Errorf("%w: %w", database.ErrUnavailable, err)
	}
	return err
}

// isLost reports whether the server could not be reached. A caller that stopped waiting says
// nothing about the server.
func isLost(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &connect), errors.As(err, &network):
		return true
	}
	return errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// cancelled adds the context's error to that of a statement which the server stopped because the context had ended.
func cancelled(ctx context.Context, err error) error {
	var refusal *pgconn.PgError
	if err != nil && ctx.Err() != nil && errors.As(err, &refusal) && refusal.Code == queryCanceled {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

func isConflict(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && (refusal.Code == serializationFailure || refusal.Code == deadlockDetected)
}

// conn runs statements on the pool, a connection of it or a transaction.
type conn struct {
	db interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}
	conflict bool // seen
}

func (c *conn) Exec(ctx context.Context, query string, args []any) (int64, error) {
	tag, err := c.db.Exec(ctx, database.Expand(query), args...)
	err = c.note(ctx, err)
	if tag.Select() {
		return 0, err // rows found, none changed
	}
	return tag.RowsAffected(), err
}

func (c *conn) Query(ctx context.Context, query string, args []any) (database.Cursor, error) {
	rows, err := c.db.Query(ctx, database.Expand(query), args...)
	if err != nil {
		return nil, c.note(ctx, err)
	}
	return cursor{rows, c, ctx}, nil
}

// formats asks for the binary form of what Values decodes, and for text otherwise.
var formats = pgx.QueryResultFormatsByOID{
	pgtype.BoolOID: pgx.BinaryFormatCode, pgtype.ByteaOID: pgx.BinaryFormatCode,
	pgtype.Int2OID: pgx.BinaryFormatCode, pgtype.Int4OID: pgx.BinaryFormatCode, pgtype.Int8OID: pgx.BinaryFormatCode, pgtype.OIDOID: pgx.BinaryFormatCode,
	pgtype.Float4OID: pgx.BinaryFormatCode, pgtype.Float8OID: pgx.BinaryFormatCode,
	pgtype.DateOID: pgx.BinaryFormatCode, pgtype.TimestampOID: pgx.BinaryFormatCode, pgtype.TimestamptzOID: pgx.BinaryFormatCode,
}

// QuerySQL is Query for [database.DB.SQL].
func (c *conn) QuerySQL(ctx context.Context, query string, args []any) (database.Cursor, error) {
	return c.Query(ctx, query, append([]any{formats}, args...))
}

func (c *conn) note(ctx context.Context, err error) error {
	c.conflict = c.conflict || isConflict(err)
	if cause := cancelled(ctx, err); cause != err {
		return cause
	}
	return classify(err)
}

// cursor walks rows; closing it gives the connection back.
type cursor struct {
	pgx.Rows
	conn *conn
	ctx  context.Context
}

func (c cursor) Close() error {
	c.Rows.Close()
	return c.conn.note(c.ctx, c.Err())
}

func (c cursor) Columns() []string {
	fields := c.FieldDescriptions()
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name
	}
	return names
}

// Values returns the columns: those in binary form decoded, the others as text.
func (c cursor) Values() ([]any, error) {
	types, fields, raw := c.Conn().TypeMap(), c.FieldDescriptions(), c.RawValues()
	values := make([]any, len(raw))
	for i, field := range fields {
		if raw[i] == nil {
			continue
		}
		if field.Format == pgx.TextFormatCode {
			values[i] = string(raw[i])
			continue
		}
		known, ok := types.TypeForOID(field.DataTypeOID)
		if !ok {
			return nil, fmt.Errorf("database: column %s is of an unknown type", field.Name)
		}
		value, err := known.Codec.DecodeDatabaseSQLValue(types, field.DataTypeOID, field.Format, raw[i])
		if err != nil {
			return nil, fmt.Errorf("database: column %s: %w", field.Name, err)
		}
		values[i] = value
	}
	return values, nil
}
