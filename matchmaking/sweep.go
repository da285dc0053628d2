package matchmaking

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

// ticket is one entry of the queue: a player, a party, or the free seats of a session that is under
// way.
type ticket struct {
	id      string
	players []string
	rowids  []int64 // of the players, on SQLite
	// size is how many seats of a match it takes or, for free seats, offers.
	size   int
	region string
	skill  float64
	since  int64 // unix milliseconds
	// last are the last matches of the players.
	last []string
	// session is the session of the free seats; empty for players.
	session string
}

// rules are the rules of who may be matched with whom.
type rules struct {
	Queue
	// players is how many players form a match.
	players int
	// blocked holds the pairs that must not meet, the lower id first.
	blocked map[[2]string]bool
}

const (
	// maxSkips bounds the candidates that one seed skips.
	maxSkips = 256
	// rematch is how much further away the last opponent counts.
	rematch = 100
)

// sweep groups tickets into matches, as indexes into the list; the seed comes first. It reads no
// clock and no random source: the same tickets give the same matches.
//
// In each region the tickets are ordered by skill. Sessions with free seats are seeds first, then
// the longest waiting tickets. A seed repeatedly takes the nearest skill on either side, while all
// skills of the match are within the narrowest of their bands. A seed that has waited past the
// maximum ignores the bands of tickets that were there at the previous sweep.
func sweep(tickets []ticket, r rules, now int64) [][]int {
	regions := make(map[string][]int)
	for i := range tickets {
		regions[tickets[i].region] = append(regions[tickets[i].region], i)
	}
	var names []string
	for name := range regions {
		names = append(names, name)
	}
	slices.Sort(names)
	var matches [][]int
	for _, name := range names {
		l := newLine(tickets, r, now, regions[name])
		matches = append(matches, l.match()...)
	}
	return matches
}

// line is the tickets of a region in order of skill. The positions 0 and len(order)-1 are
// sentinels; next and prev skip the tickets that are taken.
type line struct {
	rules
	tickets    []ticket
	now        int64
	order      []int // position to ticket; sessions with free seats are not included
	next, prev []int
	taken      []bool
	seeds      []seed
}

// seed is a ticket and its position, 0 for free seats.
type seed struct{ ticket, at int }

func newLine(tickets []ticket, r rules, now int64, members []int) *line {
	l := &line{rules: r, tickets: tickets, now: now, order: make([]int, 1, len(members)+2)}
	for _, i := range members {
		if tickets[i].session == "" {
			l.order = append(l.order, i)
		} else {
			l.seeds = append(l.seeds, seed{ticket: i})
		}
	}
	slices.SortFunc(l.order[1:], func(a, b int) int {
		x, y := &tickets[a], &tickets[b]
		return cmp.Or(cmp.Compare(x.skill, y.skill), byAge(x, y))
	})
	l.order = append(l.order, 0)
	l.next, l.prev, l.taken = make([]int, len(l.order)), make([]int, len(l.order)), make([]bool, len(l.order))
	for at := range l.order {
		l.next[at], l.prev[at] = at+1, at-1
		if at > 0 && at < l.end() {
			l.seeds = append(l.seeds, seed{l.order[at], at})
		}
	}
	slices.SortFunc(l.seeds, func(a, b seed) int {
		return cmp.Or(cmp.Compare(min(a.at, 1), min(b.at, 1)), byAge(&tickets[a.ticket], &tickets[b.ticket]))
	})
	return l
}

func byAge(x, y *ticket) int {
	return cmp.Or(cmp.Compare(x.since, y.since), strings.Compare(x.id, y.id))
}

func (l *line) end() int                { return len(l.order) - 1 }
func (l *line) at(position int) *ticket { return &l.tickets[l.order[position]] }

func (l *line) waited(t *ticket) time.Duration {
	return time.Duration(max(l.now-t.since, 0)) * time.Millisecond
}

func (l *line) match() [][]int {
	var matches [][]int
	g := group{line: l}
	for _, s := range l.seeds {
		if l.taken[s.at] || !g.form(s) {
			continue
		}
		match := make([]int, 1, 1+len(g.positions))
		match[0] = s.ticket
		for _, at := range g.positions {
			l.take(at)
			match = append(match, l.order[at])
		}
		if s.at > 0 {
			l.take(s.at)
		}
		matches = append(matches, match)
	}
	return matches
}

func (l *line) take(at int) {
	l.taken[at] = true
	l.next[l.prev[at]], l.prev[l.next[at]] = l.next[at], l.prev[at]
}

// around returns the free positions before and after a seed.
func (l *line) around(s seed) (left, right int) {
	if s.at > 0 {
		return l.prev[s.at], l.next[s.at]
	}
	skill := l.tickets[s.ticket].skill
	right = 1 + sort.Search(l.end()-1, func(i int) bool { return l.at(i+1).skill >= skill })
	for right < l.end() && l.taken[right] {
		right++
	}
	return l.prev[right], right
}

// group is a match being formed, reused for every seed.
type group struct {
	*line
	overdue   bool      // the seed has waited past the maximum
	patient   bool      // only tickets of the previous sweep are taken
	members   []*ticket // the seed first
	positions []int     // of the other members
	later     []int     // candidates that would be a rematch
	seats     int       // not filled yet
	low, high float64   // the range of skills so far
	band      float64   // the narrowest so far
}

// form gathers a match around a seed and reports whether there is one. A seed past the maximum that
// fails because of the band of a new ticket tries again without new tickets.
func (g *group) form(s seed) bool {
	g.overdue = g.Queue.overdue(g.waited(&g.tickets[s.ticket]))
	return g.gather(s, false) || g.overdue && g.gather(s, true)
}

func (g *group) gather(s seed, patient bool) bool {
	t := &g.tickets[s.ticket]
	g.patient = patient
	g.members, g.positions, g.later = append(g.members[:0], t), g.positions[:0], g.later[:0]
	g.low, g.high, g.band, g.seats = t.skill, t.skill, g.Queue.band(g.waited(t)), g.players-t.size
	if t.session != "" {
		g.seats = t.size
	}
	g.reach(s)
	for _, at := range g.later {
		if g.fits(g.at(at), rematch) {
			g.add(at)
		}
	}
	return g.seats == 0 || t.session != "" && len(g.positions) > 0
}

// reach searches outwards from the seed, the nearer side first.
func (g *group) reach(s seed) {
	own := g.members[0].skill
	left, right := g.around(s)
	for skips := 0; g.seats > 0 && skips < maxSkips; {
		lower, upper := math.Inf(1), math.Inf(1)
		if left > 0 && g.high-g.at(left).skill <= g.band {
			lower = own - g.at(left).skill
		}
		if right < g.end() && g.at(right).skill-g.low <= g.band {
			upper = g.at(right).skill - own
		}
		if math.IsInf(lower, 1) && math.IsInf(upper, 1) {
			return
		}
		at := right
		if lower <= upper {
			at, left = left, g.prev[left]
		} else {
			right = g.next[right]
		}
		switch {
		case !g.fits(g.at(at), 0):
			skips++
		case g.met(g.at(at)):
			g.later = append(g.later, at)
			skips++
		default:
			g.add(at)
		}
	}
}

// bandOf returns the band of a candidate that the match has to respect.
func (g *group) bandOf(t *ticket) float64 {
	waited := g.waited(t)
	if g.overdue && waited >= g.sweep() {
		return math.Inf(1)
	}
	return g.Queue.band(waited)
}

// fits reports whether a ticket may join, if it were further away by the given distance.
func (g *group) fits(t *ticket, further float64) bool {
	if g.patient && g.waited(t) < g.sweep() {
		return false
	}
	spread := max(g.high, t.skill) - min(g.low, t.skill) + further
	return t.size <= g.seats && spread <= g.band && spread <= g.bandOf(t) && !g.isBlocked(t)
}

func (g *group) add(at int) {
	t := g.at(at)
	g.members, g.positions = append(g.members, t), append(g.positions, at)
	g.low, g.high = min(g.low, t.skill), max(g.high, t.skill)
	g.band = min(g.band, g.bandOf(t))
	g.seats -= t.size
}

func (g *group) isBlocked(t *ticket) bool {
	if len(g.blocked) == 0 {
		return false
	}
	for _, member := range g.members {
		for _, a := range member.players {
			for _, b := range t.players {
				if g.blocked[[2]string{min(a, b), max(a, b)}] {
					return true
				}
			}
		}
	}
	return false
}

// met reports whether a ticket shares its last match with one of the members.
func (g *group) met(t *ticket) bool {
	for _, member := range g.members {
		for _, match := range member.last {
			if slices.Contains(t.last, match) {
				return true
			}
		}
	}
	return false
}
