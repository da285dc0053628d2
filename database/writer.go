package database

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

const (
	queueSize   = 1024                   // transactions that wait at most; further callers wait for room
	batchSize   = 256                    // transactions that share a commit at most
	batchTime   = 100 * time.Millisecond // after which a batch takes no more
	idleBefore  = 500 * time.Millisecond // a checkpoint
	refuseEvery = time.Second            // while a transaction holds the database too long
	spareFree   = 1024                   // free pages that a file may always keep
	shrinkStep  = 512                    // pages given back at once, a few milliseconds of work
	carefulFor  = 64                     // batches after one that was undone for the failure of a single transaction
)

var (
	errStuck = fmt.Errorf("%w: another transaction has held the database too long; "+
		"a callback that uses the database without its own context waits for itself", ErrUnavailable)
	errNoWriting = fmt.Errorf("%w: rows or a Read have kept a database in memory from writing for too long; "+
		"a write while rows are open waits for itself", ErrUnavailable)
	errLost    = errors.New("database: the transaction was ended by SQLite")
	errAborted = errors.New("database: the callback did not return") // never reaches a caller
)

// job is a transaction on its way through the writer.
type job struct {
	ctx   context.Context
	fn    func(context.Context, Conn) error
	alone bool // shares its commit with none
	long  bool // has no time limit
	short bool // a single statement, which SQLite itself undoes if it fails
	own   bool // fn runs in the goroutine of its caller, not in the writer's
	late  bool // it has taken all the time that it has
	bare  bool // fn runs in no transaction

	state atomic.Int32
	turn  chan struct{} // to the caller: run fn now or, when state is finished, take err
	err   error
}

const (
	waiting = iota
	withdrawn
	started
	finished
)

// claim takes a job that its caller has not withdrawn. A job may run again, so one taken before is taken again.
func (j *job) claim() bool {
	return j.state.CompareAndSwap(waiting, started) || j.state.Load() == started
}

func (j *job) finish(err error) {
	if err == errAborted {
		return // the caller has left
	}
	j.err = err
	j.state.Store(finished)
	j.turn <- struct{}{}
}

// writer owns the connection that writes. Its goroutine gathers the transactions that queued up while the last commit
// ran and commits them as one. Where one fails, all of them run again, now each in a savepoint of its own, so that it
// takes nothing from the others; so do those of the next batches. Savepoints are costly: in one
// SQLite copies every page before its first change.
type writer struct {
	conn    *sqlite.Conn
	tx      Conn // conn, for callbacks
	memory  bool
	readers chan *reader // those not in use
	held    []*reader    // in memory, while writing, because memdb has one lock
	ending  atomic.Bool  // a timer is about to end the snapshots that are kept
	epoch   atomic.Int64 // odd while writing
	queue   chan *job
	again   []*job        // run before those in the queue: they lost their batch, or wait for it to end
	batch   []*job        // ran, not yet committed
	current *job          // runs
	ran     chan error    // from the caller whose turn it is
	size    int           // of a batch at most
	limit   time.Duration // of a job
	closing chan struct{}
	ended   chan struct{}
	dirty   bool // commits since the last checkpoint
	careful int  // batches that are still to use savepoints

	began   time.Time    // the batch
	started time.Time    // current, unless it is long
	since   atomic.Int64 // when current began, in Unix nanoseconds; 0 when nothing runs that has a time limit
	stuck   *time.Timer
}

func newWriter(conn *sqlite.Conn, readers chan *reader, o options, memory bool, closing chan struct{}) *writer {
	w := &writer{
		conn:    conn,
		tx:      sqliteConn{conn},
		memory:  memory,
		readers: readers,
		queue:   make(chan *job, queueSize),
		ran:     make(chan error),
		size:    o.batch,
		limit:   o.limit,
		closing: closing,
		ended:   make(chan struct{}),
	}
	w.stuck = time.AfterFunc(o.limit, w.refuse)
	return w
}

// do runs a job through the writer. It returns nil once the job is durable.
func (w *writer) do(j *job) error {
	j.turn = make(chan struct{}, 1)
	cancelled := j.ctx.Done()
	select {
	case w.queue <- j:
	case <-cancelled:
		return j.ctx.Err()
	case <-w.closing:
		return ErrClosed
	}
	for {
		select {
		case <-j.turn:
			if j.state.Load() == finished {
				return j.err
			}
			w.runHere(j)
		case <-cancelled:
			if j.state.CompareAndSwap(waiting, withdrawn) {
				return j.ctx.Err()
			}
			cancelled = nil // it has begun, and the caller gets what becomes of it
		case <-w.ended:
			if j.state.CompareAndSwap(waiting, withdrawn) {
				return ErrClosed
			}
			<-j.turn
			return j.err
		}
	}
}

// runHere runs a callback in the goroutine of its caller. A panic is the caller's own, and unwinds past here.
func (w *writer) runHere(j *job) {
	err := errAborted
	defer func() { w.ran <- err }()
	err = j.fn(j.ctx, w.tx)
}

// loop is the writer's goroutine. A callback that panics or calls [runtime.Goexit] ends it, and another takes over:
// what the batch had done is rolled back and done again, the callback in question in the goroutine of its caller, who
// so meets the panic where it belongs.
func (w *writer) loop() {
	clean := false
	defer func() {
		if clean {
			close(w.ended)
			return
		}
		if w.current == nil {
			return // not a callback's
		}
		_ = recover()
		w.current.own = true
		w.batch = append(w.batch, w.current)
		w.leave()
		w.rollback()
		w.repeat()
		w.end()
		go w.loop()
	}()
	for j := w.wait(); j != nil; j = w.wait() {
		switch err := w.begin(); {
		case err != nil && j.claim():
			j.finish(err)
		case err != nil:
		case j.bare:
			w.runBare(j)
		case j.alone:
			w.commitAlone(j)
		default:
			w.commitBatch(j)
		}
		w.end()
	}
	clean = true
}

// wait returns the next job, nil when the writer is to end. With nothing to do for a while it checkpoints.
func (w *writer) wait() *job {
	if j := w.poll(); j != nil {
		return j
	}
	var idle <-chan time.Time
	if w.dirty && !w.memory {
		idle = time.After(idleBefore)
	}
	for {
		select {
		case j := <-w.queue:
			return j
		case <-idle:
			_ = w.script("PRAGMA wal_checkpoint(PASSIVE)") // a failure leaves the work to the next
			w.dirty, idle = false, nil
			w.startWriting()
			if w.shrink() {
				w.dirty, idle = true, time.After(idleBefore)
			}
			w.stopWriting()
		case <-w.closing:
			return w.poll()
		}
	}
}

// shrink gives a part of the file's free pages back to the system, where they are many, and reports whether it did.
// Files from before databases could shrink keep theirs for the rows to come.
func (w *writer) shrink() bool {
	free, pages := w.pragma("freelist_count"), w.pragma("page_count")
	if w.pragma("auto_vacuum") == 0 || free < spareFree || free < pages/4 {
		return false
	}
	return w.script(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", min(free-pages/4+1, shrinkStep))) == nil
}

// pragma returns a setting or count of the database, 0 when it cannot be read.
func (w *writer) pragma(name string) int64 {
	value, err := w.setting(name)
	if err != nil {
		return 0
	}
	return value
}

func (w *writer) setting(name string) (value int64, err error) {
	cursor, err := w.tx.Query(context.Background(), "PRAGMA "+name, nil)
	if err != nil {
		return 0, err
	}
	if cursor.Next() {
		err = cursor.Scan(&value)
	}
	return value, errors.Join(err, cursor.Close())
}

// poll returns the next job if there is one.
func (w *writer) poll() *job {
	if len(w.again) > 0 {
		j := w.again[0]
		w.again = w.again[1:]
		return j
	}
	return w.queued()
}

func (w *writer) queued() *job {
	select {
	case j := <-w.queue:
		return j
	default:
		return nil
	}
}

// follow returns the next job for the batch under way.
func (w *writer) follow() *job {
	if len(w.batch) == w.size || time.Since(w.began) > batchTime {
		return nil
	}
	j := w.poll()
	if j != nil && (j.alone || j.bare) {
		w.again = slices.Insert(w.again, 0, j)
		return nil
	}
	return j
}

// repeat gives up the batch: each of its jobs runs again with a commit of its own, so that none fails for another's
// fault.
func (w *writer) repeat() {
	for _, j := range w.batch {
		j.alone = true
	}
	w.again = slices.Concat(w.batch, w.again)
}

// commitBatch runs j and those that wait behind it, commits once, and returns. Results wait for the commit even where
// a callback failed, because it may have seen rows of its neighbours.
func (w *writer) commitBatch(j *job) {
	if err := w.script("BEGIN IMMEDIATE"); err != nil {
		if j.claim() {
			j.finish(err)
		}
		return
	}
	for ; j != nil; j = w.follow() {
		if !j.claim() {
			continue
		}
		j.err = w.step(j)
		if j.err != nil && w.undoes(j) {
			w.undo(j)
			return
		}
		if !w.conn.InTransaction() {
			j.finish(j.err)
			w.repeat()
			return
		}
		if j.err != errAborted {
			w.batch = append(w.batch, j)
		}
	}
	w.careful = max(0, w.careful-1)
	if err := w.commit(); err != nil {
		if len(w.batch) == 1 {
			w.batch[0].finish(err)
		} else {
			w.repeat()
		}
		return
	}
	for _, j := range w.batch {
		j.finish(j.err)
	}
	runtime.Gosched() // lets the callers queue up for the next batch
}

// undoes reports whether what a job changes can be undone with the batch only.
func (w *writer) undoes(j *job) bool { return w.careful == 0 && len(w.batch) > 0 && !j.short }

// undo gives up the batch for the failure of a job. All run again, with savepoints, but a job whose caller has left or
// whose time is over.
func (w *writer) undo(failed *job) {
	w.rollback()
	w.careful = carefulFor
	if failed.err == errAborted || failed.late || failed.ctx.Err() != nil {
		failed.finish(failed.err)
	} else {
		w.batch = append(w.batch, failed)
	}
	w.again = slices.Concat(w.batch, w.again)
}

// step runs one job of a batch. The first needs no savepoint: when it fails, all there is goes.
func (w *writer) step(j *job) error {
	if j.short || w.undoes(j) {
		err := w.run(j)
		if err != nil && !j.short {
			w.rollback()
		}
		return err
	}
	if len(w.batch) == 0 {
		err := w.run(j)
		if err != nil {
			w.rollback()
		}
		return err
	}
	if err := w.script("SAVEPOINT job"); err != nil {
		return err
	}
	err := w.run(j)
	if err != nil && w.conn.InTransaction() && w.script("ROLLBACK TO job") != nil {
		w.rollback()
	}
	if w.conn.InTransaction() {
		if failed := w.script("RELEASE job"); failed != nil {
			w.rollback()
			err = failed
		}
	}
	return err
}

// commitAlone runs a job with a commit of its own.
func (w *writer) commitAlone(j *job) {
	if !j.claim() {
		return
	}
	if j.long { // may sort more than memory holds
		_ = w.script("PRAGMA temp_store = FILE")
		defer func() { _ = w.script("PRAGMA temp_store = MEMORY") }()
	}
	err := w.script("BEGIN IMMEDIATE")
	if err == nil {
		if err = w.run(j); err == nil {
			err = w.commit()
		} else {
			w.rollback()
		}
	}
	j.finish(err)
}

// bare runs fn with the connection in no transaction.
func (w *writer) bare(ctx context.Context, fn func(*sqlite.Conn) error) error {
	return w.do(&job{ctx: ctx, bare: true, fn: func(context.Context, Conn) error { return fn(w.conn) }})
}

func (w *writer) runBare(j *job) {
	if j.claim() {
		j.finish(j.fn(j.ctx, w.tx))
	}
}

// run lets a job run and returns its error.
func (w *writer) run(j *job) (err error) {
	w.enter(j)
	if j.own {
		j.turn <- struct{}{}
		err = <-w.ran
	} else {
		err = j.fn(j.ctx, w.tx)
	}
	j.late = !j.long && time.Since(w.started) >= w.limit
	w.leave()
	if err == nil && !w.conn.InTransaction() {
		err = errLost
	}
	return err
}

func (w *writer) enter(j *job) {
	w.current = j
	if j.long {
		return
	}
	w.started = time.Now()
	w.since.Store(w.started.UnixNano())
	w.conn.Until(w.started.Add(w.limit))
}

func (w *writer) leave() {
	w.current = nil
	w.since.Store(0)
	w.conn.Until(time.Time{})
}

// refuse resolves a deadlock in which a callback waits for a queued transaction, by refusing the
// queued one. It is called by a timer.
func (w *writer) refuse() {
	since := w.since.Load()
	if since == 0 {
		return
	}
	wait := refuseEvery
	if left := w.limit - time.Since(time.Unix(0, since)); left > 0 {
		wait = left
	} else {
		for j := w.queued(); j != nil; j = w.queued() {
			if j.claim() {
				j.finish(errStuck)
			}
		}
	}
	w.stuck.Reset(wait)
}

func (w *writer) commit() error {
	err := w.script("COMMIT")
	if err == nil {
		w.dirty = true
		return nil
	}
	w.rollback()
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code&0xff == sqlite.IOError {
		return fmt.Errorf("%w: %w: %w", ErrUnknownOutcome, errDisk, e) // the log may hold it although the disk refused
	}
	return err
}

func (w *writer) rollback() {
	if w.conn.InTransaction() {
		_ = w.script("ROLLBACK") // can fail only where no transaction is open
	}
}

// script runs a statement of the writer itself, which no caller's context stops.
func (w *writer) script(query string) error {
	_, err := w.tx.Exec(context.Background(), query, nil)
	return err
}

func (w *writer) begin() error {
	w.began = time.Now()
	w.batch = w.batch[:0]
	w.stuck.Reset(w.limit)
	if w.startWriting(); !w.memory {
		return nil
	}
	for range cap(w.readers) {
		select {
		case r := <-w.readers:
			w.held = append(w.held, r)
		case <-time.After(2 * w.limit): // a Read takes one at most
			return errNoWriting
		}
	}
	return nil
}

func (w *writer) end() {
	w.stuck.Stop()
	for _, r := range w.held {
		w.readers <- r
	}
	w.held = w.held[:0]
	w.stopWriting()
}
