package events_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/kittest"
)

// slow is an endpoint that takes three seconds for its first message, and blocks further ones until
// release; full is closed when atOnce of them are blocked.
type slow struct {
	k             *kittest.Kit
	atOnce        int64
	calls         atomic.Int64
	release, full chan struct{}
}

func newSlow(atOnce int64) *slow {
	return &slow{atOnce: atOnce, release: make(chan struct{}), full: make(chan struct{})}
}

func (s *slow) serve(http.ResponseWriter, *http.Request) {
	switch s.calls.Add(1) {
	case 1:
		s.k.Clock.Advance(3 * time.Second)
		return
	case 1 + s.atOnce:
		close(s.full)
	}
	<-s.release
}

// runUntil runs the kit until reached is closed or twenty seconds have passed, reports whether it
// was closed, and closes release for the blocked requests.
func runUntil(t *testing.T, k *kittest.Kit, reached <-chan struct{}, release chan<- struct{}) (ok bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	select {
	case <-reached:
		ok = true
	case <-time.After(20 * time.Second):
	}
	close(release)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return ok
}

// TestSlowEndpointKeepsNoOtherWaiting checks that an endpoint that takes seconds for each message
// uses its share of the workers, not all.
func TestSlowEndpointKeepsNoOtherWaiting(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		const messages = 40
		s, all := newSlow(messages), make(chan struct{})
		var quick atomic.Int64
		other := served(t, "quick", func(http.ResponseWriter, *http.Request) {
			if quick.Add(1) == messages {
				close(all)
			}
		})
		s.k = compose(t, db, events.Config{Endpoints: []events.Endpoint{served(t, "slow", s.serve), other}, Timeout: time.Minute})
		create(t, s.k, "first")
		s.k.RunJobs()
		for i := range messages - 1 {
			create(t, s.k, fmt.Sprint("user", i))
		}
		if !runUntil(t, s.k, all, s.release) {
			t.Errorf("the quick endpoint was told of %d messages, want %d", quick.Load(), messages)
		}
	})
}

// TestSlowEndpointSharesWithSlowOnesAlone checks that only slow endpoints share the slow workers,
// however many fast ones there are.
func TestSlowEndpointSharesWithSlowOnesAlone(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		const atOnce = 8
		s := newSlow(atOnce)
		list := []events.Endpoint{served(t, "slow", s.serve)}
		for i := range atOnce {
			list = append(list, served(t, fmt.Sprint("quick", i), func(http.ResponseWriter, *http.Request) {}))
		}
		s.k = compose(t, db, events.Config{Endpoints: list, Timeout: time.Minute})
		create(t, s.k, "first")
		s.k.RunJobs()
		for i := range atOnce {
			create(t, s.k, fmt.Sprint("user", i))
		}
		if !runUntil(t, s.k, s.full, s.release) {
			t.Errorf("the slow endpoint was sent %d messages at once, want %d", s.calls.Load()-1, atOnce)
		}
	})
}

// TestSlownessEndsWithAClockThatGoesBack checks that an endpoint that was slow by a clock that was
// ahead is no longer slow once the clock is right.
func TestSlownessEndsWithAClockThatGoesBack(t *testing.T) {
	const atOnce = 9 // more than the workers for slow endpoints
	s := newSlow(atOnce)
	s.k = compose(t, databasetest.Memory(t), events.Config{Timeout: time.Minute, Endpoints: []events.Endpoint{served(t, "slow", s.serve)}})
	s.k.Clock.Advance(2 * time.Hour)
	create(t, s.k, "first")
	s.k.RunJobs()
	s.k.Clock.Advance(-2 * time.Hour)
	for i := range atOnce {
		create(t, s.k, fmt.Sprint("user", i))
	}
	if !runUntil(t, s.k, s.full, s.release) {
		t.Errorf("the endpoint was sent %d messages at once, want %d", s.calls.Load()-1, atOnce)
	}
}
