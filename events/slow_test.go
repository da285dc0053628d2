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

// runUntil runs the kit until reached is closed, which it reports, or twenty seconds
// have passed, and lets the endpoints that wait for release go on.
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

// An endpoint that takes seconds for each message has its share of the workers, not all.
func TestSlowEndpointKeepsNoOtherWaiting(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		const messages = 40
		var k *kittest.Kit
		var calls atomic.Int64
		release, all := make(chan struct{}), make(chan struct{})
		slow := served(t, "slow", func(http.ResponseWriter, *http.Request) {
			if calls.Add(1) == 1 {
				k.Clock.Advance(3 * time.Second)
			} else {
				<-release
			}
		})
		var quick atomic.Int64
		other := served(t, "quick", func(http.ResponseWriter, *http.Request) {
			if quick.Add(1) == messages {
				close(all)
			}
		})
		k = compose(t, db, events.Config{Endpoints: []events.Endpoint{slow, other}, Timeout: time.Minute})
		create(t, k, "first")
		k.RunJobs()
		for i := range messages - 1 {
			create(t, k, fmt.Sprint("user", i))
		}
		if !runUntil(t, k, all, release) {
			t.Errorf("the quick endpoint was told of %d messages, want %d", quick.Load(), messages)
		}
	})
}

// The share is of what slow endpoints take, however many quick ones there are.
func TestSlowEndpointSharesWithSlowOnesAlone(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		const atOnce = 8
		var k *kittest.Kit
		var calls atomic.Int64
		release, all := make(chan struct{}), make(chan struct{})
		list := []events.Endpoint{served(t, "slow", func(http.ResponseWriter, *http.Request) {
			switch calls.Add(1) {
			case 1:
				k.Clock.Advance(3 * time.Second)
				return
			case 1 + atOnce:
				close(all)
			}
			<-release
		})}
		for i := range atOnce {
			list = append(list, served(t, fmt.Sprint("quick", i), func(http.ResponseWriter, *http.Request) {}))
		}
		k = compose(t, db, events.Config{Endpoints: list, Timeout: time.Minute})
		create(t, k, "first")
		k.RunJobs()
		for i := range atOnce {
			create(t, k, fmt.Sprint("user", i))
		}
		if !runUntil(t, k, all, release) {
			t.Errorf("the slow endpoint was sent %d messages at once, want %d", calls.Load()-1, atOnce)
		}
	})
}

// An endpoint that was slow by a clock that was ahead has the workers again once the
// clock is right.
func TestSlownessEndsWithAClockThatGoesBack(t *testing.T) {
	const atOnce = 9 // more than slow endpoints have
	var k *kittest.Kit
	var calls atomic.Int64
	release, all := make(chan struct{}), make(chan struct{})
	k = compose(t, databasetest.Memory(t), events.Config{Timeout: time.Minute, Endpoints: []events.Endpoint{
		served(t, "slow", func(http.ResponseWriter, *http.Request) {
			switch calls.Add(1) {
			case 1:
				k.Clock.Advance(3 * time.Second)
				return
			case 1 + atOnce:
				close(all)
			}
			<-release
		})}})
	k.Clock.Advance(2 * time.Hour)
	create(t, k, "first")
	k.RunJobs()
	k.Clock.Advance(-2 * time.Hour)
	for i := range atOnce {
		create(t, k, fmt.Sprint("user", i))
	}
	if !runUntil(t, k, all, release) {
		t.Errorf("the endpoint was sent %d messages at once, want %d", calls.Load()-1, atOnce)
	}
}
