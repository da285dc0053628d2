package auth

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/wait"
	"github.com/kitbackend/kit/jobs"
)

// maxLibraryBody limits the body of a request to the library, in bytes.
const maxLibraryBody = 64 << 10

// Library proves who users are: the other half of auth, as data. It calls [LibraryHost.Enter] for a
// user it has proven.
type Library struct {
	// Name is shown in the manifest.
	Name string
	// Routes is its route table: the first row that matches method and path serves the request.
	// HEAD is never served, so that checking a link does not use it up.
	Routes []LibraryRoute
	// Handler, for a library that has a router of its own, serves the rows without a Handle and
	// requests that match no row. It sees the full path below the base URL.
	Handler http.Handler
	// Migrations is its schema, applied after that of auth. Rows of a user refer to auth_user (id)
	// ON DELETE CASCADE.
	Migrations database.Migrations
	Config     []capability.ConfigKey
	Jobs       []jobs.Binding
	// Rewrap wraps what the library has sealed with the first master key and returns
	// how many values it changed; nil: it seals nothing. [Auth.Rewrap] calls it.
	Rewrap func(ctx context.Context) (changed int, err error)
	// Export and Erase are those of [capability.Capability] for the library's data. Rows that refer
	// to auth_user are deleted with the user, without Erase.
	Export func(ctx context.Context, person capability.Person, emit capability.Emit) error
	Erase  func(ctx context.Context, person capability.Person) (capability.Erasure, error)
	// Addresses lists older addresses of a user that were proved and that the library can restore;
	// see [Auth.Addresses].
	Addresses func(ctx context.Context, userID string) ([]string, error)
}

// LibraryRoutes returns the library's table, for documents. Paths are below the
// base path. The refusals of rows that send include those of Config.Humanity.
func (a *Auth) LibraryRoutes() []LibraryRoute {
	rows := slices.Clone(a.library.Routes)
	for i, r := range rows {
		if a.cfg.Humanity != nil && r.Sends != "" {
			rows[i].Refusals = append(slices.Clip(r.Refusals), errHumanityMissing, errHumanityFailed)
		}
	}
	return rows
}

// SessionCookieName returns the name of the session's cookie, its prefix included.
func (a *Auth) SessionCookieName() string { return a.cookieName(sessionCookie) }

// LibraryRoute is a row of a library's table.
type LibraryRoute struct {
	// Method is an HTTP method, or [capability.Any].
	Method string
	// Path is below the base path: literal segments, :name for one segment, and a
	// final * for the rest.
	Path string
	// Rate names the rate class, whose limit applies to each address and counts all routes of the
	// class together: "auth-sign-in" (3 in 10 s), "auth-send" (3 in 60 s), "auth-link" (5 in 60 s),
	// one of Config.RateLimits, or "", "read" and "write", which are off unless set there. Every
	// request also counts for the class "auth" of the kit.
	Rate string
	// Sends says what the route sends to an address: "magic_link" for any link, "otp" for any code,
	// or "". A route that sends is checked by Config.Humanity if that is set.
	Sends string
	// Summary is one sentence for documents.
	Summary string
	// Query, for documents, lists the query parameters that the route reads.
	Query []capability.Param
	// Takes, for documents, is a value of the type of the body, whose other members are ignored,
	// and Returns has one for each type of a response with status 200, nil for null; none mean any
	// JSON.
	Takes   any
	Returns []any
	// Refusals, for documents, are those of the row itself. Any row refuses as [LibraryRefusal]
	// words kit/invalid_request, internal, unavailable and rate_limited too, and one with a body
	// kit/body_too_large.
	Refusals []*capability.Error
	// Pages marks, for documents, a row that people open in browsers: its responses are pages and
	// redirects, and JSON for a script.
	Pages bool
	// Handle serves a request of the row: r.PathValue returns a parameter, r.Pattern
	// is Path, the body is read and limited to 64 KiB, and [capability.RequestInfoOf]
	// of the context tells the client's address and the request id. An error is
	// refused as [LibraryRefusal] words it, unless something was written. nil: the
	// library's Handler serves the row.
	Handle func(w http.ResponseWriter, r *http.Request) error
}

// Humanity checks the response to a challenge such as a captcha, which the client sends in the
// header x-captcha-response. On an error the request is refused.
type Humanity func(ctx context.Context, response, ip string) (human bool, err error)

const (
	humanityHeader  = "X-Captcha-Response"
	humanityTimeout = 10 * time.Second
	maxHumanity     = 8 << 10
)

// anyLibrary passes a request to the library, in whose words it is refused unless it is for a
// management path.
func (a *Auth) anyLibrary(c *capability.Call) error {
	err := a.serveLibrary(c.Writer(), c.Request(), c.Body)
	if err == nil || under(a.libraryPath(c.Request()), "/admin") {
		return err
	}
	return LibraryRefusal(err)
}

func (a *Auth) libraryPath(r *http.Request) string {
	return strings.TrimPrefix(r.URL.Path, a.cfg.BasePath)
}

// serveLibrary refuses reserved paths and methods, then applies the limits of the address and the
// humanity check, then serves the row.
func (a *Auth) serveLibrary(w http.ResponseWriter, r *http.Request, read func() ([]byte, error)) error {
	path := a.libraryPath(r)
	if under(path, "/admin") {
		return capability.ErrNotFound
	}
	if r.Method == http.MethodHead { // a scanner looking at a link must not use it up
		if _, refusal := a.table.find(http.MethodGet, path); refusal != nil {
			return capability.ErrNotFound
		}
		w.WriteHeader(http.StatusOK)
		return nil
	}
	found, refusal := a.table.find(r.Method, path)
	if refusal == nil {
		if err := a.admit(w, r, found.route); err != nil {
			return err
		}
	}
	handle := found.route.Handle
	if handle == nil {
		if a.library.Handler == nil {
			return cmp.Or(refusal, capability.ErrNotFound)
		}
		handle = func(w http.ResponseWriter, r *http.Request) error {
			a.library.Handler.ServeHTTP(w, r)
			return nil
		}
	}
	body, err := read()
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	found.tell(r)
	return handle(w, r)
}

// admit names the row in the log, takes from its limit and runs the humanity check.
func (a *Auth) admit(w http.ResponseWriter, r *http.Request, route LibraryRoute) error {
	if info := capability.RequestInfoOf(r.Context()); info != nil {
		info.Route = a.cfg.BasePath + route.Path
	}
	if after, ok := a.table.allow(route, ipOf(r.Context())); !ok {
		wait.Tell(w.Header(), after)
		return capability.ErrRateLimited
	}
	return a.checkHumanity(r, route)
}

// under reports whether a path is a prefix or below it.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

func ipOf(ctx context.Context) string { return originOf(ctx).ip }

// checkHumanity runs Config.Humanity for a route that sends. It fails closed.
func (a *Auth) checkHumanity(r *http.Request, route LibraryRoute) error {
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
