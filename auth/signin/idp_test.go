package signin_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/secrets"
)

const (
	clientID     = "kit-client"
	clientSecret = "not-telling"
)

// rsaKey is made once: it takes long.
var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

func segment(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return b64(raw)
}

// idp is a provider of the test's own, which signs what it is told to. It
// serves any host, so that it can stand for the named ones.
type idp struct {
	t      testing.TB
	issuer string
	server *httptest.Server
	now    func() time.Time

	mu     sync.Mutex
	grants map[string]*grant
	hits   map[string]int
	// claims of the next ID tokens, above the ordinary ones; nil leaves one out.
	claims object
	// header of the next ID tokens, above the ordinary one.
	header object
	// sign replaces the signature.
	sign func(input string) []byte
	// profile is the user info.
	profile object
	// kid is the id of the key that is published and signs.
	kid string
	// handlers replace the ones of their paths.
	handlers map[string]http.HandlerFunc
	// document is added to the discovery document.
	document object
	// tokens are added to the response of the token endpoint.
	tokens object
	// lastForm is the last request for tokens.
	lastForm url.Values
}

// grant is what a code stands for.
type grant struct{ redirect, challenge, nonce, client string }

func newIDP(t testing.TB) *idp {
	t.Helper()
	p := &idp{t: t, grants: map[string]*grant{}, hits: map[string]int{}, claims: object{}, header: object{},
		profile: object{}, kid: "key-1", handlers: map[string]http.HandlerFunc{}, document: object{}, tokens: object{}}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	p.issuer = p.server.URL
	return p
}

// provider is the configuration that knows it.
func (p *idp) provider(id string) oauth.Provider {
	return oauth.OpenID(id, p.issuer, clientID, secrets.NewValue(clientSecret))
}

func (p *idp) hit(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits[path]
}

func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.hits[r.URL.Path]++
	handle := p.handlers[r.URL.Path]
	p.mu.Unlock()
	if handle != nil {
		handle(w, r)
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		document := object{
			"issuer": p.issuer, "authorization_endpoint": p.issuer + "/authorize", "token_endpoint": p.issuer + "/token",
			"jwks_uri": p.issuer + "/jwks", "userinfo_endpoint": p.issuer + "/userinfo",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_post"},
		}
		for name, value := range p.document {
			document[name] = value
		}
		writeJSON(w, 200, document)
	case "/jwks":
		writeJSON(w, 200, p.jwks())
	case "/token":
		p.token(w, r)
	case "/userinfo":
		if r.Header.Get("Authorization") == "" {
			writeJSON(w, 401, object{"error": "invalid_token"})
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		writeJSON(w, 200, p.profile)
	default:
		http.NotFound(w, r)
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func (p *idp) jwks() object {
	key := rsaKey()
	return object{"keys": []object{
		{"kty": "oct", "kid": p.kid, "k": b64(bytes.Repeat([]byte{7}, 32))},
		{"kty": "RSA", "kid": p.kid, "use": "enc", "n": b64([]byte{1, 2, 3}), "e": "AQAB"},
		{"kty": "RSA", "kid": p.kid, "use": "sig", "alg": "RS256", "n": b64(key.N.Bytes()), "e": "AQAB"},
	}}
}

// token returns the token endpoint as the standards have it: a code is good
// once, for the client, the redirect address and the verifier it was made for.
func (p *idp) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastForm = r.Form
	if user, secret, ok := r.BasicAuth(); ok {
		r.Form.Set("client_id", user)
		r.Form.Set("client_secret", secret)
	}
	response := object{"access_token": "access-" + fmt.Sprint(p.hits["/token"]), "token_type": "Bearer", "expires_in": 3600}
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		g := p.grants[r.Form.Get("code")]
		delete(p.grants, r.Form.Get("code"))
		challenge := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if g == nil || g.client != r.Form.Get("client_id") || g.redirect != r.Form.Get("redirect_uri") || g.challenge != b64(challenge[:]) {
			writeJSON(w, 400, object{"error": "invalid_grant"})
			return
		}
		response["id_token"] = p.idToken(object{"nonce": g.nonce, "aud": g.client})
		response["refresh_token"] = "refresh-0"
	case "refresh_token":
		if r.Form.Get("refresh_token") != fmt.Sprintf("refresh-%d", p.hits["refreshed"]) {
			writeJSON(w, 400, object{"error": "invalid_grant"})
			return
		}
		p.hits["refreshed"]++
		response["refresh_token"] = fmt.Sprintf("refresh-%d", p.hits["refreshed"])
	}
	for name, value := range p.tokens {
		response[name] = value
	}
	writeJSON(w, 200, response)
}

// idToken signs the ordinary claims with those given above them, and above all
// those the test has set.
func (p *idp) idToken(over object) string {
	now := p.now()
	claims := object{
		"iss": p.issuer, "sub": "subject-1", "aud": clientID, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"email": "ada@example.com", "email_verified": true, "name": "Ada Lovelace", "picture": "https://pictures.example/ada.png",
	}
	header := object{"alg": "RS256", "kid": p.kid, "typ": "JWT"}
	for _, more := range []object{over, p.claims} {
		for name, value := range more {
			if claims[name] = value; value == nil {
				delete(claims, name)
			}
		}
	}
	for name, value := range p.header {
		header[name] = value
	}
	input := segment(header) + "." + segment(claims)
	if p.sign != nil {
		return input + "." + b64(p.sign(input))
	}
	return input + "." + b64(signRS256(input))
}

func signRS256(input string) []byte {
	digest := sha256.Sum256([]byte(input))
	signature, err := rsa.SignPKCS1v15(rand.Reader, rsaKey(), crypto.SHA256, digest[:])
	if err != nil {
		panic(err)
	}
	return signature
}

func signHS256(key []byte) func(string) []byte {
	return func(input string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(input))
		return mac.Sum(nil)
	}
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// world is an application with providers.
type world struct {
	*app
	lib *signin.TestLibrary
}

func openSocial(t testing.TB, db *database.DB, cfg signin.Config, idps ...*idp) *world {
	t.Helper()
	w := &world{}
	made := signin.NewForTest(cfg, &w.lib)
	w.app = openAuth(t, db, auth.Config{Library: made, RateLimits: unlimited})
	for _, p := range idps {
		p.now = w.clock.Now
	}
	return w
}

// journey is a browser on its way to a provider and back.
type journey struct {
	b     *browser
	p     *idp
	id    string
	query url.Values // of the authorization request
}

// begin has a browser ask to sign in.
func (b *browser) begin(p *idp, id string, more object) journey {
	b.a.t.Helper()
	return b.depart("/sign-in/social", p, id, more)
}

func (b *browser) depart(path string, p *idp, id string, more object) journey {
	b.a.t.Helper()
	body := object{"provider": id, "callbackURL": "/welcome", "newUserCallbackURL": "/new", "errorCallbackURL": "/sorry"}
	for name, value := range more {
		body[name] = value
	}
	response := decoded[struct {
		URL      string
		Redirect bool
	}](b.post(path, body).ok())
	u, err := url.Parse(response.URL)
	must(b.a.t, err)
	return journey{b, p, id, u.Query()}
}

// consent has the provider ask its user, who agrees: it returns the query of
// the address it sends the browser back to.
func (j journey) consent() url.Values {
	code := "code-" + b64(randomBytes())
	j.p.mu.Lock()
	defer j.p.mu.Unlock()
	j.p.grants[code] = &grant{
		redirect: j.query.Get("redirect_uri"), challenge: j.query.Get("code_challenge"),
		nonce: j.query.Get("nonce"), client: j.query.Get("client_id"),
	}
	return url.Values{"code": {code}, "state": {j.query.Get("state")}}
}

// back has the browser come back.
func (j journey) back(query url.Values) *response {
	j.b.a.t.Helper()
	return j.b.navigating().get("/callback/" + j.id + "?" + query.Encode())
}

// arrive goes all the way.
func (j journey) arrive() *response {
	j.b.a.t.Helper()
	return j.back(j.consent())
}

func randomBytes() []byte {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	return raw
}

// hosts is the Internet of a test: what the hosts of named providers serve.
type hosts map[string]http.Handler

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	handler := h[r.URL.Host]
	if handler == nil {
		return nil, fmt.Errorf("no route to %s", r.URL.Host)
	}
	rec := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	inner := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), bytes.NewReader(body))
	inner.Header = r.Header
	handler.ServeHTTP(rec, inner)
	return rec.Result(), nil
}
