package events

import (
	"testing"
	"time"
)

func TestBacklogOfAnEndpointThatIsDownComesBackSpreadOverTime(t *testing.T) {
	now := time.Now()
	down := endpoint{pause: now.Add(pauseAfter)}
	const backlog, seconds = 12_000, int(turnsWithin / time.Second)
	var due [seconds + 1]int
	for range backlog {
		wait := down.begin(now, 1)
		if wait < pauseAfter || wait > turnsWithin {
			t.Fatalf("one waits for %v, want %v to %v", wait, pauseAfter, turnsWithin)
		}
		due[wait/time.Second]++
	}
	for second, n := range due {
		if n > 3*backlog/seconds {
			t.Errorf("%d of %d come back in second %d", n, backlog, second)
		}
	}
	if few := (&endpoint{pause: now.Add(pauseAfter)}).begin(now, 1); few != pauseAfter {
		t.Errorf("a single one waits for %v, want %v", few, pauseAfter)
	}
	if wait := down.begin(now.Add(-time.Hour), 1); wait > turnsWithin {
		t.Errorf("after the clock went back one waits for %v", wait)
	}
}
