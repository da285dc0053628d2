package mount

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/rate"
)

// Bounds of the path and query of a request.
const (
	maxParam = 512
	maxQuery = 8 << 10
	maxAgent = 256
)

// row is one entry of the table as the router calls it.
type row struct {
	m      *Mount
	entry  Entry
	name   string // span name
	action string // audit action of a control-plane row
	labels context.Context
	tally  tally
}

func newRow(m *Mount, e Entry) *row {
	r := &row{m: m, entry: e, name: "HTTP " + e.Route.Method + " " + e.Route.Path, action: Action(e)}
	r.labels = r.labelled()
	m.counts.rows = append(m.counts.rows, r)
	return r
}

// Action returns the name of a control-plane call in the audit trail: the capability's domain and
// the scope without the domain, ledger:accounts:read becoming ledger/accounts_read. A row without a
// scope is named by its last segment.
func Action(e Entry) string {
	verb := e.Route.Guard.Scope()
	if verb == "" {
		verb = e.Route.Path[strings.LastIndex(e.Route.Path, "/")+1:]
	}
	verb = strings.TrimPrefix(verb, e.Domain+":")
	return e.Domain + "/" + strings.NewReplacer(":", "_", "-", "_").Replace(verb)
}

func (row *row) serve(c echo.Context) error {
	pprof.SetGoroutineLabels(row.labels)
	defer pprof.SetGoroutineLabels(c.Request().Context())
	x := newExchange(row.m, row, c)
	defer x.finish()
	x.harden()
	if x.cors() {
		return nil
	}
	if err := x.run(); err != nil {
		x.refuse(err)
	}
	return nil
}

// exchange is one request and its response.
type exchange struct {
	m       *Mount
	row     *row // nil when no row matched
	c       echo.Context
	w       *echo.Response
	r       *http.Request
	origin  *capability.RequestInfo
	start   time.Time
	span    trace.Span
	refusal *capability.Error
	// recorded is true once the call was recorded in the audit trail, or recording it was tried.
	recorded bool
	// disproved is why the access token that an identifying row was sent is not valid.
	disproved error
	// torn is true if the handler failed after a part of the response was written.
	torn bool
}

func newExchange(m *Mount, row *row, c echo.Context) *exchange {
	r := c.Request()
	x := &exchange{m: m, row: row, c: c, w: c.Response(), r: r, start: time.Now()}
	x.origin = &capability.RequestInfo{
		RequestID: m.requestID(r, x.start),
		Method:    r.Method,
		IP:        m.clientIP(r),
		UserAgent: clip(r.UserAgent(), maxAgent),
	}
	if row != nil {
		x.origin.Route = row.entry.Route.Path
	}
	x.r = r.WithContext(capability.WithRequestInfo(x.trace(r.Context()), x.origin))
	pace(x.w, x.r, cmp.Or(m.BodyGrace, defaultGrace))
	return x
}

// run checks the path and query, the caller and the rate limits of a request, then runs the
// handler.
func (x *exchange) run() error {
	if err := x.checkAddress(); err != nil {
		return err
	}
	route := &x.row.entry.Route
	anonymous := route.Guard.Anonymous()
	if anonymous {
		if err := x.limit("address " + rate.AddressKey(x.origin.IP)); err != nil {
			return err
		}
	}
	call := capability.NewCall(x.w, x.r, route, x.origin, x.param)
	if err := x.guard(call); err != nil {
		return err
	}
	if !anonymous {
		if err := x.limit("caller " + call.Caller.UserID + call.Caller.KeyID); err != nil {
			return x.refused(err)
		}
	}
	return x.forWantOfProof(x.handle(call))
}

// checkAddress refuses paths and queries that the router lets through but no row takes: empty
// segments and, at the end of a branch, slashes.
func (x *exchange) checkAddress() error {
	names, values := x.c.ParamNames(), x.c.ParamValues()
	for i, value := range values {
		if names[i] == "*" {
			continue
		}
		if value == "" || len(value) > maxParam || strings.Contains(value, "/") {
			return capability.ErrNotFound
		}
		if text := x.param(names[i]); !plain(text) {
			return capability.ErrNotFound
		}
	}
	if x.r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil || len(x.r.URL.RawQuery) > maxQuery {
		return capability.ErrInvalidRequest.Saying("The query string is malformed or too long.")
	}
	for name, list := range query {
		for _, value := range append(list, name) {
			if !plain(value) {
				return capability.ErrInvalidRequest.Saying("The query string must be UTF-8 text without NUL.")
			}
		}
	}
	return nil
}

// plain reports whether a text can be stored: UTF-8 without NUL.
func plain(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// param returns a path parameter. The router matched the escaped path when
// there was one, and then parameters are still escaped.
func (x *exchange) param(name string) string {
	value := x.c.Param(name)
	if x.r.URL.RawPath == "" {
		return value
	}
	text, err := url.PathUnescape(value)
	if err != nil {
		return "\x00" // refused by checkAddress
	}
	return text
}

func (x *exchange) params() map[string]string {
	names := x.c.ParamNames()
	if len(names) == 0 {
		return nil
	}
	params := make(map[string]string, len(names))
	for _, name := range names {
		params[name] = x.param(name)
	}
	return params
}

// finish turns a panic into a response, then logs and counts the request. A response that has begun
// and cannot be completed is cut off, so that it does not look complete.
func (x *exchange) finish() {
	p := recover()
	if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // the value itself is thrown
		x.m.Log.LogAttrs(x.r.Context(), slog.LevelError, "panic", slog.String("requestId", x.origin.RequestID),
			slog.String("route", x.origin.Route), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		x.refuse(x.refused(errPanicked))
	}
	x.observe()
	if x.torn || p == http.ErrAbortHandler { //nolint:errorlint // as above
		panic(http.ErrAbortHandler)
	}
}

var errPanicked = errors.New("the handler panicked")

// requestID returns the identifier that a trusted proxy sent, if it is well-formed, or a new one.
// Other peers could make one request look like another in the log.
func (m *Mount) requestID(r *http.Request, now time.Time) string {
	given := r.Header.Get("X-Request-Id")
	if given == "" || !m.trusted(peer(r)) {
		return id.New(now)
	}
	if len(given) < 8 || len(given) > 64 {
		return id.New(now)
	}
	for _, c := range []byte(given) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return id.New(now)
		}
	}
	return given
}

func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
