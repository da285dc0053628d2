package events

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
)

// TestMessageThatTwoEndpointsTakeAtOnceIsRemoved checks that the later of two concurrent deliveries
// removes the message.
func TestMessageThatTwoEndpointsTakeAtOnceIsRemoved(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	if err := dbs[0].Migrate(t.Context(), database.Migrations{Name: Name, FS: migrations}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	one, other := store{dbs[0]}, store{dbs[1]}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(one.insert(t.Context(), "msg_1", typeUserDeleted, "{}", []string{"ada"}, now))
	ok(one.insertDelivery(t.Context(), "a", "msg_1", StatePending, "", now))
	ok(one.insertDelivery(t.Context(), "b", "msg_1", StatePending, "", now))
	take := func(ctx context.Context, s store, endpoint string) error {
		return s.db.InTx(ctx, func(ctx context.Context) error {
			if err := s.settle(ctx, waiting{task: task{endpoint, "msg_1"}, updatedAt: now.UnixMilli()}, StateDelivered, 1, 204, "", now); err != nil {
				return err
			}
			return s.removeTold(ctx, "msg_1")
		})
	}
	second := make(chan error, 1)
	ok(dbs[0].InTx(t.Context(), func(ctx context.Context) error {
		if err := take(ctx, one, "a"); err != nil {
			return err
		}
		go func() { second <- take(t.Context(), other, "b") }()
		return databasetest.Waits(ctx, dbs[0], second)
	}))
	ok(<-second)
	if there, err := one.exists(t.Context(), "msg_1"); there || err != nil {
		t.Errorf("there %v, %v, want it removed", there, err)
	}
}

// TestPlayersErasedAtOnceLeaveNothing checks that of two concurrent erasures, the second, which
// read the match before the first removed its user from it, does not write that user back.
func TestPlayersErasedAtOnceLeaveNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if err := db.Migrate(ctx, database.Migrations{Name: Name, FS: migrations}); err != nil {
			t.Fatal(err)
		}
		e := &Events{host: capability.Host{DB: db}, store: store{db}}
		for id, match := range map[string]hooks.MatchEnded{
			"msg_1": {SessionID: "s", Game: "duel", Ranks: map[string]int{"ada": 1, "bob": 2}},
			"msg_2": {SessionID: "t", Game: "duel", Ranks: map[string]int{"ada": 1, "bob": 2, "eve": 3}},
		} {
			data, err := json.Marshal(match)
			if err == nil {
				err = e.store.insert(ctx, id, typeMatchEnded, string(data), slices.Collect(maps.Keys(match.Ranks)), time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		ada, bob := capability.Person{ID: "ada"}, capability.Person{ID: "bob"}
		if err := e.each(ctx, ada, func(list []message) error {
			if _, err := e.erase(ctx, bob); err != nil {
				return err
			}
			return db.InTx(ctx, func(ctx context.Context) error {
				for _, m := range list {
					if _, err := e.eraseOne(ctx, ada, m); err != nil {
						return err
					}
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		left, err := database.All(ctx, db, scanText, `SELECT data FROM events_message ORDER BY id`)
		if err != nil || len(left) != 1 || strings.Contains(left[0], "ada") || strings.Contains(left[0], "bob") || !strings.Contains(left[0], "eve") {
			t.Errorf("left are %q, %v, want eve's match alone", left, err)
		}
	})
}
