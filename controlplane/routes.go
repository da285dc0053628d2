package controlplane

import (
	"slices"

	"github.com/kitbackend/kit/capability"
)

// The scopes of the control plane, and the scope of secrets whose routes rotate too.
const (
	scopeManifest = "manifest:read"
	scopeRotate   = "keys:rotate"
	scopeSecrets  = "secrets:rotate"
)

func (cp *ControlPlane) routes() []capability.Route {
	rotate := capability.ControlPlane(scopeRotate)
	return capability.Mount(cp.cfg.BasePath,
		capability.Route{Method: "GET", Path: "/ping", Guard: capability.ControlPlane(""),
			Summary: "Prove connectivity and the key.",
			Handle:  capability.JSON(200, cp.getPing)},
		capability.Route{Method: "GET", Path: "/manifest", Guard: capability.ControlPlane(scopeManifest),
			Summary: "What the service composes and how to call it.",
			Handle:  capability.JSON(200, cp.getManifest)},
		capability.Route{Method: "GET", Path: "/keys", Guard: rotate,
			Summary: "The live keys, their ages and windows, oldest first.",
			Handle:  capability.List(cp.listKeys)},
		capability.Route{Method: "POST", Path: "/keys", Guard: rotate, MaxBody: maxRegistration,
			Summary: "Register a new key, signed with the key it replaces.", Refusals: []*capability.Error{ErrKeyConflict},
			Handle: capability.JSON(201, cp.postKey)},
		capability.Route{Method: "POST", Path: "/keys/:keyId/expire", Guard: rotate,
			Summary: "Expire a superseded key, signed with its successor.", Refusals: refusals(),
			Handle: capability.JSON(200, cp.postExpire)},
	)
}

// maxRegistration limits the body of a key registration, in bytes.
const maxRegistration = 8 << 10

func (cp *ControlPlane) getPing(c *capability.Call, _ capability.None) (Ping, error) {
	reg, err := cp.connectionOf(c.Context(), c.Caller)
	return Ping{reg.environment, reg.id, c.Caller.KeyID, cp.peers.Version}, err
}

func (cp *ControlPlane) getManifest(c *capability.Call, _ capability.None) (Manifest, error) {
	return cp.manifest(c.Context(), c.Caller)
}

func (cp *ControlPlane) listKeys(c *capability.Call, page capability.Page) (items capability.Items[Key], err error) {
	var at int64
	var id string
	if _, err := page.After(&at, &id); err != nil {
		return items, err
	}
	keys, err := cp.Keys(c.Context())
	if err != nil {
		return items, err
	}
	keys = slices.DeleteFunc(keys, func(k Key) bool {
		created := k.CreatedAt.UnixMilli()
		return created < at || created == at && k.ID <= id
	})
	return capability.Paged(page, keys, func(k Key) []any { return []any{k.CreatedAt.UnixMilli(), k.ID} }), nil
}

func (cp *ControlPlane) postKey(c *capability.Call, in Registration) (Key, error) {
	return cp.registerKey(c.Context(), c.Caller, in)
}

func (cp *ControlPlane) postExpire(c *capability.Call, _ capability.None) (Key, error) {
	return cp.expireKey(c.Context(), c.Caller, c.Param("keyId"))
}
