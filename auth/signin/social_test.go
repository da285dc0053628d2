package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// each runs a story about one provider, "acme", on every database.
func each(t *testing.T, story func(t *testing.T, w *world, p *idp)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		story(t, openSocial(t, db, signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p), p)
	})
}

func TestSocialSignIn(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.browser()
		response := b.post("/sign-in/social", object{"provider": "acme", "callbackURL": "/welcome"}).ok()
		first := decoded[struct {
			URL      string
			Redirect bool
		}](response)
		if !first.Redirect || response.Header.Get("Location") != first.URL {
			t.Errorf("got %s, Location %q", response.Body, response.Header.Get("Location"))
		}
		u, err := url.Parse(first.URL)
		must(t, err)
		q := u.Query()
		if len(q.Get("state")) != 43 || len(q.Get("code_challenge")) != 43 || len(q.Get("nonce")) != 43 {
			t.Errorf("got %v", q)
		}
		for _, name := range []string{"state", "code_challenge", "nonce"} {
			q.Del(name)
		}
		if diff := cmp.Diff(url.Values{
			"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {baseURL + "/auth/callback/acme"},
			"scope": {"openid email profile"}, "code_challenge_method": {"S256"},
		}, q); diff != "" {
			t.Error(diff)
		}

		b.begin(p, "acme", nil).arrive().lead("/new")
		user := b.user()
		if user["email"] != "ada@example.com" || user["emailVerified"] != true || user["name"] != "Ada Lovelace" ||
			user["image"] != "https://pictures.example/ada.png" {
			t.Errorf("signed in as %v", user)
		}

		again := w.browser()
		again.begin(p, "acme", nil).arrive().lead("/welcome")
		if again.user()["id"] != user["id"] {
			t.Error("the second sign-in is another user's")
		}
		accounts := decoded[[]object](again.get("/list-accounts").ok())
		if len(accounts) != 1 || accounts[0]["providerId"] != "acme" || accounts[0]["accountId"] != "subject-1" || accounts[0]["issuer"] != p.issuer {
			t.Errorf("accounts: %v", accounts)
		}
	})
}

func TestSocialRequestIsChecked(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		for _, c := range []struct {
			body object
			code string
		}{
			{object{"provider": "other"}, "PROVIDER_NOT_FOUND"},
			{object{"provider": "acme", "callbackURL": "https://evil.example/"}, "INVALID_CALLBACK_URL"},
			{object{"provider": "acme", "callbackURL": "//evil.example"}, "INVALID_CALLBACK_URL"},
			{object{"provider": "acme", "callbackURL": "/\\evil.example"}, "INVALID_CALLBACK_URL"},
			{object{"provider": "acme", "newUserCallbackURL": "https://evil.example/"}, "INVALID_NEW_USER_CALLBACK_URL"},
			{object{"provider": "acme", "errorCallbackURL": "javascript:alert(1)"}, "INVALID_ERROR_CALLBACK_URL"},
			{object{"provider": "acme", "scopes": []string{"a b"}}, "VALIDATION_ERROR"},
			{object{"provider": "acme", "scopes": strings.Split(strings.Repeat("x,", 21), ",")}, "VALIDATION_ERROR"},
			{object{"provider": "acme", "additionalParams": object{"redirect_uri": "https://evil.example/"}}, "VALIDATION_ERROR"},
			{object{"provider": "acme", "additionalParams": object{"nonce": "mine"}}, "VALIDATION_ERROR"},
			{object{"provider": "acme", "loginHint": strings.Repeat("x", 513)}, "VALIDATION_ERROR"},
		} {
			if got := w.browser().post("/sign-in/social", c.body).code(); got != c.code {
				t.Errorf("%v: got %s", c.body, got)
			}
		}
		w.browser().post("/link-social", object{"provider": "acme"}).want(401, "UNAUTHORIZED")
		j := w.browser().begin(p, "acme", object{"scopes": []string{"calendar", "email"}, "loginHint": "ada@example.com",
			"additionalParams": object{"prompt": "consent"}, "disableRedirect": true})
		if j.query.Get("scope") != "openid email profile calendar" || j.query.Get("prompt") != "consent" || j.query.Get("login_hint") != "ada@example.com" {
			t.Errorf("got %v", j.query)
		}
	})
}

// TestStateIsGoodOnceInOneBrowser holds the defence against forged sign-ins: the
// response of a provider counts in the browser that asked for it, once, in time,
// for that provider.
func TestStateIsGoodOnceInOneBrowser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p, other := newIDP(t), newIDP(t)
		w := openSocial(t, db, signin.Config{Providers: []oauth.Provider{p.provider("acme"), other.provider("other")}}, p, other)
		const lost = "/auth/error?error=state_mismatch"

		victim, attacker := w.browser(), w.browser()
		j := attacker.begin(p, "acme", nil)
		query := j.consent()
		journey{victim, p, "acme", nil}.back(query).lead(lost) // a link the attacker made
		withOwn := victim.begin(p, "acme", nil)                // the victim has their own cookie
		journey{victim, p, "acme", nil}.back(query).lead(lost)
		if victim.user() != nil {
			t.Fatal("the victim is signed in as the attacker")
		}
		j.back(query).lead("/new") // the attempts have cost the rightful browser nothing
		w.clock.advance(11 * time.Second)
		j.back(query).lead(lost)
		j.back(url.Values{"state": query["state"], "code": {"another"}}).lead(lost)

		j.back(url.Values{"code": {"x"}}).lead("/auth/error?error=state_not_found")
		j.back(url.Values{"code": {"x"}, "state": {strings.Repeat("x", 43)}}).lead(lost)
		journey{victim, p, "nobody", nil}.back(query).lead("/auth/error?error=oauth_provider_not_found")

		// Another provider cannot respond to a request of the first.
		mixed := withOwn.consent()
		journey{victim, other, "other", nil}.back(mixed).lead("/sorry?error=state_mismatch")
		withOwn.back(mixed).lead(lost)
		if other.hit("/token") != 0 {
			t.Error("a code was taken to another provider")
		}

		late := victim.begin(p, "acme", nil)
		query = late.consent()
		w.clock.advance(10 * time.Minute)
		late.back(query).lead("/sorry?error=state_mismatch")
		if victim.user() != nil {
			t.Error("signed in by a state that was over")
		}
	})
}

// TestCodeReplay: a code that was used is refused by the provider, and the state
// that came with it here.
func TestCodeReplay(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		thief := w.browser()
		first := w.browser().begin(p, "acme", nil)
		query := first.consent()
		first.back(query).lead("/new")

		second := thief.begin(p, "acme", nil)
		second.back(url.Values{"state": {second.query.Get("state")}, "code": query["code"]}).lead("/sorry?error=invalid_code")

		// A code that was not used, but was made for another request: PKCE.
		stolen := w.browser().begin(p, "acme", nil).consent()
		third := thief.begin(p, "acme", nil)
		third.back(url.Values{"state": {third.query.Get("state")}, "code": stolen["code"]}).lead("/sorry?error=invalid_code")
		if thief.user() != nil {
			t.Error("the thief is signed in")
		}
	})
}

func TestCallbackErrors(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.browser()
		for _, c := range []struct {
			query url.Values
			code  string
		}{
			{url.Values{"error": {"access_denied"}, "error_description": {"<script>"}}, "access_denied"},
			{url.Values{"error": {"<script>"}}, "access_denied"},
			{url.Values{}, "no_code"},
			{url.Values{"code": {strings.Repeat("x", 5000)}}, "no_code"},
			{url.Values{"code": {"x"}, "iss": {"https://evil.example"}}, "issuer_mismatch"},
		} {
			j := b.begin(p, "acme", nil)
			c.query.Set("state", j.query.Get("state"))
			j.back(c.query).lead("/sorry?error=" + c.code)
		}
		p.handlers["/token"] = func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 503, object{}) }
		b.begin(p, "acme", nil).arrive().lead("/sorry?error=temporarily_unavailable")
		delete(p.handlers, "/token")
		j := b.begin(p, "acme", nil)
		query := j.consent()
		query.Set("iss", p.issuer)
		j.back(query).lead("/new")
	})
}

// TestIssuerParameterIsRequiredWhereItIsPromised is RFC 9207, 2.4.
func TestIssuerParameterIsRequiredWhereItIsPromised(t *testing.T) {
	p := newIDP(t)
	p.document["authorization_response_iss_parameter_supported"] = true
	w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
	w.browser().begin(p, "acme", nil).arrive().lead("/sorry?error=issuer_missing")
	j := w.browser().begin(p, "acme", nil)
	query := j.consent()
	query.Set("iss", p.issuer)
	j.back(query).lead("/new")
}

func TestStatesAreBounded(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		count := func() (n int) {
			must(t, w.db.QueryRow(ctx, `SELECT COUNT(*) FROM signin_state`).Scan(&n))
			return n
		}
		b := w.browser()
		first := b.begin(p, "acme", nil)
		for range signin.StatesPerBrowser {
			w.clock.advance(time.Second)
			b.begin(p, "acme", nil)
		}
		if count() != signin.StatesPerBrowser {
			t.Errorf("one browser keeps %d states", count())
		}
		first.arrive().lead("/auth/error?error=state_mismatch")

		w.clock.advance(time.Second)
		other := w.browser()
		young := other.begin(p, "acme", nil)
		must(t, w.lib.Trim(ctx, 1))
		if count() != 1 {
			t.Errorf("%d states are left", count())
		}
		young.arrive().lead("/new")

		other.begin(p, "acme", nil)
		w.clock.advance(time.Hour)
		other.begin(p, "acme", nil) // sweeps
		if count() != 1 {
			t.Errorf("%d states are left", count())
		}
	})
}

// TestNothingSecretIsKept looks for what a thief of the database could use.
func TestNothingSecretIsKept(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.browser()
		b.begin(p, "acme", nil).arrive().lead("/new")
		j := b.begin(p, "acme", nil)
		var dump strings.Builder
		for _, query := range []string{
			`SELECT sealed FROM signin_provider_token`, `SELECT state_hash FROM signin_state`,
			`SELECT browser_hash FROM signin_state`, `SELECT data FROM signin_state`, `SELECT scopes FROM signin_account`,
		} {
			rows, err := database.All(ctx, w.db, func(row database.Scanner) (value any, err error) { return value, row.Scan(&value) }, query)
			must(t, err)
			for _, row := range rows {
				switch value := row.(type) {
				case []byte:
					dump.Write(value)
				case string:
					dump.WriteString(value)
				}
			}
		}
		for _, secret := range []string{"access-1", "refresh-0", "eyJ", j.query.Get("state"), j.query.Get("nonce"), b.cookies["__Host-kit_oauth"]} {
			if secret == "" || strings.Contains(dump.String(), secret) {
				t.Errorf("%q is in the database", secret)
			}
		}
	})
}

// TestFormPost is the way of Apple: the provider's page posts the response, and
// browsers send no cookie with it.
func TestFormPost(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		provider := p.provider("acme")
		provider.FormPost = true
		p.claims["name"] = nil
		w := openSocial(t, db, signin.Config{Providers: []oauth.Provider{provider}}, p)
		b := w.browser()

		post := func(j journey, user string) *response {
			form := j.consent()
			form.Set("user", user)
			without := w.browser().navigating().with("Origin", p.issuer)
			hop := without.send(http.MethodPost, "/callback/acme", "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
			target := hop.Header.Get("Location")
			if hop.Status != http.StatusSeeOther || !strings.HasPrefix(target, baseURL+"/auth/callback/acme?") ||
				hop.Header.Get("Referrer-Policy") != "no-referrer" {
				t.Fatalf("got %d %q", hop.Status, target)
			}
			if len(hop.Header.Values("Set-Cookie")) != 0 {
				t.Error("a foreign page's post sets cookies")
			}
			return b.navigating().get(target)
		}
		j := b.begin(p, "acme", nil)
		if j.query.Get("response_mode") != "form_post" {
			t.Errorf("got %v", j.query)
		}
		post(j, `{"name":{"firstName":"Ada","lastName":"Byron\u0000"},"email":"evil@example.com"}`).lead("/new")
		if user := b.user(); user["name"] != "Ada Byron" || user["email"] != "ada@example.com" {
			t.Errorf("signed in as %v", user)
		}
		post(b.begin(p, "acme", nil), `{"name":{"firstName":"Eve"}}`).lead("/welcome")
		if user := b.user(); user["name"] != "Ada Byron" {
			t.Errorf("the name became %v", user["name"])
		}

		// A foreign page that posts a code of its own signs nobody in.
		foreign := w.browser().begin(p, "acme", nil).consent()
		victim := w.browser()
		hop := victim.navigating().with("Origin", "https://evil.example").send(http.MethodPost, "/callback/acme",
			"application/x-www-form-urlencoded", strings.NewReader(foreign.Encode()))
		victim.navigating().get(hop.Header.Get("Location")).lead("/auth/error?error=state_mismatch")
		w.browser().navigating().send(http.MethodPost, "/callback/nobody", "application/x-www-form-urlencoded", strings.NewReader("")).
			lead("/auth/error?error=oauth_provider_not_found")
	})
}
