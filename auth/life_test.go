package auth_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
)

// Hooks run inside the transactions of a user's life: they roll back with them,
// and their error refuses.
func TestHooks(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{config: auth.Config{Profile: []auth.ProfileField{{Name: "level", Type: auth.ProfileNumber}}}})
		var told []string
		tell := func(what string, fields ...any) {
			told = append(told, strings.TrimSpace(what+" "+fmt.Sprintln(fields...)))
		}
		h := n.host.Hooks
		refuse := errors.New("not today")
		h.UserCreated.In(func(ctx context.Context, e hooks.UserCreated) error {
			if !db.InTransaction(ctx) {
				t.Error("outside of the transaction")
			}
			if e.UserID == "refused" {
				return refuse
			}
			return nil
		})
		h.UserCreated.After(func(_ context.Context, e hooks.UserCreated) { tell("created", e.UserID, e.Anonymous) })
		h.UserUpdated.After(func(_ context.Context, e hooks.UserUpdated) { tell("updated", e.Changed) })
		h.UserDeleted.After(func(_ context.Context, e hooks.UserDeleted) { tell("deleted", e.UserID) })
		h.SessionStarted.After(func(_ context.Context, e hooks.Session) { tell("started", e.UserID) })
		h.SessionUsed.After(func(_ context.Context, e hooks.Session) { tell("used", e.At.Format(time.DateOnly)) })
		h.SessionEnded.After(func(_ context.Context, e hooks.SessionEnded) { tell("ended", e.Reason) })
		want := func(events ...string) {
			t.Helper()
			if diff := cmp.Diff(events, told); diff != "" {
				t.Error(diff)
			}
			told = nil
		}

		if _, err := n.CreateUser(ctx, auth.NewUser{ID: "refused"}); !errors.Is(err, refuse) {
			t.Errorf("the hook's error: %v", err)
		}
		if _, err := n.User(ctx, "refused"); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("a refused user is there: %v", err)
		}
		if _, err := n.CreateUser(ctx, auth.NewUser{ID: "ada", Email: "ada@example.com"}); err != nil {
			t.Fatal(err)
		}
		want("created ada false")
		name, yes := "Ada", true
		if _, err := n.UpdateUser(ctx, "ada", auth.UserPatch{Name: &name, EmailVerified: &yes, Profile: map[string]any{"level": 3}}); err != nil {
			t.Fatal(err)
		}
		want("updated [emailVerified name profile]")
		if _, err := n.UpdateUser(ctx, "ada", auth.UserPatch{Name: &name}); err != nil {
			t.Fatal(err)
		}
		want()

		session, err := n.CreateSession(ctx, "ada")
		if err != nil {
			t.Fatal(err)
		}
		want("started ada")
		use := func() {
			t.Helper()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.AddCookie(n.SessionCookie(session))
			if _, found, err := n.Current(r); err != nil || !found {
				t.Fatal(found, err)
			}
		}
		use()
		n.clock.advance(11 * time.Hour)
		use()
		want() // the day of the sign-in
		n.clock.advance(61 * time.Minute)
		use()
		use()
		n.clock.advance(5 * time.Hour)
		use()
		want("used 2026-03-02")
		n.clock.advance(24 * time.Hour)
		use()
		want("used 2026-03-03")
		if err := n.RevokeSession(ctx, session.ID); err != nil {
			t.Fatal(err)
		}
		want("ended revoked")
		if _, err := n.CreateSession(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		if err := n.DeleteUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		want("started ada", "ended revoked", "deleted ada")
	})
}

// Batch reads leave out whom there is not.
func TestUsersByID(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		for _, user := range []auth.NewUser{{ID: "ada", Name: "Ada", Image: "/a.png"}, {ID: "eve", Name: "Eve"}} {
			if _, err := n.CreateUser(ctx, user); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.DisableUser(ctx, "eve"); err != nil {
			t.Fatal(err)
		}
		users, err := n.UsersByID(ctx, []string{"ada", "eve", "nobody", "ada"})
		if err != nil || !slices.Equal(slices.Sorted(maps.Keys(users)), []string{"ada", "eve"}) {
			t.Errorf("%v %v", users, err)
		}
		profiles, err := n.Profiles(ctx, []string{"ada", "eve"})
		want := map[string]auth.PublicProfile{"ada": {ID: "ada", Name: "Ada", Image: "/a.png"}}
		if diff := cmp.Diff(want, profiles); err != nil || diff != "" {
			t.Error(diff, err)
		}
		if _, err := n.UsersByID(ctx, make([]string, auth.MaxUsersByID+1)); !errors.Is(err, capability.ErrInvalidRequest) {
			t.Errorf("too many: %v", err)
		}
	})
}

// Profile fields are those of the schema, of their types.
func TestProfileFields(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{config: auth.Config{Profile: []auth.ProfileField{
			{Name: "country", Type: auth.ProfileString, MaxBytes: 2}, {Name: "level", Type: auth.ProfileNumber}, {Name: "pro", Type: auth.ProfileBoolean},
		}}})
		if _, err := n.CreateUser(ctx, auth.NewUser{ID: "ada", Profile: map[string]any{"country": "CH", "level": 2.5}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.UpdateUser(ctx, "ada", auth.UserPatch{Profile: map[string]any{"level": nil, "pro": true}}); err != nil {
			t.Fatal(err)
		}
		user, err := n.User(ctx, "ada")
		if diff := cmp.Diff(map[string]any{"country": "CH", "pro": true}, user.Profile); err != nil || diff != "" {
			t.Error(diff, err)
		}
		for name, set := range map[string]map[string]any{
			"unknown": {"age": 3.0}, "too long": {"country": "CHE"}, "NUL": {"country": "\x00"}, "type": {"pro": "yes"}, "nested": {"level": []any{1}},
		} {
			if _, err := n.UpdateUser(ctx, "ada", auth.UserPatch{Profile: set}); !errors.Is(err, capability.ErrInvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Access tokens of sessions carry the scopes that the application grants;
// cookies never do.
func TestScopesOfSessions(t *testing.T) {
	granted := []string{"admin"}
	n := open(t, databasetest.Memory(t), setup{config: auth.Config{Scopes: func(_ context.Context, user string) ([]string, error) {
		if user == "broken" {
			return nil, errors.New("no roles")
		}
		return granted, nil
	}}})
	for _, user := range []string{"ada", "broken"} {
		if err := n.EnsureUser(ctx, user); err != nil {
			t.Fatal(err)
		}
	}
	session, err := n.CreateSession(ctx, "ada")
	if err != nil {
		t.Fatal(err)
	}
	token, err := n.SessionAccessToken(ctx, session)
	if err != nil {
		t.Fatal(err)
	}
	caller, err := n.users.Bearer(ctx, token)
	if err != nil || !slices.Equal(caller.Scopes, granted) {
		t.Errorf("the token carries %v %v", caller.Scopes, err)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.AddCookie(n.SessionCookie(session))
	if caller, _, err := n.users.Session(r); err != nil || len(caller.Scopes) != 0 {
		t.Errorf("the cookie carries %v %v", caller.Scopes, err)
	}
	session, err = n.CreateSession(ctx, "broken")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.SessionAccessToken(ctx, session); !errors.Is(err, capability.ErrUnavailable) {
		t.Errorf("without a response: %v", err)
	}
}

// Devices revoked, tokens that belong to no device stay good.
func TestRevokeDevicesKeepsIssuedTokens(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		if err := n.EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		issued, err := n.IssueToken(ctx, "ada", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		session, err := n.CreateSession(ctx, "ada")
		if err != nil {
			t.Fatal(err)
		}
		ended, err := n.RevokeDevices(ctx, "ada")
		if err != nil || ended != 1 {
			t.Fatalf("%d sessions, %v", ended, err)
		}
		if _, err := n.Session(ctx, session.ID); !errors.Is(err, auth.ErrSessionNotFound) {
			t.Errorf("the session: %v", err)
		}
		n.wantBearer(t, issued, nil)
		if _, err := n.RevokeDevices(ctx, "nobody"); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("nobody: %v", err)
		}
	})
}
