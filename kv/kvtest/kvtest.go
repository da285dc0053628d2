// Package kvtest is the test suite of implementations of kv.Store.
package kvtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/kv"
)

// Run tests a store against the rules of package kv. open returns an empty store that reads the
// time from now; if it returns several, they are nodes of one store.
func Run(t *testing.T, open func(t *testing.T, now func() time.Time) []kv.Store) {
	t.Run("entries", func(t *testing.T) { entries(t, open) })
	t.Run("expiry", func(t *testing.T) { expiry(t, open) })
	t.Run("bounds", func(t *testing.T) { bounds(t, open) })
	t.Run("race", func(t *testing.T) { race(t, open) })
}

type opener = func(t *testing.T, now func() time.Time) []kv.Store

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func entries(t *testing.T, open opener) {
	ctx := t.Context()
	stores := open(t, func() time.Time { return start })
	s, other := stores[0], stores[len(stores)-1]
	wantAbsent(t, s, "a")
	must(t, s.Put(ctx, "a", []byte("1"), time.Minute))
	must(t, s.Put(ctx, "a", []byte("2"), time.Minute))
	wantValue(t, other, "a", "2")
	if stored, err := other.PutIfAbsent(ctx, "a", []byte("3"), time.Minute); stored || err != nil {
		t.Errorf("PutIfAbsent of a taken key: %v, %v", stored, err)
	}
	wantValue(t, s, "a", "2")
	if stored, err := s.PutIfAbsent(ctx, "b", nil, time.Minute); !stored || err != nil {
		t.Errorf("PutIfAbsent of a free key: %v, %v", stored, err)
	}
	wantValue(t, s, "b", "")
	must(t, s.Delete(ctx, "a"))
	must(t, s.Delete(ctx, "a"))
	wantAbsent(t, other, "a")
}

// expiry checks that an entry expires exactly when its time is over, whatever was swept meanwhile.
func expiry(t *testing.T, open opener) {
	ctx, now := t.Context(), start
	s := open(t, func() time.Time { return now })[0]
	must(t, s.Put(ctx, "a", []byte("1"), time.Minute))
	now = start.Add(time.Minute - time.Millisecond)
	wantValue(t, s, "a", "1")
	if stored, err := s.PutIfAbsent(ctx, "a", []byte("2"), time.Minute); stored || err != nil {
		t.Errorf("a millisecond before the end: %v, %v", stored, err)
	}
	now = start.Add(time.Minute)
	wantAbsent(t, s, "a")
	if stored, err := s.PutIfAbsent(ctx, "a", []byte("3"), time.Minute); !stored || err != nil {
		t.Errorf("at the end: %v, %v", stored, err)
	}
	wantValue(t, s, "a", "3")
	for i := range 5 {
		now = now.Add(10 * time.Second)
		must(t, s.Put(ctx, "other", []byte{byte(i)}, time.Minute))
	}
	wantValue(t, s, "a", "3")
}

func bounds(t *testing.T, open opener) {
	ctx := t.Context()
	s := open(t, func() time.Time { return start })[0]
	for name, tt := range map[string]struct {
		key   string
		value []byte
		ttl   time.Duration
		want  error
	}{
		"longest key":    {strings.Repeat("k", kv.MaxKey), nil, time.Second, nil},
		"largest value":  {"k", make([]byte, kv.MaxValue), time.Second, nil},
		"no key":         {"", nil, time.Second, kv.ErrKey},
		"key too long":   {strings.Repeat("k", kv.MaxKey+1), nil, time.Second, kv.ErrKey},
		"value too long": {"k", make([]byte, kv.MaxValue+1), time.Second, kv.ErrValue},
		"no life":        {"k", nil, 0, kv.ErrTTL},
	} {
		if err := s.Put(ctx, tt.key, tt.value, tt.ttl); !errors.Is(err, tt.want) {
			t.Errorf("Put, %s: %v", name, err)
		}
		if _, err := s.PutIfAbsent(ctx, tt.key, tt.value, tt.ttl); !errors.Is(err, tt.want) {
			t.Errorf("PutIfAbsent, %s: %v", name, err)
		}
	}
}

// race checks that one of 64 concurrent calls succeeds, if the store is atomic.
func race(t *testing.T, open opener) {
	stores := open(t, func() time.Time { return start })
	if !stores[0].Atomic() {
		t.Skip("the store does not claim it")
	}
	var wins atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			stored, err := stores[i%len(stores)].PutIfAbsent(context.Background(), "one", []byte{byte(i)}, time.Minute)
			if err != nil {
				t.Error(err)
			}
			if stored {
				wins.Add(1)
			}
		})
	}
	wg.Wait()
	if n := wins.Load(); n != 1 {
		t.Errorf("%d winners", n)
	}
}

func wantValue(t *testing.T, s kv.Store, key, want string) {
	t.Helper()
	value, ok, err := s.Get(t.Context(), key)
	if diff := cmp.Diff(want, string(value)); diff != "" || !ok || err != nil {
		t.Errorf("%s: %v %v %s", key, ok, err, diff)
	}
}

func wantAbsent(t *testing.T, s kv.Store, key string) {
	t.Helper()
	if value, ok, err := s.Get(t.Context(), key); ok || err != nil {
		t.Errorf("%s: %q %v %v, want none", key, value, ok, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
