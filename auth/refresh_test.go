package auth_test

import (
	"encoding/base64"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// native signs a user in whose program keeps the tokens.
func (n *node) native(t testing.TB, user string) entered {
	t.Helper()
	n.user(t, user)
	return n.client(t).with("X-Kit-Transport", "body").signIn(user)
}

func (n *node) rotate(t testing.TB, token string) auth.Rotated {
	t.Helper()
	rotated, err := n.Rotate(ctx, token)
	if err != nil {
		t.Fatal(err)
	}
	return rotated
}

func (n *node) wantRotate(t testing.TB, token string, want error) {
	t.Helper()
	if _, err := n.Rotate(ctx, token); !errors.Is(err, want) {
		t.Fatalf("rotate: got %v, want %v", err, want)
	}
}

// theft is what the trail says of a session that was ended by reuse.
func (n *node) theft(t testing.TB, sessionID string) bool {
	t.Helper()
	page, err := n.trail.ListEvents(ctx, audit.Filter{Action: "auth/refresh_reused"}, capability.NewPage(10, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Items {
		if e.Subject.ID == "ada" && e.Targets[0].ID == sessionID && e.Outcome == audit.OutcomeRefused && e.Code == "auth/refresh_reused" {
			return true
		}
	}
	return false
}

func TestRotation(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		e := n.native(t, "ada")
		tokens := []string{e.RefreshToken}
		for i := range 3 {
			n.clock.advance(time.Minute)
			rotated := n.rotate(t, tokens[i])
			caller, err := n.users.Bearer(ctx, rotated.AccessToken)
			if err != nil || caller.UserID != "ada" || caller.SessionID != e.Session || len(caller.Scopes) > 0 {
				t.Fatal(caller, err)
			}
			if len(rotated.RefreshToken) != len(e.RefreshToken) || rotated.RefreshToken == tokens[i] {
				t.Fatal(rotated.RefreshToken)
			}
			tokens = append(tokens, rotated.RefreshToken)
		}
		session, err := n.Session(ctx, e.Session)
		if err != nil || !session.ExpiresAt.Equal(n.clock.Now().Add(30*24*time.Hour)) {
			t.Error(session, err)
		}
		// Two steps back nothing is forgiven.
		n.wantRotate(t, tokens[1], auth.ErrRefreshReused)
		n.wantRotate(t, tokens[3], auth.ErrRefreshInvalid)
		if !n.theft(t, e.Session) {
			t.Error("not on the trail")
		}
	})
}

// Two hundred tabs rotate one token at once: all get one successor, nobody is
// signed out; the token used again a minute later ends the session.
func TestRacingTabs(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		one := open(t, db1, withDoorman(auth.Config{}))
		s := withDoorman(auth.Config{})
		s.clock = one.clock
		nodes := []*node{one, open(t, db2, s)}
		e := one.native(t, "ada")
		const tabs = 200
		results := make([]auth.Rotated, tabs)
		var work sync.WaitGroup
		for i := range tabs {
			work.Go(func() {
				rotated, err := nodes[i%2].Rotate(ctx, e.RefreshToken)
				if err != nil {
					t.Errorf("tab %d: %v", i, err)
				}
				results[i] = rotated
			})
		}
		work.Wait()
		for i, result := range results {
			if result.RefreshToken != results[0].RefreshToken || result.RefreshToken == e.RefreshToken {
				t.Fatalf("tab %d has another successor", i)
			}
			nodes[1].wantBearer(t, result.AccessToken, nil)
		}
		// One tab is done and goes on while others are still under way.
		for range 3 {
			if next := one.rotate(t, results[0].RefreshToken); next.RefreshToken != results[0].RefreshToken {
				t.Fatal("a fresh token was rotated")
			}
			if late := one.rotate(t, e.RefreshToken); late.RefreshToken != results[0].RefreshToken {
				t.Fatal("a late tab has another successor")
			}
		}

		one.clock.advance(time.Minute)
		one.wantRotate(t, e.RefreshToken, auth.ErrRefreshReused)
		one.wantRotate(t, results[0].RefreshToken, auth.ErrRefreshInvalid)
		for _, n := range nodes {
			n.clock.advance(time.Second)
			n.wantBearer(t, results[0].AccessToken, capability.ErrUnauthenticated)
		}
		if !one.theft(t, e.Session) {
			t.Error("not on the trail")
		}
	})
}

// A response that never arrived can be requested again, however late, as long as
// nobody has used what was in it.
func TestLostResponse(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		e := n.native(t, "ada")
		lost := n.rotate(t, e.RefreshToken)
		n.clock.advance(3 * 24 * time.Hour)
		again := n.rotate(t, e.RefreshToken)
		if again.RefreshToken != lost.RefreshToken {
			t.Error("another successor")
		}
		n.clock.advance(time.Minute)
		n.rotate(t, again.RefreshToken)
		n.clock.advance(time.Minute)
		n.wantRotate(t, e.RefreshToken, auth.ErrRefreshReused)
	})
}

// Using the access token shows that the response arrived: the old refresh token is
// then in other hands.
func TestUsingTheTokenConfirmsIt(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		n := open(t, db1, withDoorman(auth.Config{}))
		other := open(t, db2, setup{clock: n.clock})
		e := n.native(t, "ada")
		rotated := n.rotate(t, e.RefreshToken)
		other.wantBearer(t, rotated.AccessToken, nil)
		for range 100_000 { // it is recorded in the background
			var confirmed bool
			if err := db1.QueryRow(ctx, `SELECT refresh_confirmed FROM auth_session`).Scan(&confirmed); err != nil {
				t.Fatal(err)
			}
			if confirmed {
				break
			}
			runtime.Gosched()
		}
		n.rotate(t, e.RefreshToken) // within the grace
		n.clock.advance(time.Minute)
		n.wantRotate(t, e.RefreshToken, auth.ErrRefreshReused)
		n.wantBearer(t, rotated.AccessToken, capability.ErrUnauthenticated)
	})
}

func TestNoGrace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{ReuseGrace: -1}))
		e := n.native(t, "ada")
		next := n.rotate(t, e.RefreshToken)
		if after := n.rotate(t, next.RefreshToken); after.RefreshToken == next.RefreshToken {
			t.Error("not rotated")
		}
		for _, behind := range []time.Duration{0, time.Second} {
			e = n.native(t, "ada")
			n.rotate(t, e.RefreshToken)
			n.clock.advance(-behind)
			n.wantRotate(t, e.RefreshToken, auth.ErrRefreshReused)
		}
	})
}

func TestForgedRefreshTokens(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		e, other := n.native(t, "ada"), n.native(t, "eve")
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(e.RefreshToken, "rt1."))
		if err != nil {
			t.Fatal(err)
		}
		altered := func(change func([]byte)) string {
			forged := append([]byte{}, raw...)
			change(forged)
			return "rt1." + base64.RawURLEncoding.EncodeToString(forged)
		}
		for name, token := range map[string]string{
			"empty":              "",
			"no version":         strings.TrimPrefix(e.RefreshToken, "rt1."),
			"other version":      "rt2." + strings.TrimPrefix(e.RefreshToken, "rt1."),
			"upper version":      "RT1." + strings.TrimPrefix(e.RefreshToken, "rt1."),
			"padded":             e.RefreshToken + "=",
			"line break":         e.RefreshToken + "\n",
			"break inside":       e.RefreshToken[:20] + "\n" + e.RefreshToken[21:],
			"cut":                e.RefreshToken[:len(e.RefreshToken)-1],
			"next counter":       altered(func(b []byte) { b[29]++ }),
			"far counter":        altered(func(b []byte) { b[26] = 255 }),
			"other session":      altered(func(b []byte) { copy(b, other.Session) }),
			"unknown session":    altered(func(b []byte) { b[0] ^= 1 }),
			"NUL in the session": altered(func(b []byte) { b[3] = 0 }),
			"altered MAC":        altered(func(b []byte) { b[61] ^= 1 }),
			"access token":       e.Token,
			"very long":          e.RefreshToken + strings.Repeat("A", 1<<20),
		} {
			t.Run(name, func(t *testing.T) { n.wantRotate(t, token, auth.ErrRefreshInvalid) })
		}
		n.rotate(t, e.RefreshToken) // nothing of that did any harm
	})
}

// Rotation prolongs a session, never beyond its absolute end.
func TestRotationLifetimes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		day := 24 * time.Hour
		n := open(t, db, withDoorman(auth.Config{SessionIdle: 2 * day, SessionAbsolute: 5 * day}))
		e := n.native(t, "ada")
		token := e.RefreshToken
		for range 4 {
			n.clock.advance(29 * time.Hour)
			token = n.rotate(t, token).RefreshToken
		}
		n.clock.advance(4*time.Hour - time.Millisecond)
		token = n.rotate(t, token).RefreshToken
		n.clock.advance(time.Millisecond)
		n.wantRotate(t, token, auth.ErrRefreshInvalid)

		e = n.native(t, "ada")
		n.clock.advance(2 * day)
		n.wantRotate(t, e.RefreshToken, auth.ErrRefreshInvalid)
	})
}

func TestRotateOverHTTP(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		type rotated struct {
			AccessToken, TokenType, RefreshToken, SessionID string
			ExpiresIn                                       int
		}

		// A native client.
		native := n.client(t).with("X-Kit-Transport", "body")
		e := native.signIn("ada")
		var got rotated
		result := native.do("POST", "/auth/token/rotate", `{"refreshToken":"`+e.RefreshToken+`"}`).want(200, "")
		result.decode(&got)
		n.wantBearer(t, got.AccessToken, nil)
		if got.TokenType != "Bearer" || got.ExpiresIn != 900 || got.SessionID != e.Session || got.RefreshToken == "" ||
			result.Header.Get("Cache-Control") != "no-store" || len(result.Cookies()) > 0 {
			t.Errorf("%+v %v", got, result.Header)
		}

		// A page.
		page := n.client(t).with("Sec-Fetch-Site", "same-origin")
		e = page.signIn("ada")
		before := page.cookies["__Secure-kit_refresh"].Value
		kept := len(page.cookies)
		page.do("POST", "/auth/token/rotate", "").want(403, "auth/csrf")
		page.with("X-CSRF-Token", "x").do("POST", "/auth/token/rotate", "{}").want(403, "auth/csrf")
		page.with("X-CSRF-Token", e.CSRF).with("Sec-Fetch-Site", "cross-site").do("POST", "/auth/token/rotate", "").want(403, "auth/csrf")
		page = page.with("X-CSRF-Token", e.CSRF)
		got = rotated{}
		page.do("POST", "/auth/token/rotate", "").want(200, "").decode(&got)
		after := page.cookies["__Secure-kit_refresh"].Value
		if got.RefreshToken != "" || after == before || after == "" {
			t.Errorf("%+v", got)
		}
		n.wantBearer(t, got.AccessToken, nil)

		// A caller that loses keeps its cookies.
		page.cookies["__Secure-kit_refresh"].Value = before
		page.do("POST", "/auth/token/rotate", "").want(200, "")
		if page.cookies["__Secure-kit_refresh"].Value != after {
			t.Error("another successor")
		}
		page.cookies["__Secure-kit_refresh"].Value = "rt1.x"
		page.do("POST", "/auth/token/rotate", "").want(401, "auth/refresh_invalid")
		if len(page.cookies) != kept {
			t.Error("cookies went")
		}

		// The stolen token, a minute later.
		page.cookies["__Secure-kit_refresh"].Value = after
		n.clock.advance(time.Minute)
		page.do("POST", "/auth/token/rotate", "").want(200, "")
		page.cookies["__Secure-kit_refresh"].Value = before
		page.do("POST", "/auth/token/rotate", "").want(401, "auth/refresh_reused")
		if len(page.cookies) != kept {
			t.Error("cookies went")
		}
		page.do("GET", "/auth/devices", "").want(401, "auth/unauthenticated")

		n.client(t).do("POST", "/auth/token/rotate", "").want(401, "auth/refresh_invalid")
		n.client(t).do("POST", "/auth/token/rotate", `{"refreshtoken":"x"}`).want(400, "kit/invalid_request")
		n.client(t).do("POST", "/auth/token/rotate", `{"refreshToken":"x"}`).want(401, "auth/refresh_invalid")
		n.client(t).do("GET", "/auth/token/rotate", "").want(404, "")
	})
}

// What a thief of the database has is not the key of the tokens.
func TestRefreshKeysAreSealed(t *testing.T) {
	n := open(t, databasetest.Memory(t), withDoorman(auth.Config{}))
	one, other := n.native(t, "ada"), n.native(t, "ada")
	// A row that was given the key of another does not open.
	if _, err := n.host.DB.Exec(ctx, `UPDATE auth_session SET refresh_key = (SELECT refresh_key FROM auth_session WHERE id = $2) WHERE id = $1`,
		one.Session, other.Session); err != nil {
		t.Fatal(err)
	}
	n.wantRotate(t, one.RefreshToken, auth.ErrRefreshInvalid)
	n.rotate(t, other.RefreshToken)
	if diff := cmp.Diff([]string{"auth/user_created system ada", "auth/signed_in user ada", "auth/signed_in user ada"}, n.actions(t)); diff != "" {
		t.Error(diff)
	}
}

// Late callers with an old token get the same refusal, alone or together with
// others.
func TestRacingThieves(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		one := open(t, db1, withDoorman(auth.Config{}))
		s := withDoorman(auth.Config{})
		s.clock = one.clock
		nodes := []*node{one, open(t, db2, s)}
		e := one.native(t, "ada")
		token := e.RefreshToken
		for range 2 {
			one.clock.advance(time.Minute)
			token = one.rotate(t, token).RefreshToken
		}
		const thieves = 20
		results := make([]error, thieves)
		var work sync.WaitGroup
		for i := range thieves {
			work.Go(func() { _, results[i] = nodes[i%2].Rotate(ctx, e.RefreshToken) })
		}
		work.Wait()
		reused := 0
		for _, err := range results {
			switch {
			case errors.Is(err, auth.ErrRefreshReused):
				reused++
			case !errors.Is(err, auth.ErrRefreshInvalid):
				t.Error(err)
			}
		}
		if reused != 1 || !one.theft(t, e.Session) {
			t.Errorf("%d were told of the theft", reused)
		}
	})
}

// A clock that goes back neither breaks rotation nor forgives a theft.
func TestRotationUnderAClockThatGoesBack(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{SessionIdle: 10 * time.Minute}))
		e := n.native(t, "ada")
		n.clock.advance(-time.Hour)
		first := n.rotate(t, e.RefreshToken)
		second := n.rotate(t, n.rotate(t, first.RefreshToken).RefreshToken)
		if second.RefreshToken != first.RefreshToken {
			t.Error("rotated within the grace")
		}
		n.clock.advance(time.Minute)
		n.rotate(t, first.RefreshToken)
		n.clock.advance(-time.Hour)
		n.wantRotate(t, e.RefreshToken, auth.ErrRefreshReused)

		e = n.native(t, "ada")
		first = n.rotate(t, e.RefreshToken)
		n.rotate(t, first.RefreshToken)   // both are in use
		n.clock.advance(-5 * time.Second) // a node that is behind
		n.rotate(t, e.RefreshToken)
		n.clock.advance(-time.Hour)
		n.wantRotate(t, e.RefreshToken, auth.ErrRefreshReused)
	})
}
