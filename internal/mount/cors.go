package mount

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/kitbackend/kit/capability"
)

// addPreflights returns OPTIONS for every control-plane path, wherever it is mounted.
func (m *Mount) addPreflights() {
	methods := make(map[string][]string)
	for _, e := range m.Entries {
		if e.Route.Guard.Strategy() == capability.StrategyControlPlane {
			methods[e.Route.Path] = append(methods[e.Route.Path], e.Route.Method)
		}
	}
	for path, list := range methods {
		slices.Sort(list)
		route := capability.Route{Method: http.MethodOptions, Path: path, Guard: capability.Public("a preflight carries no credential")}
		row := newRow(m, Entry{Route: route})
		allow := strings.Join(list, ", ")
		m.echo.OPTIONS(path, func(c echo.Context) error {
			x := newExchange(m, row, c)
			defer x.finish()
			x.harden()
			x.preflight(allow)
			return nil
		})
	}
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

// allowOrigin passes requests that no page made, and pages of a listed origin.
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
