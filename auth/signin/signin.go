// Package signin is the kit's own authentication library: it proves who users are, by password, by
// a link or a code in a mail, by another provider, by a passkey or by a second factor, and has auth
// make the session.
//
// It serves routes below auth's base path with the paths, bodies and codes of
// better-auth, so that its clients work. Everybody may call; a caller that changes
// something with a cookie must do so from a page whose origin auth trusts.
//
// What it promises:
//   - Nobody learns whether an address has an account from the response or
//     how long it takes: mails are made by a job, for known and unknown alike,
//     and an unknown user costs the same hash. Anyone who signs up
//     with an address learns it all the same: sign-up says that it is taken, or,
//     while addresses need verification, the next sign-in by that password does;
//     so does a provider's account of an address without proof.
//   - Links and codes are stored as hashes and valid once and for minutes, except the link that
//     verifies an address, which changes nothing the second time. A link opened in a browser
//     shows a button; only the button uses it up, so a mail scanner proves nothing and signs
//     nobody in.
//   - Proving an address that was not proved before by anything but the link or
//     code of the sign-up itself removes what was set before: password, linked
//     accounts, factors, sessions. An attacker who registered the address first keeps no access.
//   - Guessing is limited for each address at an account, and for clients that the
//     account knows apart from all others: a browser by a cookie, an application by
//     the X-Kit-Client that it got with its last sign-in. Beyond what strangers
//     together may guess, their guesses take seconds and are not refused; beyond
//     what they may have mailed, one mail is sent as soon as there may be one. A
//     mailed code takes three guesses in all, and an account 30 wrong ones a day;
//     links and passkeys are a way in that strangers cannot use up.
//   - Changing how a user signs in takes a fresh proof: a session, by its cookie
//     or session token, that began or was confirmed within Config.FreshAge, the
//     password, or the second factor where one is on. An access token alone never
//     suffices; /verify-password and /two-factor/verify-totp return an
//     X-Kit-Fresh that suffices for ten minutes. The refusal is SESSION_NOT_FRESH.
//
// Clients without cookies keep the value of Set-Auth-Token and send it as their bearer token: it is
// valid as long as the session, renews itself, and proves the session to this library alone. GET
// /token exchanges it for an access token of the kit's routes, whose issuer and audience are the
// base URL and whose keys are at GET /jwks, both below the base path.
//
// Package oauth makes providers. It and packages passkey, factor and mailcode do not handle
// browsers and sessions; this package has the routes and acts on the proofs.
package signin

import (
	"embed"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/factor"
	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/auth/signin/passkey"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// Name is the name of the library and of its set of migrations.
const Name = "signin"

//go:embed migrations/*.sql
var migrations embed.FS

// library proves who users are. It is safe for concurrent use.
type library struct {
	host   capability.Host
	auth   *auth.LibraryHost
	sealer capability.Sealer
	cfg    Config
	store  store
	hasher *hasher
	limits limits
	routes []route
	// providers are the providers that users may sign in with.
	providers *providers
	passkeys  *passkey.Passkeys
	factors   *factor.Factors
	codes     *mailcode.Codes
}

// New returns the function for auth.Config.Library.
func New(cfg Config) func(capability.Host, *auth.LibraryHost) (auth.Library, error) {
	return func(host capability.Host, a *auth.LibraryHost) (auth.Library, error) {
		l, err := newLibrary(host, a, cfg)
		if err != nil {
			return auth.Library{}, err
		}
		return l.describe(), nil
	}
}

func newLibrary(host capability.Host, a *auth.LibraryHost, cfg Config) (*library, error) {
	cfg = cfg.withDefaults()
	sealer, err := cfg.validate(host)
	if err != nil {
		return nil, err
	}
	l := &library{
		host: host, auth: a, sealer: sealer, cfg: cfg, store: store{host.DB},
		hasher: newHasher(passwordCost), limits: newLimits(host.Now),
	}
	l.providers = newProviders(cfg.Providers, host.Now)
	l.passkeys = passkey.New(host.DB, l.site())
	l.factors = factor.New(host.DB, sealer)
	l.codes = mailcode.New(host.DB)
	l.routes = l.table()
	return l, nil
}

// describe returns the library as data for auth.
func (l *library) describe() auth.Library {
	rows := make([]auth.LibraryRoute, len(l.routes))
	for i, rt := range l.routes {
		rows[i] = rt.described()
		rows[i].Handle = l.serve(rt.handle)
	}
	return auth.Library{
		Name:       Name,
		Routes:     rows,
		Migrations: database.Migrations{Name: Name, FS: migrations},
		Config:     l.cfg.keys(),
		Jobs:       l.jobs(),
		Rewrap:     l.rewrap,
		Export:     l.export,
		Erase:      l.erase,
		Addresses:  l.store.provedBefore,
	}
}
