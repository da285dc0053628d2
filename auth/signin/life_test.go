package signin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// columns lists those of auth's, the library's and the jobs' tables.
func (a *app) columns() (names [][2]string) {
	a.t.Helper()
	query := `SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND (m.name LIKE 'auth_%' OR m.name LIKE 'signin_%' OR m.name = 'kit_job')`
	if a.db.Dialect() == database.PostgreSQL {
		query = `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()
			AND (table_name LIKE 'auth_%' OR table_name LIKE 'signin_%' OR table_name = 'kit_job')`
	}
	names, err := database.All(ctx, a.db, func(row database.Scanner) (n [2]string, err error) { return n, row.Scan(&n[0], &n[1]) }, query)
	must(a.t, err)
	if len(names) < 50 {
		a.t.Fatalf("only %d columns", len(names))
	}
	return names
}

// holds lists the columns in which a text stands.
func (a *app) holds(text string) (found []string) {
	a.t.Helper()
	for _, c := range a.columns() {
		var n int
		must(a.t, a.db.QueryRow(ctx, `SELECT count(*) FROM `+c[0]+` WHERE CAST(`+c[1]+` AS TEXT) LIKE '%`+text+`%'`).Scan(&n))
		if n > 0 {
			found = append(found, c[0]+"."+c[1])
		}
	}
	return found
}

// What is exported is all that is held, and what is erased stands nowhere.
func TestExportAndErase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := openAuth(t, db, auth.Config{
			Library: signin.Quick(signin.Config{Usernames: true}), RateLimits: unlimited,
			Profile: []auth.ProfileField{{Name: "motto", Type: auth.ProfileString, Editable: true}},
		})
		const secondAddress, thirdAddress = "countess@example.org", "analyst@example.org"
		home := a.browser()
		home.post("/sign-up/email", object{"email": ada, "password": password, "name": "Augusta", "username": "Lovelace", "motto": "that brain of mine"}).ok()
		a.verify(ada)
		home.enableTOTP()
		home.ownPage().register(newEd25519(t))
		home.post("/change-email", object{"newEmail": secondAddress}).ok()
		home.pressing().do("POST", a.deliver(ada).Link, nil).page(false)
		home.pressing().do("POST", a.deliver(secondAddress).Link, nil).page(false)
		home.post("/email-otp/request-email-change", object{"newEmail": thirdAddress}).ok()
		a.browser().post("/sign-in/magic-link", object{"email": secondAddress}).ok()
		a.browser().post("/email-otp/send-verification-otp", object{"email": secondAddress, "type": "sign-in"}).ok()
		a.work()
		a.browser().post("/request-password-reset", object{"email": secondAddress}).ok() // not made yet
		home.post("/delete-user", nil).ok()

		user, _, err := a.UserByEmail(ctx, secondAddress)
		must(t, err)
		addresses, err := a.Addresses(ctx, user.ID)
		must(t, err)
		for _, want := range []string{ada, secondAddress} {
			if !slices.Contains(addresses, want) {
				t.Errorf("the addresses %v lack %s", addresses, want)
			}
		}

		kinds := map[string]int{}
		var all strings.Builder
		part := a.Capability()
		must(t, part.Export(ctx, capability.Person{ID: user.ID, Emails: addresses}, func(kind string, record any) error {
			kinds[kind]++
			raw, err := json.Marshal(record)
			all.Write(raw)
			return err
		}))
		for _, kind := range []string{"user", "session", "device", "account", "second_factor", "passkey", "known_client", "link"} {
			if kinds[kind] == 0 {
				t.Errorf("no %s in the export", kind)
			}
		}
		for _, want := range []string{"Augusta", "Lovelace", "that brain of mine", secondAddress, "192.0.2.1"} {
			if !strings.Contains(all.String(), want) {
				t.Errorf("the export lacks %q", want)
			}
		}
		for _, never := range []string{"argon2id", "password_hash"} {
			if strings.Contains(all.String(), never) {
				t.Errorf("the export shows %q", never)
			}
		}

		eve := a.signedUp("eve@example.com")
		person := capability.Person{ID: user.ID, Emails: append(addresses, thirdAddress)}
		for round := range 2 {
			erased, err := part.Erase(ctx, person)
			if err != nil || (erased.Removed > 0) != (round == 0) {
				t.Fatalf("round %d: %+v %v", round, erased, err)
			}
		}
		for _, text := range []string{ada, secondAddress, thirdAddress, "Augusta", "ovelace", "that brain", user.ID} {
			if found := a.holds(text); len(found) > 0 {
				t.Errorf("%q stands in %v", text, found)
			}
		}
		if eve.user() == nil {
			t.Error("another user went too")
		}
	})
}

// Pages of the application sign up and in by calls in process.
func TestOwnForms(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	form := func(path string, body object, change func(*http.Request)) (auth.Reply, *httptest.ResponseRecorder) {
		t.Helper()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, baseURL+"/join", strings.NewReader("x=1"))
		r.Header.Set("Origin", baseURL)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		reply, err := a.Call(w, r, path, body)
		must(t, err)
		return reply, w
	}
	up, w := form("/sign-up/email", object{"email": ada, "password": password, "name": "Ada"}, nil)
	if up.Refused() || len(w.Result().Cookies()) == 0 {
		t.Fatalf("%+v", up)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, baseURL+"/me", nil)
	for _, cookie := range w.Result().Cookies() {
		r.AddCookie(cookie)
	}
	if session, found, err := a.Current(r); err != nil || !found || session.UserID != a.userID() {
		t.Errorf("on an own page: %+v %v %v", session, found, err)
	}
	if in, w := form("/sign-in/email", object{"email": ada, "password": "wrong one"}, nil); in.Status != 401 ||
		in.Code != "INVALID_EMAIL_OR_PASSWORD" || in.Message == "" || len(w.Result().Cookies()) != 0 {
		t.Errorf("%+v", in)
	}
	foreign := func(r *http.Request) {
		r.Header.Set("Origin", "https://evil.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	if in, _ := form("/sign-in/email", object{"email": ada, "password": password}, foreign); in.Code != "INVALID_ORIGIN" {
		t.Errorf("a foreign page's form: %+v", in)
	}
	if got, _ := form("/admin/users", nil, nil); got.Status != 404 {
		t.Errorf("%+v", got)
	}
}

// A user sets the application's fields that are editable, and sees those that
// are not private.
func TestProfileFieldsOfUsers(t *testing.T) {
	a := openAuth(t, databasetest.Memory(t), auth.Config{
		Library: signin.Quick(signin.Config{Usernames: true}), RateLimits: unlimited,
		Profile: []auth.ProfileField{
			{Name: "country", Type: auth.ProfileString, Editable: true}, {Name: "role", Type: auth.ProfileString},
			{Name: "risk", Type: auth.ProfileNumber, Private: true},
		},
	})
	b := a.browser()
	join := object{"email": ada, "password": password, "country": "CH", "username": "ada.l", "displayUsername": "Ada.L"}
	b.post("/sign-up/email", object{"email": ada, "password": password, "role": "admin"}).want(400, "FIELD_NOT_ALLOWED")
	b.post("/sign-up/email", join).ok()
	user := b.user()
	if _, shown := user["risk"]; user["country"] != "CH" || user["role"] != nil || shown || user["displayUsername"] != "Ada.L" || user["username"] != "ada.l" {
		t.Errorf("%v", user)
	}
	b.post("/update-user", object{"country": nil}).ok()
	b.post("/update-user", object{"role": "admin"}).want(400, "FIELD_NOT_ALLOWED")
	b.post("/update-user", object{"country": 3}).want(400, "VALIDATION_ERROR")
	if user := b.user(); user["country"] != nil {
		t.Errorf("%v", user)
	}
}
