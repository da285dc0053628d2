package leaderboard

import (
	"context"
	"errors"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const (
	readSize    = 64              // most calls per statement
	readRows    = 1000            // most rows of a statement for several players
	readLeaders = 2               // concurrent statements of a kind per board
	readTime    = 5 * time.Second // timeout of a statement
)

// reader lets concurrent reads of the open window of a board share a statement, on PostgreSQL,
// where the round trip is most of the cost of a small one: one statement reads several players, and
// one the first page for all who request it. A statement begins after all of its callers have
// called, so each reads the current state. A caller may cancel; the one that leads waits until the
// statement ends.
type reader struct {
	store        store
	materialized bool
	players      queue.Queue[aroundQuery, near]
	pages        queue.Queue[listQuery, []ranked]
}

// aroundQuery requests the entry of a player and n entries on each side.
type aroundQuery struct {
	view   view
	userID string
	n      int
}

// listQuery requests a part of a list: after a place, or the first page for the zero place.
type listQuery struct {
	view  view
	after place
	limit int
}

func newReader(s store, materialized bool) *reader {
	leaders := func() int { return readLeaders }
	r := &reader{store: s, materialized: materialized,
		players: queue.Queue[aroundQuery, near]{Size: readSize, Leaders: leaders, Time: readTime, Reads: true},
		pages:   queue.Queue[listQuery, []ranked]{Size: readSize, Leaders: leaders, Time: readTime, Reads: true}}
	r.players.Run, r.pages.Run = r.readPlayers, r.readPage
	return r
}

// close waits for the statements under way.
func (r *reader) close(ctx context.Context) error {
	return errors.Join(r.players.Close(ctx), r.pages.Close(ctx))
}

// shares reports whether a caller shares statements with others.
func (r *reader) shares(ctx context.Context, v view) bool {
	return r.store.db.Dialect() == database.PostgreSQL && !v.closed && !r.store.db.InTransaction(ctx)
}

// around returns the entry of a player and n visible ones on each side of it, or more, unless there
// are fewer. The caller must not change the rows.
func (r *reader) around(ctx context.Context, v view, userID string, n int) (near, error) {
	if !r.shares(ctx, v) {
		return r.store.around(ctx, v, r.materialized, userID, n)
	}
	return r.players.Do(ctx, aroundQuery{v, userID, n})
}

// readPlayers serves the first of the calls: those for one window, with a bounded number of rows. A
// player requested twice is read once, with the larger number.
func (r *reader) readPlayers(ctx context.Context, calls []*queue.Call[aroundQuery, near]) (served int) {
	v := calls[0].Op.view
	asked, rows := make(map[string]int, len(calls)), 0
	for _, c := range calls {
		rows += 1 + 2*c.Op.n
		if served > 0 && (c.Op.view != v || rows > readRows) {
			break
		}
		asked[c.Op.userID] = max(asked[c.Op.userID], c.Op.n)
		served++
	}
	found, err := r.store.aroundMany(ctx, v, r.materialized, asked)
	for _, c := range calls[:served] {
		c.Out, c.Err = found[c.Op.userID], err
	}
	return served
}

// list returns visible entries in order. The caller must not change them.
func (r *reader) list(ctx context.Context, q listQuery) ([]ranked, error) {
	if q.after != (place{}) || !r.shares(ctx, q.view) {
		return r.store.list(ctx, q)
	}
	return r.pages.Do(ctx, q)
}

// readPage serves the first of the calls, those for the same page.
func (r *reader) readPage(ctx context.Context, calls []*queue.Call[listQuery, []ranked]) (served int) {
	rows, err := r.store.list(ctx, calls[0].Op)
	for served < len(calls) && calls[served].Op == calls[0].Op {
		calls[served].Out, calls[served].Err = rows, err
		served++
	}
	return served
}
