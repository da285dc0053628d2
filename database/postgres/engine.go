package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
)

var kinds = map[string]database.ConstraintKind{
	"23505": database.Unique,
	"23514": database.Check,
	"23503": database.ForeignKey,
	"23502": database.NotNull,
}

// engine is PostgreSQL as [database.Engine].
type engine struct {
	pool    *pgxpool.Pool
	closing context.Context // ended by close
	close   context.CancelFunc
}

func (e *engine) Dialect() database.Dialect { return database.PostgreSQL }

func (e *engine) Write(ctx context.Context, long bool, fn func(context.Context, database.Conn) error) error {
	return e.retry(ctx, func() (conflict bool, err error) {
		err = e.transaction(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(c *conn) error {
			if long {
				if _, err := c.Exec(ctx, "SET LOCAL statement_timeout = 0", nil); err != nil {
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
// has not refused. (pgconn.SafeToRetry does not help: it also says yes when the answer was lost.)
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
		return isConflict(err), err
	})
	return rows, err
}

func (e *engine) Query(ctx context.Context, query string, args []any) (database.Cursor, error) {
	cursor, err := (&conn{db: e.pool}).Query(ctx, query, args)
	return cursor, e.classify(err)
}

func (e *engine) Ping(ctx context.Context) error { return e.classify(e.pool.Ping(ctx)) }

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
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && kinds[refusal.Code] != 0 {
		return &database.ConstraintError{Kind: kinds[refusal.Code], Name: refusal.ConstraintName, Err: err}
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
	if tag.Select() {
		return 0, c.note(err) // rows found, none changed
	}
	return tag.RowsAffected(), c.note(err)
}

func (c *conn) Query(ctx context.Context, query string, args []any) (database.Cursor, error) {
	rows, err := c.db.Query(ctx, database.Expand(query), args...)
	if err != nil {
		return nil, c.note(err)
	}
	return cursor{rows, c}, nil
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

func (c *conn) note(err error) error {
	c.conflict = c.conflict || isConflict(err)
	return classify(err)
}

// cursor walks rows; closing it gives the connection back.
type cursor struct {
	pgx.Rows
	conn *conn
}

func (c cursor) Close() error {
	c.Rows.Close()
	return c.conn.note(c.Err())
}

func (c cursor) Columns() []string {
	fields := c.FieldDescriptions()
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name
	}
	return names
}

// Values returns what came in binary form decoded, and text as it came.
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
