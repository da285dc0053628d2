package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// TestHashesStand holds the hashes of the first release, which its trails have.
func TestHashesStand(t *testing.T) {
	const id = "01jnq3k5f80000000000000000"
	salt := make([]byte, 16)
	for i := range salt {
		salt[i] = byte(i)
	}
	commitment := personal{IP: "203.0.113.7", UserAgent: "Firefox", Salt: salt}.commitment()
	content := contentHash(Entry{
		ID: id, OccurredAt: capability.Millis(1700000000000), Action: "test/done", Actor: Actor{ActorControlPlane, "c1", "k1"},
		Subject: Target{"user", "ada"}, Outcome: OutcomeRefused, Code: "test/no", RequestID: "r1", Route: "POST /test/:id",
		Environment: capability.Sandbox, Detail: []byte(`"für"`),
	}, `[{"type":"user","id":"bob"}]`, commitment)
	got := []string{
		hex.EncodeToString(commitment), hex.EncodeToString(content),
		hex.EncodeToString(sealHash(3, 7, id, content, make([]byte, 32))),
	}
	if diff := cmp.Diff([]string{
		"5f23daa33b8204f478c91e772155e08960fba5e84f71070d1a323565e18e8c16",
		"478b58a6070b99e35c4e50dfa9bffb0026a2146b79a2e76a4c4d1d4683c526bc",
		"8d45c9ced0b72f1a6e02bdbef761fcf220254669a6a4119b18b7088f0aedd7ec",
	}, got); diff != "" {
		t.Error(diff)
	}
}
