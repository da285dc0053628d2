package mount_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/mount"
)

type count struct {
	Add int64 `json:"add"`
}

// counting is a mount whose one route adds to a row, once a key.
func counting(t *testing.T, db *database.DB) *world {
	t.Helper()
	ctx := context.Background()
	if err := db.Migrate(ctx, mount.Migrations()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(ctx, `CREATE TABLE counter (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(ctx, `INSERT INTO counter (id, n) VALUES (1, 0)`); err != nil {
		t.Fatal(err)
	}
	add := func(c *capability.Call, in count) (count, error) {
		if in.Add < 0 {
			return count{}, capability.NewError(400, "things/negative", "Negative.")
		}
		var out count
		err := db.InTx(c.Context(), func(ctx context.Context) error {
			return db.QueryRow(ctx, `UPDATE counter SET n = n + $1 WHERE id = 1 RETURNING n`, in.Add).Scan(&out.Add)
		})
		return out, err
	}
	w := newWorld(t, func(c *mount.Config) {
		c.DB = db
		c.Entries = append(c.Entries, mount.Entry{Domain: "things", Route: capability.Route{Method: http.MethodPost, Path: "/count/:board",
			Guard: capability.User(), Idempotent: true, Handle: capability.JSON(201, add)}})
	})
	db.UseClock(func() time.Time { return w.now })
	return w
}

func total(t *testing.T, db *database.DB) (n int64) {
	t.Helper()
	if err := db.QueryRow(context.Background(), `SELECT n FROM counter`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestIdempotencyKey(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := counting(t, db)
		post := func(path, body, key string, header ...string) (int, string, string) {
			if len(header) == 0 {
				header = []string{auth, "Bearer ada"}
			}
			if key != "" {
				header = append(header, "Idempotency-Key", key)
			}
			rec := w.send("POST "+path, body, header...)
			return rec.Code, strings.TrimSpace(rec.Body.String()), code(t, rec)
		}
		for range 3 {
			if status, body, _ := post("/count/a", `{"add":5}`, "k1"); status != 201 || body != `{"add":5}` {
				t.Fatalf("got %d %s", status, body)
			}
		}
		if n := total(t, db); n != 5 {
			t.Errorf("three calls under one key counted %d", n)
		}
		for name, c := range map[string][2]string{"another body": {"/count/a", `{"add":6}`}, "another path": {"/count/b", `{"add":5}`}} {
			if _, _, got := post(c[0], c[1], "k1"); got != "kit/idempotency_conflict" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if status, _, _ := post("/count/a", `{"add":1}`, "k1", cookie, ada, "X-CSRF-Token", "token-of-ada"); status != 409 {
			t.Errorf("one user by two proofs shares the key: %d", status)
		}
		for range 2 { // a refused call leaves nothing under its key
			if _, _, got := post("/count/a", `{"add":-1}`, "k2"); got != "things/negative" {
				t.Error(got)
			}
		}
		if status, _, _ := post("/count/a", `{"add":2}`, "k2"); status != 201 {
			t.Errorf("after a refusal: %d", status)
		}
		post("/count/a", `{"add":1}`, "")
		post("/count/a", `{"add":1}`, "")
		if n := total(t, db); n != 9 {
			t.Errorf("counted %d, want 9", n)
		}
		for _, key := range []string{strings.Repeat("k", 256), "two words", "umläut"} {
			if _, _, got := post("/count/a", `{"add":1}`, key); got != "kit/invalid_request" {
				t.Errorf("key %.20q: %s", key, got)
			}
		}
		for name, keys := range map[string][]string{"an empty one": {""}, "an empty one first": {"", "k3"}, "two": {"k3", "k4"}} {
			r := httptest.NewRequest("POST", "https://example.com/count/a", strings.NewReader(`{"add":1}`))
			r.Header = http.Header{auth: {"Bearer ada"}, "Content-Type": {"application/json"}, "Idempotency-Key": keys}
			rec := httptest.NewRecorder()
			w.ServeHTTP(rec, r)
			if code(t, rec) != "kit/invalid_request" || total(t, db) != 9 {
				t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
			}
		}
		w.now = w.now.Add(mount.KeyLifetime)
		if status, body, _ := post("/count/a", `{"add":6}`, "k1"); status != 201 || body != `{"add":15}` {
			t.Errorf("a key after its day: %d %s", status, body)
		}
		w.now = w.now.Add(mount.KeyLifetime)
		if err := mount.SweepKeys(context.Background(), db); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := db.QueryRow(context.Background(), `SELECT count(*) FROM kit_idempotency`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d keys are left after the sweep (%v)", left, err)
		}
	})
}

func TestRacingCallsUnderOneKeyCountOnce(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := counting(t, db)
		var created, replayed atomic.Int64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				rec := w.send("POST /count/a", `{"add":3}`, auth, "Bearer ada", "Idempotency-Key", "race")
				if rec.Code == 201 {
					created.Add(1)
				}
				if rec.Header().Get("Idempotency-Replayed") == "true" {
					replayed.Add(1)
				}
			})
		}
		wg.Wait()
		if n := total(t, db); n != 3 || created.Load() != 32 || replayed.Load() != 31 {
			t.Errorf("counted %d, %d responses, %d of them replayed", n, created.Load(), replayed.Load())
		}
	})
}
