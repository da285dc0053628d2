package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
)

// The cookies, by their names on https. Browsers accept the prefix __Host- only with Secure, Path=/
// and no Domain, so that no other host can set them; the refresh cookie is sent to its own path
// only and has the weaker prefix. On plain http the prefix is left out.
const (
	sessionCookie = "__Host-kit_session"
	refreshCookie = "__Secure-kit_refresh"
	csrfCookie    = "__Host-kit_csrf"
	csrfHeader    = "X-CSRF-Token"
)

// Prefixes of cookie names on https.
const (
	hostPrefix   = "__Host-"
	securePrefix = "__Secure-"
)

// Cookies adjusts the cookies; the zero value is the default.
type Cookies struct {
	// Session is the name of the session's cookie without its prefix, by default
	// "kit_session"; "better-auth.session_token" together with SecurePrefix is what
	// getSessionCookie and other helpers of better-auth look for.
	Session string
	// SecurePrefix begins names with "__Secure-" instead of "__Host-", which alone
	// keeps other hosts of the domain from setting them.
	SecurePrefix bool
	// SameSite says with which requests browsers send the cookies; by default http.SameSiteLaxMode.
	// http.SameSiteNoneMode is for front ends on another site: it needs https, browsers that block
	// third-party cookies drop them, and only the origin check and the CSRF token protect against
	// pages of other sites.
	SameSite http.SameSite
}

var cookieForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)

func (c Cookies) validate(faults *capability.Faults, host capability.Host) {
	if c.Session != "" && (!cookieForm.MatchString(c.Session) || strings.HasPrefix(c.Session, "kit_") && c.Session != "kit_session") {
		faults.Add("cookieName", c.Session, "cannot be a cookie's name", "choose letters, digits, dots, hyphens and underscores, no prefix")
	}
	switch c.SameSite {
	case 0, http.SameSiteDefaultMode, http.SameSiteLaxMode, http.SameSiteStrictMode:
	case http.SameSiteNoneMode:
		if host.BaseURL.Scheme != "https" {
			faults.Add("cookieSameSite", "none", "needs https", "serve over https, or leave it out")
		}
	default:
		faults.Add("cookieSameSite", int(c.SameSite), "is no mode", "choose http.SameSiteLaxMode, Strict or None")
	}
}

func sameSiteName(mode http.SameSite) string {
	switch mode {
	case http.SameSiteStrictMode:
		return "strict"
	case http.SameSiteNoneMode:
		return "none"
	default:
		return "lax"
	}
}

// CookieSameSite returns the SameSite mode of the cookies, for cookies of a library.
func (a *LibraryHost) CookieSameSite() http.SameSite { return a.sameSite() }

func (a *Auth) sameSite() http.SameSite {
	switch mode := a.cfg.Cookies.SameSite; mode {
	case http.SameSiteStrictMode, http.SameSiteNoneMode:
		return mode
	default:
		return http.SameSiteLaxMode
	}
}

var encoding = base64.RawURLEncoding.Strict()

// SessionCookie returns the cookie of a session that [Auth.CreateSession] made.
func (a *Auth) SessionCookie(s Session) *http.Cookie {
	return a.cookie(s, sessionCookie, encoding.EncodeToString(s.secret()))
}

// CSRFToken returns the value of X-CSRF-Token that pages send with unsafe methods.
// The session is one that [Auth.CreateSession] or [Auth.Current] returned; the token
// is "" for a session that no cookie proves.
func (a *Auth) CSRFToken(s Session) string {
	if s.secret == nil {
		return ""
	}
	return csrfToken(s.secret(), s.ID)
}

// signInCookies are the three cookies of a session and its refresh token.
func (a *Auth) signInCookies(s Session, refresh string) []*http.Cookie {
	readable := a.cookie(s, csrfCookie, a.CSRFToken(s))
	readable.HttpOnly = false
	return []*http.Cookie{a.SessionCookie(s), a.refreshCookie(s, refresh), readable}
}

// refreshCookie returns the cookie of a refresh token, which is sent to the rotation route alone,
// and never with requests that other sites cause.
func (a *Auth) refreshCookie(s Session, token string) *http.Cookie {
	c := a.cookie(s, refreshCookie, token)
	c.Path = a.refreshPath()
	if c.SameSite != http.SameSiteNoneMode {
		c.SameSite = http.SameSiteStrictMode
	}
	return c
}

func (a *Auth) refreshPath() string { return a.host.BaseURL.Path + a.cfg.BasePath + "/token" }

// cookie returns a cookie that lasts as long as the session can, or as the browser runs: the server
// decides when an unused session ends.
func (a *Auth) cookie(s Session, name, value string) *http.Cookie {
	c := &http.Cookie{
		Name: a.cookieName(name), Value: value, Path: "/",
		Secure: a.secure(), HttpOnly: true, SameSite: a.sameSite(),
	}
	if s.Remembered {
		c.MaxAge = max(int(s.EndsAt.Sub(a.host.Now())/time.Second), 1)
	}
	return c
}

// clearCookies removes the cookies from the browser.
func (a *Auth) clearCookies(w http.ResponseWriter) {
	for _, c := range a.signInCookies(Session{secret: func() []byte { return nil }}, "") {
		c.Value, c.MaxAge = "", -1
		http.SetCookie(w, c)
	}
}

// secret reads the session cookie. Two of them count as none: another host may have set one.
func (a *Auth) secret(r *http.Request) (secret []byte, given bool) {
	value, given := a.cookieValue(r, sessionCookie)
	if !given {
		return nil, false
	}
	secret, err := encoding.DecodeString(value)
	return secret, err == nil && len(secret) == secretSize
}

func (a *Auth) cookieValue(r *http.Request, name string) (value string, given bool) {
	cookies := r.CookiesNamed(a.cookieName(name))
	if len(cookies) != 1 {
		return "", false
	}
	return cookies[0].Value, true
}

func (a *Auth) secure() bool { return a.host.BaseURL.Scheme == "https" }

func (a *Auth) cookieName(name string) string {
	prefix, bare := hostPrefix, strings.TrimPrefix(name, hostPrefix)
	if strings.HasPrefix(name, securePrefix) || a.cfg.Cookies.SecurePrefix {
		prefix, bare = securePrefix, strings.TrimPrefix(bare, securePrefix)
	}
	if name == sessionCookie && a.cfg.Cookies.Session != "" {
		bare = a.cfg.Cookies.Session
	}
	if !a.secure() {
		return bare
	}
	return prefix + bare
}

// csrf checks that the request carries the CSRF token of the very session that proved it. Refuses
// with auth/csrf.
func (a *Auth) csrf(r *http.Request, caller capability.Caller) error {
	want, tokens := a.tokenFor(r, caller), r.Header.Values(csrfHeader)
	if want == "" || len(tokens) != 1 || !hmac.Equal([]byte(tokens[0]), []byte(want)) {
		return capability.ErrCSRF.Saying("Send the value of the cookie %s as %s: the request did not prove that it comes from your own page.",
			a.cookieName(csrfCookie), csrfHeader)
	}
	return nil
}

// tokenFor returns the CSRF token of a session that the request's cookie proves, or "".
func (a *Auth) tokenFor(r *http.Request, caller capability.Caller) string {
	secret, given := a.secret(r)
	if !given {
		return ""
	}
	return csrfToken(secret, caller.SessionID)
}

// csrfToken is keyed by the cookie itself: only holders of the session can
// make it, and it needs no row and is the same on every node.
func csrfToken(secret []byte, sessionID string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("kit/auth/csrf/v1/" + sessionID))
	return encoding.EncodeToString(mac.Sum(nil))
}

func hashed(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return sum[:]
}
