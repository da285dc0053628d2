package audit

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/seal"
)

// trail is an audit with a clock of its own.
type trail struct {
	*Audit
	t   testing.TB
	db  *database.DB
	now time.Time
}

func masterKeys(t testing.TB, fill string) *seal.Keys {
	t.Helper()
	text := fill + ":" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
	keys, err := seal.Load(capability.Production, func(string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func sealing(keys *seal.Keys) func() (capability.Sealer, error) {
	return func() (capability.Sealer, error) { return keys, nil }
}

func newTrail(t testing.TB, db *database.DB) *trail {
	t.Helper()
	tr := &trail{t: t, db: db, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	db.UseClock(func() time.Time { return tr.now })
	host := capability.Host{DB: db, Environment: "test", Log: slog.New(slog.DiscardHandler), Sealing: sealing(masterKeys(t, "k"))}
	a, err := New(host, Config{}, Peers{})
	if err != nil {
		t.Fatal(err)
	}
	tr.Audit = a
	if err := db.Migrate(context.Background(), database.Migrations{Name: Name, FS: a.Capability().Migrations}); err != nil {
		t.Fatal(err)
	}
	return tr
}

// record writes events about one subject, so that they are in one chain.
func (tr *trail) record(n int) {
	tr.t.Helper()
	for i := range n {
		ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{
			Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: "ada"}, IP: "203.0.113.7", UserAgent: "Firefox"})
		if err := tr.Record(ctx, Event{Action: "test/done", Subject: Target{"board", "weekly"}, Detail: i}); err != nil {
			tr.t.Fatal(err)
		}
	}
}

func (tr *trail) seal() {
	tr.t.Helper()
	if _, err := tr.Seal(context.Background()); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trail) exec(query string, args ...any) int64 {
	tr.t.Helper()
	n, err := tr.db.Exec(context.Background(), query, args...)
	if err != nil {
		tr.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// disarm drops every trigger, as the owner of the tables can.
func (tr *trail) disarm() {
	tr.t.Helper()
	if tr.db.Dialect() == database.PostgreSQL {
		for _, table := range []string{"audit_event", "audit_seal", "audit_checkpoint", "audit_checkpoint_head", "audit_cut", "audit_cut_proof"} {
			tr.exec(`ALTER TABLE ` + table + ` DISABLE TRIGGER USER`)
		}
		return
	}
	names, err := database.All(context.Background(), tr.db, scanText, `SELECT name FROM sqlite_master WHERE type = 'trigger'`)
	if err != nil {
		tr.t.Fatal(err)
	}
	for _, name := range names {
		tr.exec(`DROP TRIGGER ` + name)
	}
}

// links returns the whole chain of the events of record.
func (tr *trail) links() (shard int64, links []link) {
	tr.t.Helper()
	ctx := context.Background()
	if err := tr.db.QueryRow(ctx, `SELECT max(shard) FROM audit_seal`).Scan(&shard); err != nil {
		tr.t.Fatal(err)
	}
	links, err := tr.store.chain(ctx, shard, 0, forever, 1000)
	if err != nil {
		tr.t.Fatal(err)
	}
	return shard, links
}

// rewrite recomputes the chain over the remaining events, including the head, as somebody who knows
// this package can.
func (tr *trail) rewrite() {
	tr.t.Helper()
	shard, links := tr.links()
	tr.exec(`DELETE FROM audit_seal`)
	last := Head{Shard: shard, Hash: make([]byte, 32)}
	for _, l := range links {
		records, err := tr.store.records(context.Background(), []string{l.eventID})
		if err != nil {
			tr.t.Fatal(err)
		}
		e, found := records[l.eventID]
		if !found {
			continue
		}
		e.Hash = contentHash(e.Entry, e.targets, e.commitment)
		tr.exec(`UPDATE audit_event SET hash = $2 WHERE id = $1`, e.ID, e.Hash)
		next := sealHash(shard, last.Seq+1, e.ID, e.Hash, last.Hash)
		tr.exec(`INSERT INTO audit_seal (shard, seq, event_id, prev, hash) VALUES ($1, $2, $3, $4, $5)`,
			shard, last.Seq+1, e.ID, last.Hash, next)
		last.Seq, last.Hash = last.Seq+1, next
	}
	tr.exec(`UPDATE audit_shard SET seq = $2, hash = $3 WHERE shard = $1`, shard, last.Seq, last.Hash)
}

func (tr *trail) verify() Report {
	tr.t.Helper()
	report, err := tr.Verify(context.Background())
	if err != nil {
		tr.t.Fatal(err)
	}
	return report
}

func (tr *trail) wantSound(want Report) {
	tr.t.Helper()
	if diff := cmp.Diff(want, tr.verify()); diff != "" {
		tr.t.Error(diff)
	}
}

func TestVerifyNamesTheBreak(t *testing.T) {
	const forge = `UPDATE audit_event SET detail = '"forged"' WHERE id = $1`
	hash := strings.Repeat("h", 32)
	tests := map[string]struct {
		plant func(tr *trail, links []link)
		kind  BreakKind
		// seq is the number of the break if it is in a chain.
		seq int64
	}{
		"altered event": {func(tr *trail, l []link) { tr.exec(forge, l[2].eventID) }, BreakAltered, 3},
		"altered time": {func(tr *trail, l []link) {
			tr.exec(`UPDATE audit_event SET occurred_at = occurred_at - 1 WHERE id = $1`, l[2].eventID)
		}, BreakAltered, 3},
		"altered to no JSON": {func(tr *trail, l []link) {
			tr.exec(`UPDATE audit_event SET detail = '{', targets = '[' WHERE id = $1`, l[0].eventID)
		}, BreakAltered, 1},
		"altered with its hash": {func(tr *trail, l []link) {
			tr.exec(forge, l[2].eventID)
			records, err := tr.store.records(context.Background(), []string{l[2].eventID})
			if err != nil {
				tr.t.Fatal(err)
			}
			e := records[l[2].eventID]
			tr.exec(`UPDATE audit_event SET hash = $2 WHERE id = $1`, e.ID, contentHash(e.Entry, e.targets, e.commitment))
		}, BreakAltered, 3},
		"altered with the whole chain": {func(tr *trail, l []link) {
			tr.exec(forge, l[2].eventID)
			tr.rewrite()
		}, BreakCheckpoint, 0},
		"altered personal data": {func(tr *trail, l []link) {
			tr.exec(`UPDATE audit_personal SET ip = '198.51.100.1' WHERE event_id = $1`, l[1].eventID)
		}, BreakAltered, 2},
		"invented personal data": {func(tr *trail, _ []link) {
			if err := tr.Record(context.Background(), Event{Action: "test/done", Subject: Target{"board", "weekly"}}); err != nil {
				tr.t.Fatal(err)
			}
			tr.exec(`INSERT INTO audit_unsealed SELECT (SELECT max(shard) FROM audit_seal), max(id) FROM audit_event WHERE true
				ON CONFLICT DO NOTHING`)
			tr.exec(`INSERT INTO audit_personal (event_id, salt, ip, user_agent) SELECT max(id), $1, '', '' FROM audit_event`, []byte(hash[:16]))
		}, BreakAltered, 0},
		"removed event": {func(tr *trail, l []link) { tr.exec(`DELETE FROM audit_event WHERE id = $1`, l[1].eventID) }, BreakMissing, 2},
		"removed first event": {func(tr *trail, l []link) {
			tr.exec(`DELETE FROM audit_event WHERE id = $1`, l[0].eventID)
			tr.exec(`DELETE FROM audit_seal WHERE event_id = $1`, l[0].eventID)
		}, BreakGap, 1},
		"removed event and link": {func(tr *trail, l []link) {
			tr.exec(`DELETE FROM audit_event WHERE id = $1`, l[1].eventID)
			tr.exec(`DELETE FROM audit_seal WHERE event_id = $1`, l[1].eventID)
		}, BreakGap, 2},
		"removed with the whole chain rewritten": {func(tr *trail, l []link) {
			tr.exec(`DELETE FROM audit_event WHERE id = $1`, l[1].eventID)
			tr.rewrite()
		}, BreakCheckpoint, 0},
		"removed end": {func(tr *trail, l []link) {
			tr.exec(`DELETE FROM audit_event WHERE id = $1`, l[4].eventID)
			tr.exec(`DELETE FROM audit_seal WHERE event_id = $1`, l[4].eventID)
		}, BreakMissing, 5},
		"removed end with its head": {func(tr *trail, l []link) {
			tr.exec(`DELETE FROM audit_event WHERE id = $1`, l[4].eventID)
			tr.rewrite()
		}, BreakCheckpoint, 0},
		"removed everything": {func(tr *trail, _ []link) {
			tr.exec(`DELETE FROM audit_seal`)
			tr.exec(`DELETE FROM audit_event`)
			tr.exec(`DELETE FROM audit_unsealed`)
			tr.exec(`UPDATE audit_shard SET seq = 0, hash = $1`, make([]byte, 32))
		}, BreakCheckpoint, 0},
		"removed head": {func(tr *trail, _ []link) { tr.exec(`DELETE FROM audit_shard WHERE shard = 0`) }, BreakMissing, 0},
		"altered head": {func(tr *trail, _ []link) {
			tr.exec(`UPDATE audit_shard SET hash = $1 WHERE seq = 5`, []byte(hash))
		}, BreakMissing, 5},
		"head set back": {func(tr *trail, l []link) {
			tr.exec(`UPDATE audit_shard SET seq = 4, hash = $1 WHERE seq = 5`, l[3].hash)
		}, BreakInserted, 5},
		"removed waiting event": {func(tr *trail, _ []link) {
			tr.exec(`DELETE FROM audit_event WHERE id = (SELECT max(event_id) FROM audit_unsealed)`)
		}, BreakMissing, 0},
		"removed waiting event and its place": {func(tr *trail, l []link) {
			tr.exec(`UPDATE audit_unsealed SET shard = 99`) // no sealer reads this shard
		}, BreakInserted, 0},
		"altered waiting event": {func(tr *trail, _ []link) {
			tr.exec(`UPDATE audit_event SET action = 'test/forged' WHERE id = (SELECT max(event_id) FROM audit_unsealed)`)
		}, BreakAltered, 0},
		"inserted event": {func(tr *trail, l []link) {
			tr.exec(`INSERT INTO audit_event SELECT '0' || id, occurred_at, action, actor_kind, actor_id, actor_key_id, subject_type,
				subject_id, targets, outcome, code, request_id, route, environment, detail, commitment, hash
				FROM audit_event WHERE id = $1`, l[0].eventID)
		}, BreakInserted, 0},
		"inserted link": {func(tr *trail, l []link) {
			tr.exec(`INSERT INTO audit_seal (shard, seq, event_id, prev, hash) SELECT max(shard), 99, 'none', $1, $1 FROM audit_seal`, []byte(hash))
		}, BreakInserted, 99},
		"inserted chain": {func(tr *trail, l []link) {
			tr.exec(`INSERT INTO audit_seal (shard, seq, event_id, prev, hash) VALUES (77, 1, 'none', $1, $1)`, []byte(hash))
		}, BreakInserted, 1},
		"links swapped": {func(tr *trail, l []link) {
			tr.exec(`UPDATE audit_seal SET seq = 99 WHERE event_id = $1`, l[1].eventID)
			tr.exec(`UPDATE audit_seal SET seq = 2 WHERE event_id = $1`, l[2].eventID)
			tr.exec(`UPDATE audit_seal SET seq = 3 WHERE event_id = $1`, l[1].eventID)
		}, BreakReordered, 2},
		"events of links swapped": {func(tr *trail, l []link) {
			tr.exec(`UPDATE audit_seal SET event_id = 'none' WHERE event_id = $1`, l[1].eventID)
			tr.exec(`UPDATE audit_seal SET event_id = $1 WHERE event_id = $2`, l[1].eventID, l[2].eventID)
			tr.exec(`UPDATE audit_seal SET event_id = $1 WHERE event_id = 'none'`, l[2].eventID)
		}, BreakAltered, 2},
		"checkpoint removed": {func(tr *trail, _ []link) {
			tr.exec(`DELETE FROM audit_checkpoint_head WHERE checkpoint = 1`)
			tr.exec(`DELETE FROM audit_checkpoint WHERE seq = 1`)
		}, BreakCheckpoint, 0},
		"checkpoint altered": {func(tr *trail, _ []link) {
			tr.exec(`UPDATE audit_checkpoint SET created_at = created_at + 1 WHERE seq = 1`)
		}, BreakCheckpoint, 0},
		"checkpoint head altered": {func(tr *trail, _ []link) {
			tr.exec(`UPDATE audit_checkpoint_head SET seq = seq + 1 WHERE checkpoint = 2`)
		}, BreakCheckpoint, 0},
		"checkpoint signed by a stranger": {func(tr *trail, l []link) {
			tr.exec(forge, l[2].eventID)
			tr.rewrite()
			stranger := masterKeys(tr.t, "s")
			seed := make([]byte, ed25519.SeedSize)
			private := ed25519.NewKeyFromSeed(seed)
			tr.exec(`DELETE FROM audit_checkpoint_head WHERE checkpoint = 2`)
			tr.exec(`UPDATE audit_key SET sealed = $1`, stranger.Seal("audit/signing-key/x", seed))
			list, err := tr.store.checkpoints(context.Background(), 0, 10)
			if err != nil {
				tr.t.Fatal(err)
			}
			tr.exec(`UPDATE audit_checkpoint SET signature = $1 WHERE seq = 1`, ed25519.Sign(private, list[0].statement()))
		}, BreakCheckpoint, 0},
		"forged cut at a sound checkpoint": {func(tr *trail, l []link) {
			tr.exec(`INSERT INTO audit_cut (shard, seq, hash) SELECT shard, seq, hash FROM audit_checkpoint_head WHERE checkpoint = 1 AND seq > 0`)
			for _, gone := range l[:3] {
				tr.exec(`DELETE FROM audit_personal WHERE event_id = $1`, gone.eventID)
				tr.exec(`DELETE FROM audit_event WHERE id = $1`, gone.eventID)
				tr.exec(`DELETE FROM audit_seal WHERE event_id = $1`, gone.eventID)
			}
		}, BreakCheckpoint, 0},
		"forged cut with the proof of another": {func(tr *trail, l []link) {
			c, _, err := tr.store.checkpointAt(context.Background(), 1)
			if err != nil {
				tr.t.Fatal(err)
			}
			if err := tr.setCut(context.Background(), c); err != nil {
				tr.t.Fatal(err)
			}
			tr.exec(`INSERT INTO audit_unsealed (shard, event_id) SELECT 0, event_id FROM audit_cut_proof`) // the trigger is gone
			tr.exec(`INSERT INTO audit_cut (shard, seq, hash) SELECT shard, seq, hash FROM audit_checkpoint_head WHERE checkpoint = 2 AND seq > 0`)
		}, BreakCheckpoint, 0},
		"event of the cut removed": {func(tr *trail, l []link) {
			c, _, err := tr.store.checkpointAt(context.Background(), 1)
			if err != nil {
				tr.t.Fatal(err)
			}
			if err := tr.setCut(context.Background(), c); err != nil {
				tr.t.Fatal(err)
			}
			tr.exec(`DELETE FROM audit_unsealed WHERE event_id = (SELECT event_id FROM audit_cut_proof)`)
			tr.exec(`DELETE FROM audit_event WHERE id = (SELECT event_id FROM audit_cut_proof)`)
		}, BreakCheckpoint, 0},
		"altered under a cut": {func(tr *trail, l []link) {
			c, _, err := tr.store.checkpointAt(context.Background(), 1)
			if err != nil {
				tr.t.Fatal(err)
			}
			if err := tr.setCut(context.Background(), c); err != nil {
				tr.t.Fatal(err)
			}
			tr.exec(forge, l[1].eventID)
		}, BreakAltered, 2},
		"cut where no checkpoint is": {func(tr *trail, l []link) {
			shard, _ := tr.links()
			tr.exec(`INSERT INTO audit_cut (shard, seq, hash) VALUES ($1, 1, $2)`, shard, l[0].hash)
			tr.exec(`DELETE FROM audit_event WHERE id = $1`, l[0].eventID)
			tr.exec(`DELETE FROM audit_seal WHERE event_id = $1`, l[0].eventID)
		}, BreakCheckpoint, 0},
		"cut at a forged checkpoint": {func(tr *trail, l []link) {
			shard, _ := tr.links()
			tr.exec(`INSERT INTO audit_checkpoint (seq, created_at, prev, key_id, signature)
				SELECT 3, created_at, $1, key_id, signature FROM audit_checkpoint WHERE seq = 2`, []byte(hash))
			tr.exec(`INSERT INTO audit_checkpoint_head (checkpoint, shard, seq, hash) VALUES (3, $1, 1, $2)`, shard, l[0].hash)
			tr.exec(`INSERT INTO audit_cut (shard, seq, hash) VALUES ($1, 1, $2)`, shard, l[0].hash)
		}, BreakCheckpoint, 0},
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				tr := newTrail(t, fresh(t, db))
				tr.record(3)
				tr.seal()
				tr.now = tr.now.Add(2 * time.Hour)
				tr.record(2)
				tr.seal()
				tr.record(1)
				tr.wantSound(Report{Sealed: 5, Waiting: 1, Checkpoints: 2})
				_, links := tr.links()
				tr.disarm()
				tt.plant(tr, links)
				got := tr.verify().Break
				if got == nil || got.Kind != tt.kind || tt.seq != 0 && got.Seq != tt.seq {
					t.Errorf("found %v, want %s at %d", got, tt.kind, tt.seq)
				}
			})
		}
	})
}

// fresh opens another empty database of the same kind.
func fresh(t *testing.T, like *database.DB) *database.DB {
	t.Helper()
	if like.Dialect() == database.PostgreSQL {
		return databasetest.Postgres(t)
	}
	return databasetest.Memory(t)
}

func TestErasedTrailIsSound(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		tr.record(3)
		if err := tr.Record(context.Background(), Event{Action: "test/done"}); err != nil {
			t.Fatal(err)
		}
		tr.seal()
		for _, f := range []Filter{{ActorID: "nobody"}, {Subject: Target{"board", "daily"}}} {
			if n, err := tr.Erase(context.Background(), f); n != 0 || err != nil {
				t.Errorf("%+v: %d %v", f, n, err)
			}
		}
		if n, err := tr.Erase(context.Background(), Filter{ActorID: "ada"}); n != 3 || err != nil {
			t.Errorf("erased %d %v", n, err)
		}
		if _, err := tr.Erase(context.Background(), Filter{Namespace: "test"}); err == nil {
			t.Error("erased without a name")
		}
		tr.seal()
		tr.wantSound(Report{Sealed: 7, Erased: 3, Checkpoints: 1})
		erasures, err := tr.ListEvents(context.Background(), Filter{Action: "audit/personal_data_erased"}, capability.NewPage(10, ""))
		if err != nil || len(erasures.Items) != 3 {
			t.Errorf("%d events of erasing, %v", len(erasures.Items), err)
		}
	})
}

func TestCutTrailIsSound(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		ctx := context.Background()
		start := tr.now
		tr.record(700) // more than a batch
		tr.seal()
		tr.now = tr.now.Add(48 * time.Hour)
		tr.record(2)
		if n, err := tr.Cut(ctx, start.Add(-time.Second)); n != 0 || err != nil {
			t.Errorf("cut before the first checkpoint: %d %v", n, err)
		}
		if n, err := tr.Cut(ctx, start.Add(time.Hour)); n != 700 || err != nil {
			t.Errorf("cut %d %v", n, err)
		}
		if n, err := tr.Cut(ctx, start.Add(time.Hour)); n != 0 || err != nil {
			t.Errorf("cut again: %d %v", n, err)
		}
		tr.seal()
		tr.wantSound(Report{Sealed: 3, Cut: 700, Checkpoints: 2})
		list, err := tr.ListEvents(ctx, Filter{}, capability.NewPage(10, ""))
		if err != nil || len(list.Items) != 3 || list.Items[0].Action != "audit/trail_cut" {
			t.Errorf("%v %v", list.Items, err)
		}
		var personal int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM audit_personal`).Scan(&personal); err != nil || personal != 2 {
			t.Errorf("%d rows of personal data, %v", personal, err)
		}
		// What remains is append-only as before.
		for _, query := range []string{
			`DELETE FROM audit_event`, `DELETE FROM audit_seal`, `UPDATE audit_seal SET seq = seq + 100`,
			`DELETE FROM audit_checkpoint`, `UPDATE audit_checkpoint SET created_at = 0`,
			`DELETE FROM audit_checkpoint_head`, `UPDATE audit_checkpoint_head SET seq = seq + 1`,
			`DELETE FROM audit_cut`, `UPDATE audit_cut SET seq = seq + 1`,
			`INSERT INTO audit_cut (shard, seq, hash) SELECT shard, seq, hash FROM audit_seal`,
			`INSERT INTO audit_cut (shard, seq, hash) SELECT shard, seq + 1, hash FROM audit_checkpoint_head`,
		} {
			if _, err := db.Exec(ctx, query); err == nil {
				t.Errorf("not refused: %s", query)
			}
		}
		tr.wantSound(Report{Sealed: 3, Cut: 700, Checkpoints: 2})
	})
}

// TestCutIsFinishedLater checks that another node deletes the rest of a cut after a node was
// killed.
func TestCutIsFinishedLater(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		ctx := context.Background()
		tr.record(5)
		tr.seal()
		c, err := tr.Checkpoint(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.setCut(ctx, c); err != nil {
			t.Fatal(err)
		}
		tr.wantSound(Report{Waiting: 1, Cut: 5, Checkpoints: 1})
		if n, err := tr.Cut(ctx, tr.now); n != 5 || err != nil {
			t.Errorf("%d %v", n, err)
		}
		tr.wantSound(Report{Waiting: 1, Cut: 5, Checkpoints: 1})
	})
}

func TestCutNeedsASoundCheckpoint(t *testing.T) {
	tr := newTrail(t, databasetest.Memory(t))
	tr.record(3)
	tr.seal()
	tr.disarm()
	tr.exec(`UPDATE audit_checkpoint SET signature = $1`, make([]byte, 64))
	if n, err := tr.Cut(context.Background(), tr.now); n != 0 || err == nil {
		t.Errorf("%d events cut at a forged checkpoint, %v", n, err)
	}
}

func TestCheckpointsWhenDue(t *testing.T) {
	tr := newTrail(t, databasetest.Memory(t))
	count := func() (n int) {
		if err := tr.db.QueryRow(context.Background(), `SELECT count(*) FROM audit_checkpoint`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, step := range []struct {
		events int
		pass   time.Duration
		want   int
	}{
		{0, 0, 0}, {1, 0, 1}, {1, 59 * time.Minute, 1}, {0, time.Minute, 2}, {0, 5 * time.Hour, 2}, {1, 0, 3}, {10_000, 0, 4},
	} {
		tr.now = tr.now.Add(step.pass)
		tr.record(step.events)
		tr.seal()
		if got := count(); got != step.want {
			t.Errorf("step %d: %d checkpoints, want %d", i, got, step.want)
		}
	}
}

func TestSigningKeyOutlivesItsMasterKey(t *testing.T) {
	tr := newTrail(t, databasetest.Memory(t))
	tr.record(1)
	tr.seal()
	old, renewed := masterKeys(t, "k"), masterKeys(t, "n")
	both, err := seal.Load(capability.Production, func(string) string {
		return "n:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 32))) +
			",k:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	})
	if err != nil {
		t.Fatal(err)
	}
	use := func(keys *seal.Keys) { tr.sealer, tr.signer = keys, &signer{store: tr.store, sealer: keys} }

	use(renewed)
	if b := tr.verify().Break; b == nil || b.Kind != BreakCheckpoint {
		t.Errorf("a key that does not open verifies: %v", b)
	}
	use(both)
	for _, want := range []int{1, 0} {
		if n, err := tr.Rewrap(context.Background()); n != want || err != nil {
			t.Errorf("rewrapped %d %v, want %d", n, err, want)
		}
	}
	use(renewed)
	tr.wantSound(Report{Sealed: 1, Checkpoints: 1})
	use(old)
	if _, err := tr.Rewrap(context.Background()); err == nil {
		t.Error("the removed key still opens")
	}
}

func TestEventsByTime(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		var times []time.Time
		for range 3 {
			tr.record(1)
			times = append(times, tr.now)
			tr.now = tr.now.Add(time.Millisecond)
		}
		for name, tt := range map[string]struct {
			f    Filter
			want []time.Time
		}{
			"from": {Filter{From: times[1]}, []time.Time{times[2], times[1]}},
			"to":   {Filter{To: times[1]}, []time.Time{times[0]}},
			"both": {Filter{From: times[1], To: times[2]}, []time.Time{times[1]}},
		} {
			page, err := tr.ListEvents(context.Background(), tt.f, capability.NewPage(9, ""))
			var got []time.Time
			for _, e := range page.Items {
				got = append(got, e.OccurredAt.Time)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%s: %s %v", name, diff, err)
			}
		}
	})
}

// TestRareEventsAreFoundPageByPage checks that a filter that few events match examines a bounded
// number per page, and finds all.
func TestRareEventsAreFoundPageByPage(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		tr.store.chunk = 2
		if err := tr.Record(t.Context(), Event{Action: "test/rare"}); err != nil {
			t.Fatal(err)
		}
		tr.record(2*scanChunks + 1)
		if err := tr.Record(t.Context(), Event{Action: "test/rare"}); err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]Filter{"action": {Action: "test/rare"}, "namespace and outcome": {Namespace: "test", Outcome: OutcomeSucceeded, Action: "test/rare"}} {
			first, err := tr.ListEvents(t.Context(), f, capability.NewPage(5, ""))
			if err != nil || len(first.Items) != 1 || first.NextCursor == nil {
				t.Fatalf("%s: first %+v, %v; want the newest and a cursor", name, first, err)
			}
			second, err := tr.ListEvents(t.Context(), f, capability.NewPage(5, *first.NextCursor))
			if err != nil || len(second.Items) != 1 || second.NextCursor != nil {
				t.Errorf("%s: second %+v, %v; want the oldest and no cursor", name, second, err)
			}
			one, err := tr.ListEvents(t.Context(), f, capability.NewPage(1, ""))
			if err != nil || len(one.Items) != 1 || one.NextCursor == nil {
				t.Errorf("%s: a page of one: %+v, %v; want the newest and a cursor", name, one, err)
			}
		}
	})
}

// TestFirstID checks that a search by time can use the index of ids, even if clocks jumped.
func TestFirstID(t *testing.T) {
	at := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) // later than the ids of other tests
	before, drawn := id.New(at.Add(-time.Millisecond)), id.New(at)
	if bound := firstID(at); before >= bound || bound > drawn {
		t.Errorf("%s is not between %s and %s", bound, before, drawn)
	}
	if back := id.New(at.Add(-time.Hour)); back < firstID(at.Add(-time.Hour)) {
		t.Errorf("%s is before its time", back)
	}
}

func TestBreaksReadWell(t *testing.T) {
	for want, b := range map[string]Break{
		`gap: shard 1, number 2, event "": r`: {Kind: BreakGap, Shard: 1, Seq: 2, Reason: "r"},
		`checkpoint 3: r`:                     {Kind: BreakCheckpoint, Checkpoint: 3, Reason: "r"},
	} {
		if got := fmt.Sprint(&b); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestAnchorsNameARollback checks that a database that was reset to an earlier day, or emptied,
// verifies by itself but not with an anchor.
func TestAnchorsNameARollback(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		ctx := context.Background()
		tr.record(3)
		tr.seal()
		first, err := tr.Checkpoint(ctx)
		if err != nil {
			t.Fatal(err)
		}
		later, err := ParseAnchor(first.Anchor().String())
		if err != nil {
			t.Fatal(err)
		}
		if report, err := tr.Verify(ctx, later); err != nil || report.Break != nil {
			t.Errorf("%v %v", report.Break, err)
		}
		empty := newTrail(t, fresh(t, db))
		for name, missing := range map[string]func() (Report, error){
			"emptied":  func() (Report, error) { return empty.Verify(ctx, later) },
			"set back": func() (Report, error) { return tr.Verify(ctx, later, Anchor{Checkpoint: 2, Hash: later.Hash}) },
			"another":  func() (Report, error) { return tr.Verify(ctx, Anchor{Checkpoint: 1, Hash: make([]byte, 32)}) },
		} {
			if report, err := missing(); err != nil || report.Break == nil || report.Break.Kind != BreakCheckpoint {
				t.Errorf("%s: %v %v, want a bad checkpoint", name, report.Break, err)
			}
		}
		for _, bad := range []string{"", "1", "1:00", "x:" + strings.Repeat("00", 32), "0:" + strings.Repeat("00", 32)} {
			if got, err := ParseAnchor(bad); err == nil {
				t.Errorf("%q is read as %v", bad, got)
			}
		}
	})
}
