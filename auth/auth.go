// Package auth knows the end users: who they are, their sessions, and the
// access tokens that prove them.
//
// A user proves himself by a bearer token or by a session cookie. An access
// token is a JWT (RFC 9068) of at most one hour, signed with a key that lies
// sealed in the database; it alone carries scopes, and only the application
// grants them, in process, with [Auth.IssueToken]. A session lives in the
// database under the hash of a random cookie. What is revoked is refused at
// once in this process and within a second on every other node.
//
// Over HTTP users call nothing here yet but the guards; in development, from
// the same machine, GET /__kit/dev-login signs anybody in.
package auth

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/seal"
)

// Name is the capability's name.
const Name = "auth"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are what auth uses.
type Peers struct {
	// Audit is told of sign-ins and revocations; nil records nothing.
	Audit *audit.Audit
	// Keys seal the signing keys; required.
	Keys *seal.Keys
}

// Auth keeps users and their proofs. It is safe for concurrent use.
type Auth struct {
	host     capability.Host
	cfg      Config
	peers    Peers
	store    store
	issuer   string
	keys     *keyring
	verified *tokenCache
	revoked  *revocations
}

// New checks the configuration; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Auth, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(peers); err != nil {
		return nil, err
	}
	store := store{host.DB}
	return &Auth{
		host: host, cfg: cfg, peers: peers, store: store,
		issuer:   host.BaseURL.String(),
		keys:     newKeyring(host, store, peers.Keys),
		verified: newTokenCache(),
		revoked:  &revocations{store: store, bus: host.PubSub, now: host.Now},
	}, nil
}

// Capability describes auth to the kit.
func (a *Auth) Capability() capability.Capability {
	schema, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   a.host.DB,
		Routes:     a.routes(),
		Config:     a.cfg.keys(),
		Migrations: schema,
		Refusals:   refusals(),
		Close:      func(context.Context) error { a.revoked.close(); return nil },
	}
}

// Users answers how the guards of user routes verify their callers.
func (a *Auth) Users() capability.Users {
	return capability.Users{Bearer: a.bearer, Session: a.session, CSRF: a.csrf}
}

// userID is what identifies a user: it stands in keys, paths and logs.
var userID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// EnsureUser creates the user unless there is one. An id is 1 to 64 letters,
// digits, dots, hyphens and underscores, a letter or digit first; another is
// refused with kit/invalid_request.
func (a *Auth) EnsureUser(ctx context.Context, user string) error {
	if !userID.MatchString(user) {
		return capability.ErrInvalidRequest.Saying("A user id is 1 to 64 letters, digits, dots, hyphens and underscores.")
	}
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := a.host.DB.Now(ctx)
		created, err := a.store.insertUser(ctx, user, id.New(now), now)
		if err != nil || !created {
			return err
		}
		return a.peers.Audit.Record(ctx, audit.Event{
			Action: "auth/user_created", Subject: audit.Target{Type: "user", ID: user},
		})
	})
}

// RevokeSession ends a session: its cookie and its access tokens are refused
// from the commit on. Refuses with auth/session_not_found.
func (a *Auth) RevokeSession(ctx context.Context, sessionID string) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		user, found, err := a.store.deleteSession(ctx, sessionID)
		if err != nil {
			return err
		}
		if !found {
			return ErrSessionNotFound
		}
		if err := a.revoke(ctx, sessionID); err != nil {
			return err
		}
		return a.peers.Audit.Record(ctx, audit.Event{
			Action:  "auth/session_revoked",
			Subject: audit.Target{Type: "user", ID: user},
			Targets: []audit.Target{{Type: "session", ID: sessionID}},
		})
	})
}

// RevokeUser ends all sessions of a user and answers how many there were; the
// tokens of [Auth.IssueToken] end too. Refuses with auth/user_not_found.
func (a *Auth) RevokeUser(ctx context.Context, user string) (sessions int, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		family, found, err := a.store.tokenFamily(ctx, user)
		if err != nil {
			return err
		}
		if !found {
			return ErrUserNotFound
		}
		if err := a.store.setTokenFamily(ctx, user, id.New(a.host.DB.Now(ctx))); err != nil {
			return err
		}
		ended, err := a.store.deleteSessions(ctx, user)
		if err != nil {
			return err
		}
		sessions = len(ended)
		if err := a.revoke(ctx, append(ended, family)...); err != nil {
			return err
		}
		return a.peers.Audit.Record(ctx, audit.Event{
			Action: "auth/sessions_revoked", Subject: audit.Target{Type: "user", ID: user},
			Detail: map[string]int{"sessions": sessions},
		})
	})
	return sessions, err
}

// unavailable covers a failure of the database while a proof was checked.
func unavailable(doing string, err error) error {
	return capability.ErrUnavailable.Because(fmt.Errorf("auth: %s: %w", doing, err))
}
