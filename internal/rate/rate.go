// Package rate limits how often a key may act: token buckets in memory, one
// set of buckets a node, bounded in number.
package rate

import (
	"hash/maphash"
	"sync"
	"time"
)

// Limit lets Events happen per Per, all of them at once if need be.
type Limit struct {
	Events int
	Per    time.Duration
}

// Valid reports whether the limit can ever admit anything.
func (l Limit) Valid() bool { return l.Events > 0 && l.Per > 0 }

const (
	shards = 32
	// perShard bounds the memory a flood of keys can take: about 100,000 buckets.
	perShard = 3_200
)

// Limiter holds the buckets of one limit.
type Limiter struct {
	limit  Limit
	now    func() time.Time
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

// New makes a limiter on a clock.
func New(limit Limit, now func() time.Time) *Limiter {
	l := &Limiter{limit: limit, now: now, seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].buckets = make(map[string]bucket)
	}
	return l
}

// Allow takes a token of the key's bucket; refused, it returns how long to wait.
func (l *Limiter) Allow(key string) (wait time.Duration, ok bool) {
	now := l.now()
	s := &l.shards[maphash.String(l.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	b, known := s.buckets[key]
	if !known {
		s.makeRoom(l, now)
		b = bucket{tokens: float64(l.limit.Events), at: now}
	}
	b = l.refill(b, now)
	if ok = b.tokens >= 1; ok {
		b.tokens--
	} else {
		wait = l.wait(b)
	}
	s.buckets[key] = b
	return wait, ok
}

// Wait returns how long the key must wait for a token, 0 when there is one, and
// takes none: for what is looked at before and counted with Allow after it has
// failed.
func (l *Limiter) Wait(key string) time.Duration {
	now := l.now()
	s := &l.shards[maphash.String(l.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	b, known := s.buckets[key]
	if !known {
		return 0
	}
	return l.wait(l.refill(b, now))
}

func (l *Limiter) wait(b bucket) time.Duration {
	return max(time.Duration((1-b.tokens)*float64(l.limit.Per)/float64(l.limit.Events)), 0)
}

func (l *Limiter) refill(b bucket, now time.Time) bucket {
	if passed := now.Sub(b.at); passed > 0 { // a clock that went back gives nothing
		b.tokens = min(float64(l.limit.Events), b.tokens+float64(passed)*float64(l.limit.Events)/float64(l.limit.Per))
	}
	b.at = now
	return b
}

// sample is how many buckets are looked at to make room for a new one.
const sample = 8

// makeRoom drops, of a few arbitrary buckets, the one that remembers least:
// a full bucket remembers nothing.
func (s *shard) makeRoom(l *Limiter, now time.Time) {
	if len(s.buckets) < perShard {
		return
	}
	seen, victim, most := 0, "", -1.0
	for key, b := range s.buckets {
		if tokens := l.refill(b, now).tokens; tokens > most {
			victim, most = key, tokens
		}
		if seen++; seen == sample {
			break
		}
	}
	delete(s.buckets, victim)
}
