package controlplane_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database/databasetest"
)

var b64 = base64.RawURLEncoding

// things is a capability with management routes: a read, a write, and a rotation.
func things() capability.Capability {
	response := func(c *capability.Call, _ capability.None) (map[string]string, error) {
		return map[string]string{"key": c.Caller.KeyID}, nil
	}
	return capability.Capability{Name: "things", Version: "0.1.0", Prefix: "/things", Routes: capability.Mount("/things",
		capability.Route{Method: "GET", Path: "/admin/things", Guard: capability.ControlPlane("things:items:read"), Summary: "List.", Handle: capability.JSON(200, response)},
		capability.Route{Method: "GET", Path: "/admin/other", Guard: capability.ControlPlane("things:items:read"), Summary: "List others.", Handle: capability.JSON(200, response)},
		capability.Route{Method: "POST", Path: "/admin/things", Guard: capability.ControlPlane("things:items:write"), Summary: "Write.", Handle: capability.JSON(200, response)},
		capability.Route{Method: "POST", Path: "/admin/secret/rotate", Guard: capability.ControlPlane("secrets:rotate"), Summary: "Rotate.", Handle: capability.JSON(200, response)},
	)}
}

func newWorld(t testing.TB) *controlplanetest.World {
	return controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{Others: []capability.Capability{things()}})
}

const target = "/things/admin/things"

type object = map[string]any

// forger signs tokens with any content.
type forger struct{ client.Identity }

func (f forger) header() object {
	return object{"alg": "EdDSA", "kid": f.KeyID(), "typ": "kit-cp+jwt"}
}

func (f forger) claims(now time.Time) object {
	return object{
		"iss": f.Issuer, "aud": f.Address, "sub": f.ConnectionID, "env": f.Environment,
		"jti": rand.Text(), "iat": now.Unix(), "exp": now.Unix() + 60, "scope": "things:items:read",
	}
}

func with(base object, changes ...any) object {
	changed := maps.Clone(base)
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == nil {
			delete(changed, changes[i].(string))
			continue
		}
		changed[changes[i].(string)] = changes[i+1]
	}
	return changed
}

func (f forger) sign(header, claims any) string { return signBy(f.PrivateKey, header, claims) }

func signBy(key ed25519.PrivateKey, header, claims any) string {
	input := part(header) + "." + part(claims)
	return input + "." + b64.EncodeToString(ed25519.Sign(key, []byte(input)))
}

// part encodes an object, or a string unchanged.
func part(content any) string {
	if text, ok := content.(string); ok {
		return b64.EncodeToString([]byte(text))
	}
	return b64.EncodeToString(mustJSON(content))
}

// send sends a request; the first header is the value of Authorization.
func send(h http.Handler, method, path, body string, headers ...string) (status int, code string, header http.Header) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:50000"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	var response struct{ Error struct{ Code string } }
	_ = json.Unmarshal(rec.Body.Bytes(), &response)
	return rec.Code, response.Error.Code, rec.Header()
}

func bearing(h http.Handler, token string) (status int, code string) {
	status, code, _ = send(h, "GET", target, "", "Authorization", "Bearer "+token)
	return status, code
}

const (
	invalid = "controlplane/invalid_credential"
	noScope = "controlplane/insufficient_scope"
)

// TestAttacks sends tokens with the best signature that an attacker could have. None is accepted,
// and no response reveals the step that failed.
func TestAttacks(t *testing.T) {
	w := newWorld(t)
	f, now := forger{w.Identity}, w.Clock.Now()
	header := f.header()
	claim := func(changes ...any) string { return f.sign(header, with(f.claims(now), changes...)) }
	head := func(changes ...any) string { return f.sign(with(header, changes...), f.claims(now)) }
	rawClaims := func(change func(string) string) string {
		raw, _ := json.Marshal(f.claims(now))
		return f.sign(header, change(string(raw)))
	}
	add := func(members string) func(string) string {
		return func(raw string) string { return strings.TrimSuffix(raw, "}") + "," + members + "}" }
	}
	stranger, err := client.Generate(f.Address, f.Environment, f.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	hs256 := func(key []byte) string {
		input := part(with(header, "alg", "HS256")) + "." + part(f.claims(now))
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(input))
		return input + "." + b64.EncodeToString(mac.Sum(nil))
	}
	good := f.sign(header, f.claims(now))
	parts := strings.Split(good, ".")

	attacks := map[string]string{
		"empty":             "",
		"garbage":           "token",
		"alg none":          part(with(header, "alg", "none")) + "." + part(f.claims(now)) + ".",
		"alg none signed":   head("alg", "none"),
		"alg HS256, public": hs256(f.Public()),
		"alg ES256":         head("alg", "ES256"),
		"alg EdDSA2":        head("alg", "Ed25519"),
		"embedded jwk":      signBy(stranger.PrivateKey, with(header, "jwk", controlplane.NewJWK(stranger.Public())), f.claims(now)),
		"jku":               head("jku", "https://evil.example/jwks"),
		"x5u":               head("x5u", "https://evil.example/x"),
		"x5c":               head("x5c", []string{"MII"}),
		"crit":              head("crit", []string{"exp"}),
		"crit b64":          head("crit", []string{"b64"}, "b64", false),
		"cty":               head("cty", "JWT"),
		"zip":               head("zip", "DEF"),
		"typ at+jwt":        head("typ", "at+jwt"),
		"typ JWT":           head("typ", "JWT"),
		"typ upper case":    head("typ", "KIT-CP+JWT"),
		"typ of a proof":    head("typ", "kit-cp-proof+jwt"),
		"typ absent":        head("typ", nil),
		"duplicate alg":     f.sign(`{"alg":"none","alg":"EdDSA","kid":"`+f.KeyID()+`","typ":"kit-cp+jwt"}`, f.claims(now)),

		"signed by a stranger":      signBy(stranger.PrivateKey, header, f.claims(now)),
		"unknown kid":               forger{stranger}.sign(forger{stranger}.header(), f.claims(now)),
		"kid absent":                head("kid", nil),
		"kid path":                  head("kid", "../"+f.KeyID()),
		"kid SQL":                   head("kid", f.KeyID()+"' OR '1'='1"),
		"kid percent":               head("kid", "%"),
		"kid upper case":            head("kid", strings.ToUpper(f.KeyID())),
		"kid of the connection":     head("kid", f.ConnectionID),
		"altered claims":            parts[0] + "." + part(f.claims(now)) + "." + parts[2],
		"last signature character":  good[:len(good)-1] + next(good[len(good)-1]),
		"padding":                   good + "==",
		"trailing newline":          good + "\n",
		"leading space":             " " + good,
		"four parts":                good + ".x",
		"flattened JSON":            fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]),
		"general JSON":              fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2]),
		"two megabytes":             claim("scope", strings.Repeat("x", 2<<20)),
		"just over 4 KiB":           claim("scope", strings.Repeat("x", 4<<10)),
		"nested":                    claim("x", []any{[]any{[]any{[]any{1}}}}),
		"trailing JSON":             rawClaims(func(raw string) string { return raw + raw }),
		"duplicate sub":             rawClaims(add(`"sub":"` + f.ConnectionID + `"`)),
		"case variant EXP":          rawClaims(add(`"EXP":9999999999`)),
		"case variant Sub":          rawClaims(add(`"Sub":"x"`)),
		"invalid UTF-8":             rawClaims(add("\"x\":\"\xff\"")),
		"NUL":                       rawClaims(add(`"x":"\u0000"`)),
		"claims are no object":      f.sign(header, `["things:items:read"]`),
		"user access token":         f.sign(with(header, "typ", "at+jwt"), object{"sub": "ada", "exp": now.Unix() + 60, "iat": now.Unix()}),
		"no claims but the times":   f.sign(header, object{"exp": now.Unix() + 60, "iat": now.Unix()}),
		"iss absent":                claim("iss", nil),
		"iss trailing slash":        claim("iss", f.Issuer+"/"),
		"iss upper case":            claim("iss", strings.ToUpper(f.Issuer)),
		"iss with port":             claim("iss", f.Issuer+":443"),
		"iss of another":            claim("iss", "https://evil.example"),
		"iss array":                 claim("iss", []string{f.Issuer}),
		"aud absent":                claim("aud", nil),
		"aud array with ours":       claim("aud", []string{f.Address}),
		"aud two":                   claim("aud", []string{f.Address, "https://evil.example"}),
		"aud endpoint":              claim("aud", f.Address+"/ping"),
		"aud origin":                claim("aud", "https://example.com"),
		"aud trailing slash":        claim("aud", f.Address+"/"),
		"aud of another service":    claim("aud", "https://other.example/control-plane"),
		"aud plain http":            claim("aud", "http://example.com/control-plane"),
		"sub absent":                claim("sub", nil),
		"sub of another":            claim("sub", stranger.ConnectionID),
		"env absent":                claim("env", nil),
		"env production":            claim("env", "production"),
		"env upper case":            claim("env", strings.ToUpper(f.Environment)),
		"scope absent":              claim("scope", nil),
		"jti absent":                claim("jti", nil),
		"jti empty":                 claim("jti", ""),
		"jti of 15":                 claim("jti", strings.Repeat("a", 15)),
		"jti of 65":                 claim("jti", strings.Repeat("a", 65)),
		"jti unicode":               claim("jti", strings.Repeat("é", 16)),
		"jti with slash":            claim("jti", strings.Repeat("a/", 10)),
		"jti number":                claim("jti", int64(1234567890123456)),
		"no exp":                    claim("exp", nil),
		"no iat":                    claim("iat", nil),
		"exp string":                claim("exp", fmt.Sprint(now.Unix()+60)),
		"exp float":                 claim("exp", float64(now.Unix())+60.5),
		"exp 1e18":                  claim("exp", int64(1e18)),
		"exp negative":              claim("exp", -1),
		"expired an hour ago":       claim("iat", now.Unix()-3660, "exp", now.Unix()-3600),
		"iat in an hour":            claim("iat", now.Unix()+3600, "exp", now.Unix()+3660),
		"nbf in an hour":            claim("nbf", now.Unix()+3600),
		"nbf string":                claim("nbf", "0"),
		"lifetime of 121 s":         claim("iat", now.Unix()-1, "exp", now.Unix()+120),
		"lifetime of a year":        claim("exp", now.Unix()+365*86400),
		"exp at iat":                claim("exp", now.Unix()),
		"exp before iat":            claim("iat", now.Unix()+10, "exp", now.Unix()+5),
		"htm of another method":     claim("htm", "POST"),
		"htm lower case":            claim("htm", "get"),
		"htm number":                claim("htm", 1),
		"htu of another path":       claim("htu", "https://example.com/things/admin/other"),
		"htu with query":            claim("htu", "https://example.com"+target+"?x=1"),
		"htu of another host":       claim("htu", "https://other.example"+target),
		"htu array":                 claim("htu", []string{"https://example.com" + target}),
		"bdh of another body":       claim("bdh", b64.EncodeToString(make([]byte, 32))),
		"bdh empty":                 claim("bdh", ""),
		"bdh false":                 claim("bdh", false),
		"lifetime by a huge number": claim("exp", json.Number("18446744073709551616")),
	}
	for name, token := range attacks {
		t.Run(name, func(t *testing.T) {
			if status, code := bearing(w, token); status != 401 || code != invalid {
				t.Errorf("%d %s: %.200s", status, code, token)
			}
		})
	}
	if status, code := bearing(w, good); status != 200 {
		t.Errorf("the good token, last: %d %s", status, code)
	}
}

// next returns the base64url character that differs in the last bit only.
func next(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1:][:1]
}

// TestScopes checks that scopes are compared byte by byte: no prefix, no wildcard, no other
// separator.
func TestScopes(t *testing.T) {
	w := newWorld(t)
	f := forger{w.Identity}
	for scope, want := range map[string]int{
		"things:items:read":            200,
		"a things:items:read b":        200,
		"a  things:items:read":         200,
		"":                             403,
		" ":                            403,
		"*":                            403,
		"things:*":                     403,
		"things:":                      403,
		"things":                       403,
		"things:items:*":               403,
		"THINGS:ITEMS:READ":            403,
		"things:items:read2":           403,
		"a\tthings:items:read":         403,
		"a\nthings:items:read":         403,
		"a,things:items:read":          403,
		"things:items:write":           403,
		"\u00a0things:items:read":      403,
		"things:items:rea\u0064\u200b": 403,
		`["things:items:read"]`:        403,
		"keys:rotate manifest:read":    403,
		strings.Repeat("x ", 500) + "things:items:": 403,
	} {
		status, code := bearing(w, f.sign(f.header(), with(f.claims(w.Clock.Now()), "scope", scope)))
		if status != want || want == 403 && code != noScope {
			t.Errorf("%q: %d %s, want %d", scope, status, code, want)
		}
	}
}

// TestTransport checks where a credential may be in a request.
func TestTransport(t *testing.T) {
	w := newWorld(t)
	f := forger{w.Identity}
	token := func() string { return f.sign(f.header(), f.claims(w.Clock.Now())) }
	tests := map[string]struct {
		path    string
		headers []string
		want    int
	}{
		"none":               {target, nil, 401},
		"Bearer":             {target, []string{"Authorization", "Bearer " + token()}, 200},
		"bearer":             {target, []string{"Authorization", "bearer " + token()}, 200},
		"BEARER":             {target, []string{"Authorization", "BEARER " + token()}, 200},
		"Basic":              {target, []string{"Authorization", "Basic " + token()}, 401},
		"DPoP":               {target, []string{"Authorization", "DPoP " + token()}, 401},
		"no scheme":          {target, []string{"Authorization", token()}, 401},
		"two spaces":         {target, []string{"Authorization", "Bearer  " + token()}, 401},
		"two headers":        {target, []string{"Authorization", "Bearer " + token(), "Authorization", "Bearer " + token()}, 401},
		"list in one header": {target, []string{"Authorization", "Bearer " + token() + ", Bearer " + token()}, 401},
		"query":              {target + "?access_token=" + token(), nil, 401},
		"cookie":             {target, []string{"Cookie", "access_token=" + token()}, 401},
		"other header":       {target, []string{"X-Authorization", "Bearer " + token()}, 401},
	}
	for name, tt := range tests {
		status, code, header := send(w, "GET", tt.path, "", tt.headers...)
		if status != tt.want || tt.want == 401 && code != invalid {
			t.Errorf("%s: %d %s, want %d", name, status, code, tt.want)
		}
		if challenge := header.Get("WWW-Authenticate"); tt.want == 401 && challenge != `Bearer error="invalid_token"` {
			t.Errorf("%s: WWW-Authenticate: %s", name, challenge)
		}
	}
	if status, code, _ := send(w, "POST", target, `{"access_token":"`+token()+`"}`); status != 401 || code != invalid {
		t.Errorf("body: %d %s", status, code)
	}
}

// TestRequestBinding checks that the claims about the request are verified, and are required if the
// request changes a key or secret.
func TestRequestBinding(t *testing.T) {
	w := newWorld(t)
	f := forger{w.Identity}
	hash := bodyHash
	const host, rotate, expire = "https://example.com", "/things/admin/secret/rotate", "/control-plane/keys/k_none/expire"
	tests := []struct {
		name, method, path, scope, body string
		claims                          []any
		status                          int
		code                            string
	}{
		{"all bound", "POST", target, "things:items:write", "{}", []any{"htm", "POST", "htu", host + target, "bdh", hash("{}")}, 200, ""},
		{"none bound", "POST", target, "things:items:write", "{}", nil, 200, ""},
		{"query is not part of htu", "GET", target + "?a=b", "things:items:read", "", []any{"htu", host + target}, 200, ""},
		{"empty body", "GET", target, "things:items:read", "", []any{"bdh", hash("")}, 200, ""},
		{"another body", "POST", target, "things:items:write", "{ }", []any{"bdh", hash("{}")}, 401, invalid},
		{"another method", "POST", target, "things:items:write", "{}", []any{"htm", "GET"}, 401, invalid},
		{"another path", "POST", target, "things:items:write", "{}", []any{"htu", host + rotate}, 401, invalid},
		{"rotate a secret unbound", "POST", rotate, "secrets:rotate", "{}", nil, 401, invalid},
		{"rotate a secret", "POST", rotate, "secrets:rotate", "{}", []any{"bdh", hash("{}")}, 200, ""},
		{"register unbound", "POST", "/control-plane/keys", "keys:rotate", "{}", nil, 401, invalid},
		{"register", "POST", "/control-plane/keys", "keys:rotate", "{}", []any{"bdh", hash("{}")}, 400, "kit/invalid_request"},
		{"expire unbound", "POST", expire, "keys:rotate", "", nil, 401, invalid},
		{"expire", "POST", expire, "keys:rotate", "", []any{"bdh", hash("")}, 404, "controlplane/key_not_found"},
		{"read keys unbound", "GET", "/control-plane/keys", "keys:rotate", "", nil, 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token := f.sign(f.header(), with(with(f.claims(w.Clock.Now()), "scope", tt.scope), tt.claims...))
			if status, code, _ := send(w, tt.method, tt.path, tt.body, "Authorization", "Bearer "+token); status != tt.status || code != tt.code {
				t.Errorf("%d %s, want %d %s", status, code, tt.status, tt.code)
			}
		})
	}
}

// TestChunkedBodyIsBound sends bodies of unknown length.
func TestChunkedBodyIsBound(t *testing.T) {
	w := newWorld(t)
	f := forger{w.Identity}
	for body, want := range map[string]int{"{}": 200, "{  }": 401} {
		token := f.sign(f.header(), with(f.claims(w.Clock.Now()), "scope", "secrets:rotate", "bdh", bodyHash("{}")))
		r := httptest.NewRequest("POST", "/things/admin/secret/rotate", strings.NewReader(body))
		r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		if rec.Code != want {
			t.Errorf("%s: %d, want %d", body, rec.Code, want)
		}
	}
}

func bodyHash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return b64.EncodeToString(sum[:])
}

func mustJSON(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// TestGuardMatrix calls every route without a credential, and with an invalid, a valid, a spent and
// a scopeless one.
func TestGuardMatrix(t *testing.T) {
	w := newWorld(t)
	f := forger{w.Identity}
	for _, c := range []capability.Capability{things(), w.Capability()} {
		for _, r := range c.Routes {
			body := ""
			if r.Method == "POST" {
				body = "{}"
			}
			mint := func(scope string) string {
				return f.sign(f.header(), with(f.claims(w.Clock.Now()), "scope", scope, "bdh", bodyHash(body)))
			}
			right, wrong := mint(r.Guard.Scope()), f.sign(f.header(), with(f.claims(w.Clock.Now()), "env", "other"))
			path := strings.ReplaceAll(r.Path, ":keyId", "k_none")
			check := func(name string, status int, code string, headers ...string) {
				t.Helper()
				if s, c, _ := send(w, r.Method, path, body, headers...); s != status || c != code {
					t.Errorf("%s %s, %s: %d %s, want %d %s", r.Method, path, name, s, c, status, code)
				}
			}
			check("none", 401, invalid)
			check("wrong", 401, invalid, "Authorization", "Bearer "+wrong)
			if r.Guard.Scope() != "" {
				check("scopeless", 403, noScope, "Authorization", "Bearer "+mint("other:scope"))
			}
			switch s, c, _ := send(w, r.Method, path, body, "Authorization", "Bearer "+right); {
			case strings.HasSuffix(path, "/expire"):
				if s != 404 || c != notFound {
					t.Errorf("%s: %d %s", path, s, c)
				}
			case r.Method == "POST" && strings.HasSuffix(path, "/keys"):
				if s != 400 {
					t.Errorf("%s: %d %s", path, s, c)
				}
			default:
				if s != 200 {
					t.Errorf("%s: %d %s", path, s, c)
				}
			}
			check("spent", 401, invalid, "Authorization", "Bearer "+right)
		}
	}
}
