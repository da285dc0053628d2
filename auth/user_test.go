package auth_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestCreateUser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		now := n.clock.Now()
		ada, err := n.CreateUser(ctx, auth.NewUser{Email: " Ada@EXAMPLE.com ", Name: "Ada", Image: "https://example.com/a.png", Username: " Countess "})
		if err != nil {
			t.Fatal(err)
		}
		want := auth.User{ID: ada.ID, Email: "ada@example.com", Name: "Ada", Image: "https://example.com/a.png", Username: "countess", DisplayUsername: "Countess", CreatedAt: now, UpdatedAt: now}
		if diff := cmp.Diff(want, ada); diff != "" || len(ada.ID) != 26 {
			t.Error(diff)
		}
		for name, found := range map[string]func() (auth.User, bool, error){
			"address":  func() (auth.User, bool, error) { return n.UserByEmail(ctx, "ADA@example.com") },
			"username": func() (auth.User, bool, error) { return n.UserByUsername(ctx, "COUNTESS") },
			"id":       func() (auth.User, bool, error) { u, err := n.User(ctx, ada.ID); return u, err == nil, err },
		} {
			if got, ok, err := found(); !ok || err != nil || cmp.Diff(want, got) != "" {
				t.Errorf("%s: %v %v %v", name, got, ok, err)
			}
		}
		for name, tt := range map[string]struct {
			user auth.NewUser
			want error
		}{
			"address taken":  {auth.NewUser{Email: "ada@example.COM", Username: "other"}, auth.ErrEmailTaken},
			"username taken": {auth.NewUser{Email: "other@example.com", Username: "countess"}, auth.ErrUsernameTaken},
			"id taken":       {auth.NewUser{ID: ada.ID}, capability.ErrInvalidRequest},
			"bad id":         {auth.NewUser{ID: "a b"}, capability.ErrInvalidRequest},
			"no address":     {auth.NewUser{Email: "ada"}, capability.ErrInvalidRequest},
			"two addresses":  {auth.NewUser{Email: "a@example.com,b@example.com"}, capability.ErrInvalidRequest},
			"long name":      {auth.NewUser{Name: strings.Repeat("x", 257)}, capability.ErrInvalidRequest},
			"NUL":            {auth.NewUser{Name: "a\x00"}, capability.ErrInvalidRequest},
			"broken UTF-8":   {auth.NewUser{Name: "\xff"}, capability.ErrInvalidRequest},
			"long image":     {auth.NewUser{Image: strings.Repeat("x", 2049)}, capability.ErrInvalidRequest},
			"long username":  {auth.NewUser{Username: strings.Repeat("x", 65)}, capability.ErrInvalidRequest},
		} {
			if _, err := n.CreateUser(ctx, tt.user); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, empty := range []string{"", " ", "x", "@"} {
			if _, found, err := n.UserByEmail(ctx, empty); found || err != nil {
				t.Errorf("%q: %v %v", empty, found, err)
			}
			if _, found, err := n.UserByUsername(ctx, empty); found || err != nil {
				t.Errorf("%q: %v %v", empty, found, err)
			}
		}
		for range 2 { // several without any
			if _, err := n.CreateUser(ctx, auth.NewUser{Anonymous: true}); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestUpdateUser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		ada, err := n.CreateUser(ctx, auth.NewUser{Email: "ada@example.com", EmailVerified: true, Username: "ada", Anonymous: true})
		if err != nil {
			t.Fatal(err)
		}
		bob, err := n.CreateUser(ctx, auth.NewUser{Email: "bob@example.com", Username: "bob"})
		if err != nil {
			t.Fatal(err)
		}
		n.clock.advance(time.Second)
		got, err := n.UpdateUser(ctx, ada.ID, auth.UserPatch{Name: new("Ada"), Anonymous: new(false), Email: new("ADA@example.com")})
		want := ada
		want.Name, want.Anonymous, want.UpdatedAt = "Ada", false, n.clock.Now()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
		if got, err = n.UpdateUser(ctx, ada.ID, auth.UserPatch{Email: new("countess@example.com")}); err != nil || got.EmailVerified {
			t.Errorf("a new address is verified: %v %v", got, err)
		}
		if got, err = n.UpdateUser(ctx, ada.ID, auth.UserPatch{Email: new("ada@example.com"), EmailVerified: new(true)}); err != nil || !got.EmailVerified {
			t.Error(got, err)
		}
		if stored, err := n.User(ctx, ada.ID); err != nil || cmp.Diff(got, stored) != "" {
			t.Error(stored, err)
		}
		for name, tt := range map[string]struct {
			id    string
			patch auth.UserPatch
			want  error
		}{
			"address taken":  {ada.ID, auth.UserPatch{Email: new("Bob@example.com")}, auth.ErrEmailTaken},
			"username taken": {ada.ID, auth.UserPatch{Username: new("BOB")}, auth.ErrUsernameTaken},
			"no address":     {ada.ID, auth.UserPatch{Email: new("x")}, capability.ErrInvalidRequest},
			"nobody":         {"nobody", auth.UserPatch{}, auth.ErrUserNotFound},
		} {
			if _, err := n.UpdateUser(ctx, tt.id, tt.patch); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, id := range []string{ada.ID, bob.ID} { // both may go without
			if _, err := n.UpdateUser(ctx, id, auth.UserPatch{Email: new(""), Username: new("")}); err != nil {
				t.Error(err)
			}
		}
	})
}

// Of several who want one address at once, one gets it.
func TestRacingForAnAddress(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		one := open(t, db1, setup{})
		nodes := []*node{one, open(t, db2, setup{clock: one.clock})}
		var created, changed atomic.Int64
		var work sync.WaitGroup
		for i := range 8 {
			n := nodes[i%2]
			user, err := n.CreateUser(ctx, auth.NewUser{})
			if err != nil {
				t.Fatal(err)
			}
			work.Go(func() {
				switch _, err := n.CreateUser(ctx, auth.NewUser{Email: "new@example.com"}); {
				case err == nil:
					created.Add(1)
				case !errors.Is(err, auth.ErrEmailTaken):
					t.Error(err)
				}
			})
			work.Go(func() {
				switch _, err := n.UpdateUser(ctx, user.ID, auth.UserPatch{Email: new("old@example.com"), Username: new("old")}); {
				case err == nil:
					changed.Add(1)
				case !errors.Is(err, auth.ErrEmailTaken):
					t.Error(err)
				}
			})
		}
		work.Wait()
		if created.Load() != 1 || changed.Load() != 1 {
			t.Errorf("%d created, %d changed", created.Load(), changed.Load())
		}
	})
}

func TestDeleteUser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		e := n.native(t, "ada")
		if err := n.DeleteUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		n.wantBearer(t, e.Token, capability.ErrUnauthenticated)
		n.wantRotate(t, e.RefreshToken, auth.ErrRefreshInvalid)
		if rows := count(t, db, "auth_user") + count(t, db, "auth_device") + count(t, db, "auth_session"); rows != 0 {
			t.Errorf("%d rows left", rows)
		}
		for name, err := range map[string]error{
			"delete": n.DeleteUser(ctx, "ada"), "disable": n.DisableUser(ctx, "ada"), "enable": n.EnableUser(ctx, "ada"),
		} {
			if !errors.Is(err, auth.ErrUserNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestUsersNamed(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		for _, u := range []auth.NewUser{{ID: "u1", Name: "Ada"}, {ID: "u2", Name: "Ada"}, {ID: "u3", Username: "bob", Name: "Ada"}, {ID: "u4", Name: "bob"}, {ID: "u5"}} {
			if _, err := n.CreateUser(ctx, u); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string][]string{"Ada": {"u1", "u2"}, "Bob": {"u3"}, "ada": nil, "": nil, "nobody": nil} {
			users, err := n.UsersNamed(ctx, name, 2)
			var ids []string
			for _, u := range users {
				ids = append(ids, u.ID)
			}
			if diff := cmp.Diff(want, ids); diff != "" || err != nil {
				t.Errorf("%q: %v %s", name, err, diff)
			}
		}
	})
}

func TestRevokeOthers(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		kept, ended, issued := n.native(t, "ada"), n.native(t, "ada"), n.token(t, "ada")
		if sessions, err := n.RevokeOthers(ctx, "ada", kept.Session); sessions != 1 || err != nil {
			t.Fatal(sessions, err)
		}
		n.wantBearer(t, kept.Token, nil)
		n.wantBearer(t, ended.Token, capability.ErrUnauthenticated)
		n.wantBearer(t, issued, capability.ErrUnauthenticated)
		sessions, err := n.Sessions(ctx, "ada")
		if err != nil || len(sessions) != 1 || sessions[0].ID != kept.Session || count(t, db, "auth_device") != 1 {
			t.Error(sessions, err)
		}
		if _, err := n.RevokeOthers(ctx, "bob", ""); !errors.Is(err, auth.ErrUserNotFound) {
			t.Error(err)
		}
	})
}

// A list finds users by the beginning of their name as they write it, and treats
// no character as a wildcard.
// A prefix that thousands have lists the same users as one that a few have.
func TestListUsersOfACommonName(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		_, err := db.Exec(ctx, `INSERT INTO auth_user (id, email, name, token_family, created_at, updated_at)
			SELECT 'u' || (100000 + i), CASE WHEN i % 2 = 0 THEN 'common' || i || '@example.com' ELSE '' END, CASE WHEN i % 2 = 1 THEN 'Common' || i ELSE 'x' END, 'f', 1, 1
			FROM (`+database.Text(`WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < 12000) SELECT i FROM g`,
			`SELECT i FROM generate_series(1, 12000) AS g(i)`)+`) AS numbers`)
		if err != nil {
			t.Fatal(err)
		}
		for query, want := range map[string][]string{"COMMON": {"u100001", "u100002", "u100003"}, "common1199": {"u101199", "u111990", "u111991"}} {
			var ids []string
			page, err := n.ListUsers(ctx, query, capability.NewPage(2, ""))
			for ; err == nil && len(ids) < 3; page, err = n.ListUsers(ctx, query, capability.NewPage(2, *page.NextCursor)) {
				for _, u := range page.Items {
					ids = append(ids, u.ID)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, ids[:3]); diff != "" {
				t.Errorf("%q: %s", query, diff)
			}
		}
	})
}

func TestListUsersByName(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		for id, name := range map[string]string{"a": "Änne", "b": "Anne", "c": "100%", "d": "1000"} {
			if _, err := n.CreateUser(ctx, auth.NewUser{ID: id, Name: name, Email: id + "@example.com"}); err != nil {
				t.Fatal(err)
			}
		}
		for query, want := range map[string][]string{
			"": {"a", "b", "c", "d"}, "Än": {"a"}, "ANN": {"b"}, "100": {"c", "d"}, "100%": {"c"}, "_nne": nil, "%": nil, "A@EX": {"a"}, "'": nil, `\`: nil,
		} {
			page, err := n.ListUsers(ctx, query, capability.NewPage(10, ""))
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, u := range page.Items {
				ids = append(ids, u.ID)
			}
			if diff := cmp.Diff(want, ids); diff != "" {
				t.Errorf("%q: %s", query, diff)
			}
		}
	})
}
