package rate_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/internal/rate"
)

func TestBucket(t *testing.T) {
	now := time.Unix(1000, 0)
	l := rate.New(rate.Limit{Events: 2, Per: 10 * time.Second}, func() time.Time { return now })
	allow := func(key string, want bool) {
		t.Helper()
		wait, ok := l.Allow(key)
		if ok != want {
			t.Fatalf("Allow(%s) = %v", key, ok)
		}
		if !ok && (wait <= 0 || wait > 5*time.Second) {
			t.Fatalf("wait %v", wait)
		}
	}
	allow("a", true)
	allow("a", true)
	allow("a", false)
	allow("b", true) // another key has a bucket of its own
	now = now.Add(5 * time.Second)
	allow("a", true)
	allow("a", false)
	now = now.Add(-time.Hour) // a clock that goes back gives nothing and takes nothing
	allow("a", false)
	now = now.Add(100 * time.Hour)
	allow("a", true)
	allow("a", true)
	allow("a", false)
}

func TestFloodOfKeysIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	l := rate.New(rate.Limit{Events: 1, Per: time.Hour}, func() time.Time { return now })
	for i := range 300_000 {
		l.Allow(strconv.Itoa(i))
	}
	if n := rate.Buckets(l); n > 110_000 {
		t.Errorf("%d buckets", n)
	}
}

func TestRacingCallersShareOneBucket(t *testing.T) {
	now := time.Unix(1000, 0)
	l := rate.New(rate.Limit{Events: 10, Per: time.Hour}, func() time.Time { return now })
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, ok := l.Allow("k"); ok {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 10 {
		t.Errorf("admitted %d of 10", admitted.Load())
	}
}

// Looking takes nothing and remembers nothing.
func TestWait(t *testing.T) {
	now := time.Unix(1000, 0)
	l := rate.New(rate.Limit{Events: 1, Per: 10 * time.Second}, func() time.Time { return now })
	for range 3 {
		if wait := l.Wait("a"); wait != 0 {
			t.Errorf("full, and yet wait %v", wait)
		}
	}
	if n := rate.Buckets(l); n != 0 {
		t.Errorf("%d buckets", n)
	}
	l.Allow("a")
	if wait := l.Wait("a"); wait != 10*time.Second {
		t.Errorf("wait %v", wait)
	}
	now = now.Add(4 * time.Second)
	if wait := l.Wait("a"); wait != 6*time.Second {
		t.Errorf("wait %v", wait)
	}
	now = now.Add(6 * time.Second)
	if wait := l.Wait("a"); wait != 0 {
		t.Errorf("wait %v", wait)
	}
}
