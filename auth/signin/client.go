package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
)

const (
	clientCookie = "kit_client"
	// clientTTL is how long an account knows a client that does not come back.
	clientTTL = 180 * 24 * time.Hour
)

// clientHeader carries, with clients that keep no cookies, what clientCookie does
// in a browser: they get it with a sign-in and send it with the next ones.
const clientHeader = "X-Kit-Client"

// clientSecret is what the client has of an earlier sign-in, or "".
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

// rememberClient has the account know this client. One that another account knows
// becomes another client: the next to sign in there is not to be known here.
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
