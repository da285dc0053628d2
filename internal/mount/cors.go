package mount

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/kitbackend/kit/capability"
)

// The headers that pages of the trusted origins of auth may send and read.
const (
	pageHeaders    = "Content-Type, Authorization, X-CSRF-Token, Idempotency-Key, X-Kit-Fresh, X-Kit-Client, X-Captcha-Response"
	pageExposed    = "X-Request-Id, Retry-After, Idempotency-Replayed, Set-Auth-Token, Set-Auth-Jwt, X-CSRF-Token, X-Kit-Fresh, X-Retry-After"
	pageAnyMethods = "GET, POST, PUT, PATCH, DELETE"
	pageMaxAge     = 10 * time.Minute
)

// preflights are the methods of one path that other origins may call, by the kind
// of caller.
type preflights struct {
	path            string
	machines, pages []string
}

// addPreflights serves OPTIONS for every path that pages of other origins may
// call: those of the control plane, wherever they are mounted, and, for the
// trusted origins, those of users.
func (m *Mount) addPreflights() {
	byPath := make(map[string]*preflights)
	for _, e := range m.Entries {
		route, pages := e.Route, m.forPages(e)
		machines := route.Guard.Strategy() == capability.StrategyControlPlane
		if !machines && !pages || route.Method == capability.Any { // a row of any method serves OPTIONS itself
			continue
		}
		p := byPath[route.Path]
		if p == nil {
			p = &preflights{path: route.Path}
			byPath[route.Path] = p
		}
		if machines {
			p.machines = append(p.machines, route.Method)
		} else {
			p.pages = append(p.pages, route.Method)
		}
	}
	for _, p := range byPath {
		m.addPreflight(p)
	}
}

func (m *Mount) addPreflight(p *preflights) {
	slices.Sort(p.machines)
	slices.Sort(p.pages)
	machines, pages := strings.Join(p.machines, ", "), strings.Join(p.pages, ", ")
	route := capability.Route{Method: http.MethodOptions, Path: p.path, Guard: capability.Public("a preflight carries no credential")}
	row := newRow(m, Entry{Route: route})
	m.echo.OPTIONS(p.path, func(c echo.Context) error {
		x := newExchange(m, row, c)
		defer x.finish()
		x.harden()
		switch {
		case pages != "" && x.fromTrusted():
			x.pagePreflight(pages)
		case machines != "":
			x.preflight(machines)
		default:
			x.w.Header().Set("Allow", "OPTIONS, "+pages) // as on any other path
			x.w.WriteHeader(http.StatusNoContent)
		}
		return nil
	})
}

// forPages reports whether pages of the trusted origins may call a row: a user row, or a public row
// of the capability that signs users in.
func (m *Mount) forPages(e Entry) bool {
	if m.Users == nil || len(m.Users.Origins) == 0 {
		return false
	}
	switch g := e.Route.Guard; g.Strategy() {
	case capability.StrategyUser, capability.StrategyBearer, capability.StrategySession:
		return true
	case capability.StrategyPublic:
		return g.Identifies() || e.Domain == m.Users.Domain && g.Note() != capability.DevelopmentOnly
	default:
		return false
	}
}

// fromTrusted reports whether a page of a trusted origin sent the request.
func (x *exchange) fromTrusted() bool {
	x.w.Header().Add("Vary", "Origin")
	return x.m.Users != nil && slices.Contains(x.m.Users.Origins, x.r.Header.Get("Origin"))
}

// cors lets pages of the trusted origins read the response of a row, and handles
// their preflight where the row takes any method; done is true then.
func (x *exchange) cors() (done bool) {
	return x.m.forPages(x.row.entry) && x.fromTrusted() && x.corsToAny()
}

// corsToAny is cors for a request that a page of a trusted origin sent, whatever its method.
func (x *exchange) corsToAny() (done bool) {
	if x.r.Method == http.MethodOptions && x.r.Header.Get("Access-Control-Request-Method") != "" {
		x.pagePreflight(pageAnyMethods)
		return true
	}
	x.shareWithPage()
	x.w.Header().Set("Access-Control-Expose-Headers", pageExposed)
	return false
}

// tellToken gives a page of the own or a trusted origin the CSRF token of its session. A page of
// another host cannot read it from the cookie, nor can a service worker, and the cookie that a page
// reads may be another's.
func (x *exchange) tellToken(caller capability.Caller) {
	if x.m.Users.CSRFToken == nil || !x.sameOrigin() {
		return
	}
	if token := x.m.Users.CSRFToken(x.r, caller); token != "" {
		x.w.Header().Set("X-CSRF-Token", token)
	}
}

func (x *exchange) shareWithPage() {
	h := x.w.Header()
	h.Set("Access-Control-Allow-Origin", x.r.Header.Get("Origin"))
	h.Set("Access-Control-Allow-Credentials", "true")
}

func (x *exchange) pagePreflight(methods string) {
	x.shareWithPage()
	h := x.w.Header()
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", pageHeaders)
	h.Set("Access-Control-Max-Age", strconv.Itoa(int(pageMaxAge.Seconds())))
	x.w.WriteHeader(http.StatusNoContent)
}

func (x *exchange) preflight(methods string) {
	switch {
	case x.m.Machines == nil:
		x.refuse(capability.ErrNotConnected)
		return
	case x.r.Header.Get("Origin") == "" || !x.allowOrigin():
		x.refuse(capability.ErrInvalidCredential)
		return
	}
	h := x.w.Header()
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key")
	h.Set("Access-Control-Max-Age", strconv.Itoa(int(x.m.Machines.MaxAge.Seconds())))
	x.w.WriteHeader(http.StatusNoContent)
}

// allowOrigin reports whether the request was made by no page, or by a page of a listed origin.
func (x *exchange) allowOrigin() bool {
	origin := x.r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	x.w.Header().Add("Vary", "Origin")
	if !x.m.Machines.AllowOrigin(origin) {
		return false
	}
	h := x.w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, Date")
	return true
}
