package secrets

import (
	"context"
	"net/http"
	"sort"

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
			Summary: "Lists what happened on each rotation of a secret, newest first.",
			Handle:  capability.List(s.getRotations),
		},
		capability.Route{
			Method: http.MethodPost, Path: "/admin/status/:name/rotate",
			Guard:   capability.ControlPlane("secrets:rotate"),
			Summary: "Rotates a secret, with the values given or by its own rotator.",
			MaxBody: 2 * MaxPayload,
			Handle:  capability.JSON(http.StatusAccepted, s.postRotate),
		},
	)
}

// SecretStatus is what is known of a secret; never a value.
type SecretStatus struct {
	Name string `json:"name"`
	// Mode is manual or automatic.
	Mode     string `json:"mode"`
	Provider string `json:"provider"`
	Exists   bool   `json:"exists"`
	Version  int64  `json:"version"`
	// LastRotatedAt is null where there is no version or the provider does not know.
	LastRotatedAt *capability.Time `json:"lastRotatedAt"`
	NextDueAt     *capability.Time `json:"nextDueAt"`
	Blocks        []BlockStatus    `json:"blocks"`
	LastRotation  *Rotation        `json:"lastRotation"`
	// Problem says that the provider could not be read; then nothing is known.
	Problem string `json:"problem,omitempty"`
}

// BlockStatus says whether a block is present in full, and which fields a half
// one lacks.
type BlockStatus struct {
	Name    string   `json:"name"`
	Present bool     `json:"present"`
	Missing []string `json:"missing,omitempty"`
}

func (s *Secrets) getStatus(c *capability.Call, page capability.Page) (capability.Items[SecretStatus], error) {
	return s.Status(c.Context(), page)
}

// Status lists the declared secrets by name.
func (s *Secrets) Status(ctx context.Context, page capability.Page) (items capability.Items[SecretStatus], err error) {
	var after string
	if _, err := page.After(&after); err != nil {
		return items, err
	}
	declared := s.declared()
	first := sort.Search(len(declared), func(i int) bool { return declared[i].Name > after })
	var list []SecretStatus
	for _, secret := range declared[first:min(len(declared), first+page.Limit+1)] {
		status, err := s.status(ctx, secret)
		if err != nil {
			return items, err
		}
		list = append(list, status)
	}
	return capability.Paged(page, list, func(s SecretStatus) []any { return []any{s.Name} }), nil
}

func (s *Secrets) status(ctx context.Context, secret Secret) (SecretStatus, error) {
	status := SecretStatus{Name: secret.Name, Mode: secret.mode(), Provider: s.provider.Name()}
	last, err := s.store.rotations(ctx, secret.Name, "", 1)
	if err != nil {
		return status, err
	}
	if len(last) > 0 {
		status.LastRotation = &last[0]
	}
	stored, blocks, err := s.current(ctx, secret.Name)
	if err != nil {
		s.host.Log.WarnContext(ctx, "secrets: the provider cannot be read", "secret", secret.Name, "error", err)
		status.Problem = "The secret cannot be read where it is kept."
	}
	if whole, _ := secret.complete(blocks); len(whole) > 0 && s.provider.ReadOnly() {
		if refused := secret.permit(whole); refused != nil {
			status.Problem = capability.AsError(refused).Message
		}
	}
	status.Exists, status.Version = blocks != nil, stored.Version
	if status.Exists && !stored.CreatedAt.IsZero() {
		status.LastRotatedAt = &capability.Time{Time: stored.CreatedAt}
	}
	if secret.Every > 0 && err == nil {
		if due := secret.due(stored, last); !due.IsZero() {
			status.NextDueAt = &capability.Time{Time: due}
		}
	}
	for _, b := range secret.Blocks {
		fields, given := blocks[b.Name]
		block := BlockStatus{Name: b.Name}
		if given {
			block.Missing = b.missing(fields)
			block.Present = len(block.Missing) == 0
		}
		status.Blocks = append(status.Blocks, block)
	}
	return status, nil
}

func (s *Secrets) getRotations(c *capability.Call, page capability.Page) (capability.Items[Rotation], error) {
	return s.Rotations(c.Context(), c.Param("name"), page)
}

// Rotations lists what happened to a secret, newest first. It refuses with
// secrets/not_found.
func (s *Secrets) Rotations(ctx context.Context, name string, page capability.Page) (items capability.Items[Rotation], err error) {
	if _, err := s.Handle(name); err != nil {
		return items, err
	}
	var before string
	if _, err := page.After(&before); err != nil {
		return items, err
	}
	list, err := s.store.rotations(ctx, name, before, page.Limit+1)
	if err != nil {
		return items, err
	}
	return capability.Paged(page, list, func(r Rotation) []any { return []any{r.ID} }), nil
}

// newVersion is the body of a rotation; empty where the secret makes its values
// itself. A block of null is removed.
type newVersion struct {
	Blocks Blocks `json:"blocks"`
}

func (s *Secrets) postRotate(c *capability.Call, in newVersion) (Rotation, error) {
	return s.Rotate(c.Context(), c.Param("name"), in.Blocks)
}
