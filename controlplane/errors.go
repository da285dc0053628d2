package controlplane

import (
	"errors"

	"github.com/kitbackend/kit/capability"
)

// The refusals of the key register. The guard uses those of package capability:
// [capability.ErrNotConnected], [capability.ErrInvalidCredential] and
// [capability.ErrControlPlaneScope].
var (
	ErrKeyNotFound = capability.NewError(404, "controlplane/key_not_found", "There is no live key of this id.")
	ErrKeyConflict = capability.NewError(409, "controlplane/key_conflict", "The register of keys does not allow this.")
)

func refusals() []*capability.Error { return []*capability.Error{ErrKeyNotFound, ErrKeyConflict} }

// ErrConnected is returned by [ControlPlane.Connect] if the environment has another connection.
var ErrConnected = errors.New("controlplane: the environment has another connection; Reset replaces it")

// ErrConnection is returned by [ControlPlane.Connect] and [ControlPlane.Reset] for an invalid
// issuer or key.
var ErrConnection = errors.New("controlplane: unusable connection")
