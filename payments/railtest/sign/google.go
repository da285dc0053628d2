package sign

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments/internal/jws"
)

// Google signs tokens as Google does for pushes of Pub/Sub: RS256 with a key
// that is published under an id. It serves its public keys as a handler, and is
// safe for concurrent use.
type Google struct {
	mu   sync.Mutex
	key  *rsa.PrivateKey
	id   int
	down bool
}

// NewGoogle makes an issuer. All of them begin with the same key.
func NewGoogle() *Google {
	g := &Google{}
	g.Rotate()
	return g
}

// Rotate replaces the key and its id.
func (g *Google) Rotate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id++
	g.key = rsaKey(g.id)
}

// rsaKeys are made once: that takes longer than most tests.
var rsaKeys struct {
	sync.Mutex
	made map[int]*rsa.PrivateKey
}

func rsaKey(number int) *rsa.PrivateKey {
	rsaKeys.Lock()
	defer rsaKeys.Unlock()
	if rsaKeys.made == nil {
		rsaKeys.made = make(map[int]*rsa.PrivateKey)
	}
	if rsaKeys.made[number] == nil {
		rsaKeys.made[number] = must(rsa.GenerateKey(rand.Reader, 2048))
	}
	return rsaKeys.made[number]
}

// Down makes the keys unavailable, or available again.
func (g *Google) Down(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = down
}

// Claims are those of a good token for an audience and an account.
func Claims(audience, account string, at time.Time) map[string]any {
	return map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "azp": "113774264463038321964", "sub": "113774264463038321964",
		"email": account, "email_verified": true, "iat": at.Unix(), "exp": at.Add(time.Hour).Unix(),
	}
}

// Token signs claims with the key of the moment.
func (g *Google) Token(claims map[string]any) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return must(jws.Sign(g.key, map[string]any{"kid": strconv.Itoa(g.id), "typ": "JWT"}, claims))
}

// ServeHTTP responds with the public keys as a JWK set.
func (g *Google) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	encode := base64.RawURLEncoding.EncodeToString
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": strconv.Itoa(g.id),
		"n": encode(g.key.N.Bytes()), "e": encode(big.NewInt(int64(g.key.E)).Bytes()),
	}}})
}

// RSAKey is an RSA private key in PEM, such as that of a service account: the
// same one each time.
func RSAKey() string { return pemOf(rsaKey(0)) }
