package database

import "context"

// Engine is a database that [New] makes a [DB] from. This package has the engine for SQLite,
// database/postgres the one for PostgreSQL. Engines return constraint violations as
// [*ConstraintError].
type Engine interface {
	// Conn outside a transaction: Exec commits by itself, Query reads.
	Conn
	// Dialect names the database.
	Dialect() Dialect
	// Write runs fn in a transaction and returns nil only when it is durable. It may run fn more than once. A long one
	// shares its commit with no other and has no time limit but the context's.
	Write(ctx context.Context, long bool, fn func(context.Context, Conn) error) error
	// Read runs fn in a read-only transaction on one snapshot.
	Read(ctx context.Context, fn func(context.Context, Conn) error) error
	// Ping reports whether the database responds.
	Ping(ctx context.Context) error
	// Check commits a write that changes nothing, and fails if writes fail. It also looks for
	// damage, for a bounded time.
	Check(ctx context.Context) error
	// Backup writes a consistent copy to path, or returns ErrUnsupported.
	Backup(ctx context.Context, path string) error
	// Listen calls fn for every notification until ctx ends or the engine is closed, or returns ErrUnsupported.
	Listen(ctx context.Context, channel string, ready func(), fn func(payload string)) error
	// Close waits for the calls under way and releases everything. It is called once.
	Close() error
}

// Conn runs statements.
type Conn interface {
	Exec(ctx context.Context, query string, args []any) (rows int64, err error)
	Query(ctx context.Context, query string, args []any) (Cursor, error)
}

// Cursor walks the rows of one result.
type Cursor interface {
	// Next goes to the next row; false at the end, and at an error, which Close returns.
	Next() bool
	// Scan copies the columns of the row into dest.
	Scan(dest ...any) error
	// Close ends the walk and returns what the database refused. It is called once.
	Close() error
}

// SQLConn is a Conn of a transaction that [DB.SQL] can lend.
type SQLConn interface {
	Conn
	// QuerySQL is Query with a cursor that is a [SQLCursor].
	QuerySQL(ctx context.Context, query string, args []any) (Cursor, error)
}

// SQLCursor walks rows for database/sql.
type SQLCursor interface {
	Cursor
	// Columns returns the names of the columns.
	Columns() []string
	// Values returns the columns of the row as nil, bool, int64, float64, string, []byte or time.Time.
	Values() ([]any, error)
}
