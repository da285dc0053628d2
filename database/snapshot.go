package database

import (
	"context"
	"fmt"
	"time"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

// The locks of the log that begin and end a snapshot take more than half the time of a read of one
// row. A connection that reads again while nothing was written therefore keeps its snapshot. A
// writer ends those that are kept before it begins: they would keep the log from starting over.

// keepFor bounds how long a snapshot is reused, so that rows which a tool writes into the file
// appear; idleFor bounds how long an unused one is kept.
const (
	keepFor = 10 * time.Millisecond
	idleFor = 10 * keepFor
)

var errOldSnapshot = fmt.Errorf("%w: an old snapshot of the database could not be ended", ErrUnavailable)

// reader is a connection that reads.
type reader struct {
	*sqlite.Conn
	epoch int64 // of the writer when it last read
	began time.Time
}

// enter prepares for a read: it ends a snapshot that is not the newest, and begins one to keep if
// the read before saw the same epoch.
func (r *reader) enter(epoch int64) error {
	if r.InTransaction() && (r.epoch != epoch || time.Since(r.began) > keepFor) {
		if r.end(); r.InTransaction() {
			return errOldSnapshot
		}
	}
	again := r.epoch == epoch && !writing(epoch)
	r.epoch = epoch
	if again {
		return r.begin()
	}
	return nil
}

// begin begins a snapshot if there is none.
func (r *reader) begin() error {
	if r.InTransaction() {
		return nil
	}
	r.began = time.Now()
	_, err := sqliteConn{r.Conn}.Exec(context.Background(), "BEGIN", nil)
	return err
}

// end ends the snapshot if there is one; an interruption may have.
func (r *reader) end() {
	if r.InTransaction() {
		_, _ = sqliteConn{r.Conn}.Exec(context.Background(), "ROLLBACK", nil) // nothing was written
	}
}

// writing reports whether the writer writes during an epoch.
func writing(epoch int64) bool { return epoch%2 == 1 }

// release puts a reader back. It may keep a snapshot that is still the newest.
func (w *writer) release(r *reader) {
	if epoch := w.epoch.Load(); r.epoch != epoch || writing(epoch) || w.memory {
		r.end()
	}
	kept, epoch := r.InTransaction(), r.epoch
	w.readers <- r
	switch {
	case !kept:
	case w.epoch.Load() != epoch: // the writer may have looked before it was back
		w.endKept()
	case w.ending.CompareAndSwap(false, true):
		time.AfterFunc(idleFor, func() {
			w.ending.Store(false)
			w.endKept()
		})
	}
}

// startWriting begins an epoch in which no snapshot is kept, stopWriting one in which they may be.
func (w *writer) startWriting() {
	w.epoch.Add(1)
	w.endKept()
}

func (w *writer) stopWriting() { w.epoch.Add(1) }

// endKept ends the snapshots of idle readers. Those of busy readers are checked on release.
func (w *writer) endKept() {
	for range cap(w.readers) {
		select {
		case r := <-w.readers:
			r.end()
			w.readers <- r
		default:
			return
		}
	}
}
