package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth/signin/passkey"
)

// TOTPCode is what an authenticator shows at an instant.
func TOTPCode(secret []byte, at time.Time) string { return totpCode(secret, at.Unix()/30) }

// MaxPasskeys is how many a user may have.
const MaxPasskeys = passkey.MaxPerUser

// Paused has guesses slowed down by the test's leave, and returns by how much.
func (l *TestLibrary) Paused() *[]time.Duration {
	var paused []time.Duration
	l.limits.slow.pause = func(_ context.Context, d time.Duration) error {
		paused = append(paused, d)
		return nil
	}
	return &paused
}
