package auth

import (
	"context"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// ListDevices lists devices with a live session by id, which is the order of their creation; an
// empty user id selects those of all users. Refuses with kit/invalid_request for a cursor of
// another list.
func (a *Auth) ListDevices(ctx context.Context, userID string, page capability.Page) (capability.Items[Device], error) {
	page = page.Bounded()
	none := capability.Items[Device]{}
	var after string
	if _, err := page.After(&after); err != nil {
		return none, err
	}
	rows, err := a.store.devices(ctx, userID, after, a.host.Now(), page.Limit+1)
	if err != nil {
		return none, err
	}
	return capability.Paged(page, rows, func(d Device) []any { return []any{d.ID} }), nil
}

// RevokeDevices ends the sessions of all of a user's devices and returns how many
// there were. Tokens of [Auth.IssueToken] belong to no device and stay valid; see
// [Auth.RevokeUser]. Refuses with auth/user_not_found.
func (a *Auth) RevokeDevices(ctx context.Context, userID string) (sessions int, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if _, found, err := a.store.lockUser(ctx, userID); err != nil || !found {
			return errOr(err, ErrUserNotFound)
		}
		ended, err := a.store.deleteSessionsBut(ctx, userID, "")
		if err != nil {
			return err
		}
		if err := a.store.deleteIdleDevices(ctx, userID); err != nil {
			return err
		}
		if sessions = len(ended); sessions > 0 {
			if err := a.ended(ctx, userID, "revoked", ended...); err != nil {
				return err
			}
		}
		return a.record(ctx, "auth/devices_revoked", userID, map[string]any{"sessions": sessions})
	})
	return sessions, err
}

// RevokeDevice ends all sessions of a user's device and returns how many there
// were. Refuses with auth/device_not_found.
func (a *Auth) RevokeDevice(ctx context.Context, userID, deviceID string) (sessions int, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if _, _, err := a.store.lockUser(ctx, userID); err != nil {
			return err
		}
		ended, err := a.store.deleteSessionsOfDevice(ctx, userID, deviceID)
		if err != nil {
			return err
		}
		found, err := a.store.deleteDevice(ctx, userID, deviceID)
		if err != nil {
			return err
		}
		if !found {
			return ErrDeviceNotFound
		}
		sessions = len(ended)
		if err := a.ended(ctx, userID, "revoked", ended...); err != nil {
			return err
		}
		return a.record(ctx, "auth/device_revoked", userID, map[string]any{"sessions": sessions}, audit.Target{Type: "device", ID: deviceID})
	})
	return sessions, err
}
