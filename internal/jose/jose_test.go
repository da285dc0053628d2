package jose_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/jose"
)

var (
	private = ed25519.NewKeyFromSeed([]byte("0123456789abcdef0123456789abcdef"))
	public  = private.Public().(ed25519.PublicKey)
	b64     = base64.RawURLEncoding
)

const (
	header = `{"alg":"EdDSA","kid":"k1","typ":"at+jwt"}`
	claims = `{"sub":"ada","exp":2000,"iat":1000}`
)

// signed is a token with a good signature over whatever header and claims.
func signed(header, claims string) string {
	input := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString([]byte(claims))
	return input + "." + b64.EncodeToString(ed25519.Sign(private, []byte(input)))
}

func accepted(token string) bool {
	t, err := jose.Parse(token)
	return err == nil && t.Verify(public) == nil
}

func TestSignedTokenVerifies(t *testing.T) {
	raw, err := jose.Sign(private, "k1", "at+jwt", map[string]any{"sub": "ada", "exp": 2000, "iat": 1000, "scope": "a b"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jose.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := token.Verify(public); err != nil {
		t.Error(err)
	}
	if token.KeyID != "k1" || token.Type != "at+jwt" || token.ExpiresAt != 2000 || token.IssuedAt != 1000 ||
		token.Text("sub") != "ada" || token.Text("scope") != "a b" || token.Text("iat") != "" {
		t.Errorf("%+v", token)
	}
	if n, ok := token.Integer("exp"); n != 2000 || !ok {
		t.Error(n, ok)
	}
	if _, ok := token.Integer("sub"); ok {
		t.Error("a text is an integer")
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := token.Verify(other); !errors.Is(err, jose.ErrSignature) {
		t.Errorf("another key: %v", err)
	}
}

func TestSignRefusesWhatParseWould(t *testing.T) {
	for name, claims := range map[string]any{
		"too large":    map[string]any{"exp": 2000, "iat": 1000, "scope": strings.Repeat("x", jose.MaxSize)},
		"no exp":       map[string]any{"iat": 1000},
		"upper case":   map[string]any{"exp": 2000, "iat": 1000, "Sub": "ada"},
		"no JSON":      func() {},
		"not a object": []int{1},
	} {
		if token, err := jose.Sign(private, "k1", "at+jwt", claims); err == nil {
			t.Errorf("%s: signed %s", name, token)
		}
	}
}

// Every token here carries the best signature its attacker could have: where
// the holder of the key would be fooled into it, a good one.
func TestAttacks(t *testing.T) {
	good := signed(header, claims)
	if !accepted(good) {
		t.Fatal("the good token is refused")
	}
	parts := strings.Split(good, ".")
	withHeader := func(h string) string { return signed(h, claims) }
	withClaims := func(c string) string { return signed(header, c) }

	attacks := map[string]string{
		"empty":                "",
		"one part":             parts[0],
		"two parts":            parts[0] + "." + parts[1],
		"four parts":           good + "." + parts[2],
		"JWE shape":            good + ".a.b",
		"empty header":         "." + parts[1] + "." + parts[2],
		"empty claims":         parts[0] + ".." + parts[2],
		"no signature":         parts[0] + "." + parts[1] + ".",
		"short signature":      parts[0] + "." + parts[1] + "." + parts[2][:84],
		"altered header":       b64.EncodeToString([]byte(`{"alg":"EdDSA","kid":"k1","typ":"at+jws"}`)) + "." + parts[1] + "." + parts[2],
		"altered claims":       parts[0] + "." + b64.EncodeToString([]byte(`{"sub":"eve","exp":2000,"iat":1000}`)) + "." + parts[2],
		"signature of another": parts[0] + "." + parts[1] + "." + strings.Split(withClaims(`{"sub":"eve","exp":2000,"iat":1000}`), ".")[2],
		"flattened JSON JWS":   fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]),
		"general JSON JWS":     fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2]),

		"alg none":               b64.EncodeToString([]byte(`{"alg":"none","kid":"k1","typ":"at+jwt"}`)) + "." + parts[1] + ".",
		"alg none, signature":    withHeader(`{"alg":"none","kid":"k1","typ":"at+jwt"}`),
		"alg HS256, public key":  hs256([]byte(public)),
		"alg HS256, public text": hs256([]byte(b64.EncodeToString(public))),
		"alg ES256":              withHeader(`{"alg":"ES256","kid":"k1","typ":"at+jwt"}`),
		"alg eddsa":              withHeader(`{"alg":"eddsa","kid":"k1","typ":"at+jwt"}`),
		"alg array":              withHeader(`{"alg":["EdDSA"],"kid":"k1","typ":"at+jwt"}`),
		"alg missing":            withHeader(`{"kid":"k1","typ":"at+jwt"}`),
		"kid missing":            withHeader(`{"alg":"EdDSA","typ":"at+jwt"}`),
		"kid empty":              withHeader(`{"alg":"EdDSA","kid":"","typ":"at+jwt"}`),
		"kid number":             withHeader(`{"alg":"EdDSA","kid":1,"typ":"at+jwt"}`),
		"kid path":               withHeader(`{"alg":"EdDSA","kid":"../k1","typ":"at+jwt"}`),
		"kid SQL":                withHeader(`{"alg":"EdDSA","kid":"k1' OR '1'='1","typ":"at+jwt"}`),
		"kid too long":           withHeader(`{"alg":"EdDSA","kid":"` + strings.Repeat("k", 65) + `","typ":"at+jwt"}`),
		"typ missing":            withHeader(`{"alg":"EdDSA","kid":"k1"}`),
		"embedded jwk":           withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","jwk":{"kty":"OKP"}}`),
		"jku":                    withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","jku":"https://evil.example/jwks"}`),
		"x5u":                    withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","x5u":"https://evil.example/x"}`),
		"x5c":                    withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","x5c":["MII"]}`),
		"unknown crit":           withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","crit":["exp"],"exp":1}`),
		"crit b64":               withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","crit":["b64"],"b64":false}`),
		"cty":                    withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","cty":"JWT"}`),
		"zip":                    withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","zip":"DEF"}`),
		"unknown header member":  withHeader(`{"alg":"EdDSA","kid":"k1","typ":"at+jwt","x":1}`),
		"duplicate alg":          withHeader(`{"alg":"none","alg":"EdDSA","kid":"k1","typ":"at+jwt"}`),
		"duplicate kid":          withHeader(`{"alg":"EdDSA","kid":"k1","kid":"k1","typ":"at+jwt"}`),
		"case variant of alg":    withHeader(`{"alg":"EdDSA","ALG":"none","kid":"k1","typ":"at+jwt"}`),
		"header array":           withHeader(`["EdDSA"]`),
		"header null":            withHeader(`null`),

		"duplicate sub":            withClaims(`{"sub":"ada","sub":"eve","exp":2000,"iat":1000}`),
		"duplicate by escape":      withClaims(`{"sub":"ada","s\u0075b":"eve","exp":2000,"iat":1000}`),
		"duplicate exp":            withClaims(`{"sub":"ada","exp":1,"exp":2000,"iat":1000}`),
		"case variant EXP":         withClaims(`{"sub":"ada","exp":2000,"EXP":9999,"iat":1000}`),
		"case variant Sub":         withClaims(`{"sub":"ada","Sub":"eve","exp":2000,"iat":1000}`),
		"case fold of s":           withClaims(`{"sub":"ada","ſub":"eve","exp":2000,"iat":1000}`),
		"nested duplicate":         withClaims(`{"sub":"ada","exp":2000,"iat":1000,"act":{"sub":"a","sub":"b"}}`),
		"no exp":                   withClaims(`{"sub":"ada","iat":1000}`),
		"no iat":                   withClaims(`{"sub":"ada","exp":2000}`),
		"exp string":               withClaims(`{"sub":"ada","exp":"2000","iat":1000}`),
		"exp float":                withClaims(`{"sub":"ada","exp":2000.5,"iat":1000}`),
		"exp whole float":          withClaims(`{"sub":"ada","exp":2000.0,"iat":1000}`),
		"exp exponent":             withClaims(`{"sub":"ada","exp":2e3,"iat":1000}`),
		"exp 1e18":                 withClaims(`{"sub":"ada","exp":1e18,"iat":1000}`),
		"exp huge":                 withClaims(`{"sub":"ada","exp":1000000000000000000,"iat":1000}`),
		"exp over int64":           withClaims(`{"sub":"ada","exp":18446744073709551616,"iat":1000}`),
		"exp negative":             withClaims(`{"sub":"ada","exp":-1,"iat":1000}`),
		"exp minus zero":           withClaims(`{"sub":"ada","exp":-0,"iat":1000}`),
		"exp null":                 withClaims(`{"sub":"ada","exp":null,"iat":1000}`),
		"exp true":                 withClaims(`{"sub":"ada","exp":true,"iat":1000}`),
		"nbf string":               withClaims(`{"sub":"ada","exp":2000,"iat":1000,"nbf":"1"}`),
		"auth_time float":          withClaims(`{"sub":"ada","exp":2000,"iat":1000,"auth_time":1.5}`),
		"trailing JSON":            withClaims(claims + `{"sub":"eve"}`),
		"trailing byte":            withClaims(claims + `x`),
		"trailing newline inside":  withClaims(claims + "\n"),
		"leading space inside":     withClaims(" " + claims),
		"byte order mark":          withClaims("\uFEFF" + claims),
		"claims array":             withClaims(`[1]`),
		"claims null":              withClaims(`null`),
		"claims string":            withClaims(`"ada"`),
		"trailing comma":           withClaims(`{"sub":"ada","exp":2000,"iat":1000,}`),
		"comment":                  withClaims(`{"sub":"ada","exp":2000,"iat":1000/**/}`),
		"depth 5":                  withClaims(`{"sub":"ada","exp":2000,"iat":1000,"x":[[[[1]]]]}`),
		"depth 1000":               withClaims(`{"sub":"ada","exp":2000,"iat":1000,"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`),
		"invalid UTF-8":            withClaims("{\"sub\":\"\xff\",\"exp\":2000,\"iat\":1000}"),
		"NUL":                      withClaims(`{"sub":"a\u0000da","exp":2000,"iat":1000}`),
		"half a surrogate":         withClaims(`{"sub":"a\ud800da","exp":2000,"iat":1000}`),
		"NUL in a name":            withClaims(`{"su\u0000b":"ada","exp":2000,"iat":1000}`),
		"over 4 KiB":               withClaims(`{"sub":"` + strings.Repeat("a", 4<<10) + `","exp":2000,"iat":1000}`),
		"2 MiB":                    withClaims(`{"sub":"` + strings.Repeat("a", 2<<20) + `","exp":2000,"iat":1000}`),
		"trailing newline":         good + "\n",
		"trailing space":           good + " ",
		"leading space":            " " + good,
		"line break in a part":     good[:20] + "\n" + good[20:],
		"carriage return":          good[:20] + "\r" + good[20:],
		"break in the signature":   good[:len(good)-10] + "\r\n" + good[len(good)-10:],
		"padding":                  good + "==",
		"padding inside":           parts[0] + "=." + parts[1] + "." + parts[2],
		"last character altered":   good[:len(good)-1] + string(next(good[len(good)-1])),
		"Bearer left on the token": "Bearer " + good,
	}
	for name, token := range attacks {
		t.Run(name, func(t *testing.T) {
			if accepted(token) {
				t.Errorf("accepted: %.300s", token)
			}
		})
	}
}

// The signature's standard alphabet is refused where it differs.
func TestStandardAlphabet(t *testing.T) {
	for i := range 100 {
		good := signed(header, fmt.Sprintf(`{"sub":"%d","exp":2000,"iat":1000}`, i))
		if standard := strings.NewReplacer("-", "+", "_", "/").Replace(good); standard != good && accepted(standard) {
			t.Fatalf("accepted: %s", standard)
		}
	}
}

// What nobody has signed yet is not worth reading at length: a token of thousands
// of values would cost more than many signatures.
func TestValuesAreBounded(t *testing.T) {
	with := func(more string) string { return signed(header, `{"sub":"ada","exp":2000,"iat":1000,"x":`+more+`}`) }
	object := func(n int) string {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf(`"a%d":1`, i))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	array := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	for name, c := range map[string]struct {
		token string
		ok    bool
	}{
		"59 items":       {with(array(59, "1")), true},
		"60 items":       {with(array(60, "1")), false},
		"59 members":     {with(object(59)), true},
		"60 members":     {with(object(60)), false},
		"60 arrays":      {with(array(60, "[]")), false},
		"30 of one item": {with(array(30, "[1]")), false},
		"in the header":  {signed(`{"alg":"EdDSA","kid":"k1","typ":`+array(64, "1")+`}`, claims), false},
	} {
		if _, err := jose.Parse(c.token); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDepthOfFourIsTaken(t *testing.T) {
	if !accepted(signed(header, `{"sub":"ada","exp":2000,"iat":1000,"x":[{"y":[1]}]}`)) {
		t.Error("refused")
	}
}

// next is the neighbour of a base64url character: the same leading bits.
func next(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}

func hs256(key []byte) string {
	input := b64.EncodeToString([]byte(`{"alg":"HS256","kid":"k1","typ":"at+jwt"}`)) + "." + b64.EncodeToString([]byte(claims))
	mac := hmac.New(crypto.SHA256.New, key)
	mac.Write([]byte(input))
	sum := append(mac.Sum(nil), make([]byte, 64-sha256.Size)...)
	return input + "." + b64.EncodeToString(sum)
}

// What is parsed has one encoding only: token and content name each other.
func FuzzParse(f *testing.F) {
	f.Add(signed(header, claims))
	f.Add(signed(`{"alg":"none"}`, claims))
	f.Add(signed(header, `{"sub":"ada","exp":1e3,"iat":[[[[[]]]]]}`))
	f.Add("..")
	f.Fuzz(func(t *testing.T, raw string) {
		token, err := jose.Parse(raw)
		if err != nil {
			if !errors.Is(err, jose.ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		parts := strings.Split(raw, ".")
		if len(parts) != 3 || len(raw) > jose.MaxSize {
			t.Fatalf("%d parts, %d bytes", len(parts), len(raw))
		}
		for _, part := range parts {
			content, err := b64.DecodeString(part)
			if err != nil || b64.EncodeToString(content) != part {
				t.Fatalf("not canonical: %q", part)
			}
		}
		content, _ := b64.DecodeString(parts[1])
		var loose map[string]any
		if err := json.Unmarshal(content, &loose); err != nil {
			t.Fatalf("encoding/json disagrees: %v", err)
		}
		if sub, _ := loose["sub"].(string); sub != token.Text("sub") {
			t.Fatalf("sub is %q here and %q there", token.Text("sub"), sub)
		}
		if token.ExpiresAt < 0 || token.IssuedAt < 0 || token.KeyID == "" {
			t.Fatalf("%+v", token)
		}
	})
}
