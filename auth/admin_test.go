package auth_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

type deviceList struct {
	Items []struct {
		ID, UserID, Name, UserAgent, IP string
		Current                         bool
	}
	NextCursor *string
}

func TestOwnDevices(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		n.user(t, "ada")
		n.user(t, "eve")
		laptop, phone, eve := n.client(t).with("User-Agent", "Laptop"), n.client(t).with("User-Agent", "Phone"), n.client(t)
		e, p := laptop.signIn("ada"), phone.signIn("ada")
		eve.signIn("eve")
		list := func(c *client) (l deviceList) {
			t.Helper()
			c.do("GET", "/auth/devices", "").want(200, "").decode(&l)
			return l
		}
		devices := list(laptop)
		if len(devices.Items) != 2 || !devices.Items[0].Current || devices.Items[1].Current || devices.Items[1].UserAgent != "Phone" || devices.NextCursor != nil {
			t.Fatalf("%+v", devices)
		}
		if d := list(n.client(t).with("Authorization", "Bearer "+p.Token)); !d.Items[1].Current {
			t.Errorf("%+v", d)
		}
		if d := list(n.client(t).with("Authorization", "Bearer "+n.token(t, "ada"))); len(d.Items) != 2 || d.Items[0].Current || d.Items[1].Current {
			t.Errorf("%+v", d)
		}
		body := `{"deviceId":"` + devices.Items[1].ID + `"}`
		laptop.do("POST", "/auth/devices/revoke", body).want(403, "auth/csrf")
		n.client(t).do("POST", "/auth/devices/revoke", body).want(401, "auth/unauthenticated")
		n.client(t).with("Authorization", "Bearer "+n.token(t, "eve")).do("POST", "/auth/devices/revoke", body).want(404, "auth/device_not_found")
		laptop = laptop.with("X-CSRF-Token", e.CSRF)
		laptop.do("POST", "/auth/devices/revoke", `{"deviceId":"`+devices.Items[1].ID+`","userId":"eve"}`).want(400, "kit/invalid_request")
		response := laptop.do("POST", "/auth/devices/revoke", body).want(200, "")
		if string(response.body) != "{\"sessions\":1}\n" {
			t.Errorf("%s", response.body)
		}
		n.wantBearer(t, p.Token, capability.ErrUnauthenticated)
		phone.do("GET", "/auth/devices", "").want(401, "auth/unauthenticated")
		laptop.do("POST", "/auth/devices/revoke", body).want(404, "auth/device_not_found")
		if len(list(laptop).Items) != 1 || len(list(eve).Items) != 1 {
			t.Error("others suffer")
		}
	})
}

func TestAdmin(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, withDoorman(auth.Config{}))
		for _, u := range []auth.NewUser{
			{ID: "ada", Email: "Ada@Example.com", EmailVerified: true, Name: "Ada Lovelace", Username: "Countess"},
			{ID: "bob", Email: "bob@example.com", Name: "ada's friend"},
			{ID: "eve"},
		} {
			if _, err := n.CreateUser(ctx, u); err != nil {
				t.Fatal(err)
			}
		}
		machine := func(scope string) *client { return n.client(t).with("Authorization", "Machine "+scope) }
		browser, phone := n.client(t), n.client(t)
		e, p := browser.signIn("ada"), phone.signIn("ada")
		other := n.client(t)
		other.signIn("bob")

		// The users.
		users := func(query string) (ids []string) {
			t.Helper()
			cursor := ""
			for range 5 {
				var page struct {
					Items      []struct{ ID string }
					NextCursor *string
				}
				machine("auth:users:read").do("GET", "/auth/admin/users?limit=1&query="+query+cursor, "").want(200, "").decode(&page)
				for _, u := range page.Items {
					ids = append(ids, u.ID)
				}
				if page.NextCursor == nil {
					break
				}
				cursor = "&cursor=" + *page.NextCursor
			}
			return ids
		}
		for query, want := range map[string][]string{"": {"ada", "bob", "eve"}, "ADA": {"ada", "bob"}, "bob@": {"bob"}, "%25": nil, "lovelace": nil} {
			if diff := cmp.Diff(want, users(query)); diff != "" {
				t.Errorf("%s: %s", query, diff)
			}
		}
		var one struct {
			ID, Email, Name, Username string
			EmailVerified             bool
			DisabledAt                *time.Time
			Sessions                  []struct{ ID, DeviceID string }
		}
		machine("auth:users:read").do("GET", "/auth/admin/users/ada", "").want(200, "").decode(&one)
		if one.Email != "ada@example.com" || !one.EmailVerified || one.Name != "Ada Lovelace" || one.Username != "countess" || len(one.Sessions) != 2 || one.DisabledAt != nil {
			t.Errorf("%+v", one)
		}
		machine("auth:users:read").do("GET", "/auth/admin/users/nobody", "").want(404, "auth/user_not_found")
		machine("auth:devices:revoke").do("POST", "/auth/admin/users/nobody/devices/revoke", "{}").want(404, "auth/user_not_found")
		var devices deviceList
		machine("auth:devices:read").do("GET", "/auth/admin/devices", "").want(200, "").decode(&devices)
		if len(devices.Items) != 3 {
			t.Errorf("%+v", devices)
		}
		machine("auth:devices:read").do("GET", "/auth/admin/devices?userId=bob", "").want(200, "").decode(&devices)
		if len(devices.Items) != 1 || devices.Items[0].UserID != "bob" {
			t.Errorf("%+v", devices)
		}

		// Ending what there is.
		machine("auth:sessions:revoke").do("POST", "/auth/admin/sessions/revoke", `{"sessionId":"`+e.Session+`"}`).want(200, "")
		machine("auth:sessions:revoke").do("POST", "/auth/admin/sessions/revoke", `{"sessionId":"`+e.Session+`"}`).want(404, "auth/session_not_found")
		n.wantBearer(t, e.Token, capability.ErrUnauthenticated)
		n.wantBearer(t, p.Token, nil)
		did := claimsOf(t, p.Token)["did"].(string)
		revoke := func(path, scope, body string) response {
			return machine(scope).do("POST", "/auth/admin/users/"+path, body)
		}
		revoke("bob/devices/revoke", "auth:devices:revoke", `{"deviceId":"`+did+`"}`).want(404, "auth/device_not_found")
		revoke("ada/devices/revoke", "auth:devices:revoke", `{"deviceId":"`+did+`"}`).want(200, "")
		n.wantBearer(t, p.Token, capability.ErrUnauthenticated)
		browser.signIn("ada")
		phone.signIn("ada")
		if got := string(revoke("ada/devices/revoke", "auth:devices:revoke", `{}`).want(200, "").body); got != "{\"sessions\":2}\n" {
			t.Error(got)
		}
		issued := n.token(t, "ada")
		browser.signIn("ada")
		if got := string(revoke("ada/sessions/revoke", "auth:users:logout", "").want(200, "").body); got != "{\"sessions\":1}\n" {
			t.Error(got)
		}
		n.wantBearer(t, issued, capability.ErrUnauthenticated)
		revoke("nobody/sessions/revoke", "auth:users:logout", "").want(404, "auth/user_not_found")
		revoke("ada/sessions/revoke", "auth:sessions:revoke", "").want(403, "controlplane/insufficient_scope")
		other.do("GET", "/auth/devices", "").want(200, "")
	})
}
