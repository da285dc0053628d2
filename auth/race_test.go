package auth_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// Whatever ends a user's sessions is final: of the sign-ins and rotations that
// race with it on two nodes none leaves anything good behind.
func TestEndsAreFinal(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(n *node, device string) error
		lost []error // of those who came too late
	}{
		"disabled": {func(n *node, _ string) error { return n.DisableUser(ctx, "ada") }, []error{auth.ErrUserDisabled, auth.ErrRefreshInvalid}},
		"deleted":  {func(n *node, _ string) error { return n.DeleteUser(ctx, "ada") }, []error{auth.ErrUserNotFound, auth.ErrRefreshInvalid}},
		"device": {func(n *node, device string) error {
			_, err := n.RevokeDevice(ctx, "ada", device)
			return err
		}, []error{auth.ErrRefreshInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
				one := open(t, db1, withDoorman(auth.Config{}))
				s := withDoorman(auth.Config{})
				s.clock = one.clock
				nodes := []*node{one, open(t, db2, s)}
				first := one.native(t, "ada")
				session, err := one.Session(ctx, first.Session)
				if err != nil {
					t.Fatal(err)
				}
				one.clock.advance(time.Minute)
				var mu sync.Mutex
				var tokens, refresh []string
				var work sync.WaitGroup
				note := func(access, next string, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						tokens, refresh = append(tokens, access), append(refresh, next)
						return
					}
					for _, lost := range c.lost {
						if errors.Is(err, lost) {
							return
						}
					}
					t.Error(err)
				}
				for i := range 20 {
					n := nodes[i%2]
					work.Go(func() {
						rotated, err := n.Rotate(ctx, first.RefreshToken)
						note(rotated.AccessToken, rotated.RefreshToken, err)
					})
					if name != "device" { // a new sign-in would be a device of its own
						work.Go(func() {
							r := httptest.NewRequest(http.MethodPost, "/", nil)
							entered, err := n.Enter(httptest.NewRecorder(), r, auth.Entry{UserID: "ada", Method: "pwd"})
							note(entered.AccessToken, entered.RefreshToken, err)
						})
					}
					if i == 10 {
						work.Go(func() {
							if err := c.end(nodes[1], session.DeviceID); err != nil {
								t.Error(err)
							}
						})
					}
				}
				work.Wait()
				one.clock.advance(time.Second)
				for _, n := range nodes {
					for _, raw := range append(tokens, first.Token) {
						n.wantBearer(t, raw, capability.ErrUnauthenticated)
					}
					for _, raw := range append(refresh, first.RefreshToken) {
						n.wantRotate(t, raw, auth.ErrRefreshInvalid)
					}
				}
				if rows := count(t, db1, "auth_session") + count(t, db1, "auth_device"); rows > 0 {
					t.Errorf("%d rows stay", rows)
				}
			})
		})
	}
}

// Below a path of the base URL cookies and routes fit, whether or not the host
// strips the path.
func TestUnderAPath(t *testing.T) {
	eachPair(t, func(t *testing.T, db, _ *database.DB) {
		s := withDoorman(auth.Config{})
		s.baseURL = "https://api.example.com/kit"
		n := open(t, db, s)
		n.user(t, "ada")
		for name, strip := range map[string]func(http.Handler) http.Handler{
			"stripped": func(h http.Handler) http.Handler { return http.StripPrefix("/kit", h) },
			"as it is": func(h http.Handler) http.Handler { return h },
		} {
			browser := n.client(t).with("Sec-Fetch-Site", "same-origin")
			browser.handler = strip(browser.handler)
			var e entered
			browser.do("POST", "/kit/auth/sign-in/name", `{"name":"ada"}`).want(200, "").decode(&e)
			browser = browser.with("X-CSRF-Token", e.CSRF)
			if browser.cookies["__Secure-kit_refresh"].Path != "/kit/auth/token" {
				t.Error(name, browser.cookies["__Secure-kit_refresh"])
			}
			browser.do("POST", "/kit/auth/token/rotate", "").want(200, "")
			browser.do("GET", "/kit/auth/devices", "").want(200, "")
			browser.do("GET", "/kit/auth/admin/none", "").want(404, "kit/not_found")
			browser.do("GET", "/kit/auth/%61dmin/users", "").want(404, "kit/not_found")
			browser.do("GET", "/kit/auth/admin%2Fusers", "").want(404, "kit/not_found")
			browser.do("GET", "/kit/%61uth/session", "").want(404, "kit/not_found")
			browser.do("POST", "/kit/auth/sign-out", "").want(200, "")
		}
	})
}

// A session that is resumed while it is rotated goes on with the refresh token
// that is good afterwards.
func TestResumeDuringRotation(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	one := open(t, dbs[0], withDoorman(auth.Config{}))
	s := withDoorman(auth.Config{})
	s.clock = one.clock
	other := open(t, dbs[1], s)
	e := one.native(t, "ada")
	var rotated auth.Rotated
	var resumed chan string
	err := dbs[0].InTx(ctx, func(ctx context.Context) (err error) {
		if rotated, err = one.Rotate(ctx, e.RefreshToken); err != nil {
			return err
		}
		token := make(chan string, 1)
		go func() {
			entered, err := other.Resume(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), e.Session)
			if err != nil {
				t.Error(err)
			}
			token <- entered.RefreshToken
		}()
		resumed = token
		return databasetest.Waits(ctx, dbs[0], token)
	})
	if token := <-resumed; err != nil || token != rotated.RefreshToken {
		t.Error("an old refresh token", err)
	}
}
