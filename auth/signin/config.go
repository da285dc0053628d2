package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/capability"
)

// Bounds of the configuration.
const (
	MinPasswordLength = 8
	MaxPasswordLength = 128
	MaxLinkTTL        = time.Hour
	MaxResetTTL       = 24 * time.Hour
	MaxVerifyTTL      = 7 * 24 * time.Hour
)

// Config adjusts the library. The zero value, the default, has sign-up and sign-in by e-mail and
// password, by a link and by a code in a mail, and optional second factors and passkeys. Anonymous
// users, user names, one-time tokens, several users in one browser and providers are off unless
// set.
type Config struct {
	// DisablePasswords refuses sign-up and sign-in by password.
	DisablePasswords bool
	// DisableSignUp admits only users who have an account.
	DisableSignUp bool
	// DisableLinks refuses sign-in by a link in a mail.
	DisableLinks bool
	// DisableCodes refuses codes in a mail, for signing in and for every other use.
	DisableCodes bool
	// RequireVerification refuses sign-in to users without a proved e-mail address. It also makes
	// the response of sign-up the same for addresses that have an account.
	RequireVerification bool
	// HumanSignUp runs auth.Config.Humanity at sign-up and anonymous sign-in too.
	HumanSignUp bool
	// RevokeOnPasswordChange ends the other sessions of a user whose password changes, whether or
	// not the request asks for that; a reset always does.
	RevokeOnPasswordChange bool
	// DisableDeletion refuses /delete-user.
	DisableDeletion bool

	// Anonymous lets visitors sign in as a new user without a proof. Guards then know that it is
	// the same visitor, and nothing else about them.
	Anonymous bool
	// Usernames gives users a name to sign in by, in addition to their address. Which names are
	// taken is public: a caller who signs up with a name that is still free afterwards learns that
	// the address has an account, even with RequireVerification.
	Usernames bool
	// OneTimeTokens lets a signed-in page pass its sign-in to another client.
	OneTimeTokens bool
	// MultiSession allows up to five users to be signed in in one browser, of whom one is active.
	MultiSession bool

	// MinPassword and MaxPassword bound a new password, in characters: 8 to 128
	// by default, and at the most.
	MinPassword, MaxPassword int
	// Breached reports whether a new password is in a list of leaked ones; nil checks nothing. If
	// it fails the password is accepted.
	Breached func(ctx context.Context, password string) (bool, error)

	// LinkTTL and CodeTTL are how long a link or a code to sign in is valid, at most an hour; by
	// default 5 minutes.
	LinkTTL, CodeTTL time.Duration
	// VerifyTTL is how long a link that proves an address is valid, at most 7 days; ResetTTL is the
	// same for a link that resets a password, at most a day; both are an hour by default.
	VerifyTTL, ResetTTL time.Duration
	// FreshAge is how long after a sign-in a session may change how its user signs in; by default a
	// day.
	FreshAge time.Duration

	// Providers are the OAuth 2.0 and OpenID Connect providers that users may
	// sign in with, such as [oauth.Google].
	Providers []oauth.Provider

	// OnUpgrade is called in the transaction in which an anonymous user signs in to another user's
	// account, to move what they own; the anonymous user is then deleted and erased, so that what was
	// not moved is lost, and their games are abandoned. It is not called where an anonymous user signs
	// up, or signs in by a link or provider that no account has: they keep their id and all they own.
	OnUpgrade func(ctx context.Context, anonymous, user auth.User) error
}

func (c Config) withDefaults() Config {
	orInt := func(p *int, value int) {
		if *p == 0 {
			*p = value
		}
	}
	orTTL := func(p *time.Duration, value time.Duration) {
		if *p == 0 {
			*p = value
		}
	}
	orInt(&c.MinPassword, MinPasswordLength)
	orInt(&c.MaxPassword, MaxPasswordLength)
	orTTL(&c.LinkTTL, 5*time.Minute)
	orTTL(&c.CodeTTL, 5*time.Minute)
	orTTL(&c.VerifyTTL, time.Hour)
	orTTL(&c.ResetTTL, time.Hour)
	orTTL(&c.FreshAge, 24*time.Hour)
	return c
}

// validate reports the faults of the configuration and returns the sealer.
func (c Config) validate(host capability.Host) (capability.Sealer, error) {
	faults := capability.Faults{Capability: auth.Name}
	if c.MinPassword < MinPasswordLength || c.MaxPassword > MaxPasswordLength || c.MinPassword > c.MaxPassword {
		faults.Add("library.minPassword", c.MinPassword, "is out of bounds", "choose 8 to 128 characters")
	}
	for _, ttl := range []struct {
		key   string
		value time.Duration
		max   time.Duration
		fix   string
	}{
		{"library.linkTTL", c.LinkTTL, MaxLinkTTL, "choose 1 to 60 minutes"},
		{"library.codeTTL", c.CodeTTL, MaxLinkTTL, "choose 1 to 60 minutes"},
		{"library.verifyTTL", c.VerifyTTL, MaxVerifyTTL, "choose 1 minute to 7 days"},
		{"library.resetTTL", c.ResetTTL, MaxResetTTL, "choose 1 minute to 24 hours"},
	} {
		if ttl.value < time.Minute || ttl.value > ttl.max {
			faults.Add(ttl.key, ttl.value, "is out of bounds", ttl.fix)
		}
	}
	if c.FreshAge < time.Minute {
		faults.Add("library.freshAge", c.FreshAge, "is out of bounds", "choose a minute or more")
	}
	for _, p := range c.Providers {
		if p.ID == credential {
			faults.Add("providers["+p.ID+"]", nil, "has the name of the sign-in by password", "choose another id")
		}
	}
	oauth.Validate(&faults, c.Providers)
	sealer, err := host.Sealing()
	faults.Join(err)
	return sealer, faults.Err()
}

// keys returns the manifest's keys. Of the providers they show the ids alone.
func (c Config) keys() []capability.ConfigKey {
	providers := make([]string, len(c.Providers))
	for i, p := range c.Providers {
		providers[i] = p.ID
	}
	return []capability.ConfigKey{
		{Key: "library.passwords", Value: !c.DisablePasswords, Summary: "Whether users sign in by e-mail and password."},
		{Key: "library.signUp", Value: !c.DisableSignUp, Summary: "Whether new users may sign up."},
		{Key: "library.links", Value: !c.DisableLinks, Summary: "Whether users sign in by a link in a mail."},
		{Key: "library.codes", Value: !c.DisableCodes, Summary: "Whether users sign in by a code in a mail."},
		{Key: "library.requireVerification", Value: c.RequireVerification, Summary: "Whether an unproved address keeps its user out."},
		{Key: "library.revokeOnPasswordChange", Value: c.RevokeOnPasswordChange, Summary: "Whether a changed password ends the other sessions, asked to or not."},
		{Key: "library.humanSignUp", Value: c.HumanSignUp, Summary: "Whether sign-up asks for a proof of humanity, where one is checked."},
		{Key: "library.anonymous", Value: c.Anonymous, Summary: "Whether anybody may sign in without a proof."},
		{Key: "library.usernames", Value: c.Usernames, Summary: "Whether users have a name to sign in by."},
		{Key: "library.deletion", Value: !c.DisableDeletion, Summary: "Whether users may delete themselves."},
		{Key: "library.oneTimeTokens", Value: c.OneTimeTokens, Summary: "Whether a session can be handed on by a one-time token."},
		{Key: "library.multiSession", Value: c.MultiSession, Summary: "Whether a browser may hold several sessions."},
		{Key: "library.minPassword", Value: c.MinPassword, Summary: "The least characters of a password."},
		{Key: "library.maxPassword", Value: c.MaxPassword, Summary: "The most characters of a password."},
		{Key: "library.breached", Value: c.Breached != nil, Summary: "Whether new passwords are looked up in a list of known ones."},
		{Key: "library.linkTTL", Value: c.LinkTTL.String(), Summary: "How long a link that signs in works."},
		{Key: "library.codeTTL", Value: c.CodeTTL.String(), Summary: "How long a mailed code works."},
		{Key: "library.verifyTTL", Value: c.VerifyTTL.String(), Summary: "How long a link that verifies an address works."},
		{Key: "library.resetTTL", Value: c.ResetTTL.String(), Summary: "How long a link that resets a password works."},
		{Key: "library.freshAge", Value: c.FreshAge.String(), Summary: "How long a sign-in counts as a fresh proof."},
		{Key: "library.onUpgrade", Value: c.OnUpgrade != nil, Summary: "Whether the application moves the data of anonymous users."},
		{Key: "library.providers", Value: providers, Summary: "Where else users may sign in."},
	}
}
