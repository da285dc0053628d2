package matchmaking

import (
	"context"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
)

// The wrong codes that a user and an address may try within guessWindow; a whole school may share
// an address. With 10,000 live rooms one of 136,000 guesses is a valid code. The limits are per
// node, like all rate limits of the kit.
const (
	guessesPerUser    = 10
	guessesPerAddress = 60
	guessWindow       = time.Minute
	// maxGuessers bounds the memory of the counters.
	maxGuessers = 50_000
)

// guesses counts failures, and attempts under way, which may become failures: a user who joins by
// valid codes one after the other is never limited.
type guesses struct {
	now  func() time.Time
	mu   sync.Mutex
	made map[string]guessed
}

type guessed struct {
	since time.Time
	n     int
}

func newGuesses(now func() time.Time) *guesses {
	return &guesses{now: now, made: make(map[string]guessed)}
}

// guesser is a key that failures are counted for.
type guesser struct {
	key string
	max int
}

// guessers returns the user and, of a request, its address.
func guessers(ctx context.Context, userID string) []guesser {
	list := []guesser{{"user " + userID, guessesPerUser}}
	if o := capability.RequestInfoOf(ctx); o != nil && o.IP != "" {
		list = append(list, guesser{"address " + rate.AddressKey(o.IP), guessesPerAddress})
	}
	return list
}

// try counts a failure in advance, so that concurrent attempts do not exceed the limit, and refuses
// with kit/rate_limited after too many failures.
func (g *guesses) try(who []guesser) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for _, w := range who {
		if made := g.live(w.key, now); made.n >= w.max {
			return tooOften(guessWindow - now.Sub(made.since))
		}
	}
	for _, w := range who {
		made := g.live(w.key, now)
		if made.n == 0 {
			g.makeRoom(now)
			made.since = now
		}
		made.n++
		g.made[w.key] = made
	}
	return nil
}

// spare uncounts a failure that try has counted: the code was not wrong.
func (g *guesses) spare(who []guesser) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for _, w := range who {
		made := g.live(w.key, now)
		if made.n--; made.n > 0 {
			g.made[w.key] = made
		} else {
			delete(g.made, w.key)
		}
	}
}

func (g *guesses) live(key string, now time.Time) guessed {
	made := g.made[key]
	if now.Sub(made.since).Abs() >= guessWindow {
		return guessed{}
	}
	return made
}

// makeRoom removes the counters whose window has passed and, if that is not enough, all of them.
func (g *guesses) makeRoom(now time.Time) {
	if len(g.made) < maxGuessers {
		return
	}
	for key := range g.made {
		if g.live(key, now).n == 0 {
			delete(g.made, key)
		}
	}
	if len(g.made) >= maxGuessers {
		clear(g.made)
	}
}

// tooOften returns kit/rate_limited with how long to wait.
func tooOften(wait time.Duration) error {
	return capability.ErrRateLimited.With(Pause{max(wait.Milliseconds(), 1)})
}
