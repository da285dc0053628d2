package auth_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestSignInCookies(t *testing.T) {
	for base, want := range map[string][]string{
		"https://api.example.com": {
			"__Host-kit_session=*; Path=/; Max-Age=15552000; HttpOnly; Secure; SameSite=Lax",
			"__Secure-kit_refresh=*; Path=/auth/token; Max-Age=15552000; HttpOnly; Secure; SameSite=Strict",
			"__Host-kit_csrf=*; Path=/; Max-Age=15552000; Secure; SameSite=Lax",
		},
		"http://localhost:8080/v1": {
			"kit_session=*; Path=/; Max-Age=15552000; HttpOnly; SameSite=Lax",
			"kit_refresh=*; Path=/v1/auth/token; Max-Age=15552000; HttpOnly; SameSite=Strict",
			"kit_csrf=*; Path=/; Max-Age=15552000; SameSite=Lax",
		},
	} {
		s := withDoorman(auth.Config{})
		s.baseURL = base
		n := open(t, databasetest.Memory(t), s)
		n.user(t, "ada")
		response := n.client(t).do("POST", "/auth/sign-in/name", `{"name":"ada"}`).want(200, "")
		var got []string
		for _, c := range response.Cookies() {
			got = append(got, strings.Replace(c.Raw, c.Value, "*", 1))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestEnterAndLeave(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		browser := n.client(t).with("Sec-Fetch-Site", "same-origin")
		e := browser.signIn("ada")
		if e.RefreshToken != "" || e.CSRF == "" || browser.cookies["__Host-kit_csrf"].Value != e.CSRF {
			t.Errorf("%+v", e)
		}
		const signedIn, nobody = `{"found":true,"methods":["pwd","totp"],"user":"ada"}`, `{"found":false,"methods":null,"user":""}`
		session := func(c *client, method, want string) {
			t.Helper()
			if got := strings.TrimSpace(string(c.do(method, "/auth/session", "").want(200, "").body)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		session(browser, "GET", signedIn)
		session(browser, "POST", signedIn)
		native := n.client(t).with("Authorization", "Bearer "+e.Token)
		session(native, "POST", signedIn)
		session(n.client(t), "POST", nobody)
		session(n.client(t).with("Authorization", "Bearer "+n.token(t, "ada")), "GET", nobody) // has no session
		n.client(t).with("Authorization", "Bearer x").do("GET", "/auth/session", "").want(401, "auth/unauthenticated")

		// The token wins over the cookie, good or not.
		browser.with("Authorization", "Bearer x").do("GET", "/auth/session", "").want(401, "auth/unauthenticated")

		claims := claimsOf(t, e.Token)
		if claims["sid"] != e.Session || claims["did"] == nil || claims["auth_time"] != float64(n.clock.Now().Unix()) || cmp.Diff([]any{"pwd", "totp"}, claims["amr"]) != "" {
			t.Errorf("%v", claims)
		}

		browser.do("POST", "/auth/sign-out", "").want(200, "")
		if len(browser.cookies) > 0 {
			t.Errorf("left: %v", browser.cookies)
		}
		n.wantBearer(t, e.Token, capability.ErrUnauthenticated)
		browser.do("POST", "/auth/sign-out", "").want(200, "") // again
		if n := count(t, db, "auth_session") + count(t, db, "auth_device"); n != 0 {
			t.Errorf("%d rows left", n)
		}
		want := []string{"auth/user_created system ada", "auth/signed_in user ada", "auth/signed_out user ada"}
		if diff := cmp.Diff(want, n.actions(t)); diff != "" {
			t.Error(diff)
		}
	})
}

// A cookie proves an unsafe request only when it comes from an own page.
func TestForeignPages(t *testing.T) {
	n := open(t, databasetest.Memory(t), withDoorman(auth.Config{TrustedOrigins: []string{"https://app.example.com"}}))
	n.user(t, "ada")
	browser := n.client(t)
	e := browser.signIn("ada")
	for name, tt := range map[string]struct {
		headers map[string]string
		code    string
	}{
		"own page":               {map[string]string{"Sec-Fetch-Site": "same-origin"}, ""},
		"typed":                  {map[string]string{"Sec-Fetch-Site": "none"}, ""},
		"own origin":             {map[string]string{"Origin": "https://api.example.com"}, ""},
		"trusted origin":         {map[string]string{"Origin": "https://app.example.com", "Sec-Fetch-Site": "same-site"}, ""},
		"no browser, with token": {map[string]string{"X-CSRF-Token": e.CSRF}, ""},
		"no browser, no token":   {nil, "auth/csrf"},
		"foreign site":           {map[string]string{"Sec-Fetch-Site": "cross-site", "X-CSRF-Token": e.CSRF}, "auth/csrf"},
		"sibling site":           {map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "https://evil.example.com"}, "auth/csrf"},
		"foreign origin":         {map[string]string{"Origin": "https://evil.example"}, "auth/csrf"},
		"null origin":            {map[string]string{"Origin": "null"}, "auth/csrf"},
		"plain http origin":      {map[string]string{"Origin": "http://app.example.com"}, "auth/csrf"},
		"own host on plain http": {map[string]string{"Origin": "http://api.example.com"}, "auth/csrf"},
		"origin with port":       {map[string]string{"Origin": "https://app.example.com:8443"}, "auth/csrf"},
	} {
		t.Run(name, func(t *testing.T) {
			c := browser
			for name, value := range tt.headers {
				c = c.with(name, value)
			}
			status := http.StatusOK
			if tt.code != "" {
				status = http.StatusForbidden
			}
			c.do("POST", "/auth/session", "").want(status, tt.code)
			c.do("GET", "/auth/session", "").want(200, "")
			if tt.code != "" {
				c.do("POST", "/auth/sign-out", "").want(status, tt.code)
			}
		})
	}
}

// A second sign-in of the same user in one browser is on the same device, of
// another user on another.
func TestDevicesOfABrowser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		n.user(t, "bob")
		browser := n.client(t).with("User-Agent", "Browser/1").with("Sec-Fetch-Site", "same-origin")
		first := browser.signIn("ada")
		second := browser.signIn("ada")
		other := browser.signIn("bob")
		did := func(e entered) any { return claimsOf(t, e.Token)["did"] }
		if did(first) != did(second) || did(first) == did(other) || first.Session == second.Session {
			t.Errorf("%v %v %v", did(first), did(second), did(other))
		}
		devices, err := n.ListDevices(ctx, "ada", capability.NewPage(0, ""))
		if err != nil || len(devices.Items) != 1 {
			t.Fatal(devices, err)
		}
		now := n.clock.Now()
		want := auth.Device{ID: did(first).(string), UserID: "ada", Name: "laptop", UserAgent: "Browser/1", IP: "192.0.2.1", CreatedAt: now, LastSeenAt: now}
		if diff := cmp.Diff(want, devices.Items[0]); diff != "" {
			t.Error(diff)
		}
	})
}

// A browser that is signed in as two users goes back to the first.
func TestResume(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		n.user(t, "bob")
		browser, old := n.client(t).with("Sec-Fetch-Site", "same-origin"), n.client(t)
		ada := browser.signIn("ada")
		old.cookies["__Host-kit_session"] = browser.cookies["__Host-kit_session"]
		browser.signIn("bob")
		var back entered
		browser.do("POST", "/auth/resume/"+ada.Session, "").want(200, "").decode(&back)
		if claims := claimsOf(t, back.Token); claims["sid"] != ada.Session || claims["sub"] != "ada" {
			t.Errorf("%v", claims)
		}
		browser.with("X-CSRF-Token", back.CSRF).do("POST", "/auth/token/rotate", "").want(200, "")
		if got := string(browser.do("GET", "/auth/session", "").want(200, "").body); !strings.Contains(got, `"user":"ada"`) {
			t.Error(got)
		}
		old.do("GET", "/auth/session", "").want(401, "auth/unauthenticated")
		n.wantBearer(t, ada.Token, nil)
		if err := n.RevokeSession(ctx, ada.Session); err != nil {
			t.Fatal(err)
		}
		browser.do("POST", "/auth/resume/"+ada.Session, "").want(404, "auth/session_not_found")
	})
}

// A native client gets its refresh token in the body and no cookie; a page of a
// browser cannot ask for that.
func TestBodyTransport(t *testing.T) {
	n := open(t, databasetest.Memory(t), withDoorman(auth.Config{}))
	n.user(t, "ada")
	native := n.client(t).with("X-Kit-Transport", "body")
	if e := native.signIn("ada"); e.RefreshToken == "" || len(native.cookies) > 0 {
		t.Errorf("%+v %v", e, native.cookies)
	}
	for _, header := range []string{"Origin", "Sec-Fetch-Site"} {
		page := native.with(header, "https://api.example.com")
		if e := page.signIn("ada"); e.RefreshToken != "" || len(page.cookies) != 3 {
			t.Errorf("%s: %+v %v", header, e, page.cookies)
		}
		clear(page.cookies)
	}
}

func TestDisabledUser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		native := n.client(t).with("X-Kit-Transport", "body")
		e, issued := native.signIn("ada"), n.token(t, "ada")
		if err := n.DisableUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		n.wantBearer(t, e.Token, capability.ErrUnauthenticated)
		n.wantBearer(t, issued, capability.ErrUnauthenticated)
		native.do("POST", "/auth/sign-in/name", `{"name":"ada"}`).want(403, "auth/user_disabled")
		native.do("POST", "/auth/token/rotate", `{"refreshToken":"`+e.RefreshToken+`"}`).want(401, "auth/refresh_invalid")
		if _, err := n.IssueToken(ctx, "ada", nil, 0); capability.AsError(err).Code != "auth/user_disabled" {
			t.Error(err)
		}
		if err := n.EnableUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		native.signIn("ada")
		native.do("POST", "/auth/sign-in/name", `{"name":"bob"}`).want(404, "auth/user_not_found")
	})
}

// Sessions end when they are not used, and in any case at their absolute end.
func TestLifetimes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		day := 24 * time.Hour
		n := open(t, db, withDoorman(auth.Config{SessionIdle: 2 * day, SessionAbsolute: 5 * day}))
		n.user(t, "ada")
		browser := n.client(t)
		browser.signIn("ada")
		idle := n.client(t)
		idle.signIn("ada")
		for range 4 { // used every 30 hours, it lasts beyond two days
			n.clock.advance(28 * time.Hour)
			browser.do("GET", "/auth/devices", "").want(200, "")
		}
		idle.do("GET", "/auth/devices", "").want(401, "auth/unauthenticated")
		n.clock.advance(8*time.Hour - time.Millisecond)
		browser.do("GET", "/auth/devices", "").want(200, "")
		n.clock.advance(time.Millisecond)
		browser.do("GET", "/auth/devices", "").want(401, "auth/unauthenticated")
	})
}

// The use of a session is written down once an hour.
func TestUseIsWrittenHourly(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		browser := n.client(t)
		e := browser.signIn("ada")
		signedIn := n.clock.Now()
		seen := func(want time.Time) {
			t.Helper()
			session, err := n.Session(ctx, e.Session)
			if err != nil || !session.UpdatedAt.Equal(want) || !session.ExpiresAt.Equal(want.Add(30*24*time.Hour)) {
				t.Errorf("%v %v, want %v", session, err, want)
			}
			devices, err := n.ListDevices(ctx, "ada", capability.NewPage(0, ""))
			if err != nil || len(devices.Items) != 1 || !devices.Items[0].LastSeenAt.Equal(want) {
				t.Errorf("%v %v, want %v", devices, err, want)
			}
		}
		n.clock.advance(time.Hour - time.Millisecond)
		browser.do("GET", "/auth/devices", "").want(200, "")
		seen(signedIn)
		n.clock.advance(time.Millisecond)
		browser.do("GET", "/auth/devices", "").want(200, "")
		seen(n.clock.Now())
	})
}

// What a session that is not remembered leaves in the browser ends with it.
func TestNotRemembered(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{config: auth.Config{Library: func(_ capability.Host, a *auth.LibraryHost) (auth.Library, error) {
		return auth.Library{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := a.Enter(w, r, auth.Entry{UserID: "ada", Method: "pwd"}); err != nil {
				t.Error(err)
			}
		})}, nil
	}}})
	n.user(t, "ada")
	browser := n.client(t)
	for _, cookie := range browser.do("POST", "/auth/anything", "").want(200, "").Cookies() {
		if cookie.MaxAge != 0 {
			t.Errorf("%s stays", cookie.Name)
		}
	}
	n.clock.advance(24*time.Hour - time.Millisecond)
	browser.do("GET", "/auth/devices", "").want(200, "")
	n.clock.advance(24 * time.Hour)
	browser.do("GET", "/auth/devices", "").want(401, "auth/unauthenticated")
}

func claimsOf(t testing.TB, raw string) map[string]any {
	t.Helper()
	_, claims := decode(t, raw)
	return claims
}

func count(t testing.TB, db *database.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRow(ctx, `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// However short the idle time, who uses the session stays signed in.
func TestShortIdleTime(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{SessionIdle: 5 * time.Minute}))
		n.user(t, "ada")
		browser := n.client(t)
		browser.signIn("ada")
		for range 60 {
			n.clock.advance(2 * time.Minute)
			browser.do("GET", "/auth/devices", "").want(200, "")
		}
		n.clock.advance(5 * time.Minute)
		browser.do("GET", "/auth/devices", "").want(401, "auth/unauthenticated")
	})
}

// A sign-out ends the session of the cookie although the access token sent with
// it has expired or has none, and still only for the own page.
func TestLeaveWithAnExpiredToken(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		browser := n.client(t).with("Sec-Fetch-Site", "same-origin")
		e := browser.signIn("ada")
		n.clock.advance(time.Hour)
		stale := browser.with("Authorization", "Bearer "+e.Token)
		stale.with("Sec-Fetch-Site", "cross-site").do("POST", "/auth/sign-out", "").want(403, "auth/csrf")
		if _, err := n.Session(ctx, e.Session); err != nil {
			t.Fatal(err)
		}
		stale.do("POST", "/auth/sign-out", "").want(200, "")
		if len(browser.cookies) > 0 {
			t.Error("cookies stay")
		}
		if _, err := n.Session(ctx, e.Session); !errors.Is(err, auth.ErrSessionNotFound) {
			t.Errorf("the session lives: %v", err)
		}
		browser.with("Authorization", "Bearer "+e.Token).do("POST", "/auth/sign-out", "").want(200, "")

		// So does one that has no session.
		e = browser.signIn("ada")
		browser.with("Authorization", "Bearer "+n.token(t, "ada")).do("POST", "/auth/sign-out", "").want(200, "")
		if _, err := n.Session(ctx, e.Session); !errors.Is(err, auth.ErrSessionNotFound) {
			t.Errorf("the session lives: %v", err)
		}
	})
}

// Text that no column takes is refused, not tried.
func TestTextThatCannotBeStored(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		browser := n.client(t)
		browser.do("POST", "/auth/sign-in/name", `{"name":"ada","device":"a\u0000b"}`).want(400, "kit/invalid_request")
		browser.do("POST", "/auth/sign-in/name", `{"name":"ada","device":"`+strings.Repeat("a", 257)+`"}`).want(400, "kit/invalid_request")
		for _, text := range []string{"a\x00b", "\xff", strings.Repeat("a", 1000)} {
			if _, found, err := n.UserByUsername(ctx, text); found || err != nil {
				t.Errorf("%.10q: %v %v", text, found, err)
			}
			if users, err := n.UsersNamed(ctx, text, 10); len(users) > 0 || err != nil {
				t.Errorf("%.10q: %v %v", text, users, err)
			}
			if _, err := n.User(ctx, text); !errors.Is(err, auth.ErrUserNotFound) {
				t.Errorf("%.10q: %v", text, err)
			}
		}
	})
}
