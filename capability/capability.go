// Package capability is the seam of the kit: what a capability tells the kit
// about itself, as data, and what the kit gives it to run on.
//
// A capability is a concrete Go type with a constructor New(Host, Config,
// Peers) that does no I/O, and a method Capability() that returns the struct
// of this package. The kit checks that data once, over all capabilities, then
// mounts the routes, applies the migrations and runs the jobs. There is no
// plug-in interface and no registry.
package capability

import (
	"context"
	"io/fs"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/database"
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

// Host is what every capability runs on.
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
}

// Development reports whether conveniences for local work may be mounted.
func (h Host) Development() bool { return h.Environment == Development }

// Production reports whether real money and real users are at stake.
func (h Host) Production() bool { return h.Environment == Production }

// Capability describes one composed part as data. Zero fields mean "none".
type Capability struct {
	// Name is the manifest's name for it and names its line of migrations.
	Name    string
	Version string
	// Database is the binding the migrations are applied to; it is the DB of
	// the Host the capability was built on.
	Database *database.DB
	// Prefix is where the routes are mounted; no other capability has the same.
	Prefix string
	// Routes carry fully mounted paths; see [Mount].
	Routes []Route
	Config []ConfigKey
	Health []HealthKey
	// Migrations holds NNNN_name.sql, forward only.
	Migrations fs.FS
	// Parts are the migrations of libraries the capability is made of, each a
	// line of its own, applied after Migrations.
	Parts []database.Migrations
	Jobs  []jobs.Binding
	// Refusals lists every code the capability can answer with.
	Refusals []*Error
	// Rewrap wraps what the capability has sealed with the first master key and
	// answers how many values it changed.
	Rewrap func(context.Context) (changed int, err error)
	Close  func(context.Context) error
}

// Lines lists all the capability's migrations in their order.
func (c Capability) Lines() []database.Migrations {
	if c.Migrations == nil {
		return c.Parts
	}
	return append([]database.Migrations{{Name: c.Name, FS: c.Migrations}}, c.Parts...)
}

// Domain is the name as error codes and audit namespaces spell it: without hyphens.
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
	// Read answers a JSON value of at most 2 KB; its error makes the kit not ready.
	Read func(context.Context) (any, error)
}
