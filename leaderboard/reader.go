package leaderboard

import (
	"context"
	"errors"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const (
	readSize    = 64              // calls that one statement serves at most
	readRows    = 1000            // rows of one for several players at most
	readLeaders = 2               // statements of a kind at once on a board
	readTime    = 5 * time.Second // for a statement
)

// reader lets callers who read of the open window of a board at the same time
// share a statement, on PostgreSQL, where most of what a small one costs is to
// bring it there and back: one for several players, and one for all who want the
// first page. It begins after all its callers have asked, so each reads what was
// there then. A caller may go; the one that leads stays until the statement is over.
type reader struct {
	store        store
	materialized bool
	players      queue.Queue[aroundQuery, near]
	pages        queue.Queue[listQuery, []ranked]
}

// aroundQuery is who is asked for, with how many on each side.
type aroundQuery struct {
	view   view
	userID string
	n      int
}

// listQuery is the part of a list that is asked for: behind a place, or the first
// where there is none.
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

// close lets statements under way finish.
func (r *reader) close(ctx context.Context) error {
	return errors.Join(r.players.Close(ctx), r.pages.Close(ctx))
}

// shares reports whether a caller reads with others.
func (r *reader) shares(ctx context.Context, v view) bool {
	return r.store.db.Dialect() == database.PostgreSQL && !v.closed && !r.store.db.InTransaction(ctx)
}

// around returns the entry of a player and n visible ones on each side of it, or
// more, unless there are fewer. The rows are not the caller's to change.
func (r *reader) around(ctx context.Context, v view, userID string, n int) (near, error) {
	if !r.shares(ctx, v) {
		return r.store.around(ctx, v, r.materialized, userID, n)
	}
	return r.players.Do(ctx, aroundQuery{v, userID, n})
}

// readPlayers returns the first of the calls: those that are about one window and
// not too many rows. A player asked for twice is read once, with the larger number.
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

// list returns visible entries in order, which are not the caller's to change.
func (r *reader) list(ctx context.Context, q listQuery) ([]ranked, error) {
	if q.after != (place{}) || !r.shares(ctx, q.view) {
		return r.store.list(ctx, q)
	}
	return r.pages.Do(ctx, q)
}

// readPage returns the first of the calls, those that are about one page.
func (r *reader) readPage(ctx context.Context, calls []*queue.Call[listQuery, []ranked]) (served int) {
	rows, err := r.store.list(ctx, calls[0].Op)
	for served < len(calls) && calls[served].Op == calls[0].Op {
		calls[served].Out, calls[served].Err = rows, err
		served++
	}
	return served
}
