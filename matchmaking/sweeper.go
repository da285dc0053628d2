package matchmaking

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/jobs"
)

// The job bindings of matchmaking.
const (
	sweepBinding = "MATCHMAKING_SWEEP"
	formBinding  = "MATCHMAKING_FORM"
	cleanBinding = "MATCHMAKING_CLEAN"
)

const (
	// maxQueue bounds the players, and the offers of seats, of one sweep.
	maxQueue = 100_000
	// leaseSweeps is how many sweeps a node may miss before its lease ends.
	leaseSweeps = 3
	// maxRenewals bounds how long a sweep that hangs keeps its lease.
	maxRenewals = 60
	// skillLifetime is how long a skill that was read is used.
	skillLifetime = time.Minute
	// maxReread bounds the skills that one sweep rereads.
	maxReread = 100
	// clockSkew is how far the clock of the sweeping node may be ahead.
	clockSkew = 250 * time.Millisecond
	// catchUpTime is the timeout of scheduling a sweep for a late ticket.
	catchUpTime = 5 * time.Second
	// formBatch is how many sessions one job creates.
	formBatch = 100
	// formPatience is how long a match may be forming before another job tries: its node may have
	// died.
	formPatience = 15 * time.Second
)

// sweeps remembers the last sweep of each game that this node has scheduled.
type sweeps struct {
	mu   sync.Mutex
	slot map[string]int64
}

func (s *sweeps) has(game string, slot int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slot[game] == slot
}

func (s *sweeps) set(game string, slot int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slot == nil {
		s.slot = make(map[string]int64)
	}
	s.slot[game] = slot
}

type sweepPayload struct {
	Game string `json:"game"`
}

// scheduleSweep schedules a sweep of a game at the next multiple of SweepSeconds: one job over all
// nodes, enqueued in the transaction of ctx.
func (m *Matchmaking) scheduleSweep(ctx context.Context, g *Game) error {
	step := g.Queue.sweep().Milliseconds()
	slot := m.now(ctx)/step + 1
	if !m.sweeps.has(g.Key, slot) {
		if err := m.enqueueSweep(ctx, g, slot); err != nil {
			return err
		}
	}
	database.AfterCommit(ctx, func() {
		m.sweeps.set(g.Key, slot)
		m.catchUp(g, slot)
	})
	return nil
}

func (m *Matchmaking) enqueueSweep(ctx context.Context, g *Game, slot int64) error {
	_, err := m.host.Jobs.Enqueue(ctx, sweepBinding, sweepPayload{g.Key},
		jobs.Key(fmt.Sprint(g.Key, "/", slot)), jobs.At(time.UnixMilli(slot*g.Queue.sweep().Milliseconds())))
	return err
}

// catchUp runs after a commit. The sweep of the slot may have read the queue before the commit, and
// it is not enqueued twice, so catchUp schedules the next one.
func (m *Matchmaking) catchUp(g *Game, slot int64) {
	step := g.Queue.sweep().Milliseconds()
	now := m.host.Now().UnixMilli() + min(step/4, clockSkew.Milliseconds())
	next := max(now/step, slot) + 1
	if now < slot*step || m.sweeps.has(g.Key, next) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), catchUpTime)
	defer cancel()
	if err := m.host.DB.InTx(ctx, func(ctx context.Context) error { return m.enqueueSweep(ctx, g, next) }); err != nil {
		m.host.Log.Warn("matchmaking: a sweep was not scheduled; the job of every minute does it", "error", err)
		return
	}
	m.sweeps.set(g.Key, next)
}

// runSweep is the job of one sweep of one game.
func (m *Matchmaking) runSweep(ctx context.Context, job jobs.Job) error {
	var payload sweepPayload
	if err := json.Unmarshal(job.Payload, &payload); err != nil {
		return jobs.Permanent(err)
	}
	g, err := m.game(payload.Game)
	if err != nil {
		return jobs.Cancel(err)
	}
	epoch, err := m.lead(ctx, g)
	if err != nil || epoch == 0 {
		return err
	}
	done := m.keepLease(ctx, g, epoch)
	defer done()
	q, err := m.read(ctx, g)
	if err == nil {
		err = m.claim(ctx, g, epoch, q, sweep(q.tickets, q.rules, q.at))
	}
	if err != nil && !errors.Is(err, errDeposed) { // so that the next sweep need not wait for the lease to end
		return errors.Join(err, m.store.release(context.WithoutCancel(ctx), g.Key, epoch))
	}
	return err
}

// keepLease renews a lease while its sweep runs, so that a sweep which takes longer than its slot,
// or than the lease, is not discarded.
func (m *Matchmaking) keepLease(ctx context.Context, g *Game, epoch int64) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(g.Queue.sweep())
		defer ticker.Stop()
		for range maxRenewals {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			until := m.host.Now().UnixMilli() + leaseSweeps*g.Queue.sweep().Milliseconds()
			if err := m.store.renew(ctx, g.Key, epoch, until); err != nil && ctx.Err() == nil {
				m.host.Log.Warn("matchmaking: the lease of a sweep was not renewed", "game", g.Key, "error", err)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// lead takes the lease, after it has scheduled the next sweep, so that a failure of this one does
// not end the chain. It returns 0 if another node has the lease or nothing is waiting.
func (m *Matchmaking) lead(ctx context.Context, g *Game) (epoch int64, err error) {
	err = m.host.DB.InTx(ctx, func(ctx context.Context) error {
		epoch = 0
		waiting, err := m.store.isWaiting(ctx, g.Key)
		if err != nil || !waiting {
			return err
		}
		if err := m.scheduleSweep(ctx, g); err != nil {
			return err
		}
		now := m.now(ctx)
		epoch, err = m.store.lead(ctx, g.Key, m.presence.node, now, now+leaseSweeps*g.Queue.sweep().Milliseconds())
		return err
	})
	return epoch, err
}

// queue is the input of a sweep.
type queue struct {
	tickets []ticket
	rules   rules
	at      int64
}

// read expires abandoned tickets and returns the others.
func (m *Matchmaking) read(ctx context.Context, g *Game) (queue, error) {
	now := m.now(ctx)
	q := queue{at: now, rules: rules{Queue: g.Queue, players: g.Players}}
	if !m.bySkill(g) {
		q.rules.InitialBand = nil
	}
	players, err := m.current(ctx, g, now)
	if err != nil {
		return q, err
	}
	if err := m.reread(ctx, g, players, now); err != nil {
		return q, err
	}
	if q.tickets, err = m.store.offers(ctx, g.Key, now, maxQueue); err != nil {
		return q, err
	}
	q.tickets = append(q.tickets, tickets(players)...)
	q.rules.blocked, err = m.store.blockedPairs(ctx, g.Key)
	return q, err
}

// current corrects the times of tickets and expires those that are abandoned, if there may be any, and returns the
// players who wait.
func (m *Matchmaking) current(ctx context.Context, g *Game, now int64) ([]player, error) {
	future, past := now+seenEvery.Milliseconds(), now-g.Queue.patience().Milliseconds()
	players, err := m.store.waitingPlayers(ctx, g.Key, maxQueue)
	if err != nil || len(players) < maxQueue && !slices.ContainsFunc(players, func(p player) bool { return p.seenAt > future || p.seenAt < past }) {
		return players, err
	}
	corrected, err := m.store.rejuvenate(ctx, g.Key, future, now)
	if err != nil {
		return nil, err
	}
	expired, err := m.store.expire(ctx, g.Key, past, now)
	if err != nil || corrected+expired == 0 {
		return players, err
	}
	return m.store.waitingPlayers(ctx, g.Key, maxQueue)
}

// reread reads skills that are older than a minute again, the oldest first.
func (m *Matchmaking) reread(ctx context.Context, g *Game, players []player, now int64) error {
	if !m.bySkill(g) {
		return nil
	}
	var old []*player
	for i := range players {
		if now-players[i].skillAt > skillLifetime.Milliseconds() {
			old = append(old, &players[i])
		}
	}
	if len(old) == 0 {
		return nil
	}
	slices.SortFunc(old, func(a, b *player) int { return cmp.Compare(a.skillAt, b.skillAt) })
	old = old[:min(len(old), maxReread)]
	for _, p := range old {
		skills, err := m.skills(ctx, g, []string{p.userID})
		if err != nil {
			return err
		}
		p.skill, p.skillAt = skills[0], now
	}
	return m.host.DB.InTx(ctx, func(ctx context.Context) error {
		for _, p := range old {
			if err := m.store.setSkill(ctx, *p); err != nil {
				return err
			}
		}
		return nil
	})
}

// tickets groups the players by ticket. A party that was not read completely is left out.
func tickets(players []player) []ticket {
	list := make([]ticket, 0, len(players))
	for len(players) > 0 {
		first := players[0]
		n := 1
		for n < len(players) && players[n].ticketID == first.ticketID {
			n++
		}
		t := ticket{id: first.ticketID, size: n, region: first.region, since: first.enqueuedAt, players: make([]string, n), rowids: make([]int64, n)}
		for i, p := range players[:n] {
			t.players[i], t.rowids[i] = p.userID, p.rowid
			t.skill += p.skill / float64(n)
			if p.matchID != "" {
				t.last = append(t.last, p.matchID)
			}
		}
		if int(first.party) == n {
			list = append(list, t)
		}
		players = players[n:]
	}
	return list
}

// errDeposed ends a sweep that has lost its lease to another sweep.
var errDeposed = errors.New("matchmaking: another node leads this game by now")

// claim takes the matched tickets out of the queue, and enqueues the jobs that create their
// sessions, if the sweep still has the lease.
func (m *Matchmaking) claim(ctx context.Context, g *Game, epoch int64, q queue, matches [][]int) error {
	drawn := m.draw(q, matches)
	return m.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := m.now(ctx)
		ours, err := m.store.holds(ctx, g.Key, epoch)
		if err != nil {
			return err
		}
		if !ours {
			return jobs.Cancel(errDeposed)
		}
		made, err := m.take(ctx, g, drawn, now)
		if err != nil {
			return err
		}
		stale, err := m.store.stale(ctx, g.Key, now-formPatience.Milliseconds(), now, maxQueue)
		if err != nil {
			return err
		}
		if err := m.enqueueForming(ctx, append(made, stale...)); err != nil {
			return err
		}
		return m.store.release(ctx, g.Key, epoch)
	})
}

// draft is a match before its players are claimed.
type draft struct {
	found
	claims []claim
}

// draw gives matches their ids, and their players a random order.
func (m *Matchmaking) draw(q queue, matches [][]int) []draft {
	now := time.UnixMilli(q.at)
	list := make([]draft, len(matches))
	for i, match := range matches {
		d := draft{found: found{id: id.New(now)}}
		var players []string
		for _, at := range match {
			t := &q.tickets[at]
			d.region = t.region
			if t.session != "" {
				d.backfill = t.session
			}
			players = append(players, t.players...)
			for i, userID := range t.players {
				d.claims = append(d.claims, claim{d.id, userID, t.id, t.rowids[i]})
			}
		}
		rand.Shuffle(len(players), func(a, b int) { players[a], players[b] = players[b], players[a] })
		d.players = database.List(players)
		list[i] = d
	}
	return list
}

// take claims the players of all matches at once, and returns the matches that got all of theirs;
// the players of the other matches wait again, except those who have left.
func (m *Matchmaking) take(ctx context.Context, g *Game, drafts []draft, now int64) ([]string, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	var claims []claim
	for _, d := range drafts {
		claims = append(claims, d.claims...)
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.rowid, b.rowid) }) // as they are stored
	n, err := m.store.claim(ctx, g.Key, claims, now)
	if err != nil {
		return nil, err
	}
	complete := func(draft) bool { return true }
	if n < int64(len(claims)) {
		claimed, err := m.store.claimed(ctx, g.Key, usersOf(claims))
		if err != nil {
			return nil, err
		}
		complete = func(d draft) bool { return claimed[d.id] == len(d.claims) }
	}
	var made []string
	var rows []found
	for _, d := range drafts {
		ok := complete(d)
		if ok && d.backfill != "" {
			if ok, err = m.store.takeSeats(ctx, d.backfill, len(d.claims)); err != nil {
				return nil, err
			}
		}
		if ok {
			made, rows = append(made, d.id), append(rows, d.found)
		} else if err := m.store.putBack(ctx, g.Key, d.id, usersOf(d.claims), ""); err != nil {
			return nil, err
		}
	}
	return made, m.store.insertMatches(ctx, g.Key, rows, now)
}

func usersOf(claims []claim) []string {
	users := make([]string, len(claims))
	for i, c := range claims {
		users[i] = c.user
	}
	return users
}
