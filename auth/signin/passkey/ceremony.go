package passkey

import (
	"context"

	"github.com/go-webauthn/webauthn/protocol"

	"github.com/kitbackend/kit/auth/signin/internal/opaque"
)

// The kinds of ceremonies.
const (
	registration   = "registration"
	authentication = "authentication"
)

// Bounds of the ceremonies that have begun: how many there may be before the oldest are removed,
// how many one insertion sweeps, and after how many they are counted.
const (
	ceremoniesAtMost  = 100_000
	ceremoniesSwept   = 100
	ceremoniesTrimmed = 1024
)

// begin stores the hash of a challenge, and the user whose passkey it is for, "" for any user's.
func (p *Passkeys) begin(ctx context.Context, kind, userID string, options any, challenge protocol.URLEncodedBase64) (Ceremony, error) {
	c := Ceremony{Options: options, Challenge: challenge.String()}
	err := p.store.db.InTx(ctx, func(ctx context.Context) error {
		now := p.store.db.Now(ctx)
		return p.store.insertCeremony(ctx, opaque.Hash(c.Challenge), kind, userID, now, now.Add(CeremonyTTL))
	})
	if err == nil && p.begun.Add(1)%ceremoniesTrimmed == 0 {
		err = p.store.trimCeremonies(ctx, ceremoniesAtMost)
	}
	return c, err
}

// end uses up a challenge, whether or not the signature verifies, and returns the user whose
// passkey it is for, "" for any user's. Refuses with CHALLENGE_NOT_FOUND.
func (p *Passkeys) end(ctx context.Context, kind, challenge string) (userID string, err error) {
	var found bool
	err = p.store.db.InTx(ctx, func(ctx context.Context) (err error) {
		userID, found, err = p.store.takeCeremony(ctx, opaque.Hash(challenge), kind, p.store.db.Now(ctx))
		return err
	})
	if err == nil && !found {
		err = ErrChallengeNotFound
	}
	return userID, err
}

// Sweep removes at most limit expired ceremonies; more reports that there may be others. It joins
// the transaction in ctx.
func (p *Passkeys) Sweep(ctx context.Context, limit int64) (more bool, err error) {
	n, err := p.store.sweepCeremonies(ctx, p.store.db.Now(ctx), limit)
	return n == limit, err
}
