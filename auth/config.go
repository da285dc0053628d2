package auth

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// Bounds of the lifetimes.
const (
	MinAccessTokenTTL = time.Minute
	MaxAccessTokenTTL = time.Hour
	MinSessionTTL     = 5 * time.Minute
	// MaxSessionTTL is how long browsers keep a cookie at most.
	MaxSessionTTL = 400 * 24 * time.Hour
)

// Config adjusts auth; the zero value is the default.
type Config struct {
	// AccessTokenTTL is how long an access token is good for, 1 to 60 minutes;
	// by default 15 minutes.
	AccessTokenTTL time.Duration
	// SessionTTL is how long a session lasts from sign-in on, 5 minutes to 400
	// days; by default 7 days.
	SessionTTL time.Duration
	// Database names the binding of the users, by default "DB".
	Database string
}

func (c Config) withDefaults() Config {
	if c.AccessTokenTTL == 0 {
		c.AccessTokenTTL = 15 * time.Minute
	}
	if c.SessionTTL == 0 {
		c.SessionTTL = 7 * 24 * time.Hour
	}
	if c.Database == "" {
		c.Database = "DB"
	}
	return c
}

func (c Config) validate(peers Peers) error {
	faults := capability.Faults{Capability: Name}
	if c.AccessTokenTTL < MinAccessTokenTTL || c.AccessTokenTTL > MaxAccessTokenTTL {
		faults.Add("accessTokenTTL", c.AccessTokenTTL, "is out of bounds", "choose 1 to 60 minutes")
	}
	if c.SessionTTL < MinSessionTTL || c.SessionTTL > MaxSessionTTL {
		faults.Add("sessionTTL", c.SessionTTL, "is out of bounds", "choose 5 minutes to 400 days")
	}
	if peers.Keys == nil {
		faults.Add("keys", nil, "are missing: signing keys are kept sealed", "give the master keys the kit has loaded")
	}
	return faults.Err()
}

func (c Config) keys() []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "accessTokenTTL", Value: c.AccessTokenTTL.String(), Summary: "How long an access token is good for."},
		{Key: "sessionTTL", Value: c.SessionTTL.String(), Summary: "How long a session lasts from sign-in on."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the users."},
	}
}
