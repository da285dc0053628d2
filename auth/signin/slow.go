package signin

import (
	"context"
	"sync"
	"time"

	"github.com/kitbackend/kit/internal/wait"
)

// Bounds of the guesses that wait: beyond the budget of strangers, a guess at an
// account is not refused but slowed down, one at a time for each network.
const (
	slowLeast = 2 * time.Second
	slowStep  = 250 * time.Millisecond
	slowMost  = 10 * time.Second
	slowAtAll = 512
)

// slowLane holds guesses at accounts that many strangers guess at.
type slowLane struct {
	pause func(ctx context.Context, d time.Duration) error

	mu       sync.Mutex
	accounts map[string]int
	places   map[string]bool
	waiting  int
}

func newSlowLane() *slowLane {
	return &slowLane{pause: wait.For, accounts: make(map[string]int), places: make(map[string]bool)}
}

// wait delays a guess, the longer the more guesses there are at the account. It returns false if
// the network has one waiting already, or if too many wait in all.
func (s *slowLane) wait(ctx context.Context, account, network string) (ok bool, err error) {
	place := account + "\x00" + network
	s.mu.Lock()
	if s.places[place] || s.waiting >= slowAtAll {
		s.mu.Unlock()
		return false, nil
	}
	delay := min(slowLeast+time.Duration(s.accounts[account])*slowStep, slowMost)
	s.places[place] = true
	s.accounts[account]++
	s.waiting++
	s.mu.Unlock()
	err = s.pause(ctx, delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.places, place)
	if s.accounts[account]--; s.accounts[account] == 0 {
		delete(s.accounts, account)
	}
	s.waiting--
	return err == nil, err
}
