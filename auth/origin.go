package auth

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// maxRedirect bounds the address of a redirect, in bytes.
const maxRedirect = 2048

// BasePath returns where the routes are mounted, below the base URL.
func (a *Auth) BasePath() string { return a.cfg.BasePath }

// TrustedOrigin reports whether an origin is the base URL's own or one of
// Config.TrustedOrigins.
func (a *LibraryHost) TrustedOrigin(origin string) bool { return a.trusts(origin) }

func (a *Auth) trusts(origin string) bool {
	return origin == a.ownOrigin() || slices.Contains(a.cfg.TrustedOrigins, origin)
}

func (a *Auth) ownOrigin() string {
	return a.host.BaseURL.Scheme + "://" + strings.ToLower(a.host.BaseURL.Host)
}

// webOrigins returns the trusted origins that have pages.
func (a *Auth) webOrigins() (origins []string) {
	for _, origin := range a.cfg.TrustedOrigins {
		if scheme, host, _ := strings.Cut(origin, "://"); isWeb(scheme) && host != "" {
			origins = append(origins, origin)
		}
	}
	return origins
}

// RedirectAllowed returns the address to which a browser may be redirected for target: a path of
// the base URL's origin, or an address under a trusted origin, compared exactly; ok is false for
// any other target.
func (a *LibraryHost) RedirectAllowed(target string) (address string, ok bool) {
	if target == "" || len(target) > maxRedirect || strings.ContainsFunc(target, func(c rune) bool {
		return c <= ' ' || c == '\\' || c == 0x7f || c >= 0x80 // browsers drop some and turn others into slashes
	}) {
		return "", false
	}
	u, err := url.Parse(target)
	if err != nil || u.User != nil {
		return "", false
	}
	switch {
	case u.Scheme == "":
		return target, u.Host == "" && target[0] == '/' && !strings.HasPrefix(target, "//")
	case isWeb(u.Scheme):
		return target, a.trusts(u.Scheme + "://" + strings.ToLower(u.Host))
	default:
		return target, u.Opaque == "" && slices.Contains(a.cfg.TrustedOrigins, u.Scheme+"://")
	}
}

// OwnPage checks, by the Sec-Fetch-Site and Origin headers that browsers set, that a request with
// an unsafe method was not sent by a page of another origin. A request with neither header does not
// come from a current browser and passes. Refuses with auth/csrf.
func (a *Auth) OwnPage(r *http.Request) error {
	if err := a.cross.Check(r); err != nil {
		return capability.ErrCSRF.Because(err)
	}
	// The check compares hosts; where clients use https, a page over plain http may come from an
	// attacker.
	origin := r.Header.Get("Origin")
	if a.secure() && strings.HasPrefix(origin, "http:") && !a.trusts(origin) {
		return capability.ErrCSRF
	}
	return nil
}

// ownPage is [Auth.OwnPage] for a request that a session cookie proves: without the headers it must
// carry the CSRF token.
func (a *Auth) ownPage(r *http.Request, s Session) error {
	if err := a.OwnPage(r); err != nil {
		return err
	}
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return a.csrf(r, capability.Caller{SessionID: s.ID})
	}
	return nil
}

// warnCrossSite warns once of a page of a trusted origin whose browser keeps no cookie for it.
func (a *Auth) warnCrossSite(r *http.Request) {
	origin := r.Header.Get("Origin")
	if r.Header.Get("Sec-Fetch-Site") != "cross-site" || a.sameSite() == http.SameSiteNoneMode || !slices.Contains(a.cfg.TrustedOrigins, origin) {
		return
	}
	a.crossSite.Do(func() {
		a.host.Log.WarnContext(r.Context(), "auth: a page of a trusted origin is on another site than the base URL, so browsers keep no cookies for it: "+
			"open it on the same site (localhost and 127.0.0.1 are two), set auth.Config.Cookies.SameSite to None, or send tokens",
			"origin", origin, "baseURL", a.issuer)
	})
}

// crossOrigin returns the standard library's cross-origin protection with the trusted origins.
func crossOrigin(a *Auth) *http.CrossOriginProtection {
	cross := http.NewCrossOriginProtection()
	for _, origin := range append([]string{a.ownOrigin()}, a.cfg.TrustedOrigins...) {
		_ = cross.AddTrustedOrigin(origin) // checked; one of an installed application has no pages
	}
	return cross
}
