package events_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/kittest"
)

// served is an endpoint with a handler.
func served(t *testing.T, name string, handler http.HandlerFunc) events.Endpoint {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return events.Endpoint{Name: name, URL: server.URL, Secret: secret, Private: true, Events: []string{"user.created"}}
}

func TestDeliveryUnderWayDoesNotTurnAnEndpointOnAgain(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var k *kittest.Kit
		to := served(t, "crm", func(w http.ResponseWriter, _ *http.Request) {
			if err := k.Events().Disable(context.Background(), "crm", "it leaks"); err != nil {
				t.Error(err)
			}
		})
		k = compose(t, db, events.Config{Endpoints: []events.Endpoint{to}})
		create(t, k, "ada")
		k.RunJobs()
		if s := status(t, k); s.DisabledAt.IsZero() || s.Reason != "it leaks" || s.Pending != 0 {
			t.Errorf("%+v, want it disabled as the operator said", s)
		}
	})
}

// told is a log handler that calls f when a message is logged.
type told struct {
	slog.Handler
	message string
	f       func()
}

func (h told) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.f()
	}
	return h.Handler.Handle(ctx, r)
}

func (h told) WithAttrs([]slog.Attr) slog.Handler { return h }

// TestReplayMeetsTheJobOfTheFailedDelivery calls Replay while the job of the failed delivery still
// runs.
func TestReplayMeetsTheJobOfTheFailedDelivery(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t, 410)
		var k *kittest.Kit
		log := told{slog.NewTextHandler(io.Discard, nil), "events: endpoint disabled; fix it, then call Enable and Replay", func() {
			if err := k.Events().Enable(context.Background(), "crm"); err != nil {
				t.Error(err)
			}
			if n, err := k.Events().Replay(context.Background(), "crm", time.Time{}); n != 1 || err != nil {
				t.Errorf("replayed %d, %v", n, err)
			}
		}}
		k = compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}}, kit.WithLogger(slog.New(log)))
		create(t, k, "ada")
		k.RunJobs()
		k.Clock.Advance(time.Minute)
		k.RunJobs()
		if s := status(t, k); r.calls() != 2 || s.Pending != 0 || s.Failed != 0 {
			t.Errorf("%d calls, %+v, want it delivered", r.calls(), s)
		}
	})
}

func TestResendDoesNotWaitForTheNextAttempt(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t, 500, 500, 500)
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}})
		create(t, k, "ada")
		for range 3 {
			k.RunJobs()
			k.Clock.Advance(10 * time.Minute) // the next one is due in half an hour
		}
		if ok, err := k.Events().Resend(t.Context(), "crm", r.last().id); !ok || err != nil {
			t.Error(ok, err)
		}
		if k.RunJobs(); r.calls() != 4 || status(t, k).Pending != 0 {
			t.Errorf("%d calls, want the fourth", r.calls())
		}
	})
}

// TestResendDuringTheLastAttemptIsAnotherDelivery checks that the result of an attempt during which
// Resend was called does not count for the new delivery, even if it was the last attempt.
func TestResendDuringTheLastAttemptIsAnotherDelivery(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var k *kittest.Kit
		var calls int
		to := served(t, "crm", func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls > events.Attempts {
				return
			}
			if calls == events.Attempts {
				if ok, err := k.Events().Resend(context.Background(), "crm", r.Header.Get("Webhook-Id")); !ok || err != nil {
					t.Error(ok, err)
				}
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		k = compose(t, db, events.Config{Endpoints: []events.Endpoint{to}, DisableAfter: 30 * 24 * time.Hour})
		create(t, k, "ada")
		for range events.Attempts {
			k.RunJobs()
			k.Clock.Advance(30 * time.Hour)
		}
		k.RunJobs()
		if s := status(t, k); calls != events.Attempts+1 || s.Pending != 0 || s.Failed != 0 {
			t.Errorf("%d calls, %+v, want one more, which takes it", calls, s)
		}
	})
}

// TestAttemptThatEndsBehindAResentOneLeavesItDelivered checks that an attempt that ends after the
// resent one does not change its result.
func TestAttemptThatEndsBehindAResentOneLeavesItDelivered(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var k *kittest.Kit
		var calls atomic.Int64
		ended := make(chan struct{})
		list := func() []events.Delivery {
			page, err := k.Events().ListDeliveries(context.Background(), events.DeliveryFilter{Endpoint: "crm"}, capability.NewPage(0, ""))
			if err != nil {
				t.Error(err)
			}
			return page.Items
		}
		to := served(t, "crm", func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) > 1 {
				return
			}
			defer close(ended)
			if ok, err := k.Events().Resend(context.Background(), "crm", r.Header.Get("Webhook-Id")); !ok || err != nil {
				t.Error(ok, err)
			}
			for late := time.Now().Add(20 * time.Second); time.Now().Before(late); {
				if l := list(); len(l) == 1 && l[0].State == events.StateDelivered {
					break
				}
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		k = compose(t, db, events.Config{Endpoints: []events.Endpoint{to}, Timeout: time.Minute})
		create(t, k, "ada")
		ctx, stop := context.WithCancel(t.Context())
		run := make(chan error, 1)
		go func() { run <- k.Run(ctx) }()
		<-ended
		k.Clock.Advance(time.Hour)
		k.RunJobs()
		stop()
		if err := <-run; err != nil {
			t.Error(err)
		}
		k.RunJobs()
		if l := list(); calls.Load() != 2 || len(l) != 1 || l[0].State != events.StateDelivered {
			t.Errorf("%d calls, %+v, want it delivered", calls.Load(), l)
		}
	})
}
