package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbackend/kit/database"
)

const (
	listenSilence = 30 * time.Second // after which the connection is checked
	pingTimeout   = 5 * time.Second
	minBackoff    = 50 * time.Millisecond
	maxBackoff    = 5 * time.Second
)

// Listen holds a connection of its own, because LISTEN belongs to a session.
func (e *engine) Listen(ctx context.Context, channel string, ready func(), fn func(payload string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.closing, func() { cancel(database.ErrClosed) })()
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		e.listen(ctx, channel, func() {
			backoff = minBackoff
			ready()
		}, fn)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(backoff/2 + rand.N(backoff/2)):
		}
	}
}

// listen returns when the connection is lost or ctx ends.
func (e *engine) listen(ctx context.Context, channel string, ready func(), fn func(payload string)) {
	c, err := pgx.ConnectConfig(ctx, e.listening.Copy())
	if err != nil {
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		_ = c.Close(ctx)
	}()
	if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return
	}
	ready()
	for ctx.Err() == nil {
		quiet, cancel := context.WithTimeout(ctx, listenSilence)
		n, err := c.WaitForNotification(quiet)
		cancel()
		if n != nil {
			fn(n.Payload)
		}
		if err != nil && (c.IsClosed() || !alive(ctx, c)) {
			return
		}
	}
}

// alive pings the server, because a connection may break without notice.
func alive(ctx context.Context, c *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return c.Ping(ctx) == nil
}
