package auth_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestSessionCookie(t *testing.T) {
	for base, want := range map[string]string{
		"https://api.example.com/v1": "__Host-kit_session=*; Path=/; Max-Age=15552000; HttpOnly; Secure; SameSite=Lax",
		"http://localhost:8080":      "kit_session=*; Path=/; Max-Age=15552000; HttpOnly; SameSite=Lax",
	} {
		n := open(t, databasetest.Memory(t), setup{baseURL: base})
		cookie := n.SessionCookie(n.signIn(t, "ada"))
		if secret, err := base64.RawURLEncoding.DecodeString(cookie.Value); err != nil || len(secret) != 32 {
			t.Errorf("%q: %v", cookie.Value, err)
		}
		if diff := cmp.Diff(want, strings.Replace(cookie.String(), cookie.Value, "*", 1)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSession(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{config: auth.Config{SessionIdle: time.Hour}})
		session := n.signIn(t, "ada")
		caller, ok, err := n.users.Session(n.request(http.MethodGet, session))
		want := capability.Caller{Strategy: capability.StrategySession, UserID: "ada", SessionID: session.ID}
		if diff := cmp.Diff(want, caller); diff != "" || !ok || err != nil {
			t.Error(ok, err, diff)
		}
		n.clock.advance(6*time.Minute - time.Millisecond)
		n.wantSession(t, session, nil) // not yet to be written down
		n.clock.advance(54*time.Minute + time.Millisecond)
		n.wantSession(t, session, capability.ErrUnauthenticated)

		n.signIn(t, "ada") // clears away what has expired
		var rows int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM auth_session`).Scan(&rows); err != nil || rows != 1 {
			t.Error(rows, err)
		}
		if _, err := n.CreateSession(ctx, "bob"); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("unknown user: %v", err)
		}
	})
}

// Sessions end up in logs; their cookies do not.
func TestSessionDoesNotPrintItsSecret(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{})
	session := n.signIn(t, "ada")
	secret, err := base64.RawURLEncoding.DecodeString(n.SessionCookie(session).Value)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		text := fmt.Sprintf(format, session)
		for _, form := range []string{fmt.Sprintf("%d", secret[:8]), fmt.Sprintf("%x", secret[:8]), fmt.Sprintf("%#v", secret[:8])} {
			if strings.Contains(text, strings.Trim(strings.TrimPrefix(form, "[]byte"), "[]{}")) {
				t.Errorf("%s prints %s", format, text)
			}
		}
	}
}

func TestForgedCookies(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{})
	good := n.SessionCookie(n.signIn(t, "ada"))
	name := good.Name
	tests := map[string]struct {
		header string
		want   error // nil: as if there were no cookie
	}{
		"none":            {"", nil},
		"other name":      {"kit_session=" + good.Value, nil},
		"empty":           {name + "=", nil},
		"cut":             {name + "=" + good.Value[1:], nil},
		"padded":          {name + "=" + good.Value + "=", nil},
		"not base64":      {name + "=" + strings.Repeat("!", 43), nil},
		"two cookies":     {name + "=" + good.Value + "; " + name + "=" + good.Value, nil},
		"random":          {name + "=" + strings.Repeat("A", 43), capability.ErrUnauthenticated},
		"very long":       {name + "=" + strings.Repeat("A", 1<<16), nil},
		"the stored hash": {name + "=" + hashOf(t, n), capability.ErrUnauthenticated},
	}
	for label, tt := range tests {
		t.Run(label, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Cookie", tt.header)
			if caller, ok, err := n.users.Session(r); ok || !errors.Is(err, tt.want) {
				t.Errorf("%v %v %v", caller, ok, err)
			}
		})
	}
}

// hashOf reads what a thief of the database has, which is not the cookie.
func hashOf(t *testing.T, n *node) string {
	t.Helper()
	var hash []byte
	if err := n.host.DB.QueryRow(ctx, `SELECT secret_hash FROM auth_session`).Scan(&hash); err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(hash)
}

func TestCSRF(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		session, other := n.signIn(t, "ada"), n.signIn(t, "ada")
		token := n.CSRFToken(session)
		check := func(tokens ...string) error {
			r := n.request(http.MethodPost, session)
			r.Header["X-Csrf-Token"] = tokens
			caller, ok, err := n.users.Session(r)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			return n.users.CSRF(r, caller)
		}
		if err := check(token); err != nil {
			t.Error(err)
		}
		for name, tokens := range map[string][]string{
			"none":             nil,
			"empty":            {""},
			"other session":    {n.CSRFToken(other)},
			"altered":          {strings.Map(func(c rune) rune { return c ^ 1 }, token[:1]) + token[1:]},
			"cut":              {token[:len(token)-1]},
			"twice":            {token, token},
			"the session id":   {session.ID},
			"the cookie value": {n.SessionCookie(session).Value},
		} {
			if err := check(tokens...); !errors.Is(err, capability.ErrCSRF) {
				t.Errorf("%s: %v", name, err)
			}
		}

		// The token of one session with the cookie of another, as a page that
		// has planted its own cookie would send them.
		r := n.request(http.MethodPost, other)
		r.Header.Set("X-CSRF-Token", token)
		caller, _, _ := n.users.Session(r)
		if err := n.users.CSRF(r, caller); !errors.Is(err, capability.ErrCSRF) {
			t.Errorf("planted cookie: %v", err)
		}
		r = httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(nil))
		r.Header.Set("X-CSRF-Token", token)
		if err := n.users.CSRF(r, caller); !errors.Is(err, capability.ErrCSRF) {
			t.Errorf("without a cookie: %v", err)
		}

		// Right cookie and token, but the proof was of another session.
		r = n.request(http.MethodPost, session)
		r.Header.Set("X-CSRF-Token", token)
		if err := n.users.CSRF(r, capability.Caller{SessionID: other.ID}); !errors.Is(err, capability.ErrCSRF) {
			t.Errorf("proof of another session: %v", err)
		}

		// The token holds on another node.
		r = n.request(http.MethodPost, session)
		r.Header.Set("X-CSRF-Token", token)
		node2 := open(t, db, setup{clock: n.clock})
		caller, ok, err := node2.users.Session(r)
		if !ok || err != nil || node2.users.CSRF(r, caller) != nil {
			t.Error("refused on another node", ok, err)
		}
	})
}

// A user has so many sessions that all can be listed: with one more the one used
// least recently ends.
func TestSessionsOfAUserAreBounded(t *testing.T) {
	n := open(t, databasetest.Memory(t), withDoorman(auth.Config{}))
	used := n.native(t, "ada")
	unused := n.native(t, "ada")
	for range 998 {
		n.clock.advance(time.Millisecond)
		if _, err := n.CreateSession(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
	}
	n.rotate(t, used.RefreshToken)
	n.signIn(t, "eve")
	n.wantBearer(t, unused.Token, nil)

	n.signIn(t, "ada")
	n.wantBearer(t, used.Token, nil)
	n.wantBearer(t, unused.Token, capability.ErrUnauthenticated)
	n.wantRotate(t, unused.RefreshToken, auth.ErrRefreshInvalid)
	if trail := n.actions(t); trail[len(trail)-1] != "auth/sessions_revoked system ada" {
		t.Error(trail)
	}
	if sessions, devices := count(t, n.host.DB, "auth_session"), count(t, n.host.DB, "auth_device"); sessions != 1001 || devices != 1001 {
		t.Errorf("%d sessions on %d devices", sessions, devices)
	}
	if ended, err := n.RevokeUser(ctx, "ada"); err != nil || ended != 1000 {
		t.Error(ended, err)
	}
}
