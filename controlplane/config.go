package controlplane

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kv"
)

// The backends of the replay set: a table of the kit's database, or a [kv.Store].
const (
	D1 = "d1"
	KV = "kv"
)

// Config configures the control plane; the zero value is valid.
type Config struct {
	// BasePath is the path prefix of the routes, by default "/control-plane".
	BasePath string
	// ReplayBackend stores the spent token ids: [D1], the default, or [KV].
	ReplayBackend string
	// KV is the store of the backend [KV], by default kv.NewSQL on the database. A store whose
	// put-if-absent is not atomic is refused.
	KV kv.Store
	// AllowedOrigins are browser origins allowed in addition to the issuer, each written
	// scheme://host[:port]. They restrict browsers only and have no effect on the verification of
	// tokens.
	AllowedOrigins []string
	// CORSMaxAgeSeconds is how long browsers may cache a preflight response, 0 to
	// 7200; nil means 600.
	CORSMaxAgeSeconds *int
	// Bootstrap is the first connection as printed by `kit keygen`: the JSON of a [Connection]. It
	// is applied at first use if the environment has no connection, and never replaces one. The kit
	// sets it from KIT_CONTROL_PLANE_CONNECTION.
	Bootstrap string
	// Database is the name of the database binding of the register and the replay set, by default
	// "DB". A change of keys is atomic with its audit event if audit uses the same binding.
	Database string
}

const (
	defaultMaxAge = 600
	maxMaxAge     = 7200
)

func (c Config) withDefaults() Config {
	if c.BasePath == "" {
		c.BasePath = "/control-plane"
	}
	if c.ReplayBackend == "" {
		c.ReplayBackend = D1
	}
	if c.CORSMaxAgeSeconds == nil {
		c.CORSMaxAgeSeconds = new(defaultMaxAge)
	}
	if c.Database == "" {
		c.Database = "DB"
	}
	c.AllowedOrigins = append([]string{}, c.AllowedOrigins...)
	return c
}

func (c Config) validate(faults *capability.Faults) {
	switch {
	case !slices.Contains([]string{D1, KV}, c.ReplayBackend):
		faults.Add("replayBackend", c.ReplayBackend, "is no backend of the replay set", "use d1 or kv")
	case c.ReplayBackend == D1 && c.KV != nil:
		faults.Add("kv", nil, "is given for the backend d1", `set replayBackend to "kv", or leave the store out`)
	case c.ReplayBackend == KV && c.KV != nil && !c.KV.Atomic():
		faults.Add("kv", nil, "does not promise an atomic put-if-absent, so a token could be spent twice",
			"use a store that does, or replayBackend d1")
	}
	if age := *c.CORSMaxAgeSeconds; age < 0 || age > maxMaxAge {
		faults.Add("corsMaxAgeSeconds", age, "is out of range", "use 0 to 7200")
	}
	for _, origin := range c.AllowedOrigins {
		if !canonical(origin) {
			faults.Add("allowedOrigins", origin, "is not the origin of a page", "write it like https://example.com or http://localhost:5173, in lower case")
		}
	}
}

func (c Config) maxAge() time.Duration { return time.Duration(*c.CORSMaxAgeSeconds) * time.Second }

func (c Config) keys() []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
		{Key: "replayBackend", Value: c.ReplayBackend, Choices: []string{D1, KV}, Summary: "What keeps the spent token ids."},
		{Key: "allowedOrigins", Value: c.AllowedOrigins, Summary: "Browser origins besides the issuer."},
		{Key: "corsMaxAgeSeconds", Value: *c.CORSMaxAgeSeconds, Summary: "How long browsers may keep a preflight response."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the key register and the replay set."},
	}
}

// canonical reports whether an origin is written as browsers write it (RFC 6454, section 6.2):
// scheme://host[:port] in lower case, without a path and without the default port of the scheme.
func canonical(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Hostname() == "" || origin != originOf(u) {
		return false
	}
	return (u.Scheme == "https" || u.Scheme == "http") && !strings.ContainsFunc(u.Host, func(c rune) bool {
		return c <= ' ' || c > '~' || 'A' <= c && c <= 'Z' || strings.ContainsRune("*%\\", c)
	})
}

// originOf returns the origin of a URL as browsers write it.
func originOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch port := u.Port(); {
	case port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80":
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host
}
