package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
)

const (
	clientCookie = "kit_client"
	// clientTTL is how long an account knows a client that does not sign in again.
	clientTTL = 180 * 24 * time.Hour
)

// clientHeader carries the value of clientCookie for clients that keep no cookies: they get it with
// a sign-in and send it with the next ones.
const clientHeader = "X-Kit-Client"

// clientSecret returns the secret that the client got with an earlier sign-in, or "".
func (c *call) clientSecret() string {
	if !isNative(c.r) {
		return c.cookie(clientCookie)
	}
	if given := c.r.Header.Values(clientHeader); len(given) == 1 && len(given[0]) == opaque.Length {
		return given[0]
	}
	return ""
}

// knownTo reports whether this browser has signed in to the account before.
// Unknown accounts cost the same read.
func (c *call) knownTo(userID string) (bool, error) {
	secret := c.clientSecret()
	if secret == "" {
		return false, nil
	}
	return c.l.store.knowsClient(c.Context(), userID, opaque.Hash(secret))
}

// rememberClient makes this client known to the account. A client that another account knows gets a
// new secret, so that the next user who signs in there is not known here.
func (c *call) rememberClient(user auth.User) error {
	secret := c.clientSecret()
	others, err := c.l.store.clientOfOthers(c.Context(), user.ID, opaque.Hash(secret))
	if err != nil {
		return err
	}
	if len(secret) != opaque.Length || others {
		secret = opaque.New()
	}
	if isNative(c.r) {
		c.w.Header().Set(clientHeader, secret)
	} else {
		c.setCookie(clientCookie, secret, clientTTL)
	}
	return c.l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		return c.l.store.rememberClient(ctx, user.ID, opaque.Hash(secret), c.l.host.DB.Now(ctx))
	})
}
