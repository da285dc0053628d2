package matchmaking

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const sweptAt = int64(1_800_000_000_000)

// drawTickets draws a small queue: parties, regions, free seats, blocked pairs.
func drawTickets(t *rapid.T, r *rules) []ticket {
	n := rapid.IntRange(0, 60).Draw(t, "tickets")
	tickets := make([]ticket, n)
	for i := range tickets {
		size := rapid.IntRange(1, min(3, r.players)).Draw(t, "size")
		k := ticket{
			id: fmt.Sprint("t", i), size: size, region: rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "region"),
			skill: float64(rapid.IntRange(0, 300).Draw(t, "skill")), since: sweptAt - rapid.Int64Range(-1000, 40_000).Draw(t, "waited"),
		}
		if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
			k.session = fmt.Sprint("s", i)
		} else {
			for p := range size {
				k.players = append(k.players, fmt.Sprintf("u%d-%d", i, p))
			}
			k.last = []string{fmt.Sprint("m", rapid.IntRange(0, 10).Draw(t, "last"))}
		}
		tickets[i] = k
	}
	for range rapid.IntRange(0, 20).Draw(t, "blocks") {
		if n < 2 {
			break
		}
		a, b := rapid.IntRange(0, n-1).Draw(t, "a"), rapid.IntRange(0, n-1).Draw(t, "b")
		if a != b && tickets[a].session == "" && tickets[b].session == "" {
			x, y := tickets[a].players[0], tickets[b].players[0]
			r.blocked[[2]string{min(x, y), max(x, y)}] = true
		}
	}
	return tickets
}

// drawBand draws a band of some width or zero, or no band.
func drawBand(t *rapid.T) *float64 {
	if width := rapid.IntRange(-1, 60).Draw(t, "band"); width >= 0 {
		return new(float64(width))
	}
	return nil
}

func drawRules(t *rapid.T) rules {
	return rules{
		Queue: Queue{
			InitialBand:    drawBand(t),
			WidenPerSecond: float64(rapid.IntRange(0, 5).Draw(t, "widen")),
			MaxWaitSeconds: rapid.SampledFrom([]int{0, 20}).Draw(t, "maxWait"),
			SweepSeconds:   5,
		},
		players: rapid.IntRange(2, 6).Draw(t, "players"), blocked: map[[2]string]bool{},
	}
}

// waitedOf and the other helpers below restate the rules, so that the properties do not depend on
// the code under test.
func waitedOf(k ticket) time.Duration {
	return time.Duration(max(sweptAt-k.since, 0)) * time.Millisecond
}

func bandFor(r rules, k ticket) float64 {
	waited := waitedOf(k)
	if r.InitialBand == nil || r.MaxWaitSeconds > 0 && waited >= time.Duration(r.MaxWaitSeconds)*time.Second {
		return math.Inf(1)
	}
	return *r.InitialBand + r.WidenPerSecond*waited.Seconds()
}

func isOverdue(r rules, k ticket) bool {
	return r.MaxWaitSeconds > 0 && waitedOf(k) >= time.Duration(r.MaxWaitSeconds)*time.Second
}

// TestSweepLaws checks that in every sweep no ticket is matched twice, sizes are exact, a match has
// one region, bands are mutual unless the seed is past the maximum, and no player meets a blocked
// one.
func TestSweepLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRules(t)
		tickets := drawTickets(t, &r)
		matches := sweep(tickets, r, sweptAt)
		seen := make(map[int]bool)
		for _, match := range matches {
			seed, size := tickets[match[0]], 0
			low, high, band := math.Inf(1), math.Inf(-1), math.Inf(1)
			var players []string
			for at, i := range match {
				k := tickets[i]
				if seen[i] {
					t.Fatalf("ticket %d is matched twice", i)
				}
				seen[i] = true
				if k.region != seed.region {
					t.Fatalf("match %v is in two regions", match)
				}
				if at > 0 {
					if k.session != "" {
						t.Fatalf("free seats of %s were given to a match", k.session)
					}
					size += k.size
				}
				low, high = min(low, k.skill), max(high, k.skill)
				if !isOverdue(r, seed) || waitedOf(k) < 5*time.Second {
					band = min(band, bandFor(r, k))
				}
				players = append(players, k.players...)
			}
			switch {
			case seed.session == "" && size+seed.size != r.players:
				t.Fatalf("match %v has %d players, want %d", match, size+seed.size, r.players)
			case seed.session != "" && (size < 1 || size > seed.size):
				t.Fatalf("%d players for %d free seats", size, seed.size)
			case high-low > band:
				t.Fatalf("match %v is %v wide, its narrowest band %v", match, high-low, band)
			}
			for i, a := range players {
				for _, b := range players[i+1:] {
					if r.blocked[[2]string{min(a, b), max(a, b)}] {
						t.Fatalf("%s and %s block each other and were matched", a, b)
					}
				}
			}
		}
	})
}

// TestSweepIsFairToTheOldest checks that the player who has waited longest chooses first: a pair
// that is left could not have been a match, and no younger seed has a partner that an older ticket
// that is left could have had.
func TestSweepIsFairToTheOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRules(t)
		r.players = 2
		n := rapid.IntRange(0, 60).Draw(t, "tickets")
		tickets := make([]ticket, n)
		for i := range tickets {
			tickets[i] = ticket{
				id: fmt.Sprint("t", i), players: []string{fmt.Sprint("u", i)}, size: 1,
				skill: float64(rapid.IntRange(0, 300).Draw(t, "skill")), since: sweptAt - rapid.Int64Range(0, 40_000).Draw(t, "waited"),
			}
		}
		could := func(seed, other ticket) bool {
			band := bandFor(r, other)
			if isOverdue(r, seed) && waitedOf(other) >= 5*time.Second {
				band = math.Inf(1)
			}
			return math.Abs(seed.skill-other.skill) <= min(band, bandFor(r, seed))
		}
		partner := make(map[int]int)
		seeds := make(map[int]bool)
		for _, match := range sweep(tickets, r, sweptAt) {
			seeds[match[0]] = true
			partner[match[0]], partner[match[1]] = match[1], match[0]
		}
		for i := range tickets {
			_, matched := partner[i]
			for j := range tickets {
				if i == j || byAge(&tickets[i], &tickets[j]) > 0 || !could(tickets[i], tickets[j]) {
					continue
				}
				other, taken := partner[j]
				switch {
				case matched:
				case !taken:
					t.Fatalf("tickets %d and %d could play and both wait", i, j)
				case byAge(&tickets[i], &tickets[other]) < 0 && seeds[other]:
					t.Fatalf("ticket %d got %d before %d, which is older", other, j, i)
				}
			}
		}
	})
}

// TestSweepDoesNotStarve checks that past the maximum a ticket waits only for lack of players: the
// others left in its region, who have been there for a sweep, do not make a match.
func TestSweepDoesNotStarve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRules(t)
		r.MaxWaitSeconds = 20
		n := rapid.IntRange(0, 60).Draw(t, "tickets")
		tickets := make([]ticket, n)
		for i := range tickets {
			tickets[i] = ticket{
				id: fmt.Sprint("t", i), players: []string{fmt.Sprint("u", i)}, size: 1,
				skill: float64(rapid.IntRange(0, 100_000).Draw(t, "skill")), since: sweptAt - rapid.Int64Range(0, 40_000).Draw(t, "waited"),
			}
		}
		matched := make(map[int]bool)
		for _, match := range sweep(tickets, r, sweptAt) {
			for _, i := range match {
				matched[i] = true
			}
		}
		overdue, there := 0, 0
		for i, k := range tickets {
			if matched[i] {
				continue
			}
			if isOverdue(r, k) {
				overdue++
			}
			if waitedOf(k) >= 5*time.Second {
				there++
			}
		}
		if overdue > 0 && there >= r.players {
			t.Fatalf("%d tickets past the maximum wait next to %d others, %d make a match", overdue, there-overdue, r.players)
		}
	})
}

// TestSweepIsDeterministic checks that the same tickets in another order give the same matches.
func TestSweepIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRules(t)
		tickets := drawTickets(t, &r)
		names := func(tickets []ticket) [][]string {
			var all [][]string
			for _, match := range sweep(tickets, r, sweptAt) {
				var ids []string
				for _, i := range match {
					ids = append(ids, tickets[i].id)
				}
				all = append(all, ids)
			}
			return all
		}
		want := names(tickets)
		if diff := cmp.Diff(want, names(rapid.Permutation(tickets).Draw(t, "order"))); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestSweepAvoidsRematch checks that the last opponent is taken if nobody else is near, once the
// band allows the distance added for a rematch.
func TestSweepAvoidsRematch(t *testing.T) {
	at := func(id string, skill float64, waited time.Duration, last ...string) ticket {
		return ticket{id: id, players: []string{id}, size: 1, skill: skill, since: sweptAt - waited.Milliseconds(), last: last}
	}
	r := rules{Queue: Queue{InitialBand: new(50.0), WidenPerSecond: 10, SweepSeconds: 5}, players: 2}
	for _, c := range []struct {
		name    string
		tickets []ticket
		want    [][]int
	}{
		{"another one", []ticket{at("a", 0, 2*time.Second, "m"), at("b", 1, time.Second, "m"), at("c", 40, 0)}, [][]int{{0, 2}}},
		{"nobody else, too soon", []ticket{at("a", 0, 4*time.Second, "m"), at("b", 0, 4*time.Second, "m")}, nil},
		{"nobody else, later", []ticket{at("a", 0, 6*time.Second, "m"), at("b", 0, 5*time.Second, "m")}, [][]int{{0, 1}}},
		{"neither has played", []ticket{at("a", 0, 0), at("b", 0, 0)}, [][]int{{0, 1}}},
	} {
		if diff := cmp.Diff(c.want, sweep(c.tickets, r, sweptAt)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// queueOf returns tickets of normally distributed skill that arrived evenly over 30 s.
func queueOf(n, regions int, party func() int) []ticket {
	rnd := rand.New(rand.NewPCG(1, 2))
	tickets := make([]ticket, n)
	for i := range tickets {
		size := party()
		tickets[i] = ticket{
			id: fmt.Sprintf("ticket-%019d", i), size: size, region: fmt.Sprint("region ", rnd.IntN(regions)),
			skill: 1500 + 300*rnd.NormFloat64(), since: sweptAt - rnd.Int64N(30_000),
		}
		for p := range size {
			tickets[i].players = append(tickets[i].players, fmt.Sprintf("user-%d-%d", i, p))
		}
	}
	return tickets
}

func BenchmarkSweep(b *testing.B) {
	solo := func() int { return 1 }
	rnd := rand.New(rand.NewPCG(3, 4))
	parties := func() int { return 1 + rnd.IntN(5) }
	for _, c := range []struct {
		name       string
		n, players int
		party      func() int
	}{
		{"1000x2", 1_000, 2, solo}, {"10000x2", 10_000, 2, solo}, {"100000x2", 100_000, 2, solo},
		{"10000x10parties", 10_000, 10, parties}, {"100000x10parties", 100_000, 10, parties}, {"10000x100parties", 10_000, 100, parties},
	} {
		b.Run(c.name, func(b *testing.B) {
			tickets := queueOf(c.n, 6, c.party)
			r := rules{Queue: Queue{InitialBand: new(50.0), WidenPerSecond: 10, MaxWaitSeconds: 60, SweepSeconds: 5}, players: c.players}
			var matches [][]int
			for b.Loop() {
				matches = sweep(tickets, r, sweptAt)
			}
			report(b, tickets, matches)
		})
	}
}

// report reports how many tickets were matched, how far apart, and after what wait.
func report(b *testing.B, tickets []ticket, matches [][]int) {
	var spreads, waits []float64
	matched := 0
	for _, match := range matches {
		low, high := math.Inf(1), math.Inf(-1)
		for _, i := range match {
			low, high = min(low, tickets[i].skill), max(high, tickets[i].skill)
			waits = append(waits, waitedOf(tickets[i]).Seconds())
		}
		spreads = append(spreads, high-low)
		matched += len(match)
	}
	if matched == 0 {
		b.Fatal("nobody was matched")
	}
	slices.Sort(spreads)
	slices.Sort(waits)
	b.ReportMetric(100*float64(matched)/float64(len(tickets)), "%matched")
	b.ReportMetric(spreads[len(spreads)/2], "spread-p50")
	b.ReportMetric(spreads[len(spreads)*95/100], "spread-p95")
	b.ReportMetric(waits[len(waits)/2], "wait-p50-s")
	b.ReportMetric(waits[len(waits)*95/100], "wait-p95-s")
}

// TestBandOfZero checks that a band of zero matches equal skills only, and that without a band the
// nearest are matched.
func TestBandOfZero(t *testing.T) {
	waiting := func(skills ...float64) (list []ticket) {
		for i, skill := range skills {
			list = append(list, ticket{id: fmt.Sprint("t", i), size: 1, region: "eu", skill: skill, since: sweptAt, players: []string{fmt.Sprint("u", i)}})
		}
		return list
	}
	equals := rules{Queue: Queue{InitialBand: new(0.0), SweepSeconds: 5}, players: 2}
	anybody := rules{Queue: Queue{SweepSeconds: 5}, players: 2}
	for _, tt := range []struct {
		name   string
		rules  rules
		skills []float64
		want   int
	}{
		{"different skills", equals, []float64{10, 10.5}, 0},
		{"equal skills", equals, []float64{10, 10}, 1},
		{"no band", anybody, []float64{10, 5000}, 1},
	} {
		if got := len(sweep(waiting(tt.skills...), tt.rules, sweptAt)); got != tt.want {
			t.Errorf("%s: %d matches, want %d", tt.name, got, tt.want)
		}
	}
}
