package auth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Bounds of the lifetimes.
const (
	MinAccessTokenTTL = time.Minute
	MaxAccessTokenTTL = time.Hour
	MinSessionTTL     = 5 * time.Minute
	// MaxSessionTTL is the longest time that browsers keep a cookie.
	MaxSessionTTL = 400 * 24 * time.Hour
	// MaxReuseGrace bounds Config.ReuseGrace.
	MaxReuseGrace = 5 * time.Minute
)

// Config adjusts auth; the zero value is the default.
type Config struct {
	// AccessTokenTTL is how long an access token is valid, 1 to 60 minutes; by default 15 minutes.
	AccessTokenTTL time.Duration
	// SessionIdle is how long a session lasts without being used, 5 minutes to
	// 400 days; by default 30 days. A session that is not remembered lasts a day
	// at most.
	SessionIdle time.Duration
	// SessionAbsolute is how long a session lasts at most, however much it is
	// used: at least SessionIdle, at most 400 days; by default 180 days.
	SessionAbsolute time.Duration
	// ReuseGrace is how long a refresh token that was just rotated still returns its successor, for
	// concurrent tabs and lost responses; at most 5 minutes, by default 10 seconds. Negative means
	// none: any reuse ends the session.
	ReuseGrace time.Duration
	// SigningKeyTTL is how long a key signs before the next one replaces it, at least a day; by
	// default 90 days.
	SigningKeyTTL time.Duration
	// BasePath is the mount prefix, by default "/auth".
	BasePath string
	// AppName is the name of the application in mails; by default the host's name.
	AppName string
	// TrustedOrigins are the origins, in addition to the base URL's own, whose pages may use
	// the library's routes and those of users, with cookies, and may be redirected
	// to: "https://app.example.com", or "myapp://" for the links of an installed
	// application. Pages of a trusted origin act as the user: do not name an origin where others
	// can publish pages.
	TrustedOrigins []string
	// Library makes the library that signs users in. kit.WithAuth takes package auth/signin without
	// one; [New] signs users in only in process then, with [Auth.CreateSession].
	Library func(host capability.Host, a *LibraryHost) (Library, error)
	// Mailer sends the mails of sign-in; by default email when it is composed. Without email, mails
	// are logged in development.
	Mailer Mailer
	// Humanity, when set, checks every request that makes the library send a link or a code to an
	// address.
	Humanity Humanity
	// RateLimits replaces the limits of the rate classes of the library's routes, see
	// [LibraryRoute], and of two more. "auth-bearer" is how many forged tokens one address may
	// send, by default 100 in 10 seconds, before tokens of sessions that this node has not verified
	// before are refused unchecked; "auth-cookie" is the same for cookies, by default 1000 in 10
	// seconds. It replaces the limits of [LibraryHost.AllowAccount] too: "sign-up" and
	// "sign-up-network" are how many users, guests included, one address and its network may make.
	// A limit with negative Events switches its class off.
	RateLimits map[string]RateLimit
	// Cookies configures the names of the cookies and with which requests browsers send them.
	Cookies Cookies
	// Profile are the fields that the application adds to its users.
	Profile []ProfileField
	// Scopes returns which scopes the access tokens of a user's sessions carry,
	// such as roles. It is called for each token; cookies and session tokens never
	// carry one. If they depend on the address, require EmailVerified: anyone can
	// sign up under any address. nil: none.
	Scopes func(ctx context.Context, userID string) ([]string, error)
	// Database names the binding of the users, by default "DB".
	Database string
}

// RateLimit allows Events in each Per, possibly all at once.
type RateLimit struct {
	Events int
	Per    time.Duration
}

// unremembered bounds a session whose cookies end with the browser.
const unremembered = 24 * time.Hour

func (c Config) withDefaults(host capability.Host) Config {
	orDuration(&c.AccessTokenTTL, 15*time.Minute)
	orDuration(&c.SessionIdle, 30*24*time.Hour)
	orDuration(&c.SessionAbsolute, max(180*24*time.Hour, c.SessionIdle))
	orDuration(&c.ReuseGrace, 10*time.Second)
	orDuration(&c.SigningKeyTTL, 90*24*time.Hour)
	if c.BasePath == "" {
		c.BasePath = "/auth"
	}
	if c.AppName == "" {
		c.AppName = host.BaseURL.Hostname()
	}
	if c.Database == "" {
		c.Database = "DB"
	}
	return c
}

func orDuration(d *time.Duration, otherwise time.Duration) {
	if *d == 0 {
		*d = otherwise
	}
}

// validate reports the faults of the configuration and returns the sealer of the keys.
func (c Config) validate(host capability.Host) (capability.Sealer, error) {
	faults := capability.Faults{Capability: Name}
	if c.AccessTokenTTL < MinAccessTokenTTL || c.AccessTokenTTL > MaxAccessTokenTTL {
		faults.Add("accessTokenTTL", c.AccessTokenTTL, "is out of bounds", "choose 1 to 60 minutes")
	}
	if c.SessionIdle < MinSessionTTL || c.SessionIdle > MaxSessionTTL {
		faults.Add("sessionIdle", c.SessionIdle, "is out of bounds", "choose 5 minutes to 400 days")
	}
	if c.SessionAbsolute < c.SessionIdle || c.SessionAbsolute > MaxSessionTTL {
		faults.Add("sessionAbsolute", c.SessionAbsolute, "is out of bounds", "choose at least sessionIdle, at most 400 days")
	}
	if c.ReuseGrace > MaxReuseGrace {
		faults.Add("reuseGrace", c.ReuseGrace, "is out of bounds", "choose at most 5 minutes")
	}
	if c.SigningKeyTTL < 24*time.Hour {
		faults.Add("signingKeyTTL", c.SigningKeyTTL, "is out of bounds", "choose a day at least")
	}
	for i, origin := range c.TrustedOrigins {
		if !isOrigin(origin) {
			faults.Add(fmt.Sprintf("trustedOrigins[%d]", i), origin, "is not an origin", "write it like https://app.example.com or myapp://")
		}
	}
	for class, limit := range c.RateLimits {
		if limit.Events == 0 || limit.Events > 0 && limit.Per <= 0 {
			faults.Add("rateLimits."+class, nil, "admits nothing", "give a positive number of events and a positive window")
		}
	}
	c.validateProfile(&faults)
	c.Cookies.validate(&faults, host)
	sealer, err := host.Sealing()
	faults.Join(err)
	return sealer, faults.Err()
}

// isOrigin reports whether text is scheme://host[:port] in its canonical spelling, or the scheme://
// of an installed application.
func isOrigin(text string) bool {
	if scheme, ok := strings.CutSuffix(text, "://"); ok {
		u, err := url.Parse(scheme + "://x")
		return err == nil && u.Scheme == scheme && !isWeb(scheme) && !unsafeSchemes[scheme]
	}
	u, err := url.Parse(text)
	return err == nil && isWeb(u.Scheme) && u.Hostname() != "" && !strings.Contains(text, "*") && text == u.Scheme+"://"+strings.ToLower(u.Host)
}

func isWeb(scheme string) bool { return scheme == "http" || scheme == "https" }

// unsafeSchemes execute their content, so no redirect goes to them.
var unsafeSchemes = map[string]bool{"javascript": true, "data": true, "vbscript": true, "file": true, "blob": true, "about": true}

func (c Config) keys() []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "accessTokenTTL", Value: c.AccessTokenTTL.String(), Summary: "How long an access token is good for."},
		{Key: "sessionIdle", Value: c.SessionIdle.String(), Summary: "How long a session lasts without being used."},
		{Key: "sessionAbsolute", Value: c.SessionAbsolute.String(), Summary: "How long a session lasts at most."},
		{Key: "reuseGrace", Value: max(c.ReuseGrace, 0).String(), Summary: "How long a rotated refresh token still returns its successor."},
		{Key: "signingKeyTTL", Value: c.SigningKeyTTL.String(), Summary: "How long a key signs before the next one does."},
		{Key: "basePath", Value: c.BasePath, Summary: "The mount prefix."},
		{Key: "appName", Value: c.AppName, Summary: "What mails call the application."},
		{Key: "trustedOrigins", Value: c.TrustedOrigins, Summary: "Whose pages may use the library's routes for a signed-in user, in addition to the own origin."},
		{Key: "cookieName", Value: cmp.Or(c.Cookies.Session, strings.TrimPrefix(sessionCookie, hostPrefix)), Summary: "The session cookie, without its prefix."},
		{Key: "cookieSecurePrefix", Value: c.Cookies.SecurePrefix, Summary: "Whether cookies have the prefix __Secure- in place of __Host-."},
		{Key: "cookieSameSite", Value: sameSiteName(c.Cookies.SameSite), Summary: "With which requests browsers send the cookies."},
		{Key: "profile", Value: c.profileNames(), Summary: "The fields that the application adds to its users."},
		{Key: "scopes", Value: c.Scopes != nil, Summary: "Whether access tokens of sessions carry scopes."},
		{Key: "mailer", Value: c.Mailer != nil, Summary: "Whether mails go out in a way of the application's own."},
		{Key: "rateLimits", Value: slices.Sorted(maps.Keys(c.RateLimits)), Summary: "The limits that replace the built-in ones."},
		{Key: "humanity", Value: c.Humanity != nil, Summary: "Whether routes that send a link or code ask for a proof of humanity."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the users."},
	}
}
