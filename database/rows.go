package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
)

var errNoRow = errors.New("database: Scan without a row")

// Scanner is what a scan function reads a row from: a [*Row] or [*Rows].
type Scanner interface{ Scan(dest ...any) error }

// Row is the result of [DB.QueryRow]. The statement runs in Scan.
type Row struct {
	ctx   context.Context
	db    *DB
	query string
	args  []any
}

// Scan runs the statement and copies the columns of the first row into dest. Without a row it returns [sql.ErrNoRows].
func (r *Row) Scan(dest ...any) (err error) {
	if controls(r.query) {
		return errControl
	}
	tx := r.db.current(r.ctx)
	if tx != nil {
		tx.mu.Lock()
		defer tx.mu.Unlock()
	}
	cursor, err := r.db.open(r.ctx, tx, func(ctx context.Context, conn Conn) (Cursor, error) { return conn.Query(ctx, r.query, r.args) })
	if err != nil {
		return err
	}
	defer func() {
		if failed := cursor.Close(); failed != nil {
			err = failed
			if tx != nil {
				tx.fail(failed)
			}
		}
	}()
	if !cursor.Next() {
		return sql.ErrNoRows
	}
	return cursor.Scan(dest...)
}

// Rows walks the rows of [DB.Query]. It must be closed; walking to the end closes it. A transaction has one Rows open at
// a time and takes no other statement meanwhile; they end with it.
type Rows struct {
	tx     *transaction // nil outside a transaction
	cursor Cursor       // nil when closed
	closed func()       // in test mode, outside a transaction
	err    error
}

// Next goes to the next row and reports whether there is one.
func (r *Rows) Next() bool {
	if !r.enter() {
		return false
	}
	defer r.leave()
	if r.cursor.Next() {
		return true
	}
	r.close()
	return false
}

// Scan copies the columns of the row into dest.
func (r *Rows) Scan(dest ...any) error {
	if !r.enter() {
		return cmp.Or(r.err, errNoRow)
	}
	defer r.leave()
	return r.cursor.Scan(dest...)
}

// Err returns what ended the walk early, nil at a regular end.
func (r *Rows) Err() error { return r.err }

// Close ends the walk. It may be called more than once.
func (r *Rows) Close() error {
	if r.enter() {
		defer r.leave()
		r.close()
	}
	return r.err
}

// enter takes the transaction for a step of the walk; false: the walk is over.
func (r *Rows) enter() bool {
	if r.tx != nil {
		r.tx.mu.Lock()
	}
	if r.cursor == nil {
		r.leave()
	}
	return r.cursor != nil
}

func (r *Rows) leave() {
	if r.tx != nil {
		r.tx.mu.Unlock()
	}
}

func (r *Rows) close() {
	r.err = r.cursor.Close()
	r.cursor = nil
	if r.closed != nil {
		r.closed()
	}
	if r.err != nil && r.tx != nil {
		r.tx.fail(r.err)
	}
}

// Get returns the first row of a query; ok is false when there is none.
func Get[T any](ctx context.Context, d *DB, scan func(Scanner) (T, error), query string, args ...any) (value T, ok bool, err error) {
	value, err = scan(d.QueryRow(ctx, query, args...))
	if err == nil {
		return value, true, nil
	}
	var none T
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return none, false, err
}

// All returns every row of a query, never nil. How many there can be is for the query to limit.
func All[T any](ctx context.Context, d *DB, scan func(Scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := d.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := []T{}
	for rows.Next() {
		value, err := scan(rows)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return values, nil
}
