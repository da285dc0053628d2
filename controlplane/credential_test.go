package controlplane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/kv"
)

// TestClockEdges checks the bounds of each time, to the second.
func TestClockEdges(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name                  string
		issued, expires, from time.Duration // relative to the clock; from is nbf
		want                  int
	}{
		{"fresh", 0, 60 * s, 0, 200},
		{"longest life", 0, 120 * s, 0, 200},
		{"too long a life", 0, 121 * s, 0, 401},
		{"shortest life", 0, 1 * s, 0, 200},
		{"issued 30 s ahead", 30 * s, 90 * s, 0, 200},
		{"issued 31 s ahead", 31 * s, 91 * s, 0, 401},
		{"expired 4 s ago", -64 * s, -4 * s, 0, 200},
		{"expired 5 s ago", -65 * s, -5 * s, 0, 401},
		{"not before in 30 s", 0, 60 * s, 30 * s, 200},
		{"not before in 31 s", 0, 60 * s, 31 * s, 401},
	}
	w := newWorld(t)
	f := forger{w.Identity}
	for _, tt := range tests {
		now := w.Clock.Now()
		at := func(d time.Duration) int64 { return now.Add(d).Unix() }
		token := f.sign(f.header(), with(f.claims(now), "iat", at(tt.issued), "exp", at(tt.expires), "nbf", at(tt.from)))
		if status, code := bearing(w, token); status != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.name, status, code, tt.want)
		}
	}
}

// TestReplay checks that the first valid use spends a token id, whatever its result.
func TestReplay(t *testing.T) {
	for _, backend := range []string{controlplane.D1, controlplane.KV} {
		databasetest.Each(t, func(t *testing.T, db *database.DB) {
			w := controlplanetest.New(t, db, controlplanetest.Options{
				Config: controlplane.Config{ReplayBackend: backend}, Others: []capability.Capability{things()},
			})
			f := forger{w.Identity}
			claims := f.claims(w.Clock.Now())
			token := f.sign(f.header(), claims)
			refused := func(name, method, path, token string) {
				t.Helper()
				if status, code, _ := send(w, method, path, "", "Authorization", "Bearer "+token); status != 401 || code != invalid {
					t.Errorf("%s %s: %d %s", backend, name, status, code)
				}
			}
			refused("a bad token burns nothing", "GET", target, f.sign(f.header(), with(claims, "env", "production")))
			refused("nor one for another request", "GET", target, f.sign(f.header(), with(claims, "htm", "POST")))
			if status, code := bearing(w, token); status != 200 {
				t.Fatalf("first use: %d %s", status, code)
			}
			refused("second use", "GET", target, token)
			refused("another route", "GET", "/control-plane/ping", token)
			refused("another token of the id", "GET", target, f.sign(f.header(), with(claims, "scope", "manifest:read")))

			scopeless := f.sign(f.header(), with(f.claims(w.Clock.Now()), "scope", "other"))
			if status, code := bearing(w, scopeless); status != 403 || code != noScope {
				t.Errorf("without the scope: %d %s", status, code)
			}
			refused("a refused scope spends the token too", "GET", "/control-plane/ping", scopeless)
		})
	}
}

// TestTokenIDIsSpentAcrossKeys checks that a successor cannot use a spent id again.
func TestTokenIDIsSpentAcrossKeys(t *testing.T) {
	w := newWorld(t)
	f := forger{w.Identity}
	claims := f.claims(w.Clock.Now())
	if status, code := bearing(w, f.sign(f.header(), claims)); status != 200 {
		t.Fatal(status, code)
	}
	second, _ := rotate(t, w, w.Identity)
	g := forger{second}
	if status, code := bearing(w, g.sign(g.header(), claims)); status != 401 || code != invalid {
		t.Error(status, code)
	}
}

// TestRacingUsesOfOneToken checks that of 64 concurrent uses of one token, on all nodes together,
// one succeeds.
func TestRacingUsesOfOneToken(t *testing.T) {
	race := func(t *testing.T, nodes ...*controlplanetest.World) {
		f := forger{nodes[0].Identity}
		token := f.sign(f.header(), f.claims(nodes[0].Clock.Now()))
		var won, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				switch status, code := bearing(nodes[i%len(nodes)], token); {
				case status == 200:
					won.Add(1)
				case status == 401 && code == invalid:
					refused.Add(1)
				default:
					t.Errorf("%d %s", status, code)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || refused.Load() != 63 {
			t.Errorf("%d won, %d were refused", won.Load(), refused.Load())
		}
	}
	for _, backend := range []string{controlplane.D1, controlplane.KV} {
		o := controlplanetest.Options{Config: controlplane.Config{ReplayBackend: backend}, Others: []capability.Capability{things()}}
		t.Run(backend, func(t *testing.T) {
			databasetest.Each(t, func(t *testing.T, db *database.DB) { race(t, controlplanetest.New(t, db, o)) })
			t.Run("two nodes", func(t *testing.T) {
				dbs := databasetest.Shared(t, 2)
				first := controlplanetest.New(t, dbs[0], o)
				o.Identity, o.Clock = &first.Identity, first.Clock
				race(t, first, controlplanetest.New(t, dbs[1], o))
			})
		})
	}
}

// TestReplayAfterPrune checks that no token verifies after its id was pruned, and that setting the
// clock back does not revive it.
func TestReplayAfterPrune(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := controlplanetest.New(t, db, controlplanetest.Options{Others: []capability.Capability{things()}})
		f := forger{w.Identity}
		first := f.sign(f.header(), f.claims(w.Clock.Now()))
		use := func(token string) int {
			status, _ := bearing(w, token)
			return status
		}
		if status := use(first); status != 200 {
			t.Fatal(status)
		}
		passed := time.Duration(0)
		for _, wait := range []time.Duration{30 * time.Second, 34 * time.Second, time.Second, time.Minute, 4 * time.Minute, time.Hour} {
			w.Clock.Advance(wait)
			passed += wait
			if status := use(f.sign(f.header(), f.claims(w.Clock.Now()))); status != 200 { // prunes
				t.Fatal(status)
			}
			if status := use(first); status != 401 {
				t.Fatalf("%v later: %d", passed, status)
			}
		}
		var rows int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM controlplane_spent`).Scan(&rows); err != nil || rows != 1 {
			t.Errorf("%d ids are kept, want the last (%v)", rows, err)
		}
		w.Clock.Advance(-passed)
		if status := use(first); status != 401 {
			t.Errorf("the clock set back: %d", status)
		}
	})
}

// TestPruneKeepsUp checks that ids are pruned as fast as they are added, at any rate of calls.
func TestPruneKeepsUp(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := controlplanetest.New(t, db, controlplanetest.Options{Others: []capability.Capability{things()}})
		f := forger{w.Identity}
		use := func(calls int) {
			t.Helper()
			for range calls {
				if status, code := bearing(w, f.sign(f.header(), f.claims(w.Clock.Now()))); status != 200 {
					t.Fatal(status, code)
				}
			}
		}
		use(250)
		w.Clock.Advance(time.Hour)
		use(3)
		var rows int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM controlplane_spent`).Scan(&rows); err != nil || rows != 3 {
			t.Errorf("%d ids are kept, want those of the last calls (%v)", rows, err)
		}
	})
}

func TestReplayAfterRestart(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		o := controlplanetest.Options{Others: []capability.Capability{things()}}
		w := controlplanetest.New(t, db, o)
		f := forger{w.Identity}
		token := f.sign(f.header(), f.claims(w.Clock.Now()))
		if status, code := bearing(w, token); status != 200 {
			t.Fatal(status, code)
		}
		o.Identity, o.Clock = &w.Identity, w.Clock
		if status, code := bearing(controlplanetest.New(t, db, o), token); status != 401 || code != invalid {
			t.Error(status, code)
		}
	})
}

func TestNotConnected(t *testing.T) {
	w := controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{Others: []capability.Capability{things()}, Unconnected: true})
	f := forger{w.Identity}
	const want = "controlplane/not_connected"
	for name, token := range map[string]string{"good": f.sign(f.header(), f.claims(w.Clock.Now())), "bad": "token"} {
		if status, code := bearing(w, token); status != 403 || code != want {
			t.Errorf("%s token: %d %s", name, status, code)
		}
	}
	if status, code, _ := send(w, "GET", target, ""); status != 403 || code != want {
		t.Errorf("no token: %d %s", status, code)
	}
	if err := w.Connect(t.Context(), controlplanetest.Connection(w.Identity)); err != nil {
		t.Fatal(err)
	}
	if status, code := bearing(w, f.sign(f.header(), f.claims(w.Clock.Now()))); status != 200 {
		t.Errorf("connected: %d %s", status, code)
	}
}

// TestEnvironmentsAreApart checks that a key verifies in its own environment only, also on one
// database.
func TestEnvironmentsAreApart(t *testing.T) {
	db := databasetest.Memory(t)
	o := controlplanetest.Options{Environment: "sandbox", Others: []capability.Capability{things()}}
	sandbox := controlplanetest.New(t, db, o)
	o.Environment = "staging"
	staging := controlplanetest.New(t, db, o)
	s := forger{sandbox.Identity}
	for name, claims := range map[string]object{
		"own claims":   s.claims(sandbox.Clock.Now()),
		"their claims": forger{staging.Identity}.claims(sandbox.Clock.Now()),
	} {
		if status, code := bearing(staging, s.sign(s.header(), claims)); status != 401 || code != invalid {
			t.Errorf("%s: %d %s", name, status, code)
		}
	}
}

// counting is a store that counts claims, and fails on demand.
type counting struct {
	kv.Store
	claims atomic.Int32
	down   bool
}

func (c *counting) PutIfAbsent(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	c.claims.Add(1)
	if c.down {
		return false, context.DeadlineExceeded
	}
	return c.Store.PutIfAbsent(ctx, key, value, ttl)
}

// TestNoDatabaseBeforeTheSignature checks that only memory is used before the signature of a live
// key verifies: without the database, invalid tokens fail at their own step.
func TestNoDatabaseBeforeTheSignature(t *testing.T) {
	var log bytes.Buffer
	clock := kittest.NewClock()
	spent := &counting{Store: kv.NewMemory(clock.Now)}
	db := databasetest.Memory(t)
	w := controlplanetest.New(t, db, controlplanetest.Options{
		Config: controlplane.Config{ReplayBackend: controlplane.KV, KV: spent}, Clock: clock,
		Log: slog.New(slog.NewJSONHandler(&log, nil)), Others: []capability.Capability{things()},
	})
	if _, err := w.Client(w.Identity).Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	claims := spent.claims.Load()
	stranger, err := client.Generate(w.Identity.Address, "test", w.Identity.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	f, g := forger{w.Identity}, forger{stranger}
	bearing(w, "token")
	bearing(w, g.sign(g.header(), f.claims(clock.Now())))
	bearing(w, g.sign(f.header(), f.claims(clock.Now())))
	if diff := cmp.Diff([]string{"malformed token", "unknown key", "signature"}, reasons(t, &log)); diff != "" {
		t.Error(diff)
	}
	if n := spent.claims.Load() - claims; n != 0 {
		t.Errorf("%d claims", n)
	}
}

// reasons returns the logged reasons of refused credentials.
func reasons(t *testing.T, log *bytes.Buffer) (list []string) {
	for line := range strings.Lines(log.String()) {
		var entry struct{ Reason string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Reason != "" {
			list = append(list, entry.Reason)
		}
	}
	return list
}

// TestFailsClosed checks that a failed lookup refuses the credential.
func TestFailsClosed(t *testing.T) {
	t.Run("replay set", func(t *testing.T) {
		clock := kittest.NewClock()
		spent := &counting{Store: kv.NewMemory(clock.Now), down: true}
		w := controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{
			Config: controlplane.Config{ReplayBackend: controlplane.KV, KV: spent}, Clock: clock, Others: []capability.Capability{things()},
		})
		f := forger{w.Identity}
		if status, code := bearing(w, f.sign(f.header(), f.claims(clock.Now()))); status != 401 || code != invalid {
			t.Error(status, code)
		}
	})
	t.Run("register", func(t *testing.T) {
		db := databasetest.Memory(t)
		w := controlplanetest.New(t, db, controlplanetest.Options{Others: []capability.Capability{things()}})
		f := forger{w.Identity}
		if _, err := w.Client(w.Identity).Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		w.Clock.Advance(time.Second)
		if status, code := bearing(w, f.sign(f.header(), f.claims(w.Clock.Now()))); status != 401 || code != invalid {
			t.Error(status, code)
		}
		if status, _, _ := send(w, "GET", target, "", "Origin", w.Identity.Issuer); status != 401 {
			t.Error(status)
		}
	})
}

// TestRefusedCredentialsAreRecorded checks that audit records the refused credentials of a known
// key, a limited number of them, but not those of unknown keys; no event quotes a token.
func TestRefusedCredentialsAreRecorded(t *testing.T) {
	var log bytes.Buffer
	w := controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{
		Log: slog.New(slog.NewJSONHandler(&log, nil)), Others: []capability.Capability{things()},
	})
	f := forger{w.Identity}
	claims := f.claims(w.Clock.Now())
	token := f.sign(f.header(), claims)
	bearing(w, "token")
	bearing(w, token)
	bearing(w, token)
	bearing(w, f.sign(f.header(), with(f.claims(w.Clock.Now()), "scope", "other")))
	want := []string{
		"things/items_read controlplane/insufficient_scope",
		"controlplane/credential_refused controlplane/invalid_credential",
		"things/items_read",
		"controlplane/connection_registered",
	}
	if diff := cmp.Diff(want, w.Actions()); diff != "" {
		t.Error(diff)
	}
	for range 200 {
		bearing(w, token)
	}
	if n := len(w.Actions()); n > 4+60 {
		t.Errorf("%d events of one key's refused credentials", n)
	}
	for _, secret := range []string{token, claims["jti"].(string), strings.Split(token, ".")[2]} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
}

// FuzzCredential checks that no modified token is accepted: only what a key signed, for this
// service and now, verifies.
func FuzzCredential(f *testing.F) {
	w := newWorld(f)
	forge := forger{w.Identity}
	base := forge.claims(w.Clock.Now())
	f.Add(forge.sign(forge.header(), with(base, "env", "production")))
	f.Add(forge.sign(with(forge.header(), "typ", "at+jwt"), base))
	f.Add(forge.sign(with(forge.header(), "crit", []string{"exp"}), base))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		if status, code := bearing(w, token); status != 401 || code != invalid {
			t.Fatalf("%d %s: %s", status, code, token)
		}
	})
}
