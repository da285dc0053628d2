package auth_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/pubsub"
)

func TestRevocationBitesAtOnce(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{environment: capability.Development, baseURL: "http://localhost:8080"})
		ended, kept := n.devSession(t, "ada"), n.devSession(t, "ada")
		issued := n.token(t, "ada")
		all := []string{ended.token, kept.token, issued}
		for _, raw := range all {
			n.wantBearer(t, raw, nil)
		}
		if err := n.RevokeSession(ctx, ended.id); err != nil {
			t.Fatal(err)
		}
		n.wantBearer(t, ended.token, capability.ErrUnauthenticated)
		n.wantCookie(t, ended.cookie, capability.ErrUnauthenticated)
		n.wantBearer(t, kept.token, nil)
		n.wantBearer(t, issued, nil)
		n.wantCookie(t, kept.cookie, nil)

		sessions, err := n.RevokeUser(ctx, "ada")
		if err != nil || sessions != 1 {
			t.Fatal(sessions, err)
		}
		for _, raw := range all {
			n.wantBearer(t, raw, capability.ErrUnauthenticated)
		}
		n.wantCookie(t, kept.cookie, capability.ErrUnauthenticated)

		// The same user in the same millisecond: what comes after is good.
		n.wantBearer(t, n.token(t, "ada"), nil)
		n.wantSession(t, n.signIn(t, "ada"), nil)

		if err := n.RevokeSession(ctx, ended.id); !errors.Is(err, auth.ErrSessionNotFound) {
			t.Errorf("revoked twice: %v", err)
		}
		if _, err := n.RevokeUser(ctx, "bob"); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("unknown user: %v", err)
		}
		want := []string{
			"auth/user_created anonymous ada", "auth/signed_in user ada", "auth/signed_in user ada",
			"auth/session_revoked system ada", "auth/sessions_revoked system ada",
		}
		if diff := cmp.Diff(want, n.actions(t)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRolledBackRevocationDoesNotBite(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		session := n.signIn(t, "ada")
		raw := n.token(t, "ada")
		boom := errors.New("boom")
		err := db.InTx(ctx, func(ctx context.Context) error {
			if _, err := n.RevokeUser(ctx, "ada"); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		n.clock.advance(2 * time.Second)
		n.wantBearer(t, raw, nil)
		n.wantSession(t, session, nil)
	})
}

// Without any hint another node follows within a second.
func TestRevocationReachesOtherNodes(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		one := open(t, db1, setup{})
		other := open(t, db2, setup{clock: one.clock}) // a bus of its own
		session := one.signIn(t, "ada")
		raw := one.token(t, "ada")
		other.wantBearer(t, raw, nil)
		other.wantSession(t, session, nil)

		if _, err := one.RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		other.wantSession(t, session, capability.ErrUnauthenticated)
		one.clock.advance(time.Second - time.Millisecond)
		other.wantBearer(t, raw, nil) // read less than a second ago
		one.clock.advance(time.Millisecond)
		other.wantBearer(t, raw, capability.ErrUnauthenticated)

		// A node that starts, and one whose clock goes back, know it too.
		open(t, db2, setup{clock: one.clock}).wantBearer(t, raw, capability.ErrUnauthenticated)
		back := open(t, db2, setup{clock: one.clock})
		fresh := one.token(t, "ada")
		back.wantBearer(t, fresh, nil)
		if _, err := one.RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		one.clock.advance(-time.Second)
		back.wantBearer(t, fresh, capability.ErrUnauthenticated)
	})
}

func TestHintMakesOtherNodesLookAtOnce(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		bus := pubsub.NewMemory()
		one := open(t, db1, setup{bus: bus})
		other := open(t, db2, setup{bus: bus, clock: one.clock})
		one.user(t, "ada")
		raw := one.token(t, "ada")
		other.wantBearer(t, raw, nil)
		if _, err := one.RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		timeout, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		for { // the clock stands still, so only the hint can do it
			if _, err := other.users.Bearer(ctx, raw); errors.Is(err, capability.ErrUnauthenticated) {
				return
			}
			if timeout.Err() != nil {
				t.Fatal("the hint never arrived")
			}
			runtime.Gosched()
		}
	})
}

// A verified token costs no read; once nobody can tell what was revoked, it is
// not taken any more.
func TestNoReadPerRequest(t *testing.T) {
	db, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	n := open(t, db, setup{})
	n.user(t, "ada")
	raw, unseen := n.token(t, "ada"), n.token(t, "ada")
	n.wantBearer(t, raw, nil)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	n.wantBearer(t, raw, nil)
	n.wantBearer(t, unseen, nil)
	n.clock.advance(time.Second)
	n.wantBearer(t, raw, capability.ErrUnavailable)
	n.wantBearer(t, raw, capability.ErrUnavailable)
	n.clock.advance(-time.Millisecond)
	n.wantBearer(t, raw, capability.ErrUnavailable)
}

func TestRevocationsAreForgotten(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		n.signIn(t, "ada")
		count := func() (rows int) {
			if err := db.QueryRow(ctx, `SELECT count(*) FROM auth_revocation`).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		for range 3 {
			if _, err := n.RevokeUser(ctx, "ada"); err != nil {
				t.Fatal(err)
			}
		}
		if rows := count(); rows != 4 { // one session, three families
			t.Errorf("%d rows", rows)
		}
		n.clock.advance(25*time.Hour + 6*time.Second)
		if _, err := n.RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		if rows := count(); rows != 1 {
			t.Errorf("%d rows after all tokens are dead", rows)
		}
		n.wantBearer(t, n.token(t, "ada"), nil)
	})
}

// A node that starts after an attack reads all of them.
func TestManyRevocations(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		n.user(t, "ada")
		raw := n.token(t, "ada")
		const others = 2500
		err := db.InTx(ctx, func(ctx context.Context) error {
			for i := range others {
				if _, err := db.Exec(ctx, `INSERT INTO auth_revocation (position, session_id, until) VALUES ($1, 'other', $2)`,
					i+1, n.clock.Now().Add(time.Hour).UnixMilli()); err != nil {
					return err
				}
			}
			_, err := db.Exec(ctx, `UPDATE auth_revocation_head SET position = $1`, others)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		open(t, db, setup{clock: n.clock}).wantBearer(t, raw, capability.ErrUnauthenticated)
	})
}

func TestAClockThatJumpsRevivesNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		n.user(t, "ada")
		raw := n.token(t, "ada")
		if _, err := n.RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		n.wantBearer(t, raw, capability.ErrUnauthenticated)
		n.clock.advance(3 * time.Hour)
		n.wantBearer(t, raw, capability.ErrUnauthenticated)
		if _, err := n.RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		n.clock.advance(-3 * time.Hour)
		n.wantBearer(t, raw, capability.ErrUnauthenticated)
		open(t, db, setup{clock: n.clock}).wantBearer(t, raw, capability.ErrUnauthenticated)
	})
}

func TestCloseKeepsVerifying(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{})
	n.user(t, "ada")
	raw := n.token(t, "ada")
	n.wantBearer(t, raw, nil)
	for range 2 {
		if err := n.Capability().Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	n.clock.advance(time.Second)
	n.wantBearer(t, raw, nil)
}

func (n *node) wantCookie(t *testing.T, cookie *http.Cookie, want error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(cookie)
	if _, ok, err := n.users.Session(r); !errors.Is(err, want) || ok != (want == nil) {
		t.Errorf("cookie: got %v %v, want %v", ok, err, want)
	}
}

// What is read inside a transaction may never have happened: it neither ends a
// session nor hides the revocation that takes its place.
func TestRevocationsOfARolledBackTransaction(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		n := open(t, db1, withDoorman(auth.Config{}))
		s := withDoorman(auth.Config{})
		s.clock = n.clock
		other := open(t, db2, s)
		kept, ended, caller := n.native(t, "ada"), n.native(t, "eve"), n.native(t, "bob")
		n.wantBearer(t, kept.Token, nil)
		n.clock.advance(time.Second) // so that the rows are to be read again
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Authorization", "Bearer "+caller.Token)
		boom := errors.New("boom")
		err := db1.InTx(ctx, func(ctx context.Context) error {
			if err := n.RevokeSession(ctx, kept.Session); err != nil {
				return err
			}
			if session, found, err := n.Current(r.WithContext(ctx)); err != nil || !found || session.ID != caller.Session {
				t.Error(session.ID, found, err)
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		n.wantBearer(t, kept.Token, nil)
		if err := other.RevokeSession(ctx, ended.Session); err != nil {
			t.Fatal(err)
		}
		n.clock.advance(time.Second)
		n.wantBearer(t, ended.Token, capability.ErrUnauthenticated)
		n.wantBearer(t, kept.Token, nil)
	})
}

// An access token does not outlive the idle end of its session, whose row the
// next sign-in clears away: it could not be revoked any more.
func TestTokensEndWithIdleSessions(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{SessionIdle: 5 * time.Minute, AccessTokenTTL: time.Hour}))
		e := n.native(t, "ada")
		n.wantBearer(t, e.Token, nil)
		n.clock.advance(6 * time.Minute)
		n.native(t, "ada")
		if err := n.DisableUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		n.wantBearer(t, e.Token, capability.ErrUnauthenticated)
	})
}
