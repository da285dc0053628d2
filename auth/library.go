package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/jobs"
)

// maxLibraryBody limits the body of a request to the library, in bytes.
const maxLibraryBody = 64 << 10

// Library is what proves who somebody is: the other half of auth, as data. It
// calls [Auth.Enter] for whom it has proven.
type Library struct {
	// Name is shown in the manifest.
	Name string
	// Handler returns everything under the base path that auth has no row for,
	// but HEAD. It sees the full path below the base URL and the body, read and
	// limited to 64 KiB; [capability.RequestInfoOf] of the request's context tells the
	// client's address and the request id.
	Handler http.Handler
	// Routes are its table: they carry its limits, and its documents.
	Routes []LibraryRoute
	// Migrations are its schema, applied after that of auth. Rows of a user refer
	// to auth_user (id) ON DELETE CASCADE.
	Migrations database.Migrations
	Config     []capability.ConfigKey
	Jobs       []jobs.Binding
	// Rewrap wraps what the library has sealed with the first master key and returns
	// how many values it changed; nil: it seals nothing. [Auth.Rewrap] calls it.
	Rewrap func(ctx context.Context) (changed int, err error)
	// Export and Erase are those of [capability.Capability] for what the library
	// keeps; rows that refer to auth_user go without Erase.
	Export func(ctx context.Context, person capability.Person, emit capability.Emit) error
	Erase  func(ctx context.Context, person capability.Person) (capability.Erasure, error)
	// Addresses lists what the library knows of a user's addresses; see
	// [Auth.Addresses].
	Addresses func(ctx context.Context, userID string) ([]string, error)
}

// AppName returns what the application is called in mails and by authenticators.
func (a *Auth) AppName() string { return a.cfg.AppName }

// LibraryRoutes returns the library's table, for documents. Paths are below the
// base path.
func (a *Auth) LibraryRoutes() []LibraryRoute { return slices.Clone(a.library.Routes) }

// SessionCookieName returns the name of the session's cookie, its prefix included.
func (a *Auth) SessionCookieName() string { return a.cookieName(sessionCookie) }

// Record writes an event about a user, such as "auth/passkey_added", of the
// caller of the request in ctx. It joins the transaction in ctx.
func (a *Auth) Record(ctx context.Context, action, userID string, detail any) error {
	return a.record(ctx, action, userID, detail)
}

// LibraryRoute is a row of a library's table.
type LibraryRoute struct {
	// Method is one of HTTP, or [capability.Any].
	Method string
	// Path is below the base path: literal segments, :name for one segment, and a
	// final * for the rest.
	Path string
	// Rate names the class by which each address is limited, counted for all
	// routes of the class together: "auth-sign-in" (3 in 10 s), "auth-send" (3 in
	// 60 s), "auth-link" (5 in 60 s), one of Config.RateLimits, or "", "read" and
	// "write", which are off until it sets them. Every request counts for the
	// class "auth" of the kit, too.
	Rate string
	// Sends names what the route sends to an address, "magic_link" for any link or
	// "otp" for any code, or "". Such a route asks for a proof of humanity where Config.Humanity is set.
	Sends string
	// Summary is one sentence for documents.
	Summary string
}

// Humanity checks the response of a challenge such as a captcha, which the
// client sends as x-captcha-response. An error counts as a no.
type Humanity func(ctx context.Context, response, ip string) (human bool, err error)

const (
	humanityHeader  = "X-Captcha-Response"
	humanityTimeout = 10 * time.Second
	maxHumanity     = 8 << 10
)

// libraryTable finds the row of a request.
type libraryTable struct {
	routes   []LibraryRoute
	segments [][]string
	limiters map[string]*rate.Limiter
	// wide are those of a /48 of IPv6, in which one party has 65,536 networks.
	wide map[string]*rate.Limiter
}

func newLibraryTable(routes []LibraryRoute, limits limits) libraryTable {
	t := libraryTable{routes: routes, limiters: make(map[string]*rate.Limiter), wide: make(map[string]*rate.Limiter)}
	for _, r := range routes {
		t.segments = append(t.segments, strings.Split(r.Path, "/"))
		if limiter := limits.class(r.Rate); limiter != nil {
			t.limiters[r.Rate] = limiter
			t.wide[r.Rate] = limits.wide(r.Rate)
		}
	}
	return t
}

// find returns the first row of a method and a path below the base path.
func (t libraryTable) find(method, path string) (LibraryRoute, bool) {
	parts := strings.Split(path, "/")
	for i, r := range t.routes {
		if (r.Method == method || r.Method == capability.Any) && matches(t.segments[i], parts) {
			return r, true
		}
	}
	return LibraryRoute{}, false
}

func matches(pattern, parts []string) bool {
	for i, want := range pattern {
		switch {
		case want == "*" && i == len(pattern)-1:
			return len(parts) > i
		case i >= len(parts):
			return false
		case strings.HasPrefix(want, ":"):
			if parts[i] == "" {
				return false
			}
		case want != parts[i]:
			return false
		}
	}
	return len(pattern) == len(parts)
}

// anyLibrary hands a request to the library: what the kit keeps for itself is
// refused first, then come the limits of the address and the humanity check.
func (a *Auth) anyLibrary(c *capability.Call) error {
	return a.serveLibrary(c.Writer(), c.Request(), c.Body)
}

func (a *Auth) serveLibrary(w http.ResponseWriter, r *http.Request, read func() ([]byte, error)) error {
	path := strings.TrimPrefix(r.URL.Path, a.cfg.BasePath)
	if under(path, "/admin") || a.library.Handler == nil {
		return capability.ErrNotFound
	}
	if r.Method == http.MethodHead { // a scanner looking at a link must not use it up
		if _, ok := a.table.find(http.MethodGet, path); !ok {
			return capability.ErrNotFound
		}
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if route, ok := a.table.find(r.Method, path); ok {
		if info := capability.RequestInfoOf(r.Context()); info != nil { // the log names the row that answered
			info.Route = a.cfg.BasePath + route.Path
		}
		if wait, ok := a.table.allow(route, ipOf(r.Context())); !ok {
			return refuseLibrary(w, r, wait, errTooManyRequests)
		}
		if refusal := a.checkHumanity(r, route); refusal != nil {
			return refuseLibrary(w, r, 0, refusal)
		}
	}
	body, err := read()
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	a.library.Handler.ServeHTTP(w, r)
	return nil
}

// under reports whether a path is a prefix or below it.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

func ipOf(ctx context.Context) string { return originOf(ctx).ip }

func (t libraryTable) allow(route LibraryRoute, ip string) (wait time.Duration, ok bool) {
	limiter := t.limiters[route.Rate]
	if limiter == nil {
		return 0, true
	}
	if wait, ok := limiter.Allow(rate.AddressKey(ip)); !ok {
		return wait, false
	}
	network := rate.NetworkKey(ip)
	if !strings.Contains(network, ":") {
		return 0, true
	}
	return t.wide[route.Rate].Allow(network)
}

// checkHumanity asks the check about a route that sends. It fails closed.
func (a *Auth) checkHumanity(r *http.Request, route LibraryRoute) *libraryRefusal {
	if a.cfg.Humanity == nil || route.Sends == "" {
		return nil
	}
	response := r.Header.Get(humanityHeader)
	if response == "" || len(response) > maxHumanity {
		return errHumanityMissing
	}
	ctx, cancel := context.WithTimeout(r.Context(), humanityTimeout)
	defer cancel()
	human, err := a.cfg.Humanity(ctx, response, ipOf(ctx))
	switch {
	case err != nil:
		a.host.Log.ErrorContext(ctx, "auth: the humanity check failed", "error", err)
		return errHumanityUnavailable
	case !human:
		return errHumanityFailed
	}
	return nil
}

// libraryRefusal is what auth returns in front of the library, with the codes
// that its clients know.
type libraryRefusal struct {
	status        int
	code, message string
}

var (
	errTooManyRequests     = &libraryRefusal{429, "TOO_MANY_REQUESTS", "Too many requests. Wait and try again."}
	errHumanityMissing     = &libraryRefusal{400, "MISSING_RESPONSE", "Missing CAPTCHA response"}
	errHumanityFailed      = &libraryRefusal{403, "VERIFICATION_FAILED", "Captcha verification failed"}
	errHumanityUnavailable = &libraryRefusal{503, "SERVICE_UNAVAILABLE", "The check cannot answer right now. Try again."}
)

// refuseLibrary returns in the shape of the library's routes, which serves those
// who read code and those who read error.code.
func refuseLibrary(w http.ResponseWriter, r *http.Request, wait time.Duration, refusal *libraryRefusal) error {
	type fields struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		RequestID string `json:"requestId,omitempty"`
	}
	requestID := ""
	if info := capability.RequestInfoOf(r.Context()); info != nil {
		requestID = info.RequestID
	}
	body, err := json.Marshal(struct {
		fields
		Error fields `json:"error"`
	}{fields{Code: refusal.code, Message: refusal.message}, fields{refusal.code, refusal.message, requestID}})
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if refusal.status == http.StatusTooManyRequests || refusal.status == http.StatusServiceUnavailable {
		seconds := strconv.Itoa(max(int((wait+time.Second-1)/time.Second), 1))
		h.Set("Retry-After", seconds)
		h.Set("X-Retry-After", seconds)
	}
	w.WriteHeader(refusal.status)
	_, _ = w.Write(body) // the client has gone; there is nobody to tell
	return nil
}
