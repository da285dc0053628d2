// Package capability is the seam of the kit: the data by which a capability describes itself to the
// kit, and the services that the kit provides to it.
//
// A capability is a concrete Go type with a constructor New(Host, Config,
// Peers) that does no I/O, and a method Capability() that returns the struct
// of this package. The kit checks that data once, over all capabilities, then
// mounts the routes, applies the migrations and runs the jobs. There is no
// plug-in interface and no registry.
package capability

import (
	"context"
	"crypto/subtle"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

// The environments with a meaning of their own. Every other name is an
// environment like [Sandbox]: neither production nor development.
const (
	Production  = "production"
	Development = "development"
	Sandbox     = "sandbox"
)

// Host holds the services that the kit provides to a capability.
type Host struct {
	// DB is the database binding that the capability's Config.Database names.
	DB *database.DB
	// Jobs enqueues in the transactions of DB.
	Jobs *jobs.Queue
	// PubSub carries hints to other nodes; rows are the truth.
	PubSub *pubsub.Bus
	Log    *slog.Logger
	// Now is the only clock of a capability.
	Now         func() time.Time
	Environment string
	// BaseURL is where clients reach the kit, without a trailing slash; its
	// path is the mount path under the application's router.
	BaseURL *url.URL
	// InternalPrefix is the prefix of the kit's own routes, by default "/__kit".
	InternalPrefix string
	// DevelopmentSecret, when set, must be in every request to a route that only development has;
	// see [Host.DevelopmentAllowed].
	DevelopmentSecret string
	// Sealing returns the [Sealer] that encrypts data at rest under the master keys. A capability
	// that seals calls it in New and joins the error to its faults, so that missing keys are found
	// at assembly.
	Sealing func() (Sealer, error)
	// Hooks are the hooks to which applications and later capabilities attach code.
	Hooks *hooks.Hooks
}

// Complete returns the host with an in-process bus, the default logger and new hooks in place of
// those that are nil. The kit sets all of them; a program that makes a capability without a kit
// need not.
func (h Host) Complete() Host {
	if h.PubSub == nil {
		h.PubSub = pubsub.NewMemory()
	}
	if h.Log == nil {
		h.Log = slog.Default()
	}
	if h.Hooks == nil {
		h.Hooks = hooks.New()
	}
	return h
}

// Sealer encrypts data at rest. A sealed value opens only in the context it was sealed for, such as
// "auth/signing-key/" and the row's id, so that a value moved to another row does not open. It is
// safe for concurrent use.
type Sealer interface {
	// Seal encrypts plaintext under a key of its own, wrapped by the first
	// master key.
	Seal(context string, plaintext []byte) []byte
	// Open decrypts what Seal returned for the same context.
	Open(context string, sealed []byte) ([]byte, error)
	// Rewrap wraps the key of a sealed value with the first master key; changed
	// is false when it already is.
	Rewrap(context string, sealed []byte) (rewrapped []byte, changed bool, err error)
	// Ephemeral reports whether the master key was made for this run only.
	Ephemeral() bool
}

// DevelopmentHeader is the header that carries the [Host.DevelopmentSecret].
const DevelopmentHeader = "X-Kit-Development-Secret"

// DevelopmentAllowed reports whether a request may use the routes that only development has: it
// carries DevelopmentSecret, as the query parameter secret or in [DevelopmentHeader], or no secret
// is set.
func (h Host) DevelopmentAllowed(r *http.Request) bool {
	given := r.Header.Get(DevelopmentHeader)
	if given == "" {
		given = r.URL.Query().Get("secret")
	}
	return h.DevelopmentSecret == "" || subtle.ConstantTimeCompare([]byte(given), []byte(h.DevelopmentSecret)) == 1
}

// Development reports whether conveniences for local work may be mounted.
func (h Host) Development() bool { return h.Environment == Development }

// Production reports whether real money and real users are at stake.
func (h Host) Production() bool { return h.Environment == Production }

// Capability describes one composed part as data. Zero fields mean "none".
type Capability struct {
	// Name is the capability's name in the manifest, and that of its set of migrations: 2 to 32 lower
	// case letters, digits and hyphens, a letter first. No other capability has the same
	// [Capability.Domain].
	Name    string
	Version string
	// Database is the binding the migrations are applied to; it is the DB of
	// the Host the capability was built on.
	Database *database.DB
	// Prefix is where the routes are mounted; no other capability has the same.
	Prefix string
	// Claims are further path prefixes that belong to the capability, such as
	// that of callbacks: no other capability mounts at, above or below them.
	Claims []string
	// Routes carry fully mounted paths; see [Mount].
	Routes []Route
	Config []ConfigKey
	Health []HealthKey
	// Migrations holds NNNN_name.sql, forward only.
	Migrations fs.FS
	// Parts are the migrations of the libraries that the capability uses, each numbered by itself,
	// applied after Migrations.
	Parts []database.Migrations
	Jobs  []jobs.Binding
	// Refusals lists every code the capability can return.
	Refusals []*Error
	// Rewrap wraps what the capability has sealed with the first master key and
	// returns how many values it changed.
	Rewrap func(context.Context) (changed int, err error)
	// Export emits every record that the capability holds about a user, kind by
	// kind. Required unless NoUserData says why there is none.
	Export func(ctx context.Context, person Person, emit Emit) error
	// Erase removes what the capability holds about a user, also what it keeps in other capabilities
	// under keys that are not the user's id, and settles open business such as holds. The
	// capabilities composed last erase first, and auth last. It may be killed anywhere and run
	// again. Records that must stay are named in the result. Required unless NoUserData says why
	// there is none.
	Erase func(ctx context.Context, person Person) (Erasure, error)
	// NoUserData says why the capability holds nothing about a user.
	NoUserData string
	Close      func(context.Context) error
}

// Person is the user whose data is exported or erased.
type Person struct {
	ID string
	// Emails are the normalized addresses that were proved to be the user's, for
	// capabilities that keep rows by address. A row that names another user is
	// that user's, whatever its address.
	Emails []string
}

// Emit writes one record of an export. kind is a word such as "account"; the
// record is a JSON object. Files are referenced, not embedded.
type Emit func(kind string, record any) error

// Erasure says what an Erase did.
type Erasure struct {
	// Removed counts the rows that are gone or no longer name the user.
	Removed int64 `json:"removed"`
	// Kept lists the records that stay, with the user id as a pseudonym, and why.
	Kept []Kept `json:"kept,omitempty"`
}

// Kept is one kind of record that an erasure leaves.
type Kept struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Lines lists the capability's sets of migrations in the order in which they are applied.
func (c Capability) Lines() []database.Migrations {
	if c.Migrations == nil {
		return c.Parts
	}
	return append([]database.Migrations{{Name: c.Name, FS: c.Migrations}}, c.Parts...)
}

// Domain returns the name as it begins error codes and audit actions: without hyphens.
func (c Capability) Domain() string { return strings.ReplaceAll(c.Name, "-", "") }

// ConfigKey is one resolved configuration value, shown in the manifest.
type ConfigKey struct {
	Key   string
	Value any
	// Choices lists the allowed values of an enumerated key.
	Choices []string
	Summary string
}

// HealthKey is one aggregate shown in the manifest.
type HealthKey struct {
	Key string
	// Read returns a JSON value of at most 2 KB; its error makes the kit not ready.
	Read func(context.Context) (any, error)
}
