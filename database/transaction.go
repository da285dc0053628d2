package database

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	errOver      = errors.New("database: the transaction of this context is over")
	errReadOnly  = errors.New("database: a write inside Read")
	errRowsOpen  = errors.New("database: a statement while rows of the transaction are open; walk them to the end or close them first")
	errControl   = errors.New("database: transactions begin and end with InTx and Read, not with statements")
	errRehearsal = errors.New("database: rehearsal")
)

// transaction is one outermost InTx or Read, in as many runs of its callback as it takes.
type transaction struct {
	db       *DB
	readOnly bool

	mu     sync.Mutex // held while a statement runs: a transaction has one connection
	conn   Conn       // nil when no run is under way
	rows   *Rows      // the last ones of this run
	lent   *lending   // nil unless this run was lent to database/sql
	now    time.Time
	after  []func()
	failed error // the first refused statement or joined callback: the transaction can only roll back
}

// transactionContext carries a transaction, found by its DB and, for AfterCommit, as the innermost one.
type transactionContext struct {
	context.Context
	tx *transaction
}

type innermost struct{}

func (c *transactionContext) Value(key any) any {
	if key == any(c.tx.db) || key == any(innermost{}) {
		return c.tx
	}
	return c.Context.Value(key)
}

// Outside returns ctx without the transactions it carries, for work that begins after them, such as what AfterCommit
// runs.
func Outside(ctx context.Context) context.Context { return outside{ctx} }

type outside struct{ context.Context }

func (c outside) Value(key any) any {
	value := c.Context.Value(key)
	if _, ok := value.(*transaction); ok {
		return nil
	}
	return value
}

func (d *DB) current(ctx context.Context) *transaction {
	tx, _ := ctx.Value(d).(*transaction)
	return tx
}

// run runs the callback once on conn.
func (t *transaction) run(ctx context.Context, conn Conn, fn func(context.Context) error) (err error) {
	t.begin(conn)
	if t.db.testMode {
		defer t.db.occupy(inCallback)()
	}
	defer func() {
		t.endLending()
		if failed := t.end(); err == nil && failed != nil {
			err = fmt.Errorf("database: the callback went on after: %w", failed)
		}
	}()
	return fn(&transactionContext{ctx, t})
}

func (t *transaction) begin(conn Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conn, t.after, t.failed = conn, nil, nil
}

func (t *transaction) end() (failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows != nil && t.rows.cursor != nil {
		t.rows.close()
		t.rows.err = cmp.Or(t.rows.err, errOver)
	}
	t.conn, t.rows = nil, nil
	return t.failed
}

// join runs the callback of a nested InTx, whose failure is the failure of the whole.
func (t *transaction) join(ctx context.Context, fn func(context.Context) error) error {
	if err := t.usable(); err != nil {
		return err
	}
	err := fn(ctx)
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.fail(err)
	}
	return err
}

func (t *transaction) usable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.check()
}

// check and fail are called with mu held.
func (t *transaction) check() error {
	switch {
	case t.conn == nil:
		return errOver
	case t.failed != nil:
		return fmt.Errorf("database: the transaction has failed: %w", t.failed)
	case t.rows != nil && t.rows.cursor != nil:
		return errRowsOpen
	}
	return nil
}

func (t *transaction) fail(err error) {
	if t.failed == nil {
		t.failed = err
	}
}

func (t *transaction) exec(ctx context.Context, query string, args []any) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.readOnly {
		return 0, errReadOnly
	}
	if err := t.check(); err != nil {
		return 0, err
	}
	rows, err := t.conn.Exec(ctx, query, args)
	if err != nil {
		t.fail(err)
	}
	return rows, err
}

// finish runs what waits for the commit.
func (t *transaction) finish() {
	t.mu.Lock()
	after := t.after
	t.after = nil
	t.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// AfterCommit runs fn once the innermost transaction of ctx is committed: in the goroutine that called its outermost
// InTx, outside every lock. A rollback or another run drops it. Outside a transaction fn runs at once. fn must use a
// context from outside the transaction, which is over by then.
func AfterCommit(ctx context.Context, fn func()) {
	t, ok := ctx.Value(innermost{}).(*transaction)
	if !ok {
		fn()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = append(t.after, fn)
}

// How a goroutine may occupy a part of the database, see [WithTestMode].
const (
	inCallback = "inside the callback of InTx or Read with a context that does not carry the transaction; " +
		"pass on the context that the callback got"
	inRows = "while rows of the same goroutine are open; walk them to the end or close them first"
)

// occupy notes that this goroutine occupies a part of the database. The result ends it, in whatever goroutine.
func (d *DB) occupy(how string) (end func()) {
	id := goroutine()
	d.occupied.Store(id, how)
	d.occupations.Add(1)
	return func() {
		d.occupied.Delete(id)
		d.occupations.Add(-1)
	}
}

// outside is asked before the database is used outside a transaction.
func (d *DB) outside() error {
	if d.closed.Load() {
		return ErrClosed
	}
	if d.occupations.Load() > 0 { // to know the goroutine takes as long as a small query
		if how, ok := d.occupied.Load(goroutine()); ok {
			panic("database: used " + how.(string))
		}
	}
	return nil
}

var control = []string{"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"}

// controls reports whether a statement begins or ends transactions, which would take neighbours along.
func controls(query string) bool {
	word, _, _ := strings.Cut(strings.TrimLeft(query, " \t\n"), " ")
	word = strings.TrimRight(word, ";\n")
	return slices.ContainsFunc(control, func(c string) bool { return strings.EqualFold(c, word) })
}

// goroutine returns what tells this goroutine from others; only tests can afford it.
func goroutine() string {
	var buf [64]byte
	id, _, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte(" ["))
	return string(id)
}
