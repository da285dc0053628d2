package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
)

const (
	clientCookie = "kit_client"
	// clientTTL is how long an account knows a client that does not come back.
	clientTTL = 180 * 24 * time.Hour
)

// knownTo reports whether this browser has signed in to the account before.
// Unknown accounts cost the same read.
func (c *call) knownTo(userID string) (bool, error) {
	secret := c.cookie(clientCookie)
	if secret == "" {
		return false, nil
	}
	return c.l.store.knowsClient(c.Context(), userID, hashToken(secret))
}

// rememberClient has the account know this browser.
func (c *call) rememberClient(user auth.User) error {
	secret := c.cookie(clientCookie)
	if len(secret) != tokenLength {
		secret = newToken()
	}
	c.setCookie(clientCookie, secret, clientTTL)
	return c.l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		return c.l.store.rememberClient(ctx, user.ID, hashToken(secret), c.l.host.DB.Now(ctx))
	})
}
