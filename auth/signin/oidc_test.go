package signin_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/secrets"
)

// realProvider starts npm's oidc-provider from the folder that KIT_TEST_OIDC
// names, and returns its issuer.
func realProvider(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("KIT_TEST_OIDC")
	if folder == "" {
		t.Skip("KIT_TEST_OIDC is not set: it names a folder with oidc-provider in its node_modules")
	}
	cmd := exec.Command("node", "testdata/provider.mjs", folder, baseURL+"/auth/callback/acme", baseURL+"/auth/callback/form")
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait()
	})
	issuer, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(issuer)
}

// visitor is the user's browser at the provider.
type visitor struct {
	t *testing.T
	http.Client
}

func newVisitor(t *testing.T) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	return &visitor{t, http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// visit follows the provider until it sends the browser back, and returns the
// address, or the page when there is one.
func (v *visitor) visit(address string) (back *url.URL, page string) {
	v.t.Helper()
	for range 10 {
		response, err := v.Get(address)
		must(v.t, err)
		body, err := io.ReadAll(response.Body)
		must(v.t, err)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil, string(body)
		}
		to, err := response.Location()
		if err != nil {
			v.t.Fatalf("the provider returned %d %s", response.StatusCode, body)
		}
		if address = to.String(); strings.HasPrefix(address, baseURL) {
			return to, ""
		}
	}
	v.t.Fatal("the provider sends its visitor round and round")
	return nil, ""
}

// TestRealProvider signs in at an implementation that nobody wrote for this test.
func TestRealProvider(t *testing.T) {
	issuer := realProvider(t)
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		acme := oauth.OpenID("acme", issuer, "kit", secrets.NewValue("kit-secret"))
		form := acme
		form.ID, form.FormPost = "form", true
		w := &world{}
		made := signin.NewForTest(signin.Config{Providers: []oauth.Provider{acme, form}}, &w.lib)
		w.app = openAt(t, db, auth.Config{Library: made, RateLimits: unlimited}, baseURL, &clock{now: time.Now()})

		begin := func(b *browser, provider, user string, more object) *url.URL {
			t.Helper()
			body := object{"provider": provider, "callbackURL": "/welcome", "newUserCallbackURL": "/new", "errorCallbackURL": "/sorry", "loginHint": user}
			for name, value := range more {
				body[name] = value
			}
			u, err := url.Parse(decoded[struct{ URL string }](b.post("/sign-in/social", body).ok()).URL)
			must(t, err)
			return u
		}
		consent := func(u *url.URL) *url.URL { t.Helper(); back, _ := newVisitor(t).visit(u.String()); return back }
		arrive := func(b *browser, back *url.URL) *response { t.Helper(); return b.navigating().get(back.String()) }
		tampered := func(u *url.URL, name, value string) *url.URL {
			other := *u
			q := other.Query()
			q.Set(name, value)
			other.RawQuery = q.Encode()
			return &other
		}

		b := w.browser()
		back := consent(begin(b, "acme", "ada", nil))
		if back.Query().Get("iss") != issuer {
			t.Errorf("sent back with %v", back.Query())
		}
		arrive(b, back).lead("/new")
		if user := b.user(); user["email"] != "ada@example.com" || user["emailVerified"] != true || user["name"] != "ada" {
			t.Errorf("signed in as %v", user)
		}
		arrive(b, back).lead("/new")                                       // loaded again: nothing is done twice
		arrive(w.browser(), back).lead("/auth/error?error=state_mismatch") // a replayed state

		again := w.browser()
		arrive(again, consent(begin(again, "acme", "ada", nil))).lead("/welcome")
		if again.user()["id"] != b.user()["id"] {
			t.Error("the second sign-in is another user's")
		}

		thief := w.browser()
		u := begin(thief, "acme", "eve", nil)
		stolen := tampered(back, "state", u.Query().Get("state"))
		arrive(thief, stolen).lead("/sorry?error=invalid_code") // a replayed code

		fresh := consent(begin(w.browser(), "acme", "ada", nil))
		arrive(thief, fresh).lead("/auth/error?error=state_mismatch") // the state of another browser
		u = begin(thief, "acme", "eve", nil)
		arrive(thief, tampered(fresh, "state", u.Query().Get("state"))).lead("/sorry?error=invalid_code") // PKCE

		u = begin(thief, "acme", "ada", nil)
		arrive(thief, consent(tampered(u, "nonce", "another"))).lead("/sorry?error=unable_to_get_user_info")
		u = begin(thief, "acme", "ada", nil)
		arrive(thief, tampered(consent(u), "iss", "https://evil.example")).lead("/sorry?error=issuer_mismatch")
		u = begin(thief, "acme", "ada", nil)
		arrive(thief, consent(tampered(u, "client_id", "other"))).lead("/sorry?error=invalid_code") // another client's code
		u = begin(thief, "acme", "ada", nil)
		arrive(thief, consent(tampered(u, "prompt", "none"))).lead("/sorry?error=login_required")
		u = begin(thief, "acme", "unproved:ada", nil)
		arrive(thief, consent(u)).lead("/sorry?error=account_not_linked")
		if thief.user() != nil {
			t.Errorf("the thief is signed in as %v", thief.user())
		}

		foreign := idTokenOf(t, issuer, "other", "ada")
		w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": foreign, "nonce": "n"}}).want(401, "INVALID_TOKEN")
		own := idTokenOf(t, issuer, "kit", "grace")
		w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": own, "nonce": "m"}}).want(401, "INVALID_TOKEN")
		known := idTokenOf(t, issuer, "kit", "ada")
		w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": known, "nonce": "n"}}).ok()
		// It verifies; the provider tells the address by the user info alone.
		w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": own, "nonce": "n"}}).want(401, "USER_EMAIL_NOT_FOUND")

		b = w.browser()
		_, page := newVisitor(t).visit(begin(b, "form", "grace", nil).String())
		fields := url.Values{}
		for _, input := range regexp.MustCompile(`name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			fields.Set(input[1], html.UnescapeString(input[2]))
		}
		hop := w.browser().navigating().send(http.MethodPost, "/callback/form", "application/x-www-form-urlencoded", strings.NewReader(fields.Encode()))
		b.navigating().get(hop.Header.Get("Location")).lead("/new")

		b = w.browser()
		u = begin(b, "acme", "joan", object{"scopes": []string{"offline_access"}, "additionalParams": object{"prompt": "consent"}})
		arrive(b, consent(u)).lead("/new")
		id := b.accountID("acme")
		first := decoded[object](b.post("/get-access-token", object{"accountId": id}).ok())
		second := decoded[object](b.post("/refresh-token", object{"accountId": id}).ok())
		if first["accessToken"] == second["accessToken"] || second["refreshToken"] == "" {
			t.Errorf("%v became %v", first, second)
		}
		info := decoded[struct{ User object }](b.get("/account-info?accountId=" + id).ok())
		if info.User["email"] != "joan@example.com" {
			t.Errorf("got %v", info)
		}
	})
}

// idTokenOf gets an ID token as an app of its own would.
func idTokenOf(t *testing.T, issuer, client, user string) string {
	t.Helper()
	const verifier = "a-verifier-that-is-long-enough-for-the-standard"
	challenge := sha256.Sum256([]byte(verifier))
	query := url.Values{
		"client_id": {client}, "response_type": {"code"}, "redirect_uri": {baseURL + "/auth/callback/acme"}, "scope": {"openid email"},
		"code_challenge": {b64(challenge[:])}, "code_challenge_method": {"S256"}, "nonce": {"n"}, "state": {"s"}, "login_hint": {user},
	}
	back, _ := newVisitor(t).visit(issuer + "/auth?" + query.Encode())
	response, err := http.PostForm(issuer+"/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {back.Query().Get("code")}, "redirect_uri": query["redirect_uri"],
		"code_verifier": {verifier}, "client_id": {client}, "client_secret": {client + "-secret"},
	})
	must(t, err)
	defer response.Body.Close()
	var tokens struct {
		IDToken string `json:"id_token"`
	}
	must(t, json.NewDecoder(response.Body).Decode(&tokens))
	return tokens.IDToken
}
