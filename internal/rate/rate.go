// Package rate limits how often a key may act: token buckets in memory, one
// set of buckets a node, bounded in number.
package rate

import (
	"hash/maphash"
	"sync"
	"time"
)

// Limit allows Events in each Per, possibly all at once.
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
	buckets map[string]Bucket
}

// Bucket holds the tokens of one key, for a caller that keeps it itself and uses it from one
// goroutine at a time. It starts as [Limit.Full].
type Bucket struct {
	tokens float64
	at     time.Time
}

// Full returns a bucket from which no token was taken.
func (l Limit) Full(now time.Time) Bucket { return Bucket{tokens: float64(l.Events), at: now} }

// Take takes a token; refused, it returns how long to wait.
func (b *Bucket) Take(l Limit, now time.Time) (wait time.Duration, ok bool) {
	b.refill(l, now)
	if b.tokens < 1 {
		return b.wait(l), false
	}
	b.tokens--
	return 0, true
}

func (b *Bucket) wait(l Limit) time.Duration {
	return max(time.Duration((1-b.tokens)*float64(l.Per)/float64(l.Events)), 0)
}

func (b *Bucket) refill(l Limit, now time.Time) {
	if passed := now.Sub(b.at); passed > 0 { // a clock that went back adds no tokens
		b.tokens = min(float64(l.Events), b.tokens+float64(passed)*float64(l.Events)/float64(l.Per))
	}
	b.at = now
}

// New returns a limiter that uses the clock now.
func New(limit Limit, now func() time.Time) *Limiter {
	l := &Limiter{limit: limit, now: now, seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].buckets = make(map[string]Bucket)
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
		b = l.limit.Full(now)
	}
	wait, ok = b.Take(l.limit, now)
	s.buckets[key] = b
	return wait, ok
}

// Wait returns how long the key must wait for a token, 0 when there is one, and takes none. It is
// for attempts that count, by Allow, only once they have failed.
func (l *Limiter) Wait(key string) time.Duration {
	now := l.now()
	s := &l.shards[maphash.String(l.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	b, known := s.buckets[key]
	if !known {
		return 0
	}
	b.refill(l.limit, now)
	return b.wait(l.limit)
}

// sample is how many buckets are examined to make room for a new one.
const sample = 8

// makeRoom drops, of a few arbitrary buckets, the one that remembers least:
// a full bucket remembers nothing.
func (s *shard) makeRoom(l *Limiter, now time.Time) {
	if len(s.buckets) < perShard {
		return
	}
	seen, victim, most := 0, "", -1.0
	for key, b := range s.buckets {
		if b.refill(l.limit, now); b.tokens > most {
			victim, most = key, b.tokens
		}
		if seen++; seen == sample {
			break
		}
	}
	delete(s.buckets, victim)
}
