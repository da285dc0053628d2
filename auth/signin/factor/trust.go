package factor

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth/signin/internal/opaque"
	"github.com/kitbackend/kit/capability"
)

// TrustTTL is how long a browser is trusted after its last sign-in. The trust
// outlives a sign-out, as in better-auth, and the end of all sessions; a changed password ends it,
// and so does removing the second factor.
const TrustTTL = 30 * 24 * time.Hour

// maxTrusted bounds the trusted browsers of a user; the oldest give way.
const maxTrusted = 20

// Trust exempts a browser of a user from the second factor, and returns the token that the browser
// keeps.
func (f *Factors) Trust(ctx context.Context, userID string) (token string, err error) {
	token = opaque.New()
	now := f.store.db.Now(ctx)
	return token, f.store.insertTrusted(ctx, opaque.Hash(token), userID, now, now.Add(TrustTTL), maxTrusted)
}

// RenewTrust uses up the token of a browser that a user trusts, and returns the next
// one; trusted is false if they do not trust it. Of two concurrent sign-ins one is trusted; neither
// ends the trust.
func (f *Factors) RenewTrust(ctx context.Context, userID, token string) (renewed string, trusted bool, err error) {
	trusted, err = f.store.takeTrusted(ctx, opaque.Hash(token), userID, f.store.db.Now(ctx))
	if err != nil || !trusted {
		return "", false, err
	}
	renewed, err = f.Trust(ctx, userID)
	return renewed, err == nil, err
}

// TrustedUntil lists when the trust in a user's browsers ends.
func (f *Factors) TrustedUntil(ctx context.Context, userID string) ([]capability.Time, error) {
	return f.store.trustedUntil(ctx, userID)
}
