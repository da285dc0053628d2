package signin

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/bearer"
)

// checkOrigin refuses requests from pages of other sites. A request that changes something must
// come from a page of the application if it carries cookies, or if its headers show that it comes
// from a browser. A bearer token needs no such check, because browsers do not add one by
// themselves.
func (c *call) checkOrigin() error {
	h := c.r.Header
	if safeMethod(c.r.Method) || c.bearing() {
		return nil
	}
	if h.Get("Sec-Fetch-Site") == "cross-site" && h.Get("Sec-Fetch-Mode") == "navigate" && !c.crossSitePost() {
		return errCrossSiteNavigation
	}
	origin := pageOrigin(c.r)
	browser := h.Get("Sec-Fetch-Site") != "" || h.Get("Sec-Fetch-Mode") != "" || h.Get("Sec-Fetch-Dest") != ""
	// The fetch of Node and Deno says its mode and nothing else. A page of others
	// cannot send the header of a native client: it is asked for in a preflight.
	if h.Get("Cookie") == "" && origin == "" && (!browser || isNative(c.r)) {
		return nil
	}
	if c.crossSitePost() {
		return nil
	}
	switch {
	case origin == "" && h.Get("Sec-Fetch-Site") == "":
		return errMissingOrigin.Saying("Missing or null Origin: a program that is no page sends X-Kit-Transport: body, and no cookies")
	case origin == "" || origin == "null":
		return errMissingOrigin
	case !c.l.auth.TrustedOrigin(origin):
		return errInvalidOrigin.Saying("Invalid origin: pages of %s, and of auth.Config.TrustedOrigins, may call", c.l.ownOrigin())
	default:
		return nil
	}
}

// bearing reports whether the request is proved by a token.
func (c *call) bearing() bool {
	_, given, _ := bearer.Token(c.r)
	return given
}

// crossSitePost reports whether a provider's page posts the browser back here; such a request is
// proved by its state, not by its origin.
func (c *call) crossSitePost() bool {
	return strings.HasPrefix(strings.TrimPrefix(c.r.URL.Path, c.l.auth.BasePath()), "/callback/")
}

func safeMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// pageOrigin returns the origin of the page that sent the request, as
// scheme://host[:port], or "" when it does not say.
func pageOrigin(r *http.Request) string {
	if origin := r.Header.Get("Origin"); origin != "" {
		return origin
	}
	referer, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || referer.Host == "" {
		return ""
	}
	return referer.Scheme + "://" + referer.Host
}

// fromScript reports whether a client of the application requests data, as better-auth's does,
// rather than a browser a page: it names its page as the origin or is of this origin, or it
// requests JSON or its tokens in the body. Mail scanners do none of that, not even those that run
// scripts.
func (c *call) fromScript() bool {
	h := c.r.Header
	mode, accept := h.Get("Sec-Fetch-Mode"), h.Get("Accept")
	switch origin := h.Get("Origin"); {
	case mode == "navigate" || h.Get("Sec-Purpose") != "":
		return false
	case origin != "":
		return c.l.auth.TrustedOrigin(origin)
	case h.Get("Sec-Fetch-Site") == "same-origin":
		return (mode == "cors" || mode == "same-origin") && h.Get("Sec-Fetch-Dest") == "empty"
	case h.Get("Sec-Fetch-Site") != "":
		return false
	default:
		return isNative(c.r) || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
	}
}

// opened reports whether a person opens the address in a browser: the browser's headers say that it
// navigates there, and does not prefetch.
func opened(r *http.Request) bool {
	h := r.Header
	return r.Method == http.MethodGet && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" &&
		h.Get("Sec-Purpose") == "" && h.Get("Purpose") == "" && h.Get("X-Moz") == ""
}

// target checks where to send the browser afterwards: a relative path, or a
// URL of an origin the application trusts. Empty stays empty.
func (l *library) target(given string, refusal *capability.Error) (string, error) {
	if given == "" {
		return "", nil
	}
	target, ok := l.auth.RedirectAllowed(given)
	if !ok {
		return "", refusal
	}
	return target, nil
}
