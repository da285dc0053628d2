// Package leaderboard keeps ranked lists of players: callers submit scores, and read ranks, the
// entries around a player and totals, at any number of players.
//
// # Guarantees
//
//   - The order is total: score, then the earlier time of achievement, then user id by bytes. No
//     two entries share a rank.
//   - A live rank is exact: one more than the number of visible entries ahead, as a count over all
//     rows would return it, in every transaction and at every instant. It costs a few short index
//     scans, whatever the number of players. See [Leaderboard.Verify].
//   - A submission is durable when it returns. It joins the transaction of its context and commits
//     or rolls back with the caller's own rows. A refusal changes nothing and leaves the caller's
//     transaction usable.
//   - A repeated submission of the same score keeps the time at which it was achieved. On a sum
//     board submitting twice adds twice: over HTTP an Idempotency-Key prevents a repeated request
//     from adding again.
//
// # Windows
//
// A board with a schedule has windows: one is open, and at each instant of the schedule it closes
// and the next opens. A closed window stays readable under its key, the instant it opened at, until
// retention sweeps it. A window without a submission does not exist.
//
// # Hidden players
//
// A player may hide, and an administrator may hide a player: on the whole board, including closed
// and future windows. A hidden entry is in no list and does not count in the ranks and totals of
// others. Its player still reads it, with the rank it would have.
//
// # Transactions over several boards
//
// A change of a board locks it until the transaction ends. A transaction that changes several
// boards should do so in the order of their keys; otherwise two transactions may deadlock, and one
// of them is then retried.
//
// # Who may call
//
// In process, every caller that has the *Leaderboard. Over HTTP users read all boards and hide
// themselves; they submit for themselves if a board is not server-authoritative. An access token
// with the scope Config.SubmitScope submits to every board and for every user, one with
// Config.AdminScope hides players and removes entries.
package leaderboard

import (
	"cmp"
	"context"
	"embed"
	"errors"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// Name is the capability's name.
const Name = "leaderboard"

// Bounds of the arguments of reads.
const (
	// MaxSegment is how many players one [Leaderboard.Segment] reads.
	MaxSegment = 80
	// MaxAround is how many entries one [Leaderboard.Around] returns.
	MaxAround = 200
	// MaxClosed is how many closed windows of a board [Leaderboard.Boards] lists.
	MaxClosed = 50

	maxUserID = 128 // bytes
)

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities the leaderboard uses.
type Peers struct {
	// Audit records what administrators hide and remove; nil records nothing.
	Audit *audit.Audit
}

// Leaderboard keeps the configured boards. It is safe for concurrent use, from
// several processes on PostgreSQL.
type Leaderboard struct {
	host   capability.Host
	cfg    Config
	boards map[string]*board
	store  store
	audit  *audit.Audit

	batchers map[string]*batcher // by board
	readers  map[string]*reader
}

// New checks the configuration and reports all faults at once; it does no I/O. The error of an
// invalid schedule wraps leaderboard/invalid_schedule.
func New(host capability.Host, cfg Config, peers Peers) (*Leaderboard, error) {
	l := &Leaderboard{host: host, cfg: cfg.withDefaults(), store: store{host.DB, cmp.Or(cfg.sizes, usual)}, audit: peers.Audit}
	var err error
	l.boards, l.cfg.LockStale, err = l.cfg.resolve(l.routes())
	if err != nil {
		return nil, err
	}
	l.batchers, l.readers = make(map[string]*batcher, len(l.boards)), make(map[string]*reader, len(l.boards))
	for key, b := range l.boards {
		l.batchers[key], l.readers[key] = newBatcher(l.store, b), newReader(l.store, l.materialized())
	}
	return l, nil
}

// Capability describes the leaderboard to the kit.
func (l *Leaderboard) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   l.host.DB,
		Prefix:     l.cfg.BasePath,
		Routes:     l.routes(),
		Config:     l.cfg.keys(),
		Health:     l.health(),
		Migrations: migrations,
		Jobs:       l.jobs(),
		Refusals:   refusals(),
		Export:     l.export,
		Erase:      l.erase,
		Close:      l.close,
	}
}

// close waits for the batches and reads under way.
func (l *Leaderboard) close(ctx context.Context) (err error) {
	for key, b := range l.batchers {
		err = errors.Join(err, b.Close(ctx), l.readers[key].close(ctx))
	}
	return err
}

// Has reports whether a board is configured.
func (l *Leaderboard) Has(board string) bool { return l.boards[board] != nil }

// Submit enters a score into the open window of a board and returns the player's entry once it is
// durable; [Leaderboard.Me] returns its rank. Refuses with leaderboard/board_not_found,
// leaderboard/score_rejected and leaderboard/board_immutable.
func (l *Leaderboard) Submit(ctx context.Context, s Submission) (Entry, error) {
	b, err := l.board(s.Board, s.UserID)
	if err != nil {
		return Entry{}, err
	}
	if err := b.accept(s.Score); err != nil {
		return Entry{}, err
	}
	out, err := l.do(ctx, &operation{board: b, userID: s.UserID, score: s.Score})
	if err != nil {
		return Entry{}, err
	}
	return b.show(out.entry, b.sign()*out.entry.key), l.relieve(ctx, b, out)
}

// do runs an operation in the caller's transaction or, outside of one, in one that it shares with
// concurrent callers.
func (l *Leaderboard) do(ctx context.Context, op *operation) (out outcome, err error) {
	if !l.host.DB.InTransaction(ctx) {
		return l.batchers[op.board.Key].Do(ctx, op)
	}
	return l.store.submit(ctx, op)
}

// relieve checks, once in a number of submissions, whether the range of a submission has become too
// crowded. The score is stored already, so outside of the caller's transaction an error of relieve
// does not fail the submission.
func (l *Leaderboard) relieve(ctx context.Context, b *board, out outcome) error {
	if b.entered.Add(1)%l.store.sizes.relieve != 0 || out.entry.hidden != 0 {
		return nil
	}
	crowded, err := l.store.crowded(ctx, out.window, out.entry.place)
	if err == nil && crowded {
		err = l.change(ctx, func(ctx context.Context) error { return l.store.relieve(ctx, b.Key, out.window, out.entry.place) })
	}
	if !l.host.DB.InTransaction(ctx) {
		return nil
	}
	return err
}

// Me returns a player's own standing. Refuses with leaderboard/board_not_found and
// leaderboard/entry_not_found.
func (l *Leaderboard) Me(ctx context.Context, in View, userID string) (Standing, error) {
	v, err := l.view(ctx, in, userID)
	if err != nil {
		return Standing{}, err
	}
	found, err := l.readers[v.Key].around(ctx, v, userID, 0)
	if err == nil && found.me < 0 {
		err = l.missing(ctx, v, ErrEntryNotFound)
	}
	if err != nil {
		return Standing{}, err
	}
	return v.standing(found.rows[found.me]), nil
}

// ListTop lists a window in order, the best first. Its ranks are live in both rank modes: the
// positions in the list. Refuses with leaderboard/board_not_found.
func (l *Leaderboard) ListTop(ctx context.Context, in View, page capability.Page) (capability.Items[Ranked], error) {
	var none capability.Items[Ranked]
	v, err := l.view(ctx, in)
	if err != nil {
		return none, err
	}
	page = page.Bounded()
	q := listQuery{view: v, limit: page.Limit + 1}
	later, err := page.After(&q.after.key, &q.after.achievedAt, &q.after.userID)
	if err == nil && later && (!inRange(q.after.key) || q.after.achievedAt < 0 || capability.CheckUserID(q.after.userID) != nil) {
		err = capability.ErrInvalidRequest.Saying("The cursor is not one of this list.")
	}
	if err != nil {
		return none, err
	}
	rows, err := l.readers[v.Key].list(ctx, q)
	if err == nil && len(rows) == 0 {
		err = l.missing(ctx, v, nil)
	}
	if err != nil {
		return none, err
	}
	paged := capability.Paged(page, rows, func(r ranked) []any { return []any{r.key, r.achievedAt, r.userID} })
	return capability.Items[Ranked]{Items: v.ranked(paged.Items), NextCursor: paged.NextCursor}, nil
}

// Around returns at most limit entries around a player, including the player's own even if hidden:
// half of them ahead, and more from the other side if one side has fewer. limit is 1 to
// [MaxAround]. Refuses with leaderboard/board_not_found and leaderboard/entry_not_found.
func (l *Leaderboard) Around(ctx context.Context, in View, userID string, limit int) (Neighbours, error) {
	v, err := l.view(ctx, in, userID)
	if err != nil {
		return Neighbours{}, err
	}
	if limit < 1 || limit > MaxAround {
		return Neighbours{}, capability.ErrInvalidRequest.Saying("limit is a number from 1 to %d.", MaxAround)
	}
	found, err := l.readers[v.Key].around(ctx, v, userID, limit-1)
	if err == nil && found.me < 0 {
		err = l.missing(ctx, v, ErrEntryNotFound)
	}
	if err != nil {
		return Neighbours{}, err
	}
	rows, me, total := found.rows, found.me, found.rows[found.me].total
	first := max(0, min(me-limit/2, len(rows)-limit))
	rows = rows[first:min(first+limit, len(rows))]
	return Neighbours{Items: v.ranked(rows), Total: total}, nil
}

// Segment returns the visible entries of some players, such as a user's friends, in order and with
// their ranks on the whole board. It takes at most [MaxSegment] user ids. Refuses with
// leaderboard/board_not_found.
func (l *Leaderboard) Segment(ctx context.Context, in View, userIDs ...string) (Neighbours, error) {
	if len(userIDs) > MaxSegment {
		return Neighbours{}, capability.ErrInvalidRequest.Saying("At most %d players at once.", MaxSegment)
	}
	v, err := l.view(ctx, in, userIDs...)
	if err != nil {
		return Neighbours{}, err
	}
	rows, err := l.store.segment(ctx, v, l.materialized(), userIDs)
	if err != nil {
		return Neighbours{}, err
	}
	n := Neighbours{Items: v.ranked(rows)}
	if len(rows) > 0 {
		n.Total = rows[0].total
		return n, nil
	}
	if err := l.missing(ctx, v, nil); err != nil {
		return Neighbours{}, err
	}
	n.Total, err = l.store.total(ctx, v.Key, v.openedAt)
	return n, err
}

// SetHidden sets whether a player or an administrator hides a player. Refuses with
// leaderboard/board_not_found, and with leaderboard/entry_not_found for a user who has no entry in
// any window and is not hidden. Calls of an administrator are audited.
func (l *Leaderboard) SetHidden(ctx context.Context, board, userID string, by Hider, hidden bool) (v Visibility, err error) {
	b, err := l.board(board, userID)
	if err != nil {
		return Visibility{}, err
	}
	if by != Player && by != Administrator {
		return Visibility{}, capability.ErrInvalidRequest.Saying("A player is hidden by Player or Administrator.")
	}
	err = l.change(ctx, func(ctx context.Context) error {
		v, err = l.store.hide(ctx, b.Key, userID, by, hidden)
		if err != nil || by == Player {
			return err
		}
		action := "leaderboard/player_shown"
		if hidden {
			action = "leaderboard/player_hidden"
		}
		return l.record(ctx, action, userID, View{Board: b.Key})
	})
	return v, err
}

// Remove deletes the entry of a player, which is audited. A later submission makes a new one.
// Refuses with leaderboard/board_not_found and leaderboard/entry_not_found.
func (l *Leaderboard) Remove(ctx context.Context, in View, userID string) error {
	v, err := l.view(ctx, in, userID)
	if err != nil {
		return err
	}
	err = l.change(ctx, func(ctx context.Context) error {
		if err := l.store.remove(ctx, v.Key, v.openedAt, userID); err != nil {
			return err
		}
		return l.record(ctx, "leaderboard/entry_removed", userID, in)
	})
	if errors.Is(err, ErrEntryNotFound) {
		return l.missing(ctx, v, err)
	}
	return err
}

// record records an audit event about a player in a view.
func (l *Leaderboard) record(ctx context.Context, action, userID string, in View) error {
	return l.audit.Record(ctx, audit.Event{Action: action, Subject: audit.Target{Type: "user", ID: userID},
		Detail: done(in)})
}

// done is the detail of an audit event.
type done struct {
	Board  string `json:"board"`
	Window string `json:"window,omitempty"`
}

// change runs fn in the caller's transaction, which a refusal leaves usable, or in one of its own.
func (l *Leaderboard) change(ctx context.Context, fn func(context.Context) error) error {
	if l.host.DB.InTransaction(ctx) {
		return fn(ctx)
	}
	return l.host.DB.InTx(ctx, fn)
}

// Boards lists the configured boards in the order of the configuration.
func (l *Leaderboard) Boards(ctx context.Context) ([]Info, error) {
	now := l.host.DB.Now(ctx)
	infos := make([]Info, len(l.cfg.Boards))
	for i, cfg := range l.cfg.Boards {
		b := l.boards[cfg.Key]
		info := Info{Key: b.Key, Direction: b.Direction, Aggregation: b.Aggregation, Closed: []string{}}
		if b.schedule != nil {
			open := b.openedAt(now)
			info.Window, info.Open = &cfg.Window, windowKey(open)
			info.ClosesAt = capability.Time{Time: b.closesAt(open)}
			closed, err := l.store.closedWindows(ctx, b.Key, open, MaxClosed)
			if err != nil {
				return nil, err
			}
			for _, openedAt := range closed {
				info.Closed = append(info.Closed, windowKey(openedAt))
			}
		}
		infos[i] = info
	}
	return infos, nil
}

func (l *Leaderboard) materialized() bool { return l.cfg.Rank.Materialize != "" }

// board returns a configured board, and checks the user ids.
func (l *Leaderboard) board(key string, userIDs ...string) (*board, error) {
	b := l.boards[key]
	if b == nil {
		return nil, ErrBoardNotFound
	}
	for _, id := range userIDs {
		if err := capability.CheckUserID(id); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// view resolves a view, without checking that a closed window exists.
func (l *Leaderboard) view(ctx context.Context, in View, userIDs ...string) (view, error) {
	b, err := l.board(in.Board, userIDs...)
	if err != nil {
		return view{}, err
	}
	openedAt, closed, err := b.parseWindow(in.Window, l.host.DB.Now(ctx))
	return view{b, openedAt, closed}, err
}

// missing returns the error for an empty result: leaderboard/board_not_found if the closed window
// does not exist, otherwise the given error.
func (l *Leaderboard) missing(ctx context.Context, v view, otherwise error) error {
	if !v.closed {
		return otherwise
	}
	_, ok, err := l.store.windowID(ctx, v.Key, v.openedAt)
	if err == nil && !ok {
		err = ErrBoardNotFound
	}
	if err != nil {
		return err
	}
	return otherwise
}

func (b *board) ranked(rows []ranked) []Ranked {
	items := make([]Ranked, len(rows))
	for i, r := range rows {
		items[i] = Ranked{Rank: r.rank, Entry: b.show(r.entry, r.score)}
	}
	return items
}

func (b *board) standing(r ranked) Standing {
	own := int64(1)
	if r.hidden != 0 {
		own = 0
	}
	return Standing{Entry: b.show(r.entry, r.score), Rank: r.rank, Total: r.total, Percentile: percentile(r.rank, r.total, own)}
}
