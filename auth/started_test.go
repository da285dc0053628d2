package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/rate"
)

// A node that has just started takes all valid tokens that come at once: they
// wait for the keys, and none of them counts as forged.
func TestStartedNodeWaitsForItsKeys(t *testing.T) {
	ctx := context.Background()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		clock := &keyClock{time.Unix(1_800_000_000, 0)}
		keys := sealKeys(t, masterKey("k1", 1))
		running := openSealed(t, db, clock, keys)
		if err := running.EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		const clients = 50
		tokens := make([]string, clients)
		for i := range tokens {
			var err error
			if tokens[i], err = running.IssueToken(ctx, "ada", nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		started := openSealed(t, db, clock, keys)
		from := capability.WithRequestInfo(ctx, &capability.RequestInfo{IP: "192.0.2.1"})
		var group sync.WaitGroup
		for _, token := range tokens {
			group.Go(func() {
				if _, err := started.bearer(from, token); err != nil {
					t.Errorf("a valid token: %v", err)
				}
			})
		}
		group.Wait()
		if wait := started.forgeries.limiter.Wait("192.0.2.1"); wait > 0 {
			t.Errorf("valid tokens counted as forged: wait %s", wait)
		}
	})
}

// opening has something happen when a sealed key is opened.
type opening struct {
	capability.Sealer
	then func()
}

func (o opening) Open(context string, sealed []byte) ([]byte, error) {
	o.then()
	return o.Sealer.Open(context, sealed)
}

// Nor does one that looks while the keys are being read, or when they just were, and
// finds that unknown keys make a node read no more for now.
func TestTokensThatMeetTheReadingOfKeysAreGood(t *testing.T) {
	db, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	keys := sealKeys(t, masterKey("k1", 1))
	key, err := openSealed(t, db, clock, keys).keys.signer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	started := openSealed(t, db, clock, keys).keys
	for range reloads.Events {
		started.limiter.Allow("")
	}
	var looked atomic.Bool
	started.seal = opening{keys, func() {
		looked.Store(true)
		if _, found, err := started.find(gone, key.id, clock.Now()); err == nil && !found {
			t.Error("unknown while the keys are being read")
		}
	}}
	if _, _, err := started.load(t.Context()); err != nil || !looked.Load() {
		t.Fatal(looked.Load(), err)
	}
	if _, err := started.shared(t.Context()); err != nil { // after it no reading is under way
		t.Fatal(err)
	}

	started.keys, started.seal = nil, keys
	started.limiter = rate.New(rate.Limit{Events: 1, Per: time.Hour}, func() time.Time {
		if _, _, err := started.load(t.Context()); err != nil {
			t.Error(err)
		}
		return clock.Now()
	})
	started.limiter.Allow("")
	started.keys = nil
	if _, found, err := started.find(t.Context(), key.id, clock.Now()); err != nil || !found {
		t.Errorf("unknown just after the keys were read: %v", err)
	}
}

// A node that cannot read its keys says so; it does not call tokens forged.
func TestStartedNodeWithoutADatabaseIsUnavailable(t *testing.T) {
	ctx := context.Background()
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	keys := sealKeys(t, masterKey("k1", 1))
	db, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	running := openSealed(t, db, clock, keys)
	if err := running.EnsureUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	token, err := running.IssueToken(ctx, "ada", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	started := openSealed(t, db, clock, keys)
	started.revoked.polledAt.Store(clock.now.UnixNano())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 * reloads.Events {
		if _, err := started.bearer(ctx, token); !errors.Is(err, capability.ErrUnavailable) {
			t.Fatalf("got %v, want kit/unavailable", err)
		}
	}
}

// A session token proves its session for as long as that lives, to the library
// alone; made-up ones stop being looked up.
func TestSessionToken(t *testing.T) {
	ctx := context.Background()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		clock := &keyClock{time.Unix(1_800_000_000, 0)}
		a := openSealed(t, db, clock, sealKeys(t, masterKey("k1", 1)))
		if err := a.EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		session, err := a.CreateSession(ctx, "ada")
		if err != nil {
			t.Fatal(err)
		}
		token, err := (&LibraryHost{a}).SessionToken(session)
		if err != nil {
			t.Fatal(err)
		}
		current := func(token string) (Session, error) {
			info := &capability.RequestInfo{IP: "192.0.2.1"}
			r := httptest.NewRequestWithContext(capability.WithRequestInfo(ctx, info), http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			session, found, err := a.Current(r)
			if err == nil && !found {
				t.Error("no session and no refusal")
			}
			return session, err
		}
		if got, err := current(token); err != nil || got.ID != session.ID || got.Proof != ProofSessionToken {
			t.Fatalf("got %+v %v, want the session", got, err)
		}
		if _, err := a.bearer(ctx, token); !errors.Is(err, capability.ErrUnauthenticated) {
			t.Errorf("as an access token: %v", err)
		}
		clock.now = clock.now.Add(29 * 24 * time.Hour)
		if got, err := current(token); err != nil || !got.Renewed {
			t.Fatalf("after 29 days: %+v %v, want a renewed session", got, err)
		}
		clock.now = clock.now.Add(29 * 24 * time.Hour)
		if _, err := current(token); err != nil {
			t.Fatalf("its use did not move the end: %v", err)
		}
		forged := token[:len(token)-3] + "AAA"
		for i := range 200 {
			_, err := current(forged)
			want := capability.ErrUnauthenticated
			if i >= 100 && !a.forgeries.trusts(session.ID) {
				want = capability.ErrRateLimited
			}
			if !errors.Is(err, want) {
				t.Fatalf("forged %d: %v, want %v", i, err, want)
			}
		}
		if _, err := current(token); err != nil {
			t.Errorf("the good token of the same address: %v", err)
		}
		if err := a.RevokeSession(ctx, session.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := current(token); err == nil {
			t.Error("a revoked session's token is good")
		}
	})
}

// Made-up cookies and refresh tokens are counted, and over the limit no longer
// read the database; what this node has seen proved goes on.
func TestMadeUpProofsAreCounted(t *testing.T) {
	ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: "192.0.2.1"})
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	a := openSealed(t, databasetest.Memory(t), clock, sealKeys(t, masterKey("k1", 1)))
	if err := a.EnsureUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	session, err := a.CreateSession(ctx, "ada")
	if err != nil {
		t.Fatal(err)
	}
	refresh, err := a.refreshToken(session, 0)
	if err != nil {
		t.Fatal(err)
	}
	rotated, err := a.Rotate(ctx, refresh)
	if err != nil {
		t.Fatal(err)
	}
	cookie := func(value string) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: a.cookieName(sessionCookie), Value: value})
		_, _, err := a.Current(r)
		return err
	}
	good := a.SessionCookie(session).Value
	if err := cookie(good); err != nil {
		t.Fatal(err)
	}
	for i := range 1100 {
		want := capability.ErrUnauthenticated
		if i >= 1000 {
			want = capability.ErrRateLimited
		}
		if err := cookie(encoding.EncodeToString(newSecret())); !errors.Is(err, want) {
			t.Fatalf("made-up cookie %d: %v, want %v", i, err, want)
		}
	}
	if err := cookie(good); err != nil {
		t.Errorf("the good cookie of the same address: %v", err)
	}
	other := Session{ID: "zz" + session.ID[2:], DeviceID: session.DeviceID}
	other.refresh.sealed = a.newRefreshKey(other.ID)
	made, err := a.refreshToken(other, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		want := error(ErrRefreshInvalid)
		if i >= 100 {
			want = capability.ErrRateLimited
		}
		if _, err := a.Rotate(ctx, made); !errors.Is(err, want) {
			t.Fatalf("made-up refresh token %d: %v, want %v", i, err, want)
		}
	}
	if _, err := a.Rotate(ctx, rotated.RefreshToken); err != nil {
		t.Errorf("the good refresh token of the same address: %v", err)
	}
}
