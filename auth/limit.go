package auth

import (
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
)

// addressLimits are the classes of the library's routes, for each address.
var addressLimits = map[string]RateLimit{
	"auth-sign-in": {Events: 3, Per: 10 * time.Second},
	"auth-send":    {Events: 3, Per: time.Minute},
	"auth-link":    {Events: 5, Per: time.Minute},
	bearerClass:    {Events: 100, Per: 10 * time.Second},
	cookieClass:    {Events: 1000, Per: 10 * time.Second},
}

// bearerClass limits the forged tokens of each address, and cookieClass the forged cookies:
// recognizing one costs the check of a signature or a read of the database.
const (
	bearerClass = "auth-bearer"
	cookieClass = "auth-cookie"
)

// accountLimits are the buckets of [LibraryHost.AllowAccount], for each account.
var accountLimits = map[string]RateLimit{
	"sign-in":         {Events: 10, Per: 10 * time.Minute},
	"send":            {Events: 5, Per: 30 * time.Minute},
	"verify":          {Events: 10, Per: 10 * time.Minute},
	"sign-up":         {Events: 20, Per: time.Hour},
	"sign-up-network": {Events: 100, Per: time.Hour},
}

// limits resolves rate classes by name.
type limits struct {
	configured map[string]RateLimit
	now        func() time.Time
}

// class returns a limiter, or nil where there is none of that name or it is
// switched off.
func (l limits) class(name string) *rate.Limiter {
	limit, ok := l.configured[name]
	if !ok {
		if limit, ok = addressLimits[name]; !ok {
			limit = accountLimits[name]
		}
	}
	if limit.Events <= 0 {
		return nil
	}
	return rate.New(rate.Limit{Events: limit.Events, Per: limit.Per}, l.now)
}

// wideShare is how many times the limit of one of its networks a /48 has.
const wideShare = 16

// wide is class for a /48 of IPv6.
func (l limits) wide(name string) *rate.Limiter {
	limit, ok := l.configured[name]
	if !ok {
		limit = addressLimits[name]
	}
	return rate.New(rate.Limit{Events: wideShare * limit.Events, Per: limit.Per}, l.now)
}

// check refuses routes of an undefined class, which would not be limited.
func (l limits) check(routes []LibraryRoute) error {
	faults := capability.Faults{Capability: Name}
	for _, r := range routes {
		_, own := addressLimits[r.Rate]
		_, configured := l.configured[r.Rate]
		if !own && !configured && !unlimited[r.Rate] {
			faults.Add("library", r.Method+" "+r.Path, "is of the unknown rate class "+r.Rate, "name one of auth's, or define it in rateLimits")
		}
	}
	return faults.Err()
}

// unlimited are the classes that are off until Config.RateLimits sets them.
var unlimited = map[string]bool{"": true, "read": true, "write": true}

func (l limits) accounts() map[string]*rate.Limiter {
	buckets := make(map[string]*rate.Limiter)
	for name := range accountLimits {
		if limiter := l.class(name); limiter != nil {
			buckets[name] = limiter
		}
	}
	return buckets
}

// AccountLimit returns the limit of a bucket of [LibraryHost.AllowAccount], for a library
// that counts it over all nodes; on is false when it is switched off.
func (a *LibraryHost) AccountLimit(bucket string) (limit RateLimit, on bool) {
	limit, configured := a.cfg.RateLimits[bucket]
	if !configured {
		limit = accountLimits[bucket]
	}
	return limit, limit.Events > 0
}

// AllowAccount takes a token of an account's bucket, in addition to the limit of the
// address: "sign-in" (10 in 10 minutes), "send" (5 in 30 minutes), "verify" (10 in
// 10 minutes), and for new users "sign-up" (20 an hour) of an address and
// "sign-up-network" (100 an hour) of its /24 or /48, which Config.RateLimits may
// replace. Refused, it returns how long to wait. The key names the account as the
// caller knows it, such as the address that was typed, whether or not a user has it.
// For callers that strangers must not lock out, include the proof that they are known
// in the key. The memory of buckets is bounded and belongs to this process.
func (a *LibraryHost) AllowAccount(bucket, key string) (wait time.Duration, ok bool) {
	limiter := a.accounts[bucket]
	if limiter == nil {
		return 0, true
	}
	return limiter.Allow(string(hashed([]byte(key)))) // a long key takes no more memory
}
