package testers

import (
	"math"
	"slices"
)

// chance is the model of one member. streak is the probability, by days ahead, that the member has
// an unbroken streak of the window's length on that day.
type chance struct {
	streak []float64
	// present is the probability that the member is opted in on that day.
	present []float64
}

// optedIn returns the chance of a member with a streak of the given days, including today, who
// leaves with a constant hazard per day.
func optedIn(days, window int, hazard float64, horizon int) chance {
	c := chance{make([]float64, horizon+1), make([]float64, horizon+1)}
	stays := 1.0
	for h := range c.present {
		c.present[h] = stays
		if days+h >= window {
			c.streak[h] = stays
		}
		stays *= 1 - hazard
	}
	return c
}

// pending returns the chance of a member who was invited waited days ago and has not opted in: the
// member ever opts in with probability ever, then on each day with probability daily, and
// afterwards leaves with hazard post.
func pending(waited, window int, ever, daily, post float64, horizon int) chance {
	c := chance{make([]float64, horizon+1), make([]float64, horizon+1)}
	left := ever * math.Pow(1-daily, float64(waited))
	if total := 1 - ever + left; total > 0 {
		ever = left / total
	}
	// With S(H) the sum over the days of joining, S(H+1) = (1-post) S(H) plus the
	// term of joining on the last day that counts.
	survive := math.Pow(1-post, float64(window-1))
	join, streak, present := daily, 0.0, 0.0
	joins := make([]float64, horizon+1)
	for h := 1; h <= horizon; h++ {
		joins[h] = ever * join
		join *= 1 - daily
		present = present*(1-post) + joins[h]
		c.present[h] = present
		if h >= window {
			streak = streak*(1-post) + joins[h-window+1]*survive
			c.streak[h] = streak
		}
	}
	return c
}

// tail is the distribution of the number of independent members who succeed, up to k: tail[k] is
// the probability of k or more.
type tail []float64

func newTail(k int) tail {
	t := make(tail, k+1)
	t[0] = 1
	return t
}

// add adds a member who succeeds with probability q.
func (t tail) add(q float64) {
	if q == 0 {
		return
	}
	k := len(t) - 1
	t[k] += t[k-1] * q
	for j := k - 1; j >= 1; j-- {
		t[j] = t[j]*(1-q) + t[j-1]*q
	}
	t[0] *= 1 - q
}

// reached returns the probability of k or more, without rounding errors above 1.
func (t tail) reached() float64 { return min(1, t[len(t)-1]) }

// tails returns the distribution on every day of the horizon.
func tails(members []chance, k, horizon int) []tail {
	days := make([]tail, horizon+1)
	for h := range days {
		days[h] = newTail(k)
		for _, m := range members {
			days[h].add(m.streak[h])
		}
	}
	return days
}

func curveOf(days []tail) []float64 {
	curve := make([]float64, len(days))
	for h, t := range days {
		curve[h] = t.reached()
	}
	return curve
}

// best returns the first day of the highest probability, and that probability.
func best(curve []float64) (day int, probability float64) {
	probability = slices.Max(curve)
	return slices.Index(curve, probability), probability
}

// maxAdditional limits the additional testers that are estimated.
const maxAdditional = 500

// additional returns how many more members like fresh are needed to reach the goal on some day; ok
// is false if [maxAdditional] are not enough. It modifies days.
func additional(days []tail, fresh chance, goal float64) (n int, ok bool) {
	for ; n <= maxAdditional; n++ {
		if _, p := best(curveOf(days)); p >= goal {
			return n, true
		}
		for h := range days {
			days[h].add(fresh.streak[h])
		}
	}
	return 0, false
}

// replaced returns, for each of independent members who succeed with the probabilities q, the
// probability of k or more successes if only that member succeeded with the probability instead.
// Its time and space are proportional to the members times k: it combines the distribution of the
// members before, accumulated forward, with that of the members after, accumulated backward.
func replaced(q, instead []float64, k int) []float64 {
	after := make([][]float64, len(q))
	behind := newTail(k)
	for i := len(q) - 1; i >= 0; i-- {
		after[i] = behind.atLeast()
		behind.add(q[i])
	}
	before, out := newTail(k), make([]float64, len(q))
	for i, p := range instead {
		out[i] = min(1, p*before.with(after[i], k-1)+(1-p)*before.with(after[i], k))
		before.add(q[i])
	}
	return out
}

// atLeast returns, by number, the probability that as many or more succeed.
func (t tail) atLeast() []float64 {
	sums := slices.Clone(t)
	for j := len(sums) - 2; j >= 0; j-- {
		sums[j] += sums[j+1]
	}
	return sums
}

// with returns the probability of n or more successes among these members and others, where
// others[i] is the probability of i or more successes among the others.
func (t tail) with(others []float64, n int) (p float64) {
	for j, exactly := range t {
		p += exactly * others[max(0, n-j)]
	}
	return p
}

// survival returns the probability that an opted-in member stays until the streak is as long as the
// window.
func survival(days, window int, hazard float64) float64 {
	return math.Pow(1-hazard, float64(max(0, window-days)))
}
