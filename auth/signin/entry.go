package signin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/kitbackend/kit/auth"
)

// entry is the result of a proven first factor: a session, or the challenge to give a second one.
type entry struct {
	user      auth.User
	in        auth.Entered
	challenge any
	native    bool
}

// still, called with the user locked, refuses if the proof of a sign-in no longer holds, as when
// the owner of the account has set a new password meanwhile. It is nil for a user who was created
// just now.
type still func(context.Context) error

// enter signs in the user who was proved by a method (pwd, otp, magic,
// oauth:<provider>, passkey, anon), unless the account asks for a second
// factor; a passkey is two already. It sets cookies, so it is called outside of transactions and
// before anything is written.
func (l *library) enter(c *call, user auth.User, method string, remember bool, proved still) (entry, error) {
	if err := l.mayEnter(user); err != nil {
		return entry{}, err
	}
	if method != "passkey" && method != "anon" {
		challenge, challenged, err := l.challenge(c, user, method, remember, proved)
		if err != nil || challenged {
			return entry{user: user, challenge: challenge}, err
		}
	}
	return l.admit(c, user, method, remember, method == "passkey", proved)
}

// stillAt returns the still of a user who has proved their address.
func (l *library) stillAt(user auth.User) still {
	return func(ctx context.Context) error {
		now, err := l.auth.User(ctx, user.ID)
		if err == nil && now.Email != user.Email {
			err = errUnauthorized
		}
		return err
	}
}

// mayEnter refuses users who may not sign in, with BANNED_USER or EMAIL_NOT_VERIFIED.
func (l *library) mayEnter(user auth.User) error {
	switch {
	case !user.DisabledAt.IsZero():
		return errBanned
	case l.cfg.RequireVerification && user.Email != "" && !user.EmailVerified:
		return errEmailNotVerified
	default:
		return nil
	}
}

// admit makes the session once all factors are proven; factor says that a second one or a passkey
// was among them.
func (l *library) admit(c *call, user auth.User, method string, remember, factor bool, proved still) (entry, error) {
	if err := l.mayEnter(user); err != nil {
		return entry{}, err
	}
	guest, isGuest, err := c.anonymous()
	if err != nil {
		return entry{}, err
	}
	upgrading := func(ctx context.Context) error {
		if proved != nil {
			if err := proved(ctx); err != nil {
				return err
			}
		}
		if !isGuest || guest.ID == user.ID || user.Anonymous {
			return nil
		}
		return l.upgrade(ctx, guest.ID, user)
	}
	in, err := l.auth.Enter(c.w, c.r, auth.Entry{UserID: user.ID, Method: method, Remember: remember, Factor: factor, Still: upgrading})
	if err != nil {
		return entry{}, err
	}
	native := isNative(c.r)
	if err := c.rememberClient(user); err != nil {
		return entry{}, err
	}
	if !native {
		if err := l.keepSession(c, in.Session); err != nil {
			return entry{}, err
		}
	}
	if err := c.bearerTokens(in.Session, in.AccessToken); err != nil {
		return entry{}, err
	}
	return entry{user: user, in: in, native: native}, nil
}

// bearerTokens sets the headers with the tokens of clients that keep no cookies: one that is valid
// as long as the session, as in better-auth's bearer plugin, and a short-lived access token for the
// kit's own routes.
func (c *call) bearerTokens(session auth.Session, accessToken string) error {
	token, err := c.l.auth.SessionToken(session)
	if err != nil {
		return err
	}
	c.w.Header().Set("Set-Auth-Token", token)
	if accessToken != "" {
		c.w.Header().Set("Set-Auth-Jwt", accessToken)
	}
	return nil
}

// challenged reports whether a second factor is asked for.
func (e entry) challenged() bool { return e.challenge != nil }

// signedIn is better-auth's response to a sign-in.
type signedIn struct {
	Redirect bool   `json:"redirect"`
	Token    string `json:"token"`
	// RefreshToken is for clients without cookies.
	RefreshToken string   `json:"refreshToken,omitempty"`
	URL          string   `json:"url,omitempty"`
	User         wireUser `json:"user"`
}

// response returns the body of a sign-in; target, which may be "", is where the client goes next.
func (l *library) response(c *call, e entry, target string) (any, error) {
	if e.challenged() {
		return e.challenge, nil
	}
	user, err := l.wire(c.Context(), e.user)
	if err != nil {
		return nil, err
	}
	out := signedIn{Redirect: target != "", Token: e.in.AccessToken, URL: target, User: user}
	if e.native {
		out.RefreshToken = e.in.RefreshToken
	}
	if target != "" {
		c.w.Header().Set("Location", target)
	}
	return out, nil
}

// lead redirects the browser of a sign-in by link or provider to its target, with a query parameter
// if a second factor is required.
func (l *library) lead(c *call, e entry, target string) (any, error) {
	if e.challenged() {
		target = withQuery(target, "twoFactorRedirect", "true")
	}
	return c.redirect(target)
}

// withQuery adds a parameter to a target that was checked.
func withQuery(target, key, value string) string {
	u, err := url.Parse(target)
	if err != nil {
		return target
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// isNative reports whether the client keeps its tokens itself and wants no
// cookies.
func isNative(r *http.Request) bool { return auth.BodyTransport(r) }
