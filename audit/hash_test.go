package audit

import (
	"bytes"
	"context"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// TestHashFollowsFromTheStoredRow checks that the hash of every row can be computed from the row
// alone, and that the commitment matches the erasable row.
func TestHashFollowsFromTheStoredRow(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a, err := New(capability.Host{DB: db, Environment: "sandbox"}, Config{}, Peers{})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if err := db.Migrate(ctx, database.Migrations{Name: Name, FS: a.Capability().Migrations}); err != nil {
			t.Fatal(err)
		}
		requested := capability.WithRequestInfo(ctx, &capability.RequestInfo{RequestID: "r", IP: "203.0.113.7", UserAgent: "Firefox"})
		for _, ctx := range []context.Context{ctx, requested} {
			err := a.Record(ctx, Event{Action: "test/done", Subject: Target{"user", "ada"},
				Targets: []Target{{"user", "bob"}}, Outcome: OutcomeRefused, Code: "test/no", Detail: "für"})
			if err != nil {
				t.Fatal(err)
			}
		}
		entries, _, err := a.store.list(ctx, Filter{}, "", 10)
		if err != nil || len(entries) != 2 {
			t.Fatal(entries, err)
		}
		for _, e := range entries {
			var targets string
			var commitment []byte
			row := db.QueryRow(ctx, `SELECT targets, commitment FROM audit_event WHERE id = $1`, e.ID)
			if err := row.Scan(&targets, &commitment); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(e.Hash, contentHash(e, targets, commitment)) {
				t.Errorf("%s: the row does not hash to its hash", e.ID)
			}
			if e.IP == "" {
				if commitment != nil {
					t.Error("a commitment to nothing")
				}
				continue
			}
			who := personal{IP: e.IP, UserAgent: e.UserAgent}
			if err := db.QueryRow(ctx, `SELECT salt FROM audit_personal WHERE event_id = $1`, e.ID).Scan(&who.Salt); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(commitment, who.commitment()) {
				t.Error("the commitment does not open")
			}
		}
	})
}

func TestHashSeparatesFields(t *testing.T) {
	base := contentHash(Entry{Action: "a/bc", Code: ""}, "", nil)
	for name, other := range map[string][]byte{
		"moved boundary": contentHash(Entry{Action: "a/b", Actor: Actor{Kind: "c"}}, "", nil),
		"other field":    contentHash(Entry{Code: "a/bc"}, "", nil),
		"commitment":     contentHash(Entry{Action: "a/bc"}, "", make([]byte, 32)),
		"time":           contentHash(Entry{Action: "a/bc", OccurredAt: capability.Millis(1)}, "", nil),
	} {
		if bytes.Equal(base, other) {
			t.Errorf("%s: the hash does not tell them apart", name)
		}
	}
}
