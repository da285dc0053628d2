package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

var (
	errNoTransaction = errors.New("database: there is no transaction to lend; call SQL inside InTx or Read")
	errLentEnd       = errors.New("database: a transaction lent to database/sql ends with the callback of InTx, not by Commit or Rollback")
	errNoInsertID    = errors.New("database: there is no LastInsertId; use RETURNING")
	errNamed         = errors.New("database: parameters are $1, $2, …, without names")
)

// SQL returns the transaction of ctx as one of database/sql, for data layers that are written for it, such as the code
// that sqlc generates: what they read and write there is part of the transaction, on PostgreSQL and
// on SQLite. It ends with the callback of InTx or Read; Commit and Rollback fail, and so fails the
// whole transaction. Each run of a callback gets one of its own.
//
// The rules of callbacks hold: rows are walked to the end or closed before the next statement, and there is one
// connection. Statements are in the dialect of the database, with parameters $1, $2, …; on SQLite columns have the types
// of [DB.Migrate], so a time is a number there. On PostgreSQL columns come as bool, int64, float64, []byte, time.Time,
// and as text where they are of another type.
func (d *DB) SQL(ctx context.Context) (*sql.Tx, error) {
	t := d.current(ctx)
	if t == nil {
		return nil, errNoTransaction
	}
	if err := t.usable(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	lent := t.lent
	t.mu.Unlock()
	if lent != nil {
		return lent.tx, nil
	}
	lent = &lending{t: t}
	lent.db = sql.OpenDB(lent)
	tx, err := lent.db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, errors.Join(err, lent.db.Close())
	}
	lent.tx = tx
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lent = lent
	return tx, nil
}

// lending is a transaction as a driver of database/sql: its connector, its one connection, and its transaction.
type lending struct {
	t  *transaction
	db *sql.DB
	tx *sql.Tx
	// over is true once the callback has returned, guarded by t.mu.
	over bool
}

// endLending takes the transaction back; rows that were left open are closed.
func (t *transaction) endLending() {
	t.mu.Lock()
	lent := t.lent
	t.lent = nil
	if lent != nil {
		lent.over = true
	}
	t.mu.Unlock()
	if lent != nil {
		_ = lent.tx.Rollback() // tells database/sql alone
		_ = lent.db.Close()
	}
}

func (l *lending) Connect(context.Context) (driver.Conn, error)                 { return l, nil }
func (l *lending) Driver() driver.Driver                                        { return lender{} }
func (l *lending) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return l, nil }
func (l *lending) Begin() (driver.Tx, error)                                    { return l, nil }
func (l *lending) Close() error                                                 { return nil }
func (l *lending) Prepare(query string) (driver.Stmt, error)                    { return lentStmt{l, query}, nil }
func (l *lending) CheckNamedValue(v *driver.NamedValue) error                   { return checkName(v) }
func (l *lending) Commit() error                                                { return l.refuse() }
func (l *lending) Rollback() error                                              { return l.refuse() }

// lender opens nothing: there is only what a transaction lends.
type lender struct{}

func (lender) Open(string) (driver.Conn, error) { return nil, errNoTransaction }

// checkName lets arguments through as they are: the engines convert them.
func checkName(v *driver.NamedValue) error {
	if v.Name != "" {
		return errNamed
	}
	return nil
}

// refuse fails the transaction, unless it is over.
func (l *lending) refuse() error {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if l.over {
		return nil
	}
	l.t.fail(errLentEnd)
	return errLentEnd
}

func (l *lending) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if controls(query) {
		return nil, errControl
	}
	n, err := l.t.exec(l.within(ctx), query, values(args))
	return lentResult(n), err
}

func (l *lending) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if controls(query) {
		return nil, errControl
	}
	rows, err := l.t.db.query(l.within(ctx), l.t, func(ctx context.Context, conn Conn) (Cursor, error) {
		return conn.(SQLConn).QuerySQL(ctx, query, values(args))
	})
	if err != nil {
		return nil, err
	}
	return &lentRows{rows: rows, columns: rows.cursor.(SQLCursor).Columns()}, nil
}

// within returns the caller's context, with the transaction that it may not carry.
func (l *lending) within(ctx context.Context) context.Context { return &transactionContext{ctx, l.t} }

func values(args []driver.NamedValue) []any {
	list := make([]any, len(args))
	for _, arg := range args {
		list[arg.Ordinal-1] = arg.Value
	}
	return list
}

// lentResult is the number of rows that a statement has changed.
type lentResult int64

func (r lentResult) RowsAffected() (int64, error) { return int64(r), nil }
func (r lentResult) LastInsertId() (int64, error) { return 0, errNoInsertID }

// lentStmt is a prepared statement; the engines keep the prepared form of every text.
type lentStmt struct {
	l     *lending
	query string
}

func (s lentStmt) Close() error                               { return nil }
func (s lentStmt) NumInput() int                              { return -1 }
func (s lentStmt) CheckNamedValue(v *driver.NamedValue) error { return checkName(v) }
func (s lentStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s lentStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.l.ExecContext(ctx, s.query, args)
}

func (s lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.l.QueryContext(ctx, s.query, args)
}

// lentRows walks rows for database/sql.
type lentRows struct {
	rows    *Rows
	columns []string
}

func (r *lentRows) Columns() []string { return r.columns }
func (r *lentRows) Close() error      { return r.rows.Close() }

func (r *lentRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	if !r.rows.enter() {
		return r.rows.err
	}
	defer r.rows.leave()
	list, err := r.rows.cursor.(SQLCursor).Values()
	if err != nil {
		return err
	}
	if len(list) != len(dest) {
		return fmt.Errorf("database: %d values for %d columns", len(list), len(dest))
	}
	for i, value := range list {
		dest[i] = value
	}
	return nil
}
