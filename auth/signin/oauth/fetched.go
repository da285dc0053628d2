package oauth

import (
	"context"
	"sync"
	"time"
)

// How long documents of a provider are cached, and how soon they are fetched again.
const (
	fetchedFresh = time.Hour
	// fetchedStale is how long the last response is used while the provider is down.
	fetchedStale = 24 * time.Hour
	// fetchedPause is the interval between two requests if the response lacks something, such as a
	// key, whose id anybody can invent.
	fetchedPause = 30 * time.Second
	// fetchedRetry is the interval between two requests while they fail.
	fetchedRetry = 5 * time.Second
)

// fetched caches a value from the network. One request at a time fetches it for all callers that
// wait, and goes on if one of them is canceled. It is safe for concurrent use.
type fetched[T any] struct {
	now   func() time.Time
	fetch func(context.Context) (T, error)
	turn  chan struct{} // held by the one who fetches

	mu     sync.Mutex
	value  T
	at     time.Time // of value; zero: there is none
	asked  time.Time // when it was last asked for
	failed error     // its error
}

func newFetched[T any](now func() time.Time, fetch func(context.Context) (T, error)) *fetched[T] {
	return &fetched[T]{now: now, fetch: fetch, turn: make(chan struct{}, 1)}
}

// get returns the value. It fetches it again if it is old or enough returns false, unless it was
// fetched just now, so enough may be false for the returned value too.
func (f *fetched[T]) get(ctx context.Context, enough func(T) bool) (T, error) {
	if value, done, err := f.kept(enough); done {
		return value, err
	}
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	defer func() { <-f.turn }()
	if value, done, err := f.kept(enough); done {
		return value, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	value, err := f.fetch(ctx)

	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	f.asked, f.failed = now, err
	if err == nil {
		f.value, f.at = value, now
	}
	return f.last(now)
}

// kept returns the cached value or error; done is false if a request is needed.
func (f *fetched[T]) kept(enough func(T) bool) (value T, done bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if !f.at.IsZero() && within(now, f.at, fetchedFresh) && enough(f.value) {
		return f.value, true, nil
	}
	pause := fetchedPause
	if f.failed != nil {
		pause = fetchedRetry
	}
	if f.asked.IsZero() || !within(now, f.asked, pause) {
		return value, false, nil
	}
	value, err = f.last(now)
	return value, true, err
}

func (f *fetched[T]) last(now time.Time) (T, error) {
	if !f.at.IsZero() && within(now, f.at, fetchedStale) {
		return f.value, nil
	}
	var none T
	return none, f.failed
}

// within reports whether since is less than limit ago. It is false for a time in the future, so
// that a clock that jumped back does not keep a value forever.
func within(now, since time.Time, limit time.Duration) bool {
	age := now.Sub(since)
	return age >= 0 && age < limit
}
