package signin_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/secrets"
)

var secret = secrets.NewValue(clientSecret)

// openNamed opens an application with a named provider, which p stands for.
func openNamed(t *testing.T, provider oauth.Provider, p *idp, at ...string) *world {
	t.Helper()
	provider.ClientID = clientID
	w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{provider}}, p)
	routes := hosts{}
	for _, host := range at {
		routes[host] = p
	}
	w.lib.Route(provider.ID, routes)
	return w
}

// serve has p return JSON at a path.
func (p *idp) serve(path string, value any) {
	p.handlers[path] = func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer access-") {
			writeJSON(w, 401, object{})
			return
		}
		writeJSON(w, 200, value)
	}
}

func (p *idp) serveToken(path string) { p.handlers[path] = p.token }

func (p *idp) serveKeys(path string) {
	p.handlers[path] = func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, p.jwks()) }
}

// facts are what is asserted about a user.
func facts(b *browser) []any {
	user := b.user()
	return []any{user["email"], user["emailVerified"], user["name"], user["image"]}
}

func TestGoogle(t *testing.T) {
	p := newIDP(t)
	p.issuer = "https://accounts.google.com"
	p.serveToken("/token")
	p.serveKeys("/oauth2/v3/certs")
	w := openNamed(t, oauth.Google(clientID, secret), p, "oauth2.googleapis.com", "www.googleapis.com")
	b := w.browser()
	b.begin(p, "google", nil).arrive().lead("/new")
	if diff := cmp.Diff([]any{"ada@example.com", true, "Ada Lovelace", "https://pictures.example/ada.png"}, facts(b)); diff != "" {
		t.Error(diff)
	}
	got := decoded[object](w.native().post("/one-tap/callback", object{"idToken": p.idToken(nil)}).ok())
	if got["token"] == "" || got["user"].(object)["email"] != "ada@example.com" {
		t.Errorf("got %v", got)
	}
	w.native().post("/one-tap/callback", object{"idToken": "x"}).want(401, "INVALID_TOKEN")
	w.browser().post("/one-tap/callback", object{"idToken": p.idToken(nil), "callbackURL": "https://evil.example"}).want(403, "INVALID_CALLBACK_URL")
}

func TestOneTapWithoutGoogle(t *testing.T) {
	w := openSocial(t, databasetest.Memory(t), signin.Config{})
	w.native().post("/one-tap/callback", object{"idToken": "x"}).want(404, "PROVIDER_NOT_FOUND")
}

func TestApple(t *testing.T) {
	key := ecKey(t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	apple := oauth.Apple(clientID, oauth.AppleKey{TeamID: "TEAM", KeyID: "KEY",
		PEM: secrets.NewValue(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))})
	apple.Audiences = []string{"com.example.app"}
	p := newIDP(t)
	p.issuer = "https://appleid.apple.com"
	p.serveToken("/auth/token")
	p.serveKeys("/auth/keys")
	p.claims = object{"name": nil, "picture": nil, "email_verified": "true"}
	w := openNamed(t, apple, p, "appleid.apple.com")
	b := w.browser()
	j := b.begin(p, "apple", nil)
	if j.query.Get("response_mode") != "form_post" || j.query.Get("scope") != "openid email name" {
		t.Errorf("got %v", j.query)
	}
	form := j.consent()
	form.Set("user", `{"name":{"firstName":"Ada","lastName":"Byron"}}`)
	hop := w.browser().navigating().send(http.MethodPost, "/callback/apple", "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
	b.navigating().get(hop.Header.Get("Location")).lead("/new")
	if diff := cmp.Diff([]any{"ada@example.com", true, "Ada Byron", nil}, facts(b)); diff != "" {
		t.Error(diff)
	}
	verifyClientSecret(t, &key.PublicKey, p.lastForm.Get("client_secret"), w)

	// An app hashes the nonce before it asks.
	hashed := sha256.Sum256([]byte("n"))
	const hex = "0123456789abcdef"
	var text strings.Builder
	for _, c := range hashed {
		text.WriteString(string(hex[c>>4]) + string(hex[c&15]))
	}
	native := func(nonce string) *response {
		return w.native().post("/sign-in/social", object{"provider": "apple", "idToken": object{
			"token": p.idToken(object{"aud": "com.example.app", "nonce": text.String(), "jti": nonce}), "nonce": nonce}})
	}
	native("n").ok()
	native(text.String()).ok()
	native("m").want(401, "INVALID_TOKEN")
}

// verifyClientSecret is what Apple does.
func verifyClientSecret(t *testing.T, key *ecdsa.PublicKey, token string, w *world) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("the client secret is %q", token)
	}
	decode := func(text string) []byte {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		must(t, err)
		return raw
	}
	signature := decode(parts[2])
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if len(signature) != 64 || !ecdsa.Verify(key, digest[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		t.Error("the client secret does not verify")
	}
	var header, claims object
	must(t, json.Unmarshal(decode(parts[0]), &header))
	must(t, json.Unmarshal(decode(parts[1]), &claims))
	now := float64(w.clock.Now().Unix())
	if diff := cmp.Diff([]object{
		{"alg": "ES256", "kid": "KEY"},
		{"iss": "TEAM", "sub": clientID, "aud": "https://appleid.apple.com", "iat": now, "exp": now + 300},
	}, []object{header, claims}); diff != "" {
		t.Error(diff)
	}
}

func TestGitHub(t *testing.T) {
	p := newIDP(t)
	p.handlers["/login/oauth/access_token"] = func(w http.ResponseWriter, r *http.Request) { // as GitHub does: a form, and 200 for refusals
		_ = r.ParseForm()
		p.mu.Lock()
		defer p.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-www-form-urlencoded")
		if p.grants[r.Form.Get("code")] == nil {
			_, _ = w.Write([]byte("error=bad_verification_code"))
			return
		}
		_, _ = w.Write([]byte("access_token=access-1&expires_in=28800&refresh_token=refresh-0&scope=read%3Auser%2Cuser%3Aemail&token_type=bearer"))
	}
	p.serve("/user", object{"id": 583231, "login": "octocat", "name": nil, "email": "public@example.com", "avatar_url": "https://avatars.example/1"})
	addresses := []object{
		{"email": "second@example.com", "primary": false, "verified": true},
		{"email": "octocat@example.com", "primary": true, "verified": true},
	}
	p.serve("/user/emails", addresses)
	w := openNamed(t, oauth.GitHub(clientID, secret), p, "github.com", "api.github.com")
	b := w.browser()
	b.begin(p, "github", nil).arrive().lead("/new")
	if diff := cmp.Diff([]any{"octocat@example.com", true, "octocat", "https://avatars.example/1"}, facts(b)); diff != "" {
		t.Error(diff)
	}
	account := decoded[[]object](b.get("/list-accounts").ok())[0]
	if account["accountId"] != "583231" || !cmp.Equal(account["scopes"], []any{"read:user", "user:email"}) {
		t.Errorf("got %v", account)
	}
	if got := decoded[object](b.post("/get-access-token", object{"accountId": account["id"]}).ok()); got["accessTokenExpiresAt"] != "2026-03-01T20:00:00.000Z" {
		t.Errorf("got %v", got)
	}
	j := b.begin(p, "github", nil)
	query := j.consent()
	query.Set("code", "made-up")
	j.back(query).lead("/sorry?error=invalid_code")

	addresses[1]["verified"] = false // an address not proved there links nobody
	owner := w.signedUp("ada@example.com")
	w.verify("ada@example.com")
	addresses[1]["email"] = "ada@example.com"
	p.serve("/user", object{"id": 2, "login": "eve"})
	w.browser().begin(p, "github", nil).arrive().lead("/sorry?error=account_not_linked")
	_ = owner
}

func TestDiscord(t *testing.T) {
	p := newIDP(t)
	p.serveToken("/api/oauth2/token")
	p.serve("/api/users/@me", object{"id": "80351110224678912", "username": "nelly", "global_name": nil, "avatar": "a_8342729096ea3675442027381ff50dfe", "email": "nelly@example.com", "verified": true})
	w := openNamed(t, oauth.Discord(clientID, secret), p, "discord.com")
	b := w.browser()
	b.begin(p, "discord", nil).arrive().lead("/new")
	if diff := cmp.Diff([]any{"nelly@example.com", true, "nelly",
		"https://cdn.discordapp.com/avatars/80351110224678912/a_8342729096ea3675442027381ff50dfe.gif"}, facts(b)); diff != "" {
		t.Error(diff)
	}
}

func TestFacebook(t *testing.T) {
	p := newIDP(t)
	p.issuer = "https://www.facebook.com"
	p.serveToken("/v24.0/oauth/access_token")
	p.serve("/v24.0/me", object{"id": "1", "name": "Ada", "email": "ada@example.com", "picture": object{"data": object{"url": "https://pictures.example/a.png"}}})
	p.serveKeys("/.well-known/oauth/openid/jwks/")
	w := openNamed(t, oauth.Facebook(clientID, secret), p, "graph.facebook.com", "limited.facebook.com")
	b := w.browser()
	b.begin(p, "facebook", nil).arrive().lead("/new")
	if diff := cmp.Diff([]any{"ada@example.com", false, "Ada", "https://pictures.example/a.png"}, facts(b)); diff != "" {
		t.Error(diff)
	}
	got := decoded[object](w.native().post("/sign-in/social", object{"provider": "facebook", "idToken": object{
		"token": p.idToken(object{"sub": "1"})}}).ok())
	if got["user"].(object)["id"] != b.user()["id"] || got["user"].(object)["emailVerified"] != false {
		t.Errorf("got %v", got)
	}
}

func TestMicrosoft(t *testing.T) {
	const tenant, other = "72f988bf-86f1-41af-91ab-2d7cd011db47", "11111111-2222-3333-4444-555555555555"
	const consumers = "9188040d-6c67-4c5b-b112-36a304b66dad"
	open := func(t *testing.T, of string) (*world, *idp) {
		p := newIDP(t)
		p.issuer = "https://login.microsoftonline.com/" + tenant + "/v2.0"
		p.serveToken("/" + of + "/oauth2/v2.0/token")
		p.serveKeys("/" + of + "/discovery/v2.0/keys")
		p.claims = object{"tid": tenant, "oid": "object-1", "email_verified": true} // which Microsoft never says
		return openNamed(t, oauth.Microsoft(of, clientID, secret), p, "login.microsoftonline.com"), p
	}
	const refused = "/sorry?error=unable_to_get_user_info"
	for _, c := range []struct{ of, tenant, issuer, want string }{
		{"common", tenant, tenant, "/new"},
		{"common", consumers, consumers, "/new"},
		{"common", tenant, other, refused},
		{"common", "../common", "../common", refused},
		{"organizations", tenant, tenant, "/new"},
		{"organizations", consumers, consumers, refused},
		{"consumers", consumers, consumers, "/new"},
		{"consumers", tenant, tenant, refused},
		{tenant, tenant, tenant, "/new"},
		{tenant, other, other, refused},
	} {
		t.Run(c.of+" "+c.tenant+" by "+c.issuer, func(t *testing.T) {
			w, p := open(t, c.of)
			p.claims["tid"], p.claims["iss"] = c.tenant, "https://login.microsoftonline.com/"+c.issuer+"/v2.0"
			b := w.browser()
			b.begin(p, "microsoft", nil).arrive().lead(c.want)
			if c.want != "/new" {
				return
			}
			account := decoded[[]object](b.get("/list-accounts").ok())[0]
			if b.user()["emailVerified"] != false || account["accountId"] != c.tenant+".object-1" || account["issuer"] != p.claims["iss"] {
				t.Errorf("got %v, %v", b.user(), account)
			}
		})
	}
	t.Run("an address the tenant made up", func(t *testing.T) {
		w, p := open(t, "common")
		w.signedUp("ada@example.com")
		w.verify("ada@example.com")
		w.browser().begin(p, "microsoft", nil).arrive().lead("/sorry?error=account_not_linked")
		p.claims["xms_edov"] = "1"
		w.browser().begin(p, "microsoft", nil).arrive().lead("/welcome")
	})
	t.Run("no object", func(t *testing.T) {
		w, p := open(t, "common")
		delete(p.claims, "oid")
		w.browser().begin(p, "microsoft", nil).arrive().lead(refused)
	})
}

// TestUserInfoProvider is OAuth 2.0 alone, its members named by the application.
func TestUserInfoProvider(t *testing.T) {
	p := newIDP(t)
	provider := oauth.Provider{
		ID: "acme", ClientID: clientID, ClientSecret: secret, SecretInHeader: true,
		AuthorizeURL: p.issuer + "/authorize", TokenURL: p.issuer + "/token", UserInfoURL: p.issuer + "/who",
		Scopes: []string{"profile"}, Parameters: map[string]string{"prompt": "login"},
		Fields: oauth.Fields{Subject: "data.id", Email: "data.mail", EmailVerified: "data.proved", Name: "data.nick", Image: "data.face"},
	}
	p.serve("/who", object{"data": object{"id": int64(12345678901234567), "mail": "ADA@example.com", "proved": true, "nick": " Ada\n ", "face": "http://plain.example/a.png"}})
	w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{provider}}, p)
	b := w.browser()
	j := b.begin(p, "acme", nil)
	if j.query.Get("prompt") != "login" || j.query.Has("nonce") {
		t.Errorf("got %v", j.query)
	}
	j.arrive().lead("/new")
	if diff := cmp.Diff([]any{"ada@example.com", true, "Ada", nil}, facts(b)); diff != "" {
		t.Error(diff)
	}
	if account := decoded[[]object](b.get("/list-accounts").ok())[0]; account["accountId"] != "12345678901234567" {
		t.Errorf("got %v", account)
	}
	p.serve("/who", object{"data": object{"mail": "ada@example.com"}})
	w.browser().begin(p, "acme", nil).arrive().lead("/sorry?error=unable_to_get_user_info")
	p.serve("/who", object{"data": object{"id": "2", "mail": "no address"}})
	w.browser().begin(p, "acme", nil).arrive().lead("/sorry?error=email_not_found")
}

// TestUserInfoOfAnotherSubject: what the user info says counts for the user of
// the ID token alone (OpenID Connect Core, 5.3.2).
func TestUserInfoOfAnotherSubject(t *testing.T) {
	p := newIDP(t)
	p.claims["email"] = nil
	p.profile = object{"sub": "another", "email": "victim@example.com", "email_verified": true}
	w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
	w.browser().begin(p, "acme", nil).arrive().lead("/sorry?error=unable_to_get_user_info")
	p.profile = object{"sub": "subject-1", "email": "victim@example.com"} // the ID token's email_verified is about no address
	b := w.browser()
	b.begin(p, "acme", nil).arrive().lead("/new")
	if b.user()["email"] != "victim@example.com" || b.user()["emailVerified"] != false {
		t.Errorf("got %v", b.user())
	}
}

func TestProvidersAreChecked(t *testing.T) {
	good := oauth.OpenID("acme", "https://accounts.example", clientID, secret)
	for name, change := range map[string]func(*oauth.Provider){
		"id":          func(p *oauth.Provider) { p.ID = "Acme!" },
		"password":    func(p *oauth.Provider) { p.ID = "credential" },
		"client":      func(p *oauth.Provider) { p.ClientID = "" },
		"plain":       func(p *oauth.Provider) { p.Issuer = "http://accounts.example" },
		"no endpoint": func(p *oauth.Provider) { p.Issuer = "" },
		"tenants":     func(p *oauth.Provider) { p.Issuer = "https://accounts.example/{tenantid}" },
		"no openid":   func(p *oauth.Provider) { p.Scopes = nil },
		"state":       func(p *oauth.Provider) { p.Parameters = map[string]string{"state": "x"} },
		"key": func(p *oauth.Provider) {
			*p = oauth.Apple(clientID, oauth.AppleKey{PEM: secrets.NewValue("no key")})
		},
	} {
		bad := good
		change(&bad)
		if err := assemble(t, bad); !isFault(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := assemble(t, good, good); !isFault(err) {
		t.Errorf("one twice: got %v", err)
	}
	must(t, assemble(t, good, oauth.Google(clientID, secret), oauth.GitHub(clientID, secret), oauth.Discord(clientID, secret),
		oauth.Facebook(clientID, secret), oauth.Microsoft("common", clientID, secret)))
}

func isFault(err error) bool {
	var fault *capability.Fault
	return errors.As(err, &fault) && !strings.Contains(err.Error(), clientSecret)
}

func assemble(t *testing.T, providers ...oauth.Provider) error {
	t.Helper()
	a := openAuth(t, databasetest.Memory(t), auth.Config{})
	_, err := signin.New(signin.Config{Providers: providers})(capability.Host{
		DB: a.db, BaseURL: a.base, Now: a.clock.Now, Sealing: func() (capability.Sealer, error) { return nil, nil },
	}, a.LibraryHost)
	return err
}
