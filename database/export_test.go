package database

import (
	"context"
	"time"
)

// WithVFS opens the file through a VFS of SQLite that the test has registered.
func WithVFS(name string) Option { return func(o *options) { o.vfs = name } }

// WithLimit replaces timeLimit.
func WithLimit(d time.Duration) Option { return func(o *options) { o.limit = d } }

// WithBatch replaces batchSize.
func WithBatch(n int) Option { return func(o *options) { o.batch = n } }

// Queued returns the number of transactions that wait for the writer.
func Queued(d *DB) int { return len(d.engine.(*sqliteEngine).writer.queue) }

// ShrinkNow does what the writer does while it is idle, until it has nothing to do.
func ShrinkNow(d *DB) {
	w := d.engine.(*sqliteEngine).writer
	_ = w.do(&job{ctx: context.Background(), alone: true, long: true, fn: func(context.Context, Conn) error { return nil }})
	for again := true; again; {
		_ = w.do(&job{ctx: context.Background(), fn: func(context.Context, Conn) error {
			again = w.shrink()
			return nil
		}})
	}
}

// Adapt is adapt.
var Adapt = adapt
