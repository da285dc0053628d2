package secrets

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
)

func (s *Secrets) routes() []capability.Route {
	return capability.Mount(s.cfg.BasePath,
		capability.Route{
			Method: http.MethodGet, Path: "/admin/status",
			Guard:   capability.ControlPlane("secrets:status:read"),
			Summary: "Lists whether each secret exists and when it was last rotated; never a value.",
			Handle:  capability.List(s.getStatus),
		},
		capability.Route{
			Method: http.MethodGet, Path: "/admin/status/:name/rotations",
			Guard:   capability.ControlPlane("secrets:status:read"),
			Summary: "Lists what happened on each rotation of a secret, newest first.", Refusals: []*capability.Error{ErrNotFound},
			Handle: capability.List(s.getRotations),
		},
		capability.Route{
			Method: http.MethodPost, Path: "/admin/status/:name/rotate",
			Guard:    capability.ControlPlane("secrets:rotate"),
			Summary:  "Rotates a secret, with the values given or by its own rotator.",
			MaxBody:  2 * MaxPayload,
			Refusals: []*capability.Error{ErrNotFound, ErrRotationInProgress, ErrVersionConflict, ErrReadOnly, ErrIncompleteBlock, ErrInvalidValue},
			Handle:   capability.OptionalJSON(http.StatusAccepted, s.postRotate),
		},
	)
}

func (s *Secrets) getStatus(c *capability.Call, page capability.Page) (capability.Items[SecretStatus], error) {
	return s.ListSecrets(c.Context(), page)
}

func (s *Secrets) getRotations(c *capability.Call, page capability.Page) (capability.Items[Rotation], error) {
	return s.ListRotations(c.Context(), c.Param("name"), page)
}

// newVersion is the request body of a rotation; it is empty if the secret has a Rotator. A block of
// null is removed.
type newVersion struct {
	Blocks Blocks `json:"blocks,omitempty"`
}

func (s *Secrets) postRotate(c *capability.Call, in newVersion) (Rotation, error) {
	return s.Rotate(c.Context(), c.Param("name"), in.Blocks)
}
