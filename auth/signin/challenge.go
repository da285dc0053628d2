package signin

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/factor"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/wait"
)

// The cookies of a sign-in that waits for its second factor, and of a browser that
// is not asked for one.
const (
	challengeCookie = "kit_two_factor"
	trustCookie     = "kit_trust_device"
)

// challenged is the response to a sign-in that waits for its second factor.
type challenged struct {
	TwoFactorRedirect bool            `json:"twoFactorRedirect"`
	TwoFactorMethods  []factor.Method `json:"twoFactorMethods"`
	// TwoFactorToken replaces the cookie for clients that keep none.
	TwoFactorToken string `json:"twoFactorToken,omitempty"`
}

// challenge requests a second factor if the account has one and the browser is not trusted,
// provided that the first proof still holds.
func (l *library) challenge(c *call, user auth.User, method string, remember bool, proved still) (response any, asked bool, err error) {
	state, _, err := l.factors.State(c.Context(), user.ID)
	if err != nil || !state.Enabled {
		return nil, false, err
	}
	trusted, err := c.renewTrust(user.ID)
	if err != nil || trusted {
		return nil, false, err
	}
	var token string
	err = l.withUser(c.Context(), user.ID, func(ctx context.Context) (err error) {
		if proved != nil {
			if err := proved(ctx); err != nil {
				return err
			}
		}
		token, err = l.factors.Ask(ctx, user.ID, method, remember)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	out := challenged{TwoFactorRedirect: true, TwoFactorMethods: state.Methods(method)}
	if auth.BodyTransport(c.r) {
		out.TwoFactorToken = token
	} else {
		c.setCookie(challengeCookie, token, factor.ChallengeTTL)
	}
	return out, true, nil
}

// renewTrust reports whether a user trusts this browser, and if so sets a new cookie.
func (c *call) renewTrust(userID string) (trusted bool, err error) {
	token := c.cookie(trustCookie)
	if token == "" {
		return false, nil
	}
	var renewed string
	err = c.l.withUser(c.Context(), userID, func(ctx context.Context) (err error) {
		renewed, trusted, err = c.l.factors.RenewTrust(ctx, userID, token)
		return err
	})
	if err != nil || !trusted {
		return false, err
	}
	c.setCookie(trustCookie, renewed, factor.TrustTTL)
	return true, nil
}

// proof is the body of the routes that take a second factor.
type proof struct {
	Code           string `json:"code"`
	TrustDevice    bool   `json:"trustDevice,omitempty"`
	TwoFactorToken string `json:"twoFactorToken,omitempty"`
}

// prover is the user who proves a second factor: one whose sign-in waits for it, or a signed-in
// user, who has no waiting challenge.
type prover struct {
	user    auth.User
	session auth.Session
	waiting *factor.Challenge
}

// proof reads the body of a route that takes a second factor, and the user who sent it. Refuses as
// prover does.
func (c *call) proof() (in proof, p prover, err error) {
	if err = c.decode(&in); err == nil {
		p, err = c.prover(in.TwoFactorToken)
	}
	return in, p, err
}

// prover returns the user who sent a proof. Of a session and a challenge in one browser the later
// one counts. Refuses with INVALID_TWO_FACTOR_COOKIE.
func (c *call) prover(token string) (prover, error) {
	if token == "" {
		token = c.cookie(challengeCookie)
	}
	waiting, found, err := c.l.factors.Waiting(c.Context(), token, c.l.host.Now())
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
	case found && (!signedIn || !waiting.CreatedAt.Before(session.CreatedAt)):
		p.waiting, userID = &waiting, waiting.UserID
	case !signedIn:
		return prover{}, factor.ErrChallengeOver
	}
	p.user, err = c.l.auth.User(c.Context(), userID)
	if errors.Is(err, auth.ErrUserNotFound) {
		return prover{}, factor.ErrChallengeOver
	}
	return p, err
}

// subject returns the subject under which mailed codes are stored.
func (p prover) subject() string {
	if p.waiting != nil {
		return p.waiting.Subject()
	}
	return p.session.ID
}

// proofCheck checks a proof in the transaction that counts the try. It uses up a right code, and
// returns the refusal of a wrong one, or nil.
type proofCheck func(context.Context, factor.State) (*capability.Error, error)

// prove counts and checks one try at a proof. Besides what check returns it refuses as
// [factor.Factors.Begin] and [factor.Factors.End] do.
func (l *library) prove(c *call, p prover, check proofCheck) error {
	var refusal *capability.Error
	try := func(ctx context.Context) (err error) {
		refusal, err = l.tryProof(ctx, p, check)
		return err // a refused try is spent, so it commits
	}
	var err error
	if p.waiting == nil {
		err = l.withSession(c.Context(), p.session, try)
	} else {
		err = l.withUser(c.Context(), p.user.ID, try)
	}
	switch {
	case err != nil:
		return err
	case refusal == nil:
		return nil
	case refusal.Is(factor.ErrLocked):
		return c.untilUnlocked(p.user.ID, refusal)
	default:
		return refusal
	}
}

// untilUnlocked adds to a refusal how long the lock lasts.
func (c *call) untilUnlocked(userID string, refusal *capability.Error) error {
	state, _, err := c.l.factors.State(c.Context(), userID)
	if err != nil {
		return err
	}
	wait.Tell(c.w.Header(), state.LockedUntil().Sub(c.l.host.Now()))
	return refusal
}

func (l *library) tryProof(ctx context.Context, p prover, check proofCheck) (*capability.Error, error) {
	who := factor.Prover{UserID: p.user.ID, Waiting: p.waiting}
	state, refusal, err := l.factors.Begin(ctx, who)
	if err != nil || refusal != nil {
		return refusal, err
	}
	wrong, err := check(ctx, state)
	if err != nil {
		return nil, err
	}
	lockedUntil, refusal, err := l.factors.End(ctx, who, state, wrong)
	if err != nil || lockedUntil.IsZero() {
		return refusal, err
	}
	detail := map[string]any{"until": lockedUntil}
	if p.waiting == nil {
		detail["session"] = p.session.ID
	}
	return refusal, l.auth.Record(ctx, "auth/two_factor_locked", p.user.ID, detail)
}

// proved completes the sign-in that waited for a right proof.
func (l *library) proved(c *call, p prover, method factor.Method, trust bool) (any, error) {
	if p.waiting == nil {
		if err := c.confirm(p.session, true); err != nil {
			return nil, err
		}
		return l.stillSignedIn(c, p)
	}
	c.setCookie(challengeCookie, "", 0)
	var trusted string
	e, err := l.admit(c, p.user, p.waiting.Method+" "+string(method), p.waiting.Remembered, true, func(ctx context.Context) error {
		err := l.factors.Finish(ctx, *p.waiting)
		if err == nil && trust && !auth.BodyTransport(c.r) {
			trusted, err = l.factors.Trust(ctx, p.user.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if trusted != "" { // this browser is not asked for a second factor again
		c.setCookie(trustCookie, trusted, factor.TrustTTL)
	}
	return l.response(c, e, "")
}

// tokenAndUser is better-auth's response to a proof of a signed-in user.
type tokenAndUser struct {
	Token string   `json:"token"`
	User  wireUser `json:"user"`
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
	return tokenAndUser{token, user}, nil
}
