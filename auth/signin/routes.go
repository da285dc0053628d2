package signin

import (
	"net/http"
	"slices"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

// Rate classes of the routes, a bucket for each address.
const (
	rateSignIn = "auth-sign-in" // 3 in 10 s: what guesses, and what makes users
	rateSend   = "auth-send"    // 3 in 60 s: what sends mail
	rateLink   = "auth-link"    // 5 in 60 s: what asks for or uses a link to sign in
	rateRead   = "read"
	rateWrite  = "write"
)

// The kinds of mail that routes send; the kit asks for a proof of humanity first.
const (
	sendsLink = "magic_link"
	sendsCode = "otp"
)

// table is every route, in the order of the files of their handlers.
func (l *library) table() []route {
	return slices.Concat(
		l.statusRoutes(),
		l.passwordRoutes(),
		l.verifyRoutes(),
		l.resetRoutes(),
		l.accountRoutes(),
		l.socialRoutes(),
		l.sessionRoutes(),
		l.linkRoutes(),
		l.codeRoutes(),
		l.usernameRoutes(),
		l.anonymousRoutes(),
		l.oneTimeTokenRoutes(),
		l.multiSessionRoutes(),
		l.twoFactorRoutes(),
		l.passkeyRoutes(),
	)
}

func get(path, rate string, handle func(*call) (any, error)) route {
	return route{auth.LibraryRoute{Method: http.MethodGet, Path: path, Rate: rate}, handle}
}

func post(path, rate string, handle func(*call) (any, error)) route {
	return route{auth.LibraryRoute{Method: http.MethodPost, Path: path, Rate: rate}, handle}
}

// opened marks a route that people open in browsers: it shows pages and redirects.
func (r route) opened() route {
	r.Pages = true
	return r
}

// reads adds query parameters to what documents say of a route.
func (r route) reads(list ...capability.Param) route {
	r.Query = append(r.Query, list...)
	return r
}

// The query parameters of links.
var (
	tokenParam    = capability.Param{Name: "token", Summary: "The token of the link.", Required: true}
	callbackParam = capability.Param{Name: "callbackURL", Summary: "Where the browser is sent afterwards: a path of the base URL's origin, or an address of a trusted one."}
	newUserParam  = capability.Param{Name: "newUserCallbackURL", Summary: "The same for a new user."}
	errorParam    = capability.Param{Name: "errorCallbackURL", Summary: "The same after a refusal, whose code is added as the parameter error."}
)

// sends marks a route by which any caller can send a link or a code to an address.
func (r route) sends(what string) route {
	r.Sends = what
	return r
}

// joins marks a route that creates a user, for which the humanity check is optional.
func (l *library) joins(r route) route {
	if l.cfg.HumanSignUp {
		r.Sends = sendsLink
	}
	return r
}

func (l *library) statusRoutes() []route {
	return []route{
		get("/ok", rateRead, l.getOK),
		get("/error", rateRead, l.getError).opened().reads(capability.Param{Name: "error", Summary: "The code to show."}),
	}
}

func (l *library) getOK(*call) (any, error) { return map[string]bool{"ok": true}, nil }

// getError is the page for a browser whose link or provider was refused, if the request named no
// other.
func (l *library) getError(c *call) (any, error) {
	code := c.query("error")
	if !errorCode.MatchString(code) {
		code = "UNKNOWN"
	}
	return c.page(http.StatusOK, page{
		Title: "This did not work",
		Text:  "Go back and try again.",
		Code:  code, Failed: true,
	})
}
