package pubsub_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/pubsub"
	"github.com/kitbackend/kit/pubsub/pubsubtest"
)

func TestMemory(t *testing.T) {
	pubsubtest.Run(t, func(t *testing.T) (a, b *pubsub.Bus, db *database.DB) {
		bus := pubsub.NewMemory()
		return bus, bus, databasetest.Memory(t)
	})
}

func TestPostgres(t *testing.T) {
	pubsubtest.Run(t, func(t *testing.T) (a, b *pubsub.Bus, db *database.DB) {
		dbs := databasetest.Shared(t, 2)
		return node(t, dbs[0]), node(t, dbs[1]), dbs[0]
	})
}

// node returns a node that is connected.
func node(t *testing.T, db *database.DB) *pubsub.Bus {
	t.Helper()
	bus := pubsub.NewPostgres(db, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = bus.Close() })
	pubsubtest.Subscribe(t, bus, "connected").WantMissed(t)
	return bus
}

func TestPostgresBurstCostsFewTransactions(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	a, b := node(t, dbs[0]), node(t, dbs[1])
	inbox := pubsubtest.Subscribe(t, b, "topic")
	transactions := pubsub.CountTransactions(a)
	const hints = 1000 // fewer than the queue of a subscription
	for i := range hints {
		if err := a.Publish(t.Context(), "topic", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range hints {
		inbox.Want(t, fmt.Sprint(i))
	}
	if n := transactions.Load(); n > hints/20 {
		t.Errorf("%d hints cost %d transactions", hints, n)
	} else {
		t.Logf("%d hints cost %d transactions", hints, n)
	}
}

// TestPostgresReconnect checks that a node that lost its connection is notified and receives hints
// again.
func TestPostgresReconnect(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	a, b := node(t, dbs[0]), node(t, dbs[1])
	inbox := pubsubtest.Subscribe(t, b, "topic")
	var ended int
	if err := dbs[0].QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE query LIKE 'LISTEN%' || (SELECT left(encode(sha256(convert_to(current_schema(), 'UTF8')), 'hex'), 16)) || '%'`).
		Scan(&ended); err != nil || ended != 2 {
		t.Fatalf("%d connections ended, %v", ended, err)
	}
	inbox.WantMissed(t)
	if err := a.Publish(t.Context(), "topic", []byte("again")); err != nil {
		t.Fatal(err)
	}
	inbox.Want(t, "again")
}

// TestPostgresFailedSend checks that hints that could not be sent are reported as missed once
// sending works again.
func TestPostgresFailedSend(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	a, b := node(t, dbs[0]), node(t, dbs[1])
	here, there := pubsubtest.Subscribe(t, a, "topic"), pubsubtest.Subscribe(t, b, "topic")
	pubsub.FailOnce(a)
	if err := a.Publish(t.Context(), "topic", []byte("lost")); err != nil {
		t.Fatal(err)
	}
	here.Want(t, "lost")
	there.WantMissed(t)
	if err := a.Publish(t.Context(), "topic", []byte("sent")); err != nil {
		t.Fatal(err)
	}
	there.Want(t, "sent")
}

// TestPostgresForeignNotification checks that notifications of other programs on the channel are
// not trusted.
func TestPostgresForeignNotification(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	a, b := node(t, dbs[0]), node(t, dbs[1])
	inbox := pubsubtest.Subscribe(t, b, "topic")
	if _, err := dbs[0].Exec(t.Context(), `SELECT pg_notify('kit_' || left(encode(sha256(convert_to(current_schema(), 'UTF8')), 'hex'), 16), $1)`,
		`{"t": 5`); err != nil {
		t.Fatal(err)
	}
	if err := a.Publish(t.Context(), "topic", []byte("1")); err != nil {
		t.Fatal(err)
	}
	inbox.Want(t, "1")
}

// TestPostgresSchemasAreApart checks that deployments in different schemas of one database are
// separate.
func TestPostgresSchemasAreApart(t *testing.T) {
	a, b := node(t, databasetest.Postgres(t)), node(t, databasetest.Postgres(t))
	inbox := pubsubtest.Subscribe(t, b, "topic")
	for _, bus := range []*pubsub.Bus{a, b} {
		if err := bus.Publish(t.Context(), "topic", nil); err != nil {
			t.Fatal(err)
		}
	}
	inbox.Want(t, "")
	if err := b.Publish(t.Context(), "topic", []byte("own")); err != nil {
		t.Fatal(err)
	}
	inbox.Want(t, "own")
}
