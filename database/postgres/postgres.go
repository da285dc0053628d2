// Package postgres opens a PostgreSQL database as a [database.DB]. Any number of nodes may share it.
//
// Transactions are READ COMMITTED and run again, with a pause, when PostgreSQL reports a serialization failure or a
// deadlock; callbacks lock rows in key order so that this stays rare. The commit is as durable as the server's
// synchronous_commit says.
//
// A node that stands still in the middle of a transaction keeps its row locks for 5 seconds, then the server ends the
// transaction; a statement waits 8 seconds for a lock, then it fails with [database.ErrUnavailable]. So the other nodes
// wait 10 seconds at most for what it had locked and queued for. A caller whose context ends has its statement stopped
// on the server.
package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kitbackend/kit/database"
)

const (
	defaultConnections = 16
	connectTimeout     = 10 * time.Second
	statementTimeout   = "30s" // of the server, for a statement that may not end; a migration has none
	lockTimeout        = "8s"  // of the server, for a statement that waits for another transaction; a migration has none
	idleTimeout        = "5s"  // of the server, for a transaction whose node has gone silent: its locks go with it
	cancelAfter        = 50 * time.Millisecond
	abandonAfter       = 5 * time.Second
)

// Option adjusts [Open].
type Option func(*options)

type options struct {
	connections int
	schema      string
	testMode    bool
}

// WithConnections sets how many connections the DB opens at most, one more for each Listen not counted. Default 16:
// more make contended rows slower.
func WithConnections(n int) Option { return func(o *options) { o.connections = max(n, 1) } }

// WithSchema sets the schema of all tables; it must exist.
func WithSchema(name string) Option { return func(o *options) { o.schema = name } }

// WithTestMode is [database.WithTestMode].
func WithTestMode() Option { return func(o *options) { o.testMode = true } }

// Open connects to the database at url, a postgres:// URL or a keyword/value string. Settings of the session that the
// url names win over those of this package.
func Open(ctx context.Context, url string, opts ...Option) (*database.DB, error) {
	o := options{connections: defaultConnections}
	for _, opt := range opts {
		opt(&o)
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	config.MaxConns = int32(o.connections)
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	settings := config.ConnConfig.RuntimeParams
	for name, value := range map[string]string{
		"application_name":                    "kit",
		"statement_timeout":                   statementTimeout,
		"lock_timeout":                        lockTimeout,
		"idle_in_transaction_session_timeout": idleTimeout,
	} {
		if _, given := settings[name]; !given {
			settings[name] = value
		}
	}
	if o.schema != "" {
		settings["search_path"] = pgx.Identifier{o.schema}.Sanitize()
	}
	listening := config.ConnConfig.Copy()
	config.ConnConfig.BuildContextWatcherHandler = cancelling
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("database: %w", err)
	}
	e := &engine{pool: pool, listening: listening}
	e.closing, e.close = context.WithCancel(context.Background())
	if o.testMode {
		return database.New(e, database.WithTestMode()), nil
	}
	return database.New(e), nil
}

// cancelling returns a handler that also stops the statement of a canceled caller on the server,
// and keeps the connection: merely closing it would leave a session that runs until the statement
// ends.
func cancelling(c *pgconn.PgConn) ctxwatch.Handler {
	return &pgconn.CancelRequestContextWatcherHandler{Conn: c, CancelRequestDelay: cancelAfter, DeadlineDelay: abandonAfter}
}
