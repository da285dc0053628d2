// Package mount puts the route table under HTTP: it routes, enforces the
// guard of each row, and turns values and refusals into responses. It is the
// only package that knows the router.
package mount

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/rate"
)

// Entry is a row of the table with the capability it belongs to.
type Entry struct {
	// Domain is the capability's name in codes and audit actions.
	Domain string
	Route  capability.Route
	// DB is the capability's: the keys of an Idempotent route are in the same database as its rows.
	// nil means that of Config.
	DB *database.DB
}

// Config is what the mount needs to serve the table.
type Config struct {
	Entries  []Entry
	Users    *capability.Users
	Machines *capability.Machines
	// Record writes what a control-plane guard decided before the response leaves.
	Record Recorder
	// DB holds the table of idempotency keys.
	DB  *database.DB
	Log *slog.Logger
	Now func() time.Time
	// BaseURL is where clients reach the kit; its path is stripped unless the host has done so.
	BaseURL *url.URL
	// Limits holds the limits of the rate classes that are on.
	Limits map[string]rate.Limit
	// BodyGrace is how long the first bytes of a body may take, by default 5 s.
	BodyGrace time.Duration
	// TrustedProxies lists the networks whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
}

// Recorder writes a decision to the audit trail.
type Recorder func(*http.Request, Decision) error

// Decision is the outcome of a call with a verified control-plane identity.
type Decision struct {
	// Action is domain/verb, such as ledger/accounts_read.
	Action string
	// Params are the path parameters, which say whose data was requested.
	Params map[string]string
	// Refusal is nil when the call succeeded.
	Refusal *capability.Error
}

// Mount serves the table.
type Mount struct {
	Config
	echo     *echo.Echo
	prefix   string
	origin   string
	secure   bool
	limiters map[string]*rate.Limiter
	cross    *http.CrossOriginProtection
	tracer   trace.Tracer
	duration metric.Float64Histogram
	refusals metric.Int64Counter
	counts   counters
	// paths recognizes a request that the application's router forwards from another mount path
	// than the base URL's.
	paths                       *Owned
	forwardedOnce, misplaceOnce sync.Once
}

// New builds the router. The table has passed the checks of assembly.
func New(cfg Config) *Mount {
	m := &Mount{
		Config:   cfg,
		echo:     echo.New(),
		prefix:   strings.TrimSuffix(cfg.BaseURL.Path, "/"),
		origin:   cfg.BaseURL.Scheme + "://" + strings.ToLower(cfg.BaseURL.Host), // as browsers write it
		secure:   cfg.BaseURL.Scheme == "https",
		limiters: make(map[string]*rate.Limiter),
		cross:    http.NewCrossOriginProtection(),
	}
	// The base URL is our own origin even when a proxy rewrites Host.
	_ = m.cross.AddTrustedOrigin(m.origin)
	if cfg.Users != nil {
		for _, origin := range cfg.Users.Origins {
			_ = m.cross.AddTrustedOrigin(origin) // checked by auth
		}
	}
	for class, limit := range cfg.Limits {
		m.limiters[class] = rate.New(limit, cfg.Now)
	}
	m.paths = NewOwned("", cfg.Entries)
	m.instrument()
	m.echo.HTTPErrorHandler = m.unrouted
	for _, e := range cfg.Entries {
		m.add(e)
	}
	m.addPreflights()
	return m
}

func (m *Mount) add(e Entry) {
	row := newRow(m, e)
	if e.Route.Method == capability.Any {
		m.echo.Any(e.Route.Path, row.serve)
		return
	}
	m.echo.Add(e.Route.Method, e.Route.Path, row.serve)
}

// ServeHTTP serves a request of the root or of the mount path.
func (m *Mount) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.echo.ServeHTTP(w, m.strip(r))
}

// strip removes the mount path from a request unless the host has done so.
func (m *Mount) strip(r *http.Request) *http.Request {
	path, ok := under(m.prefix, r.URL.Path)
	if !ok {
		return r
	}
	inner := new(http.Request)
	*inner = *r
	inner.URL = new(url.URL)
	*inner.URL = *r.URL
	inner.URL.Path = path
	if raw, ok := under(m.prefix, r.URL.RawPath); ok {
		inner.URL.RawPath = raw
	}
	return inner
}

// under returns the rest of a path below a prefix.
func under(prefix, path string) (rest string, ok bool) {
	if prefix == "" || !strings.HasPrefix(path, prefix) {
		return "", false
	}
	rest = path[len(prefix):]
	switch {
	case rest == "":
		return "/", true
	case rest[0] == '/':
		return rest, true
	default:
		return "", false
	}
}

// unrouted refuses what matched no row: 404, or 405 with Allow.
func (m *Mount) unrouted(err error, c echo.Context) {
	x := newExchange(m, nil, c)
	defer x.finish()
	refusal := capability.ErrNotFound
	if he := new(echo.HTTPError); errors.As(err, &he) && he.Code == http.StatusMethodNotAllowed {
		refusal = capability.ErrMethodNotAllowed
	}
	x.harden()
	m.warnMisplaced(x.r.URL.Path)
	if refusal == capability.ErrNotFound && x.fromTrusted() && x.corsToAny() {
		return
	}
	x.refuse(refusal)
}
