package events

import (
	"context"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// The one that is behind removes it.
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
