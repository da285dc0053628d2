package signin_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// TestForgedIDTokens: none of them signs anybody in, by the browser or natively.
func TestForgedIDTokens(t *testing.T) {
	public, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	foreign := ecKey(t)
	forgeries := map[string]func(p *idp){
		"another nonce":                  func(p *idp) { p.claims = object{"nonce": "another"} },
		"no nonce":                       func(p *idp) { p.claims = object{"nonce": nil} },
		"another audience":               func(p *idp) { p.claims = object{"aud": "another"} },
		"one audience too many":          func(p *idp) { p.claims = object{"aud": []string{clientID, "another"}, "azp": clientID} },
		"no audience":                    func(p *idp) { p.claims = object{"aud": nil} },
		"audience without party":         func(p *idp) { p.claims = object{"aud": []string{clientID, clientID}} },
		"another issuer":                 func(p *idp) { p.claims = object{"iss": "https://evil.example"} },
		"issuer with a slash":            func(p *idp) { p.claims = object{"iss": p.issuer + "/"} },
		"no issuer":                      func(p *idp) { p.claims = object{"iss": nil} },
		"over":                           func(p *idp) { p.claims = object{"exp": p.now().Add(-time.Second).Unix()} },
		"no end":                         func(p *idp) { p.claims = object{"exp": nil} },
		"an end that is text":            func(p *idp) { p.claims = object{"exp": fmt.Sprint(p.now().Add(time.Hour).Unix())} },
		"not yet":                        func(p *idp) { p.claims = object{"nbf": p.now().Add(time.Hour).Unix()} },
		"of tomorrow":                    func(p *idp) { p.claims = object{"iat": p.now().Add(24 * time.Hour).Unix()} },
		"no subject":                     func(p *idp) { p.claims = object{"sub": nil} },
		"a subject too long":             func(p *idp) { p.claims = object{"sub": strings.Repeat("x", 256)} },
		"a subject that is no text":      func(p *idp) { p.claims = object{"sub": []string{"subject-1"}} },
		"a subject in two spellings":     func(p *idp) { p.claims = object{"\u017fub": "subject-2"} },
		"hash of another access token":   func(p *idp) { p.claims = object{"at_hash": b64(make([]byte, 16))} },
		"alg none":                       func(p *idp) { p.header = object{"alg": "none"} },
		"alg none, no signature":         func(p *idp) { p.header = object{"alg": "none"}; p.sign = func(string) []byte { return nil } },
		"alg HS256 with the public key":  func(p *idp) { p.header = object{"alg": "HS256"}; p.sign = signHS256(publicPEM) },
		"alg HS256 with the secret":      func(p *idp) { p.header = object{"alg": "HS256"}; p.sign = signHS256([]byte(clientSecret)) },
		"alg HS256 with a published key": func(p *idp) { p.header = object{"alg": "HS256"}; p.sign = signHS256(bytes.Repeat([]byte{7}, 32)) },
		"alg ES256, not announced": func(p *idp) {
			p.header = object{"alg": "ES256"}
			p.sign = func(input string) []byte { return signES256(t, foreign, input) }
		},
		"a key of its own": func(p *idp) {
			p.header = object{"jwk": object{"kty": "EC", "crv": "P-256"}, "jku": "https://evil.example/jwks", "kid": "evil"}
		},
		"an unknown extension":   func(p *idp) { p.header = object{"crit": []string{"b64"}, "b64": false} },
		"an unknown key":         func(p *idp) { p.header = object{"kid": "another"} },
		"a signature of another": func(p *idp) { p.sign = func(input string) []byte { return signRS256(input + "x") } },
		"no signature":           func(p *idp) { p.sign = func(string) []byte { return nil } },
		"too large":              func(p *idp) { p.claims = object{"pad": strings.Repeat("x", 17<<10)} },
		"no JSON object":         func(p *idp) { p.tokens = object{"id_token": "e30.W10.eA"} },
		"no compact form":        func(p *idp) { p.tokens = object{"id_token": `{"payload":"x","signatures":[]}`} },
		"absent":                 func(p *idp) { p.tokens = object{"id_token": nil} },
	}
	p := newIDP(t)
	w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			p.claims, p.header, p.sign, p.tokens = object{}, object{}, nil, object{}
			forge(p)
			b := w.browser()
			code := "unable_to_get_user_info"
			if name == "too large" {
				code = "invalid_code"
			}
			b.begin(p, "acme", nil).arrive().lead("/sorry?error=" + code)
			if b.user() != nil {
				t.Fatal("signed in")
			}
			native := p.idToken(object{"nonce": "n"})
			if forged, ok := p.tokens["id_token"].(string); ok {
				native = forged
			}
			if name == "hash of another access token" || name == "absent" { // nothing to compare, nothing forged
				return
			}
			w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": native, "nonce": "n"}}).
				want(401, "INVALID_TOKEN")
		})
	}
	var users int
	must(t, w.db.QueryRow(ctx, `SELECT COUNT(*) FROM auth_user`).Scan(&users))
	if users != 0 {
		t.Errorf("%d users were made", users)
	}
	p.claims, p.header, p.sign, p.tokens = object{}, object{}, nil, object{}
	w.browser().begin(p, "acme", nil).arrive().lead("/new")
}

func signES256(t testing.TB, key *ecdsa.PrivateKey, input string) []byte {
	t.Helper()
	digest := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	must(t, err)
	return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
}

// TestHostileProvider: a response that is wrong, huge, slow or elsewhere ends the
// sign-in and nothing else.
func TestHostileProvider(t *testing.T) {
	huge := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"pad":"`))
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for range 32 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`"}`))
	}
	var away sync.Map // hits of where redirects lead
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { away.Store(r.URL.Path, true) }))
	t.Cleanup(elsewhere.Close)
	handlers := map[string]http.HandlerFunc{
		"huge": huge,
		"slow": nil, // made below
		"redirected": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/stolen", http.StatusTemporaryRedirect)
		},
		"looping": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
		"broken":  func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 500, object{}) },
		"refused": func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 403, object{"error": "no"}) },
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) },
		"a list":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[1,2]`)) },
		"twice": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"sub":"subject-1","sub":"subject-2","issuer":"x","issuer":"y","keys":[],"keys":[]}`))
		},
		"deep": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)))
		},
		"many keys": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[` + strings.TrimSuffix(strings.Repeat(`{},`, 101), ",") + `]}`))
		},
		"nothing":     func(http.ResponseWriter, *http.Request) {},
		"hung up":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"many header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 100<<10)) },
	}
	for _, path := range []string{"/.well-known/openid-configuration", "/jwks", "/token", "/userinfo"} {
		for name, handle := range handlers {
			t.Run(path+" "+name, func(t *testing.T) {
				p := newIDP(t)
				t.Cleanup(p.server.CloseClientConnections)
				p.claims["email"] = nil // so that the user info is asked
				p.profile = object{"sub": "subject-1", "email": "ada@example.com", "email_verified": true}
				w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
				if p.handlers[path] = handle; name == "slow" {
					w.lib.Hurry("acme", 50*time.Millisecond)
					over := make(chan struct{})
					t.Cleanup(func() { close(over) })
					p.handlers[path] = func(http.ResponseWriter, *http.Request) { <-over }
				}
				b := w.browser()
				if path == "/.well-known/openid-configuration" {
					b.post("/sign-in/social", object{"provider": "acme"}).want(503, "SERVICE_UNAVAILABLE")
				} else {
					arrived := b.begin(p, "acme", nil).arrive()
					target := arrived.Header.Get("Location")
					if arrived.Status != 302 || !strings.HasPrefix(target, "/sorry?error=") {
						t.Errorf("got %d %q %s", arrived.Status, target, arrived.Body)
					}
				}
				if b.user() != nil {
					t.Error("signed in")
				}
				if p.hit(path) > 1 && name != "hung up" { // Go asks once more when a kept connection was cut
					t.Errorf("asked %d times", p.hit(path))
				}
			})
		}
	}
	away.Range(func(path, _ any) bool { t.Errorf("a redirect was followed to %v", path); return true })
}

// TestDiscoveryIsPinned: the configuration is that of the issuer asked, and its
// endpoints are where an issuer may have them.
func TestDiscoveryIsPinned(t *testing.T) {
	for name, document := range map[string]object{
		"another issuer":    {"issuer": "https://evil.example"},
		"a slash more":      {"issuer": "/"},
		"no endpoint":       {"token_endpoint": nil},
		"a plain endpoint":  {"jwks_uri": "http://evil.example/jwks"},
		"a file":            {"jwks_uri": "file:///etc/passwd"},
		"a user in it":      {"token_endpoint": "https://kit:secret@evil.example/token"},
		"userinfo in plain": {"userinfo_endpoint": "http://evil.example/userinfo"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t)
			if document["issuer"] == "/" {
				document["issuer"] = p.issuer + "/"
			}
			p.document = document
			w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
			w.browser().post("/sign-in/social", object{"provider": "acme"}).want(503, "SERVICE_UNAVAILABLE")
		})
	}
}

// TestKeysAreFetchedSparingly: a key id anybody can make up costs the provider
// one request in half a minute, however many ask; a new key is found.
func TestKeysAreFetchedSparingly(t *testing.T) {
	p := newIDP(t)
	w := openSocial(t, databasetest.Memory(t), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
	signIn := func() int {
		return w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": p.idToken(nil)}}).Status
	}
	if signIn() != 200 || p.hit("/jwks") != 1 || p.hit("/.well-known/openid-configuration") != 1 {
		t.Fatalf("the keys were asked for %d times", p.hit("/jwks"))
	}
	p.header["kid"] = "made-up"
	flood := func() {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if signIn() != 401 {
					t.Error("a made-up key signs in")
				}
			})
		}
		wg.Wait()
	}
	flood()
	if p.hit("/jwks") != 1 {
		t.Errorf("asked %d times within the pause", p.hit("/jwks"))
	}
	w.clock.advance(30 * time.Second)
	flood()
	if p.hit("/jwks") != 2 {
		t.Errorf("asked %d times, want once after the pause", p.hit("/jwks"))
	}

	p.header, p.kid = object{}, "key-2" // the provider rotates
	w.clock.advance(30 * time.Second)
	if signIn() != 200 || p.hit("/jwks") != 3 {
		t.Errorf("the new key is not found; asked %d times", p.hit("/jwks"))
	}

	// A provider that is down is not needed while its keys are known.
	p.handlers["/jwks"] = func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 503, object{}) }
	w.clock.advance(2 * time.Hour)
	if signIn() != 200 {
		t.Error("known keys do not do while the provider is down")
	}
	w.clock.advance(25 * time.Hour)
	w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": p.idToken(nil)}}).want(503, "SERVICE_UNAVAILABLE")
	delete(p.handlers, "/jwks")
	w.clock.advance(5 * time.Second)
	if signIn() != 200 {
		t.Error("the provider is up again")
	}
}

func TestNativeIDToken(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		provider := p.provider("acme")
		provider.Audiences = []string{"com.example.app"}
		provider.Require = map[string]string{"hd": "example.com"}
		plain := oauth.Provider{ID: "plain", ClientID: "x", AuthorizeURL: "https://plain.example/a", TokenURL: "https://plain.example/t", UserInfoURL: "https://plain.example/u"}
		w := openSocial(t, db, signin.Config{Providers: []oauth.Provider{provider, plain}}, p)
		p.claims["hd"] = "example.com"
		bring := func(token, nonce string) *response {
			return w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{
				"token": token, "nonce": nonce, "accessToken": "stolen", "user": object{"name": object{"firstName": "Eve"}}}})
		}
		in := decoded[object](bring(p.idToken(object{"aud": "com.example.app", "nonce": "n"}), "n").ok())
		if in["redirect"] != false || in["token"] == "" || in["refreshToken"] == nil || in["user"].(object)["name"] != "Ada Lovelace" {
			t.Errorf("got %v", in)
		}
		once := p.idToken(object{"jti": "once"})
		bring(once, "").ok() // no nonce asked, none there
		bring(once, "").want(401, "INVALID_TOKEN")
		bring(p.idToken(nil), "n").want(401, "INVALID_TOKEN")
		bring(p.idToken(object{"nonce": "n"}), "").want(401, "INVALID_TOKEN")
		bring(p.idToken(object{"iat": w.clock.Now().Add(-61 * time.Minute).Unix()}), "").want(401, "INVALID_TOKEN")
		bring(p.idToken(object{"aud": []string{clientID, "com.example.app"}, "azp": clientID}), "").ok()
		w.native().post("/sign-in/social", object{"provider": "plain", "idToken": object{"token": "x"}}).want(404, "ID_TOKEN_NOT_SUPPORTED")
		p.claims["hd"] = "evil.example"
		bring(p.idToken(nil), "").want(401, "INVALID_TOKEN")
		p.claims["hd"], p.claims["email"], p.claims["sub"] = "example.com", nil, "subject-2"
		bring(p.idToken(nil), "").want(401, "USER_EMAIL_NOT_FOUND")
	})
}

// BenchmarkIDToken is a request whose ID token verifies and whose account is
// known to be nobody's: the signature and one read.
func BenchmarkIDToken(b *testing.B) {
	p := newIDP(b)
	w := openSocial(b, databasetest.File(b), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
	app := w.native()
	body := object{"provider": "acme", "idToken": object{"token": p.idToken(object{"email": nil})}}
	for b.Loop() {
		app.post("/sign-in/social", body).want(http.StatusUnauthorized, "USER_EMAIL_NOT_FOUND")
	}
}

// FuzzIDToken: whatever a client brings, only what the provider has signed
// signs in.
func FuzzIDToken(f *testing.F) {
	p := newIDP(f)
	w := openSocial(f, databasetest.Memory(f), signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
	good := p.idToken(object{"email": nil}) // it verifies, and no user is made
	parts := strings.Split(good, ".")
	f.Add(good)
	f.Add(parts[0] + "." + parts[1] + ".")
	f.Add(segment(object{"alg": "none"}) + "." + parts[1] + ".e30")
	f.Add(good + "=")
	f.Add(" " + good)
	f.Add(`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`)
	f.Fuzz(func(t *testing.T, token string) {
		app := *w.app
		app.t = t
		response := app.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": token}})
		want := "INVALID_TOKEN"
		if token == good {
			want = "USER_EMAIL_NOT_FOUND"
		}
		if response.Status != http.StatusUnauthorized || response.code() != want {
			t.Errorf("%q: got %d %s", token, response.Status, response.Body)
		}
	})
}
