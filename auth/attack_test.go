package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/jose"
	"github.com/kitbackend/kit/internal/mount"
)

// forge makes tokens with the best signature an attacker could have: where the
// holder of the key would be fooled into it, a good one.
type forge struct {
	key signingKey
	now int64
}

const part = `"iss":"` + testIssuer + `","aud":"` + testIssuer + `","client_id":"kit","jti":"j","sid":"s"`

func (f forge) claims(more string) string { return `{` + part + `,` + more + `}` }

// plain claims are good ones.
func (f forge) plain() string {
	return f.claims(fmt.Sprintf(`"sub":"ada","iat":%d,"exp":%d`, f.now, f.now+900))
}

func (f forge) header(more string) string {
	return fmt.Sprintf(`{"alg":"EdDSA","kid":%q,"typ":"at+jwt"%s}`, f.key.id, more)
}

func (f forge) sign(header, claims string) string {
	input := encode(header) + "." + encode(claims)
	return input + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(f.key.private, []byte(input)))
}

func (f forge) withHeader(header string) string { return f.sign(header, f.plain()) }
func (f forge) withClaims(claims string) string { return f.sign(f.header(""), claims) }

func (f forge) hmac(alg string, key []byte) string {
	input := encode(fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"at+jwt"}`, alg, f.key.id)) + "." + encode(f.plain())
	hash := sha256.New
	if alg == "HS512" {
		hash = sha512.New
	}
	mac := hmac.New(hash, key)
	mac.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// Every attack on a token, over HTTP, through the guard of a user's row.
func TestAttacksOverHTTP(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	a := openInternal(t, databasetest.Memory(t), func() time.Time { return now })
	key, err := a.keys.signer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	users := a.Users()
	handler := mount.New(mount.Config{
		Entries: []mount.Entry{{Domain: "auth", Route: capability.Route{
			Method: "GET", Path: "/me", Guard: capability.User(),
			Handle: capability.JSON(200, func(c *capability.Call, _ capability.None) (string, error) { return c.Caller.UserID, nil }),
		}}},
		Users: &users, DB: a.host.DB, Log: a.host.Log, Now: a.host.Now, BaseURL: a.host.BaseURL,
	})
	call := func(change func(*http.Request)) (int, string) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/me", nil)
		change(r)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var body struct{ Error struct{ Code string } }
		_ = json.Unmarshal(w.Body.Bytes(), &body)
		return w.Code, body.Error.Code
	}
	bearing := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + token} }
	}

	f := forge{key, now.Unix()}
	good := f.withHeader(f.header(""))
	parts := strings.Split(good, ".")
	for name, change := range map[string]func(*http.Request){
		"good":             bearing(good),
		"scheme bearer":    func(r *http.Request) { r.Header.Set("Authorization", "bearer "+good) },
		"scheme BEARER":    func(r *http.Request) { r.Header.Set("Authorization", "BEARER "+good) },
		"with good nbf":    bearing(f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","iat":%d,"exp":%d,"nbf":%d`, f.now, f.now+900, f.now)))),
		"with array amr":   bearing(f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","iat":%d,"exp":%d,"amr":["pwd"]`, f.now, f.now+900)))),
		"without a cookie": func(r *http.Request) { r.Header.Set("Cookie", "__Host-kit_session=x"); bearing(good)(r) },
	} {
		if status, _ := call(change); status != 200 {
			t.Errorf("%s: %d", name, status)
		}
	}

	old, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	times := func(claim, value string) string {
		return f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","iat":%d,"exp":%d,%q:%s`, f.now, f.now+900, claim, value)))
	}
	exp := func(value string) string {
		return f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","iat":%d,"exp":%s`, f.now, value)))
	}
	attacks := map[string]string{
		"alg none":                  encode(`{"alg":"none","kid":"`+key.id+`","typ":"at+jwt"}`) + "." + parts[1] + ".",
		"alg None":                  encode(`{"alg":"None","kid":"`+key.id+`","typ":"at+jwt"}`) + "." + parts[1] + "." + parts[2],
		"alg none, good signature":  f.withHeader(`{"alg":"none","kid":"` + key.id + `","typ":"at+jwt"}`),
		"HS256 with the public key": f.hmac("HS256", key.public),
		"HS256 with its text":       f.hmac("HS256", []byte(base64.RawURLEncoding.EncodeToString(key.public))),
		"HS512 with the public key": f.hmac("HS512", key.public),
		"HS512 without a key":       f.hmac("HS512", nil),
		"embedded jwk":              f.withHeader(f.header(`,"jwk":{"kty":"OKP","crv":"Ed25519","x":"` + base64.RawURLEncoding.EncodeToString(old) + `"}`)),
		"jku":                       f.withHeader(f.header(`,"jku":"https://evil.example/jwks"`)),
		"x5u":                       f.withHeader(f.header(`,"x5u":"https://evil.example/x"`)),
		"x5c":                       f.withHeader(f.header(`,"x5c":["MII"]`)),
		"unknown crit":              f.withHeader(f.header(`,"crit":["x"],"x":1`)),
		"crit b64":                  f.withHeader(f.header(`,"crit":["b64"],"b64":false`)),
		"zip":                       f.withHeader(f.header(`,"zip":"DEF"`)),
		"cty":                       f.withHeader(f.header(`,"cty":"JWT"`)),
		"typ JWT":                   f.withHeader(`{"alg":"EdDSA","kid":"` + key.id + `","typ":"JWT"}`),
		"typ of a machine":          f.withHeader(`{"alg":"EdDSA","kid":"` + key.id + `","typ":"kit-cp+jwt"}`),
		"no typ":                    f.withHeader(`{"alg":"EdDSA","kid":"` + key.id + `"}`),
		"alg twice":                 f.withHeader(`{"alg":"none","alg":"EdDSA","kid":"` + key.id + `","typ":"at+jwt"}`),
		"unknown kid":               f.withHeader(`{"alg":"EdDSA","kid":"unknown","typ":"at+jwt"}`),
		"kid path":                  f.withHeader(`{"alg":"EdDSA","kid":"../` + key.id + `","typ":"at+jwt"}`),
		"kid SQL":                   f.withHeader(`{"alg":"EdDSA","kid":"x' OR '1'='1","typ":"at+jwt"}`),
		"kid empty":                 f.withHeader(`{"alg":"EdDSA","kid":"","typ":"at+jwt"}`),
		"sub twice":                 f.withClaims(f.claims(fmt.Sprintf(`"sub":"eve","sub":"ada","iat":%d,"exp":%d`, f.now, f.now+900))),
		"sub twice by escape":       f.withClaims(f.claims(fmt.Sprintf(`"sub":"eve","s\u0075b":"ada","iat":%d,"exp":%d`, f.now, f.now+900))),
		"EXP and exp":               times("EXP", "99999999999"),
		"Sub and sub":               times("Sub", `"eve"`),
		"nbf ahead":                 times("nbf", fmt.Sprint(f.now+3600)),
		"no exp":                    f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","iat":%d`, f.now))),
		"no iat":                    f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","exp":%d`, f.now+900))),
		"exp string":                exp(fmt.Sprintf(`"%d"`, f.now+900)),
		"exp float":                 exp(fmt.Sprintf(`%d.5`, f.now+900)),
		"exp exponent":              exp("18e8"),
		"exp 1e18":                  exp("1e18"),
		"exp over 64 bits":          exp("18446744073709551616"),
		"exp negative":              exp("-1"),
		"exp passed":                exp(fmt.Sprint(f.now - 5)),
		"exp in decades":            exp(fmt.Sprint(f.now + 1e9)),
		"iat in an hour":            f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","iat":%d,"exp":%d`, f.now+3600, f.now+4000))),
		"audience of another":       f.withClaims(strings.Replace(f.plain(), `"aud":"`+testIssuer, `"aud":"https://evil.example`, 1)),
		"ours among audiences":      f.withClaims(strings.Replace(f.plain(), `"aud":"`+testIssuer+`"`, `"aud":["`+testIssuer+`"]`, 1)),
		"issuer with a slash":       f.withClaims(strings.Replace(f.plain(), `"iss":"`+testIssuer, `"iss":"`+testIssuer+`/`, 1)),
		"issuer with a port":        f.withClaims(strings.Replace(f.plain(), `"iss":"`+testIssuer, `"iss":"`+testIssuer+`:443`, 1)),
		"issuer in upper case":      f.withClaims(strings.Replace(f.plain(), testIssuer, strings.ToUpper(testIssuer), 1)),
		"trailing newline":          good + "\n",
		"leading space":             " " + good,
		"padding":                   good + "==",
		"standard alphabet":         strings.NewReplacer("-", "+", "_", "/").Replace(good) + "+",
		"last character altered":    good[:len(good)-1] + neighbour(good[len(good)-1]),
		"claims, then more JSON":    f.withClaims(f.plain() + `{"sub":"eve"}`),
		"claims, then a byte":       f.withClaims(f.plain() + "x"),
		"flattened JSON":            fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]),
		"general JSON":              fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q},{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2], parts[0], parts[2]),
		"2 MiB":                     times("x", `"`+strings.Repeat("a", 2<<20)+`"`),
		"just over 4 KiB":           times("x", `"`+strings.Repeat("a", 4<<10)+`"`),
		"nested 20000 deep":         times("x", strings.Repeat("[", 20000)+strings.Repeat("]", 20000)),
		"nested 5 deep":             times("x", "[[[[1]]]]"),
		"invalid UTF-8":             times("x", "\"\xff\""),
		"NUL":                       times("x", `"\u0000"`),
		"altered claims":            parts[0] + "." + encode(strings.Replace(f.plain(), "ada", "eve", 1)) + "." + parts[2],
		"no signature":              parts[0] + "." + parts[1] + ".",
		"signature of zeros":        parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)),
		"signed by another":         signedBy(t, f),
		"empty":                     "",
		"a refresh token":           "rt1." + strings.Repeat("A", 83),
	}
	for name, token := range attacks {
		t.Run(name, func(t *testing.T) {
			if status, code := call(bearing(token)); status != 401 || code != "auth/unauthenticated" {
				t.Errorf("%d %s", status, code)
			}
		})
	}
	for name, change := range map[string]func(*http.Request){
		"two Authorization headers": func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good} },
		"two in one":                func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + good + ", Bearer " + good} },
		"in the query":              func(r *http.Request) { r.URL.RawQuery = "access_token=" + good },
		"in the session cookie":     func(r *http.Request) { r.Header.Set("Cookie", "__Host-kit_session="+good) },
		"in a body":                 func(r *http.Request) { r.Body = http.NoBody; r.Header.Set("X-Access-Token", good) },
		"as Basic":                  func(r *http.Request) { r.SetBasicAuth("ada", good) },
		"no scheme":                 func(r *http.Request) { r.Header.Set("Authorization", good) },
		"two spaces":                func(r *http.Request) { r.Header.Set("Authorization", "Bearer  "+good) },
	} {
		if status, code := call(change); status != 401 || code != "auth/unauthenticated" {
			t.Errorf("%s: %d %s", name, status, code)
		}
	}

	a.revoked.add([]string{"s"}, now.Add(time.Hour).UnixMilli())
	if status, code := call(bearing(good)); status != 401 || code != "auth/unauthenticated" {
		t.Errorf("revoked: %d %s", status, code)
	}
}

func signedBy(t *testing.T, f forge) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jose.Sign(private, f.key.id, tokenType, json.RawMessage(f.plain()))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// neighbour is a character of the same leading bits.
func neighbour(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(alphabet[strings.IndexByte(alphabet, c)^1])
}

// A refresh token has one spelling only, and only ids reach the database.
func FuzzSplitRefresh(f *testing.F) {
	f.Add("rt1." + strings.Repeat("A", 83))
	f.Add("rt1." + base64.RawURLEncoding.EncodeToString([]byte("01kabcdefghijklmnopqrstuvw"+strings.Repeat("x", 36))))
	f.Add("rt1.")
	f.Fuzz(func(t *testing.T, token string) {
		sessionID, counter, ok := splitRefresh(token)
		if !ok {
			return
		}
		raw, err := base64.RawURLEncoding.DecodeString(token[len(refreshVersion):])
		if err != nil || refreshVersion+base64.RawURLEncoding.EncodeToString(raw) != token {
			t.Errorf("another spelling: %q", token)
		}
		if len(sessionID) != 26 || strings.Trim(sessionID, "0123456789abcdefghijklmnopqrstuvwxyz") != "" || counter < 0 || counter > maxCounter {
			t.Errorf("%q %d", sessionID, counter)
		}
	})
}
