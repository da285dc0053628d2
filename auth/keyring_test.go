package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/jose"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

// keyClock is a time that only the test moves.
type keyClock struct{ now time.Time }

func (c *keyClock) Now() time.Time { return c.now }

func sealKeys(t testing.TB, text string) *seal.Keys {
	t.Helper()
	keys, err := seal.Load(capability.Production, func(string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func masterKey(id string, b byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

// openSealed is a node with stored keys.
func openSealed(t testing.TB, db *database.DB, c *keyClock, keys *seal.Keys) *Auth {
	t.Helper()
	base, err := url.Parse(testIssuer)
	if err != nil {
		t.Fatal(err)
	}
	db.UseClock(c.Now)
	a, err := New(capability.Host{
		DB: db, PubSub: pubsub.NewMemory(), Log: slog.New(slog.DiscardHandler), Now: c.Now, BaseURL: base,
		Sealing: func() (capability.Sealer, error) { return keys, nil },
	}, Config{}, Peers{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(context.Background(), a.Capability().Lines()...); err != nil {
		t.Fatal(err)
	}
	return a
}

// published are the ids of the keys in the JWKS, which a reader of RFC 7517 can
// verify tokens with.
func published(t *testing.T, a *Auth) (ids []string) {
	t.Helper()
	raw, err := (&LibraryHost{a}).JWKS(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	for _, key := range set.Keys {
		if x, err := base64.RawURLEncoding.DecodeString(key["x"]); err != nil || len(x) != 32 ||
			key["kty"] != "OKP" || key["crv"] != "Ed25519" || key["alg"] != "EdDSA" || key["use"] != "sig" || len(key) != 6 {
			t.Errorf("%v", key)
		}
		ids = append(ids, key["kid"])
	}
	return ids
}

// A key is published before it signs, and verifies until the last token of it is
// dead: at no instant is there a good token that nobody can verify.
func TestKeyRotationFollowsTheClock(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		clock := &keyClock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		keys := sealKeys(t, masterKey("k1", 1))
		one, other := openSealed(t, db, clock, keys), openSealed(t, db, clock, keys)
		if err := one.EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		issue := func(a *Auth) (token, kid string) {
			t.Helper()
			token, err := a.IssueToken(ctx, "ada", nil, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := jose.Parse(token)
			if err != nil {
				t.Fatal(err)
			}
			return token, parsed.KeyID
		}
		_, first := issue(one)
		if _, kid := issue(other); kid != first {
			t.Error("another node made a key of its own")
		}
		if diff := cmp.Diff([]string{first}, published(t, one)); diff != "" {
			t.Error(diff)
		}

		clock.now = clock.now.Add(90 * 24 * time.Hour)
		if _, kid := issue(one); kid != first {
			t.Error("a key signs that nobody has seen")
		}
		ids := published(t, other)
		if len(ids) != 2 || ids[0] != first {
			t.Fatalf("published %v", ids)
		}
		second := ids[1]
		clock.now = clock.now.Add(publishLead - time.Second)
		last, kid := issue(other)
		if kid != first {
			t.Error("the next key signs too early")
		}
		clock.now = clock.now.Add(time.Second)
		for _, a := range []*Auth{one, other} {
			if _, kid := issue(a); kid != second {
				t.Error("the next key does not sign")
			}
		}
		clock.now = clock.now.Add(time.Hour - 2*time.Second)
		if _, err := one.bearer(ctx, last); err != nil {
			t.Errorf("the last token of the old key: %v", err)
		}
		if diff := cmp.Diff([]string{first, second}, published(t, one)); diff != "" {
			t.Error(diff)
		}
		clock.now = clock.now.Add(2 * time.Minute)
		for _, a := range []*Auth{one, other, openSealed(t, db, clock, keys)} {
			if diff := cmp.Diff([]string{second}, published(t, a)); diff != "" {
				t.Error(diff)
			}
		}
		// A thief of the old key is too late.
		old, _, _ := one.keys.held().find(first, clock.now.Add(-time.Hour))
		forged, err := jose.Sign(old.private, old.id, tokenType, claims{
			Issuer: testIssuer, Audience: testIssuer, Subject: "ada", ClientID: clientID, ID: "j", SessionID: "s",
			IssuedAt: clock.now.Unix(), ExpiresAt: clock.now.Unix() + 900,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.bearer(ctx, forged); !errors.Is(err, capability.ErrUnauthenticated) {
			t.Errorf("a retired key: %v", err)
		}

		// Its row goes after a week.
		if err := one.runSweep(ctx, jobs.Job{}); err != nil {
			t.Fatal(err)
		}
		rows := func() (n int) {
			if err := db.QueryRow(ctx, `SELECT count(*) FROM auth_signing_key`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := rows(); n != 2 {
			t.Errorf("%d rows", n)
		}
		clock.now = clock.now.Add(keepRetired)
		if err := one.runSweep(ctx, jobs.Job{}); err != nil {
			t.Fatal(err)
		}
		if n := rows(); n != 1 {
			t.Errorf("%d rows after a week", n)
		}
	})
}

// A node that nobody asked for months makes its next key once, and nobody makes
// one a second.
func TestKeysAreNotMadeNeedlessly(t *testing.T) {
	ctx := context.Background()
	db := databasetest.Memory(t)
	clock := &keyClock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	keys := sealKeys(t, masterKey("k1", 1))
	nodes := []*Auth{openSealed(t, db, clock, keys), openSealed(t, db, clock, keys)}
	for range 200 {
		for _, a := range nodes {
			if _, err := a.keys.signer(ctx); err != nil {
				t.Fatal(err)
			}
		}
		clock.now = clock.now.Add(24 * time.Hour)
	}
	var rows int
	if err := db.QueryRow(ctx, `SELECT count(*) FROM auth_signing_key`).Scan(&rows); err != nil || rows != 3 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// Restarts under a master key of one run leave nothing behind.
func TestEphemeralKeysAreNotStored(t *testing.T) {
	ctx := context.Background()
	db := databasetest.Memory(t)
	for range 3 {
		a := openInternal(t, db, time.Now)
		if err := a.EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			token, err := a.IssueToken(ctx, "ada", nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.bearer(ctx, token); err != nil {
				t.Fatal(err)
			}
		}
		if ids := published(t, a); len(ids) != 1 {
			t.Errorf("published %v", ids)
		}
	}
	var rows int
	if err := db.QueryRow(ctx, `SELECT count(*) FROM auth_signing_key`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// After a rewrap the old master key can go: tokens verify and rotate on.
func TestRewrap(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		clock := &keyClock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		before := openSealed(t, db, clock, sealKeys(t, masterKey("k1", 1)))
		if err := before.EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		session, err := before.CreateSession(ctx, "ada")
		if err != nil {
			t.Fatal(err)
		}
		access, err := before.SessionAccessToken(ctx, session)
		if err != nil {
			t.Fatal(err)
		}
		refresh, err := before.refreshToken(session, 0)
		if err != nil {
			t.Fatal(err)
		}
		both := openSealed(t, db, clock, sealKeys(t, masterKey("k2", 2)+","+masterKey("k1", 1)))
		for _, want := range []int{2, 0} {
			if n, err := both.Rewrap(ctx); n != want || err != nil {
				t.Errorf("%d %v, want %d", n, err, want)
			}
		}
		after := openSealed(t, db, clock, sealKeys(t, masterKey("k2", 2)))
		if _, err := after.bearer(ctx, access); err != nil {
			t.Error(err)
		}
		if _, err := after.Rotate(ctx, refresh); err != nil {
			t.Error(err)
		}
		if n, err := openSealed(t, db, clock, sealKeys(t, masterKey("k3", 3))).Rewrap(ctx); n != 0 || err != nil {
			t.Errorf("with a foreign key: %d %v", n, err)
		}
	})
}

// What has ended is deleted; what lives is not.
func TestSweep(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		clock := &keyClock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		a := openSealed(t, db, clock, sealKeys(t, masterKey("k1", 1)))
		for _, user := range []string{"ada", "bob"} {
			if err := a.EnsureUser(ctx, user); err != nil {
				t.Fatal(err)
			}
			if _, err := a.CreateSession(ctx, user); err != nil {
				t.Fatal(err)
			}
			clock.now = clock.now.Add(a.cfg.SessionIdle / 2)
		}
		if err := a.runSweep(ctx, jobs.Job{}); err != nil {
			t.Fatal(err)
		}
		for table, query := range map[string]string{"sessions": `SELECT user_id FROM auth_session`, "devices": `SELECT user_id FROM auth_device`} {
			users, err := database.All(ctx, db, scanText, query)
			if diff := cmp.Diff([]string{"bob"}, users); diff != "" || err != nil {
				t.Error(table, err, diff)
			}
		}
		for _, key := range a.health() {
			if n, err := key.Read(ctx); err != nil || n == int64(0) {
				t.Errorf("%s: %v %v", key.Key, n, err)
			}
		}
	})
}

// Two nodes make the next key at the same instant: each has to learn of the
// other's before anybody takes its own for retired.
func TestNodesLearnOfEachOthersKeys(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		clock := &keyClock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		keys := sealKeys(t, masterKey("k1", 1))
		one, other := openSealed(t, db, clock, keys), openSealed(t, db, clock, keys)
		if err := one.EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		for _, a := range []*Auth{one, other} { // as if neither had seen the other's row
			if _, err := a.keys.create(ctx, clock.now); err != nil {
				t.Fatal(err)
			}
			clock.now = clock.now.Add(time.Millisecond)
		}
		for range 3 * 60 { // minute by minute, for three hours
			clock.now = clock.now.Add(time.Minute)
			token, err := one.IssueToken(ctx, "ada", nil, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.bearer(ctx, token); err != nil {
				t.Fatalf("%v: a fresh token is refused: %v", clock.now, err)
			}
		}
	})
}

// A node goes on signing while the rows cannot be read.
func TestSigningWithoutTheDatabase(t *testing.T) {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	clock := &keyClock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	a := openSealed(t, db, clock, sealKeys(t, masterKey("k1", 1)))
	key, err := a.keys.signer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		clock.now = clock.now.Add(time.Minute)
		if again, err := a.keys.signer(ctx); err != nil || again.id != key.id {
			t.Fatal(again.id, err)
		}
	}
}
