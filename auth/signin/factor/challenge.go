package factor

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/kitbackend/kit/auth/signin/internal/opaque"
	"github.com/kitbackend/kit/capability"
)

// ChallengeTTL is how long a sign-in waits for its second factor.
const ChallengeTTL = 10 * time.Minute

// Bounds of the proofs: challengeAttempts of those tried in one sign-in, and
// mostFailures of the wrong ones in a row in all sign-ins of an account, which then
// takes none for lockTime.
const (
	challengeAttempts = 5
	mostFailures      = 10
	lockTime          = 15 * time.Minute
)

// Ask has a sign-in wait for its second factor, and returns the token that stands for
// it. method is how the first factor was proved.
func (f *Factors) Ask(ctx context.Context, userID, method string, remembered bool) (token string, err error) {
	token = opaque.New()
	err = f.store.db.InTx(ctx, func(ctx context.Context) error {
		now := f.store.db.Now(ctx)
		return f.store.insertChallenge(ctx, Challenge{
			hash: opaque.Hash(token), UserID: userID, Method: method, Remembered: remembered, CreatedAt: now,
		}, now.Add(ChallengeTTL))
	})
	return token, err
}

// Waiting finds the sign-in that a token stands for.
func (f *Factors) Waiting(ctx context.Context, token string, now time.Time) (c Challenge, found bool, err error) {
	return f.store.challenge(ctx, opaque.Hash(token), now)
}

// Subject names the sign-in, for what is kept under it.
func (c Challenge) Subject() string { return hex.EncodeToString(c.hash) }

// Begin spends one try of a prover, before the proof is looked at, and returns the
// factor that it is to prove. [Factors.End] follows in the same transaction. Refuses
// with ACCOUNT_TEMPORARILY_LOCKED, INVALID_TWO_FACTOR_COOKIE and
// TOO_MANY_ATTEMPTS_REQUEST_NEW_CODE: the try is spent, so the transaction commits.
func (f *Factors) Begin(ctx context.Context, p Prover) (s State, refusal *capability.Error, err error) {
	s, _, err = f.store.state(ctx, p.UserID) // of nobody nothing is right
	if err != nil {
		return s, nil, err
	}
	locked := s.lockedUntil
	if p.Waiting == nil {
		locked = s.sessionLocked
	}
	if left := time.UnixMilli(locked).Sub(f.store.db.Now(ctx)); left > 0 && left <= lockTime { // else the clock was wrong
		return s, ErrLocked, nil
	}
	if p.Waiting == nil {
		return s, nil, nil
	}
	attempts, found, err := f.store.countAttempt(ctx, p.Waiting.hash)
	switch {
	case err != nil:
		return s, nil, err
	case !found:
		return s, ErrChallengeOver, nil
	case attempts > challengeAttempts:
		return s, ErrTooManyAttempts, nil
	default:
		return s, nil, nil
	}
}

// End counts how a proof was wrong, or nil: of a right one [Factors.Finish] follows in
// the transaction that signs in. lockedUntil is when proofs are taken again where this
// one has locked the factor, else zero. Refuses with what was wrong.
func (f *Factors) End(ctx context.Context, p Prover, s State, wrong *capability.Error) (lockedUntil time.Time, refusal *capability.Error, err error) {
	if wrong != nil {
		lockedUntil, err = f.countFailure(ctx, p, s, wrong)
		return lockedUntil, wrong, err
	}
	if p.Waiting == nil {
		return time.Time{}, nil, f.store.setSessionFailures(ctx, p.UserID, 0, 0)
	}
	return time.Time{}, nil, f.store.setFailures(ctx, p.UserID, 0, 0)
}

// Finish uses a sign-in up whose second factor was proved. Refuses with
// INVALID_TWO_FACTOR_COOKIE where another caller was first, or a new password has ended
// it since.
func (f *Factors) Finish(ctx context.Context, c Challenge) error {
	won, err := f.store.removeChallenge(ctx, c.hash)
	if err == nil && !won {
		err = ErrChallengeOver
	}
	return err
}

// countFailure locks the second factor after too many wrong proofs in a row. In
// sign-ins it costs the first factor to get here, and a signed-in user, or one with a
// trusted browser or a passkey, is not kept out. Wrong proofs in sessions count apart
// from them, and only those that guess.
func (f *Factors) countFailure(ctx context.Context, p Prover, s State, wrong *capability.Error) (lockedUntil time.Time, err error) {
	set, failures, before := f.store.setFailures, s.failures+1, s.lockedUntil
	if p.Waiting == nil {
		if !wrong.Is(ErrInvalidCode) && !wrong.Is(ErrInvalidBackupCode) {
			return time.Time{}, nil
		}
		set, failures, before = f.store.setSessionFailures, s.sessionFailures+1, 0
	}
	if failures < mostFailures {
		return time.Time{}, set(ctx, p.UserID, failures, before)
	}
	until := f.store.db.Now(ctx).Add(lockTime)
	return until, set(ctx, p.UserID, 0, until.UnixMilli())
}
