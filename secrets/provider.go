package secrets

import (
	"context"
	"time"
)

// MaxPayload bounds what a provider keeps under one version, in bytes.
const MaxPayload = 64 << 10

// Provider keeps the versions of secrets. Names are those of secrets, also with
// ".pending-" and the id of a rotation behind them. Errors, but for the two refusals below, say only that
// and how the provider failed: never what it keeps, never what a server
// returned. Package secretstest holds a provider to this.
type Provider interface {
	// Name is the provider's own, shown in the status: "sql", "vault", ...
	Name() string
	// ReadOnly reports whether Write and Delete refuse with secrets/read_only.
	ReadOnly() bool
	// Read returns a version, the newest for 0. A missing one is no error.
	Read(ctx context.Context, name string, version int64) (Stored, error)
	// Write adds the version after the given one, which must be the newest (0:
	// there never was one), or refuses with secrets/version_conflict. Numbers
	// grow and are not used again. At least the version before stays readable.
	Write(ctx context.Context, name string, after int64, payload Value) (version int64, err error)
	// Delete removes all versions; the numbers may start again.
	Delete(ctx context.Context, name string) error
}

// Stored is a version of a secret as a provider keeps it.
type Stored struct {
	// Version is the number asked for, or of the newest; 0 when there never was one.
	Version int64
	// CreatedAt is zero where the provider does not know.
	CreatedAt time.Time
	// Payload is a JSON object of blocks; empty when the version is not there.
	Payload Value
}

// pendingName is where a rotation keeps the next version until it is current.
func pendingName(r Rotation) string { return r.Name + ".pending-" + r.ID }
