package signin

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

const (
	challengeCookie = "kit_two_factor"
	challengeTTL    = 10 * time.Minute
	// challengeAttempts bounds the proofs tried in one sign-in, and
	// factorFailures the wrong ones in a row in all sign-ins of an account, which
	// then takes none for factorLock.
	challengeAttempts = 5
	factorFailures    = 10
	factorLock        = 15 * time.Minute
)

// challenged is the response to a sign-in that waits for its second factor.
type challenged struct {
	TwoFactorRedirect bool     `json:"twoFactorRedirect"`
	TwoFactorMethods  []string `json:"twoFactorMethods"`
	// TwoFactorToken stands for the cookie with clients that keep none.
	TwoFactorToken string `json:"twoFactorToken,omitempty"`
}

// challenge asks for a second factor where the account wants one and the browser
// is not trusted. A code by mail is none after a link or code by mail.
func (l *library) challenge(c *call, user auth.User, method string, remember bool) (response any, asked bool, err error) {
	factor, found, err := l.store.twoFactor(c.Context(), user.ID)
	if err != nil || !found || !factor.enabled {
		return nil, false, err
	}
	trusted, err := c.renewTrust(user.ID)
	if err != nil || trusted {
		return nil, false, err
	}
	token := newToken()
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		now := l.host.DB.Now(ctx)
		return l.store.insertChallenge(ctx, challenge{
			hash: hashToken(token), userID: user.ID, method: method, remembered: remember,
			createdAt: now, expiresAt: now.Add(challengeTTL),
		})
	})
	if err != nil {
		return nil, false, err
	}
	out := challenged{TwoFactorRedirect: true, TwoFactorMethods: factor.methods(method)}
	if auth.BodyTransport(c.r) {
		out.TwoFactorToken = token
	} else {
		c.setCookie(challengeCookie, token, challengeTTL)
	}
	return out, true, nil
}

// methods are those that count after a first factor; backup codes always do.
func (f twoFactor) methods(first string) []string {
	methods := []string{}
	if len(f.totp) > 0 {
		methods = append(methods, methodTOTP)
	}
	if f.mails && first != methodMailed && first != "magic" {
		methods = append(methods, methodMailed)
	}
	return methods
}

// proof is the body of the routes that take a second factor.
type proof struct {
	Code           string `json:"code"`
	TrustDevice    bool   `json:"trustDevice"`
	TwoFactorToken string `json:"twoFactorToken"`
}

// prover is who proves a second factor: somebody in the middle of signing in, or
// a signed-in user, who has no waiting challenge.
type prover struct {
	user    auth.User
	session auth.Session
	waiting *challenge
}

// proof reads a body that proves, and who sent it. Refuses as prover does.
func (c *call) proof() (in proof, p prover, err error) {
	if err = c.decode(&in); err == nil {
		p, err = c.prover(in.TwoFactorToken)
	}
	return in, p, err
}

// prover finds the user who proves. Of a session and a challenge in one browser the
// later one counts. Refuses with INVALID_TWO_FACTOR_COOKIE.
func (c *call) prover(token string) (prover, error) {
	if token == "" {
		token = c.cookie(challengeCookie)
	}
	waiting, found, err := c.l.store.challenge(c.Context(), hashToken(token), c.l.host.Now())
	if err != nil {
		return prover{}, err
	}
	session, signedIn, err := c.maybeSession()
	if err != nil {
		return prover{}, err
	}
	p := prover{session: session}
	userID := session.UserID
	switch {
	case found && (!signedIn || !waiting.createdAt.Before(session.CreatedAt)):
		p.waiting, userID = &waiting, waiting.userID
	case !signedIn:
		return prover{}, errInvalidTwoFactorCookie
	}
	p.user, err = c.l.auth.User(c.Context(), userID)
	if errors.Is(err, auth.ErrUserNotFound) {
		return prover{}, errInvalidTwoFactorCookie
	}
	return p, err
}

// subject is what codes by mail are kept under.
func (p prover) subject() string {
	if p.waiting != nil {
		return hex.EncodeToString(p.waiting.hash)
	}
	return p.session.ID
}

// prove lets somebody try a proof; check runs in the transaction that counts the
// try and uses up what was right, and returns how it is wrong, or nil. Besides
// what check returns it refuses with INVALID_TWO_FACTOR_COOKIE,
// TOO_MANY_ATTEMPTS_REQUEST_NEW_CODE and ACCOUNT_TEMPORARILY_LOCKED.
func (l *library) prove(c *call, p prover, check func(context.Context, twoFactor) (*capability.Error, error)) error {
	var refusal *capability.Error
	err := l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		refusal, err = l.tryProof(ctx, p, check)
		return err // a refused try is spent, so it commits
	})
	switch {
	case err != nil:
		return err
	case refusal == nil:
		return nil
	case refusal.Is(errAccountTemporarilyLck):
		return c.untilUnlocked(p.user.ID, refusal)
	default:
		return refusal
	}
}

// untilUnlocked says how long the lock lasts.
func (c *call) untilUnlocked(userID string, refusal *capability.Error) error {
	factor, _, err := c.l.store.twoFactor(c.Context(), userID)
	if err != nil {
		return err
	}
	wait := time.UnixMilli(max(factor.lockedUntil, factor.sessionLocked)).Sub(c.l.host.Now())
	c.w.Header().Set("Retry-After", strconv.Itoa(max(int((wait+time.Second-1)/time.Second), 1)))
	return refusal
}

func (l *library) tryProof(ctx context.Context, p prover, check func(context.Context, twoFactor) (*capability.Error, error)) (*capability.Error, error) {
	if err := l.store.lockUser(ctx, p.user.ID); err != nil {
		return nil, err
	}
	factor, _, err := l.store.twoFactor(ctx, p.user.ID) // of nobody nothing is right
	if err != nil {
		return nil, err
	}
	if p.waiting == nil {
		return l.tryInSession(ctx, p, factor, check)
	}
	if refusal, err := l.mayTry(ctx, p, factor); refusal != nil || err != nil {
		return refusal, err
	}
	refusal, err := check(ctx, factor)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return refusal, l.countFailure(ctx, p.user, factor)
	}
	if err := l.store.setFailures(ctx, p.user.ID, 0, 0); err != nil {
		return nil, err
	}
	won, err := l.store.deleteChallenge(ctx, p.waiting.hash)
	if err == nil && !won {
		return errInvalidTwoFactorCookie, nil
	}
	return nil, err
}

// tryInSession is tryProof for a signed-in user. Wrong proofs count as those of
// sign-ins do, but apart from them.
func (l *library) tryInSession(ctx context.Context, p prover, factor twoFactor, check func(context.Context, twoFactor) (*capability.Error, error)) (*capability.Error, error) {
	if left := time.UnixMilli(factor.sessionLocked).Sub(l.host.DB.Now(ctx)); left > 0 && left <= factorLock {
		return errAccountTemporarilyLck, nil
	}
	refusal, err := check(ctx, factor)
	if err != nil {
		return nil, err
	}
	if refusal == nil {
		return nil, l.store.setSessionFailures(ctx, p.user.ID, 0, 0)
	}
	if !wrongProof(refusal) {
		return refusal, nil
	}
	if factor.sessionFailures+1 < factorFailures {
		return refusal, l.store.setSessionFailures(ctx, p.user.ID, factor.sessionFailures+1, 0)
	}
	until := l.host.DB.Now(ctx).Add(factorLock)
	if err := l.store.setSessionFailures(ctx, p.user.ID, 0, until.UnixMilli()); err != nil {
		return nil, err
	}
	return refusal, l.auth.Record(ctx, "auth/two_factor_locked", p.user.ID, map[string]any{"until": until, "session": p.session.ID})
}

// wrongProof reports whether a refusal means that somebody guessed.
func wrongProof(refusal *capability.Error) bool {
	return refusal.Is(errInvalidCode) || refusal.Is(errInvalidBackupCode)
}

// mayTry spends one of the attempts of a challenge.
func (l *library) mayTry(ctx context.Context, p prover, factor twoFactor) (*capability.Error, error) {
	if left := time.UnixMilli(factor.lockedUntil).Sub(l.host.DB.Now(ctx)); left > 0 && left <= factorLock { // else the clock was wrong
		return errAccountTemporarilyLck, nil
	}
	attempts, found, err := l.store.countAttempt(ctx, p.waiting.hash)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return errInvalidTwoFactorCookie, nil
	case attempts > challengeAttempts:
		return errRequestNewCode, nil
	default:
		return nil, nil
	}
}

// countFailure locks the account's second factor after too many wrong proofs in
// a row. It costs the first factor to get here, and who is signed in, or has a
// trusted browser or a passkey, is not kept out.
func (l *library) countFailure(ctx context.Context, user auth.User, factor twoFactor) error {
	if factor.failures+1 < factorFailures {
		return l.store.setFailures(ctx, user.ID, factor.failures+1, factor.lockedUntil)
	}
	until := l.host.DB.Now(ctx).Add(factorLock)
	if err := l.store.setFailures(ctx, user.ID, 0, until.UnixMilli()); err != nil {
		return err
	}
	return l.auth.Record(ctx, "auth/two_factor_locked", user.ID, map[string]any{"until": until})
}

// proved returns a right proof: it ends the sign-in that waited for it.
func (l *library) proved(c *call, p prover, method string, trust bool) (any, error) {
	if p.waiting == nil {
		if err := c.confirm(p.session, true); err != nil {
			return nil, err
		}
		return l.stillSignedIn(c, p)
	}
	c.setCookie(challengeCookie, "", 0)
	if trust {
		if err := c.trustBrowser(p.user.ID); err != nil {
			return nil, err
		}
	}
	e, err := l.admit(c, p.user, p.waiting.method+" "+method, p.waiting.remembered, true)
	if err != nil {
		return nil, err
	}
	return l.response(c, e, "")
}

// stillSignedIn returns a signed-in user.
func (l *library) stillSignedIn(c *call, p prover) (any, error) {
	token, err := l.auth.SessionAccessToken(c.Context(), p.session)
	if err != nil {
		return nil, err
	}
	user, err := l.wire(c.Context(), p.user)
	if err != nil {
		return nil, err
	}
	return map[string]any{"token": token, "user": user}, nil
}
