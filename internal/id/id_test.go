package id_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/internal/id"
)

func TestIdentifiersSortAsDrawn(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var ids []string
	for _, step := range []time.Duration{0, 0, 0, time.Millisecond, -time.Hour, 0, time.Hour, time.Millisecond} {
		now = now.Add(step)
		for range 1000 {
			ids = append(ids, id.New(now))
		}
	}
	if !slices.IsSorted(ids) {
		t.Error("not in the order they were drawn")
	}
	for _, one := range ids {
		if len(one) != id.Len || strings.Trim(one, "0123456789abcdefghjkmnpqrstvwxyz") != "" {
			t.Fatalf("%q", one)
		}
	}
}

func TestRacingDrawsDiffer(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[string]bool)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				one := id.New(time.UnixMilli(1))
				mu.Lock()
				if seen[one] {
					t.Errorf("%s twice", one)
				}
				seen[one] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func BenchmarkNew(b *testing.B) {
	now := time.Now()
	for b.Loop() {
		id.New(now)
	}
}
