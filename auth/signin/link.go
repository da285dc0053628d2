package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
)

// askedCookie identifies the browser that requested a link or a code, for as long as they are
// valid.
const askedCookie = "kit_asked"

// asks identifies the browser that requests a link or a code by a cookie and
// returns the hash of it, or nil for a client that keeps no cookies.
func (c *call) asks() []byte {
	if isNative(c.r) {
		return nil
	}
	secret := c.cookie(askedCookie)
	if len(secret) != opaque.Length {
		secret = opaque.New()
	}
	c.setCookie(askedCookie, secret, max(c.l.cfg.LinkTTL, c.l.cfg.CodeTTL))
	return opaque.Hash(secret)
}

// asker returns the hash of the cookie that [call.asks] has set before, or nil.
func (c *call) asker() []byte {
	secret := c.cookie(askedCookie)
	if secret == "" {
		return nil
	}
	return opaque.Hash(secret)
}

func (l *library) linkRoutes() []route {
	return []route{
		post("/sign-in/magic-link", rateLink, l.sendMagicLink).sends(sendsLink),
		get("/magic-link/verify", rateLink, l.getMagicLink).opened().reads(tokenParam, callbackParam, newUserParam, errorParam),
		post("/magic-link/verify", rateLink, l.postMagicLink).opened().reads(tokenParam, callbackParam, newUserParam, errorParam),
	}
}

type magicLinkBody struct {
	Email       string `json:"email"`
	Name        string `json:"name,omitempty"`
	CallbackURL string `json:"callbackURL,omitempty"`
	NewUserURL  string `json:"newUserCallbackURL,omitempty"`
	ErrorURL    string `json:"errorCallbackURL,omitempty"`
}

func (l *library) sendMagicLink(c *call) (any, error) {
	var in magicLinkBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if l.cfg.DisableLinks {
		return nil, errNotFound
	}
	to, err := addressAt("email", in.Email)
	if err != nil {
		return nil, err
	}
	if err := checkProfile(in.Name, ""); err != nil {
		return nil, err
	}
	after, err := l.targets(in.CallbackURL, in.NewUserURL, in.ErrorURL)
	if err != nil {
		return nil, err
	}
	return ok, c.mailTo(c.Context(), mailsIn, letter{Kind: kindMagic, Address: to, Name: in.Name, Browser: c.asks(), targets: after})
}

// targets checks the addresses to which the browser is sent afterwards.
func (l *library) targets(callback, newUser, failure string) (t targets, err error) {
	if t.Callback, err = l.target(callback, errInvalidCallbackURL); err != nil {
		return t, err
	}
	if t.NewUser, err = l.target(newUser, errInvalidNewUser); err != nil {
		return t, err
	}
	t.Error, err = l.target(failure, errInvalidErrorCallback)
	return t, err
}

// magicTargets reads them from the link's query.
func (l *library) magicTargets(c *call) (targets, error) {
	return l.targets(c.query("callbackURL"), c.query("newUserCallbackURL"), c.query("errorCallbackURL"))
}

func (t targets) onError() string {
	if t.Error != "" {
		return t.Error
	}
	return t.Callback
}

// getMagicLink shows the button that signs in. It signs in at once where the caller cannot be a
// mail scanner: in the browser that requested the link, when a person opens it there, and for a
// script of the application.
func (l *library) getMagicLink(c *call) (any, error) {
	after, err := l.magicTargets(c)
	if err != nil {
		return nil, err
	}
	if c.fromScript() {
		return l.useMagicLink(c, after)
	}
	k, err := l.peek(c.Context(), c.query("token"), kindMagic)
	if err != nil && opened(c.r) { // the page is loaded again
		return l.magicAgain(c, after, asInvalid(err))
	}
	if err != nil {
		return c.fail(asInvalid(err), after.onError())
	}
	if opened(c.r) && c.askedFor(k) {
		return l.useMagicLink(c, after)
	}
	c.asks() // so that a button that is pressed twice is the same browser's
	return c.page(http.StatusOK, page{
		Title:   "Sign in",
		Text:    "Sign in as " + mask(k.subject) + " in this browser, if it was you who asked for this.",
		Button:  "Sign in",
		targets: []string{after.Callback, after.NewUser, after.Error},
	})
}

func (l *library) postMagicLink(c *call) (any, error) {
	after, err := l.magicTargets(c)
	if err != nil {
		return nil, err
	}
	return l.useMagicLink(c, after)
}

// askedFor reports whether this browser asked for the link.
func (c *call) askedFor(k link) bool {
	asked, err := readLetter(k)
	return err == nil && len(asked.Browser) > 0 && subtle.ConstantTimeCompare(c.asker(), asked.Browser) == 1
}

// magicSignedIn is better-auth's response to a script.
type magicSignedIn struct {
	Token        string      `json:"token"`
	RefreshToken string      `json:"refreshToken,omitempty"`
	User         wireUser    `json:"user"`
	Session      wireSession `json:"session"`
}

func (l *library) useMagicLink(c *call, after targets) (any, error) {
	if l.cfg.DisableLinks {
		return nil, errNotFound
	}
	token := c.query("token")
	user, fresh, err := l.takeMagicLink(c, token)
	if err != nil {
		return l.magicAgain(c, after, err)
	}
	c.setCookie(askedCookie, "", 0)
	e, err := l.enter(c, user, "magic", true, l.stillAt(user))
	if err != nil {
		return c.fail(l.unsettled(c, token, err), after.onError())
	}
	target := after.Callback
	if fresh && after.NewUser != "" {
		target = after.NewUser
	}
	if err := l.settleEntry(c, token, kindMagic, e, target); err != nil {
		return nil, err
	}
	return l.magicEntered(c, e, target)
}

// magicAgain repeats the response for the browser that has just used the link, and refuses any
// other.
func (l *library) magicAgain(c *call, after targets, refusal error) (any, error) {
	if !errors.Is(refusal, errInvalidToken) {
		return c.fail(refusal, after.onError())
	}
	u, own, ok, err := l.again(c, c.query("token"), kindMagic, c.browserHash())
	if err != nil {
		return nil, err
	}
	if ok {
		e, ok, err := l.enteredAgain(c, u, own, "magic")
		if err != nil {
			return c.fail(err, after.onError())
		}
		if ok {
			return l.magicEntered(c, e, u.target)
		}
	}
	return c.fail(refusal, after.onError())
}

// magicEntered returns the response to a link that signed in.
func (l *library) magicEntered(c *call, e entry, target string) (any, error) {
	switch {
	case target != "":
		return l.lead(c, e, target)
	case !c.fromScript() && !isNative(c.r):
		return l.lead(c, e, l.host.BaseURL.Path+"/")
	case e.challenged():
		return e.challenge, nil
	}
	wire, err := l.wire(c.Context(), e.user)
	out := magicSignedIn{Token: e.in.AccessToken, User: wire, Session: showSession(e.in.Session)}
	if e.native {
		out.RefreshToken = e.in.RefreshToken
	}
	return out, err
}

// takeMagicLink uses up the link for the user whose address it proves; fresh says that the user was
// created just now.
func (l *library) takeMagicLink(c *call, token string) (user auth.User, fresh bool, err error) {
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		k, err := l.take(ctx, token, kindMagic)
		if err != nil {
			return asInvalid(err)
		}
		asked, err := readLetter(k)
		if err != nil {
			return err
		}
		user, fresh, err = l.userOfAddress(c.in(ctx), k.subject, auth.NewUser{Name: asked.Name})
		if err != nil {
			return err
		}
		return l.using(ctx, token, kindMagic, user.ID, c.browserHash())
	})
	return user, fresh, err
}

// userOfAddress returns the user whose address was just proved, a new one if
// there is none. It runs in a transaction.
func (l *library) userOfAddress(c *call, mail string, n auth.NewUser) (user auth.User, fresh bool, err error) {
	user, found, err := l.auth.UserByEmail(c.Context(), mail)
	if err != nil {
		return user, false, err
	}
	if found {
		user, err = l.reclaim(c.Context(), user)
		return user, false, err
	}
	n.Email, n.EmailVerified = mail, true
	user, err = l.newUser(c, n)
	if errors.Is(err, auth.ErrEmailTaken) { // by one who was faster: the next try finds it
		err = errUnavailable.Because(err)
	}
	return user, true, err
}
