package leaderboard

import (
	"context"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const (
	readSize    = 64 // calls that one statement answers at most
	readLeaders = 2  // statements of a kind at once on a board
)

// reader lets callers who read of one board at the same time share a statement,
// on PostgreSQL, where most of what a small one costs is to bring it there and
// back: one for several players, and one for all who want the same page. It
// begins after all its callers have asked, so each reads what was there then.
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

// listQuery is the part of a list that is asked for: behind a place, or the first.
type listQuery struct {
	view  view
	first bool
	after place
	limit int
}

func newReader(s store, materialized bool) *reader {
	leaders := func() int { return readLeaders }
	r := &reader{store: s, materialized: materialized}
	r.players.Run, r.players.Size, r.players.Leaders = r.readPlayers, readSize, leaders
	r.pages.Run, r.pages.Size, r.pages.Leaders = r.readPage, readSize, leaders
	return r
}

// shares reports whether a caller may read with others.
func (r *reader) shares(ctx context.Context) bool {
	return r.store.db.Dialect() == database.PostgreSQL && !r.store.db.InTransaction(ctx)
}

// around answers the entry of a player and n visible ones on each side of it, or
// more, unless there are fewer. The rows are not the caller's to change.
func (r *reader) around(ctx context.Context, v view, userID string, n int) (near, error) {
	if !r.shares(ctx) {
		return r.store.around(ctx, v, r.materialized, userID, n)
	}
	return r.players.Do(ctx, aroundQuery{v, userID, n})
}

// readPlayers answers the first of the calls, those that are about one window. A
// player asked for twice is read once, with the larger number.
func (r *reader) readPlayers(ctx context.Context, calls []*queue.Call[aroundQuery, near]) (served int) {
	v := calls[0].Op.view
	asked := make(map[string]int, len(calls))
	for served < len(calls) && calls[served].Op.view == v {
		op := calls[served].Op
		asked[op.userID] = max(asked[op.userID], op.n)
		served++
	}
	found, err := r.store.aroundMany(ctx, v, r.materialized, asked)
	for _, c := range calls[:served] {
		c.Out, c.Err = found[c.Op.userID], err
	}
	return served
}

// list answers visible entries in order, which are not the caller's to change.
func (r *reader) list(ctx context.Context, q listQuery) ([]ranked, error) {
	if !r.shares(ctx) {
		return r.store.list(ctx, q)
	}
	return r.pages.Do(ctx, q)
}

// readPage answers the first of the calls, those that are about one page.
func (r *reader) readPage(ctx context.Context, calls []*queue.Call[listQuery, []ranked]) (served int) {
	rows, err := r.store.list(ctx, calls[0].Op)
	for served < len(calls) && calls[served].Op == calls[0].Op {
		calls[served].Out, calls[served].Err = rows, err
		served++
	}
	return served
}
