package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
)

const (
	trustCookie = "kit_trust_device"
	trustTTL    = 30 * 24 * time.Hour
	// maxTrusted bounds the trusted browsers of a user; the oldest give way.
	maxTrusted = 20
)

// trustBrowser has a user not asked for a second factor in this browser again.
func (c *call) trustBrowser(userID string) error {
	if auth.BodyTransport(c.r) {
		return nil
	}
	token := newToken()
	err := c.l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		if err := c.l.store.lockUser(ctx, userID); err != nil {
			return err
		}
		now := c.l.host.DB.Now(ctx)
		return c.l.store.insertTrusted(ctx, hashToken(token), userID, now, now.Add(trustTTL), maxTrusted)
	})
	if err == nil {
		c.setCookie(trustCookie, token, trustTTL)
	}
	return err
}

// renewTrust reports whether a user trusts this browser, and gives it a new
// cookie: a copied one is good until either is used. Of two sign-ins at once one
// is asked; neither loses the cookie.
func (c *call) renewTrust(userID string) (trusted bool, err error) {
	token := c.cookie(trustCookie)
	if token == "" {
		return false, nil
	}
	renewed := newToken()
	err = c.l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		if err := c.l.store.lockUser(ctx, userID); err != nil {
			return err
		}
		now := c.l.host.DB.Now(ctx)
		if trusted, err = c.l.store.takeTrusted(ctx, hashToken(token), userID, now); err != nil || !trusted {
			return err
		}
		return c.l.store.insertTrusted(ctx, hashToken(renewed), userID, now, now.Add(trustTTL), maxTrusted)
	})
	if err != nil || !trusted {
		return false, err
	}
	c.setCookie(trustCookie, renewed, trustTTL)
	return true, nil
}
