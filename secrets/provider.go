package secrets

import (
	"context"
	"time"
)

// MaxPayload is the maximum size of the payload of a version, in bytes.
const MaxPayload = 64 << 10

// Provider stores the versions of secrets. Names are those of secrets, also followed by ".pending-"
// and the id of a rotation. Errors, except for the two refusals below, contain only that and how
// the provider failed: never a stored value, never the response of a server. Package secretstest
// tests these rules.
type Provider interface {
	// Name returns the name of the provider as shown in the status: "sql", "vault", ...
	Name() string
	// ReadOnly reports whether Write and Delete refuse with secrets/read_only.
	ReadOnly() bool
	// Read returns a version, the newest for 0. A missing version is not an error.
	Read(ctx context.Context, name string, version int64) (Stored, error)
	// Write adds the version after the given one, which must be the newest (0 if there is none), or
	// refuses with secrets/version_conflict. Version numbers increase and are not reused. At least
	// the previous version stays readable.
	Write(ctx context.Context, name string, after int64, payload Value) (version int64, err error)
	// Delete removes all versions; the numbers may start from 1 again.
	Delete(ctx context.Context, name string) error
}

// Stored is a stored version of a secret.
type Stored struct {
	// Version is the number requested, or that of the newest version; 0 if there is none.
	Version int64
	// CreatedAt is zero if the provider does not know it.
	CreatedAt time.Time
	// Payload is a JSON object of blocks; empty if the version does not exist.
	Payload Value
}

// pendingName returns the name under which a rotation stores the next version until it is current.
func pendingName(r Rotation) string { return r.Name + ".pending-" + r.ID }
