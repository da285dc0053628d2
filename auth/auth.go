// Package auth knows the end users: who they are, on which devices they are
// signed in, and the tokens and cookies that prove it.
//
// It does not know how users prove who they are. That is the part of the library, see [Library]: it
// serves the paths under the base path for which auth has no row, and calls [LibraryHost.Enter] for
// a user it has proven. Another library can replace the default one.
//
// A sign-in makes a session on a device. The session has two proofs, which end
// with it: a cookie, for the pages of the own origin, and a refresh token, for
// clients that want access tokens. It ends when it has not been used for
// Config.SessionIdle, at the latest Config.SessionAbsolute after it began. Using either proof moves
// the idle end; the use of a cookie is written once an hour, or ten times in a shorter
// Config.SessionIdle. Cookies last as long as the session can: only the row decides when it ends.
//
// An access token is a JWT (RFC 9068) of at most one hour, signed with a key
// that is kept sealed in the database; it alone carries scopes, and only the
// application grants them, in process, with [Auth.IssueToken]. A revoked token
// is refused at once in this process and within a second on every other node.
// A refresh token is exchanged for its successor with every use; presenting one
// that another party has used ends the session, see [Auth.Rotate].
//
// Users list and revoke their devices; the control plane lists users and devices
// and ends sessions; in development, from the same machine, GET
// /__kit/dev-login signs anybody in.
package auth

import (
	"context"
	"embed"
	"fmt"
	"net/http"
	"regexp"
	"sync"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/jobs"
)

// Name is the capability's name.
const Name = "auth"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are what auth uses.
type Peers struct {
	// Audit records sign-ins and revocations; nil records nothing.
	Audit *audit.Audit
	// Mailer sends the mails of sign-in unless Config.Mailer is set; see [LibraryHost.Mail]. The
	// one of package auth/mail sends them through email.
	Mailer Mailer
	// Erase removes what other capabilities hold about a user whose account has just been deleted,
	// see [LibraryHost.DeleteAccount]; nil leaves it. It joins the transaction of ctx.
	Erase func(ctx context.Context, person capability.Person) error
}

// Auth manages users, devices, sessions and tokens. It is safe for concurrent use.
type Auth struct {
	host     capability.Host
	cfg      Config
	peers    Peers
	sealer   capability.Sealer
	store    store
	issuer   string
	keys     *keyring
	verified *tokenCache
	revoked  *revocations
	confirms confirmer
	cross    *http.CrossOriginProtection
	// crossSite makes [Auth.warnCrossSite] warn once.
	crossSite sync.Once
	mailer    Mailer
	accounts  map[string]*rate.Limiter
	// forgeries counts forged tokens, madeUp forged cookies, whose limit is wider because browsers
	// keep sending cookies of ended sessions.
	forgeries, madeUp forgeries
	library           Library
	table             libraryTable
}

// New checks the configuration and makes the library; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Auth, error) {
	cfg = cfg.withDefaults(host)
	sealer, err := cfg.validate(host)
	if err != nil {
		return nil, err
	}
	host = host.Complete()
	store := store{host.DB}
	a := &Auth{
		host: host, cfg: cfg, peers: peers, sealer: sealer, store: store,
		issuer:   host.BaseURL.String(),
		keys:     newKeyring(host, store, sealer, cfg.SigningKeyTTL),
		verified: newTokenCache(),
		revoked:  &revocations{store: store, bus: host.PubSub, now: host.Now},
		confirms: newConfirmer(store),
	}
	a.cross, a.mailer = crossOrigin(a), mailer(a)
	limits := limits{cfg.RateLimits, host.Now}
	a.accounts = limits.accounts()
	a.forgeries.limiter, a.madeUp.limiter = limits.class(bearerClass), limits.class(cookieClass)
	if cfg.Library == nil {
		return a, nil
	}
	if a.library, err = cfg.Library(host, &LibraryHost{a}); err != nil {
		return nil, err
	}
	if err := limits.check(a.library.Routes); err != nil {
		return nil, err
	}
	a.table = newLibraryTable(a.library.Routes, limits)
	if a.mailer == nil {
		host.Log.Warn("auth can send no mail: compose email or set auth.Config.Mailer, or sign-in by link and code is refused")
	}
	return a, nil
}

// Capability describes auth to the kit.
func (a *Auth) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   a.host.DB,
		Prefix:     a.cfg.BasePath,
		Routes:     a.routes(),
		Config:     a.configKeys(),
		Health:     a.health(),
		Migrations: migrations,
		Parts:      a.parts(),
		Jobs:       append(a.jobs(), a.library.Jobs...),
		Refusals:   refusals(),
		Rewrap:     a.Rewrap,
		Export:     a.export,
		Erase:      a.erase,
		Close:      a.close,
	}
}

func (a *Auth) configKeys() []capability.ConfigKey {
	library := capability.ConfigKey{Key: "library", Value: a.library.Name, Summary: "What signs users in; empty: nothing over HTTP."}
	return append(append(a.cfg.keys(), library), a.library.Config...)
}

// parts returns the migrations of the library.
func (a *Auth) parts() []database.Migrations {
	if a.library.Migrations.FS == nil {
		return nil
	}
	return []database.Migrations{a.library.Migrations}
}

func (a *Auth) close(context.Context) error {
	a.revoked.close()
	a.confirms.close()
	return nil
}

func (a *Auth) jobs() []jobs.Binding {
	return []jobs.Binding{{Name: "AUTH_SWEEP", Schedule: "23 3 * * *", Run: a.runSweep}}
}

func (a *Auth) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "users", Read: func(ctx context.Context) (any, error) { return a.store.countUsers(ctx) }},
		{Key: "sessions", Read: func(ctx context.Context) (any, error) { return a.store.countSessions(ctx, a.host.Now()) }},
	}
}

// Users returns how the guards of user routes verify their callers.
func (a *Auth) Users() capability.Users {
	return capability.Users{Bearer: a.bearer, Session: a.session, CSRF: a.csrf, CSRFToken: a.tokenFor, Origins: a.webOrigins(), Domain: Name}
}

// userIDForm is the form of a user id, which appears in keys, paths and logs.
var userIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// unavailable returns the refusal for a failure of the database while a proof was checked.
func unavailable(doing string, err error) error {
	return capability.ErrUnavailable.Because(fmt.Errorf("auth: %s: %w", doing, err))
}
