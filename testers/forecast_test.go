package testers

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestForecastIsBruteForce compares the tail with the sum over all outcomes.
func TestForecastIsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qs := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 10).Draw(t, "q")
		k := rapid.IntRange(1, len(qs)+1).Draw(t, "k")
		want := 0.0
		for outcome := range 1 << len(qs) {
			p, n := 1.0, 0
			for i, q := range qs {
				if outcome>>i&1 == 1 {
					p, n = p*q, n+1
				} else {
					p *= 1 - q
				}
			}
			if n >= k {
				want += p
			}
		}
		got := newTail(k)
		for _, q := range qs {
			got.add(q)
		}
		if math.Abs(got[k]-want) > 1e-12 {
			t.Fatalf("P(at least %d of %v) is %v, want %v", k, qs, got[k], want)
		}
	})
}

// TestReplacedIsCountedAnew compares replaced with a full computation for each member.
func TestReplacedIsCountedAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		qs := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 20).Draw(t, "q")
		instead := rapid.SliceOfN(rapid.Float64Range(0, 1), len(qs), len(qs)).Draw(t, "instead")
		k := rapid.IntRange(1, len(qs)+1).Draw(t, "k")
		for i, got := range replaced(qs, instead, k) {
			want := newTail(k)
			for j, q := range qs {
				if j == i {
					q = instead[i]
				}
				want.add(q)
			}
			if math.Abs(got-want.reached()) > 1e-12 {
				t.Fatalf("P(at least %d of %v with %v in place %d) is %v, want %v", k, qs, instead[i], i, got, want.reached())
			}
		}
	})
}

// TestPendingIsItsSum compares the recurrence with the sum that it computes.
func TestPendingIsItsSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.Float64Range(0.001, 0.999)
		ever, daily, post := unit.Draw(t, "ever"), unit.Draw(t, "daily"), unit.Draw(t, "post")
		w, waited := rapid.IntRange(1, 30).Draw(t, "window"), rapid.IntRange(0, 20).Draw(t, "waited")
		const horizon = 45
		got := pending(waited, w, ever, daily, post, horizon)
		left := ever * math.Pow(1-daily, float64(waited))
		e := left / (1 - ever + left)
		for h := range horizon + 1 {
			sum := func(last int) (total float64) {
				for d := 1; d <= last; d++ {
					total += e * math.Pow(1-daily, float64(d-1)) * daily * math.Pow(1-post, float64(h-d))
				}
				return total
			}
			if want := sum(h - w + 1); math.Abs(got.streak[h]-want) > 1e-12 {
				t.Fatalf("streak on day %d is %v, want %v", h, got.streak[h], want)
			}
			if want := sum(h); math.Abs(got.present[h]-want) > 1e-12 {
				t.Fatalf("present on day %d is %v, want %v", h, got.present[h], want)
			}
		}
	})
}

// TestForecastIsSimulation compares with a simulation of 200,000 rosters, day by day.
func TestForecastIsSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("many paths")
	}
	const paths, k, w, day = 200_000, 12, 14, 20
	f := Config{}.withDefaults(nil).Forecast
	var members []chance
	for range 9 {
		members = append(members, optedIn(1, w, f.Hazard.Active, day))
	}
	for range 10 {
		members = append(members, pending(0, w, f.Join.Accepted.Ever, f.Join.Accepted.Daily, f.Hazard.PostJoin, day))
	}
	got := tails(members, k, day)[day].reached()
	if math.Abs(got-0.873) > 0.0005 {
		t.Errorf("F(20) of nine in and ten accepted is %.4f, want 0.873", got)
	}
	random, hits := rand.New(rand.NewPCG(1, 2)), 0
	for range paths {
		n := 0
		for i := range 19 {
			streak := 0
			if i < 9 {
				streak = 1
			}
			joins := i < 9 || random.Float64() < f.Join.Accepted.Ever
			for range day {
				switch {
				case streak > 0 && random.Float64() < f.Hazard.Active:
					streak, joins = 0, false
				case streak > 0:
					streak++
				case joins && random.Float64() < f.Join.Accepted.Daily:
					streak = 1
				}
			}
			if streak >= w {
				n++
			}
		}
		if n >= k {
			hits++
		}
	}
	if p := float64(hits) / paths; math.Abs(p-got) > 4*math.Sqrt(got*(1-got)/paths) {
		t.Errorf("F is %.4f, %d paths say %.4f", got, paths, p)
	}
}

// TestForecastFigures checks the figures by which the priors were chosen.
func TestForecastFigures(t *testing.T) {
	f := Config{}.withDefaults(nil).Forecast
	for n, want := range map[int]float64{12: 0.286, 13: 0.626, 14: 0.845, 15: 0.946, 16: 0.984} {
		var members []chance
		for range n {
			members = append(members, optedIn(1, 14, f.Hazard.Active, f.HorizonDays))
		}
		if _, got := best(curveOf(tails(members, 12, f.HorizonDays))); math.Abs(got-want) > 0.0006 {
			t.Errorf("%d active on day one: %.4f, want %.3f", n, got, want)
		}
	}
	invited := pending(0, 14, f.Join.Invited.Ever, f.Join.Invited.Daily, f.Hazard.PostJoin, f.HorizonDays)
	for goal, want := range map[float64]int{0.8: 37, 0.9: 40, 0.95: 44} {
		if got, ok := additional(tails(nil, 12, f.HorizonDays), invited, goal); !ok || got != want {
			t.Errorf("invitations for %v: %d, want %d", goal, got, want)
		}
	}
}

// TestForecastIsMonotone adds testers, which must help, and hazard, which must not.
func TestForecastIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const horizon, w = 45, 14
		hazard := rapid.Float64Range(0, 0.3)
		var members, worse []chance
		for range rapid.IntRange(0, 20).Draw(t, "in") {
			days, h := rapid.IntRange(1, 20).Draw(t, "days"), hazard.Draw(t, "hazard")
			members, worse = append(members, optedIn(days, w, h, horizon)), append(worse, optedIn(days, w, h+0.05, horizon))
		}
		for range rapid.IntRange(0, 20).Draw(t, "pending") {
			h := hazard.Draw(t, "post")
			members, worse = append(members, pending(0, w, 0.5, 0.2, h, horizon)), append(worse, pending(0, w, 0.5, 0.2, h+0.05, horizon))
		}
		k := rapid.IntRange(1, 15).Draw(t, "k")
		now, with := curveOf(tails(members, k, horizon)), curveOf(tails(append(members, optedIn(1, w, 0.1, horizon)), k, horizon))
		less := curveOf(tails(worse, k, horizon))
		for h := range now {
			if with[h] < now[h]-1e-12 || less[h] > now[h]+1e-12 || now[h] < 0 || now[h] > 1 {
				t.Fatalf("day %d: %v now, %v with one more, %v with more hazard", h, now[h], with[h], less[h])
			}
		}
	})
}

// BenchmarkForecast computes the curve of a roster of 500 with a target of 100, and the impact of
// each member.
func BenchmarkForecast(b *testing.B) {
	const roster, target, horizon = 500, 100, 45
	members := make([]chance, roster)
	for i := range members {
		if i < roster/2 {
			members[i] = optedIn(1, 14, 0.008, horizon)
		} else {
			members[i] = pending(i%20, 14, 0.5, 0.15, 0.008, horizon)
		}
	}
	b.Run("curve", func(b *testing.B) {
		for b.Loop() {
			tails(members, target, horizon)
		}
	})
	b.Run("replaced", func(b *testing.B) {
		as := make([]float64, roster)
		for i, m := range members {
			as[i] = m.streak[horizon/2]
		}
		for b.Loop() {
			replaced(as, as, target)
		}
	})
}
