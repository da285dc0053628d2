package database

import "time"

// WithVFS opens the file through a VFS of SQLite that the test has registered.
func WithVFS(name string) Option { return func(o *options) { o.vfs = name } }

// WithLimit replaces timeLimit.
func WithLimit(d time.Duration) Option { return func(o *options) { o.limit = d } }

// WithBatch replaces batchSize.
func WithBatch(n int) Option { return func(o *options) { o.batch = n } }

// Queued returns the number of transactions that wait for the writer.
func Queued(d *DB) int { return len(d.engine.(*sqliteEngine).writer.queue) }

// Adapt is adapt.
var Adapt = adapt
