package client

import (
	"crypto/ed25519"
	"crypto/rand"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/controlplane/internal/wire"
	"github.com/kitbackend/kit/internal/jose"
)

const (
	// lifetime is how long a credential is valid; services accept at most 120 seconds.
	lifetime = 60 * time.Second
	// backdate makes a credential valid on a service whose clock is slow.
	backdate = 5 * time.Second
)

// claims are the claims of a credential.
type claims struct {
	Issuer      string `json:"iss"`
	Audience    string `json:"aud"`
	Subject     string `json:"sub"`
	Environment string `json:"env"`
	ID          string `json:"jti"`
	IssuedAt    int64  `json:"iat"`
	ExpiresAt   int64  `json:"exp"`
	Scope       string `json:"scope"`
	Method      string `json:"htm"`
	Address     string `json:"htu"`
	BodyHash    string `json:"bdh"`
}

// Token returns the credential of one call. It is signed over the method, the full address and the
// exact body, so it is valid for nothing else. A service accepts it once.
func (i Identity) Token(now time.Time, method, address string, body []byte, scopes ...string) (string, error) {
	return i.token(now, rand.Text(), method, address, body, scopes)
}

func (i Identity) token(now time.Time, id, method, address string, body []byte, scopes []string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	return jose.Sign(i.PrivateKey, i.KeyID(), wire.CredentialType, claims{
		Issuer: i.Issuer, Audience: i.Address, Subject: i.ConnectionID, Environment: i.Environment, ID: id,
		IssuedAt: now.Add(-backdate).Unix(), ExpiresAt: now.Add(lifetime).Unix(), Scope: strings.Join(scopes, " "),
		Method: method, Address: u.Scheme + "://" + u.Host + u.EscapedPath(), BodyHash: wire.BodyHash(body),
	})
}

// proof proves possession of a new key, for the request with one token id.
func (i Identity) proof(now time.Time, id string, key ed25519.PrivateKey) (string, error) {
	return jose.Sign(key, wire.KeyID(key.Public().(ed25519.PublicKey)), wire.ProofType, map[string]any{
		"sub": i.ConnectionID, "replaces": i.KeyID(), "jti": id,
		"iat": now.Add(-backdate).Unix(), "exp": now.Add(lifetime).Unix(),
	})
}
