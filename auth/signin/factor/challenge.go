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

// Bounds of the proofs: challengeAttempts bounds the tries of one sign-in, and mostFailures the
// wrong ones in a row over all sign-ins of an account, after which it accepts none for lockTime.
const (
	challengeAttempts = 5
	mostFailures      = 10
	lockTime          = 15 * time.Minute
)

// Ask records a sign-in that waits for its second factor and returns the token that identifies it.
// method is how the first factor was proved.
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

// Waiting returns the waiting sign-in that a token identifies.
func (f *Factors) Waiting(ctx context.Context, token string, now time.Time) (c Challenge, found bool, err error) {
	return f.store.challenge(ctx, opaque.Hash(token), now)
}

// Subject returns the name under which codes of the sign-in are stored.
func (c Challenge) Subject() string { return hex.EncodeToString(c.hash) }

// Begin counts one try of a prover, before the proof is checked, and returns the state of the
// factor to prove. [Factors.End] follows in the same transaction. Refuses with
// ACCOUNT_TEMPORARILY_LOCKED, INVALID_TWO_FACTOR_COOKIE and TOO_MANY_ATTEMPTS_REQUEST_NEW_CODE: the
// try is spent, so the transaction commits.
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

// End records the result of a proof: wrong is its refusal, or nil. After a right one
// [Factors.Finish] follows in the transaction that signs in. If this proof has locked the factor,
// lockedUntil is when proofs are accepted again, otherwise it is zero. It refuses with wrong.
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

// Finish uses up a sign-in whose second factor was proved. Refuses with INVALID_TWO_FACTOR_COOKIE
// if another caller was first, or if a new password has ended it since.
func (f *Factors) Finish(ctx context.Context, c Challenge) error {
	won, err := f.store.removeChallenge(ctx, c.hash)
	if err == nil && !won {
		err = ErrChallengeOver
	}
	return err
}

// countFailure locks the second factor after too many wrong proofs in a row. An attacker needs the
// first factor to cause that, and the lock does not affect a signed-in user or one with a trusted
// browser or a passkey. Wrong proofs in sessions are counted separately, and only those that are
// guesses.
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
