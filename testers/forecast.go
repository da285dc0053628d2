package testers

import (
	"math"
	"slices"
)

// chance is what the model knows of one member: the probability, by days ahead,
// that the member has an unbroken streak of the window's length on that day.
type chance struct {
	streak []float64
	// present is the probability that the member is opted in on that day.
	present []float64
}

// optedIn is the chance of a member with a streak of days, today included, who
// leaves with a constant hazard a day.
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

// pending is the chance of a member who has not opted in and has been asked for
// a number of days: eventually the member opts in with probability ever, a day
// with hazard daily, and leaves with hazard post then.
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

// tail is the distribution of how many of independent members succeed, counted
// up to k: tail[k] is the probability of k or more.
type tail []float64

func newTail(k int) tail {
	t := make(tail, k+1)
	t[0] = 1
	return t
}

// add takes in a member who succeeds with probability q.
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

// reached is the probability of k or more, free of rounding above 1.
func (t tail) reached() float64 { return min(1, t[len(t)-1]) }

// tails counts the members for every day of the horizon.
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

// best returns the first day of the highest probability, and that.
func best(curve []float64) (day int, probability float64) {
	probability = slices.Max(curve)
	return slices.Index(curve, probability), probability
}

// maxAdditional bounds how many further testers are estimated.
const maxAdditional = 500

// additional counts how many members like fresh it takes until the goal is
// reached on some day; ok is false when [maxAdditional] do not do. It adds to days.
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

// replaced returns, for each of independent members who succeed with the
// probabilities q, the probability of k or more if that one alone succeeded with
// instead. Its time and space grow with the members times k: each is taken out
// between those before, counted on the way, and those after, counted ahead.
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

// atLeast returns, by number, the probability that so many or more succeed.
func (t tail) atLeast() []float64 {
	sums := slices.Clone(t)
	for j := len(sums) - 2; j >= 0; j-- {
		sums[j] += sums[j+1]
	}
	return sums
}

// with is the probability that n or more succeed of these members and of others,
// of whom so many or more succeed with the probability at that place.
func (t tail) with(others []float64, n int) (p float64) {
	for j, exactly := range t {
		p += exactly * others[max(0, n-j)]
	}
	return p
}

// survival is the probability that a member who is opted in stays until the
// streak is as long as the window.
func survival(days, window int, hazard float64) float64 {
	return math.Pow(1-hazard, float64(max(0, window-days)))
}
