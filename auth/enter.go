package auth

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/bearer"
)

// Enter makes the session of a proven sign-in: on the device of the request's current session if
// that is one of the same user, else on a new device. It sets the cookies on the response unless
// the client wants none; inside a transaction, when r carries its context, it does so after the
// commit. Refuses with auth/user_not_found and auth/user_disabled.
func (a *LibraryHost) Enter(w http.ResponseWriter, r *http.Request, e Entry) (entered Entered, err error) {
	return a.enter(w, r, e, nil, nil)
}

// enter also puts scopes into the access token and detail into the event.
func (a *Auth) enter(w http.ResponseWriter, r *http.Request, e Entry, scopes []string, detail map[string]any) (entered Entered, err error) {
	if !isText(e.DeviceName, maxName) {
		return Entered{}, capability.ErrInvalidRequest.Saying("A device name is UTF-8 text of at most %d bytes.", maxName)
	}
	device, err := a.deviceOf(r, e.UserID)
	if err != nil {
		return Entered{}, err
	}
	var session Session
	err = a.host.DB.InTx(r.Context(), func(ctx context.Context) error {
		session, err = a.createSession(ctx, newSession{
			user: e.UserID, device: device, deviceName: e.DeviceName, methods: splitMethods(e.Method), remember: e.Remember, factor: e.Factor,
			still: e.Still,
		})
		if err != nil {
			return err
		}
		return a.recordSignIn(ctx, session, e.Method, detail)
	})
	if err != nil {
		return Entered{}, err
	}
	return a.handOver(w, r, session, scopes)
}

// handOver makes the tokens of a new session, whose secret is known, and sets the cookies.
func (a *Auth) handOver(w http.ResponseWriter, r *http.Request, session Session, scopes []string) (entered Entered, err error) {
	entered = Entered{Session: session, CSRFToken: a.CSRFToken(session)}
	if entered.AccessToken, err = a.sessionToken(r.Context(), session, scopes); err != nil {
		return Entered{}, err
	}
	if entered.RefreshToken, err = a.refreshToken(session, session.refresh.counter); err != nil {
		return Entered{}, err
	}
	if !BodyTransport(r) {
		database.AfterCommit(r.Context(), func() {
			for _, cookie := range a.signInCookies(session, entered.RefreshToken) {
				http.SetCookie(w, cookie)
			}
		})
	}
	return entered, nil
}

// Resume makes a live session the one of the request's cookies again, for a
// browser that is signed in as several users: the library has proven that the
// session is this browser's. The cookie that the session had is refused from
// now on. Refuses with auth/session_not_found.
func (a *LibraryHost) Resume(w http.ResponseWriter, r *http.Request, sessionID string) (Entered, error) {
	secret := newSecret()
	var session Session
	err := a.host.DB.InTx(r.Context(), func(ctx context.Context) error {
		found, err := a.store.replaceSecret(ctx, sessionID, hashed(secret)) // first: nobody rotates meanwhile
		if err != nil || !found {
			return errOr(err, ErrSessionNotFound)
		}
		if session, found, err = a.store.sessionByID(ctx, sessionID, a.host.DB.Now(ctx)); err == nil && !found {
			err = ErrSessionNotFound
		}
		return err
	})
	if err != nil {
		return Entered{}, err
	}
	session.secret = func() []byte { return secret }
	return a.handOver(w, r, session, nil)
}

// deviceOf returns the device of the request's live session if it is one of this user, else "". An
// invalid proof counts as no session.
func (a *Auth) deviceOf(r *http.Request, userID string) (string, error) {
	session, found, err := a.prove(r)
	switch {
	case err != nil && capability.AsError(err).Status < http.StatusInternalServerError:
		return "", nil
	case err != nil || !found || session.UserID != userID:
		return "", err
	}
	return session.DeviceID, nil
}

func (a *Auth) recordSignIn(ctx context.Context, s Session, method string, detail map[string]any) error {
	if detail == nil {
		detail = make(map[string]any)
	}
	detail["method"] = method
	return a.peers.Audit.Record(ctx, audit.Event{
		Action:  "auth/signed_in",
		Actor:   audit.Actor{Kind: audit.ActorUser, ID: s.UserID},
		Subject: audit.Target{Type: "user", ID: s.UserID},
		Targets: []audit.Target{{Type: "session", ID: s.ID}, {Type: "device", ID: s.DeviceID}},
		Detail:  detail,
	})
}

// Leave signs the caller of the request out: it ends the session and removes the cookies. Without a
// session it only removes the cookies. Refuses with auth/csrf.
func (a *Auth) Leave(w http.ResponseWriter, r *http.Request) error {
	session, found, err := a.Current(r)
	if !found && r.Header.Get("Authorization") != "" && (err == nil || errors.Is(err, capability.ErrUnauthenticated)) {
		bare := r.Clone(r.Context()) // an access token without a session does not keep the cookie's
		bare.Header.Del("Authorization")
		session, found, err = a.Current(bare)
	}
	if errors.Is(err, capability.ErrUnauthenticated) {
		found, err = false, nil // what does not prove anything any more can go
	}
	if err != nil {
		return err
	}
	if found {
		err := a.host.DB.InTx(r.Context(), func(ctx context.Context) error {
			if _, err := a.endSession(ctx, session.ID, "signed_out"); err != nil {
				return err
			}
			return a.peers.Audit.Record(ctx, audit.Event{
				Action:  "auth/signed_out",
				Subject: audit.Target{Type: "user", ID: session.UserID},
				Targets: []audit.Target{{Type: "session", ID: session.ID}},
			})
		})
		if err != nil && !errors.Is(err, ErrSessionNotFound) {
			return err
		}
	}
	database.AfterCommit(r.Context(), func() { a.clearCookies(w) })
	return nil
}

// Current returns the live session of a request, by its access token or session token, or else by
// its cookie; found is false without either. A request with an unsafe method that a cookie proves
// must come from a page of the kit's own or a trusted origin, see [Auth.OwnPage]. Tokens of
// [Auth.IssueToken] have no session. Refuses with auth/unauthenticated, auth/csrf and
// kit/unavailable.
func (a *Auth) Current(r *http.Request) (session Session, found bool, err error) {
	session, found, err = a.prove(r)
	if err != nil || !found {
		return Session{}, false, err
	}
	strategy := capability.StrategyBearer
	if session.Proof == ProofCookie {
		strategy = capability.StrategySession
		if !isSafe(r.Method) {
			if err := a.ownPage(r, session); err != nil {
				return Session{}, false, err
			}
		}
	}
	if o := capability.RequestInfoOf(r.Context()); o != nil { // the trail and the log name the user
		o.Caller = capability.Caller{Strategy: strategy, UserID: session.UserID, SessionID: session.ID}
	}
	return session, true, nil
}

// prove returns the session of the request's token, or else of its cookie.
func (a *Auth) prove(r *http.Request) (session Session, found bool, err error) {
	token, given, err := bearer.Token(r)
	if err != nil {
		return Session{}, false, err
	}
	if !given {
		return a.cookieSession(r)
	}
	if strings.HasPrefix(token, sessionTokenVersion) {
		session, err = a.tokenSession(r, token)
		return session, err == nil, err
	}
	caller, err := a.bearer(r.Context(), token)
	if err != nil {
		return Session{}, false, err
	}
	session, found, err = a.store.sessionByID(r.Context(), caller.SessionID, a.host.Now())
	if err != nil {
		return Session{}, false, unavailable("reading the session", err)
	}
	session.Proof = ProofAccessToken
	return session, found, nil
}

func isSafe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// BodyTransport reports whether the client of a sign-in keeps its tokens itself and wants no
// cookies: it sends X-Kit-Transport: body and is not a page in a browser.
func BodyTransport(r *http.Request) bool {
	return r.Header.Get("X-Kit-Transport") == "body" && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
}
