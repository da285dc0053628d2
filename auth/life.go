package auth

import (
	"context"
	"errors"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
)

// MaxUsersByID bounds the users that one call of [Auth.UsersByID] reads.
const MaxUsersByID = 1000

// UsersByID returns users by their ids; it omits ids without a user. It refuses more than
// [MaxUsersByID] with kit/invalid_request.
func (a *Auth) UsersByID(ctx context.Context, ids []string) (map[string]User, error) {
	if len(ids) > MaxUsersByID {
		return nil, capability.ErrInvalidRequest.Saying("At most %d users are read at once.", MaxUsersByID)
	}
	users := make(map[string]User, len(ids))
	if len(ids) == 0 {
		return users, nil
	}
	rows, err := a.store.usersByID(ctx, ids)
	for _, user := range rows {
		users[user.ID] = user
	}
	return users, err
}

// Profiles returns the public profiles of users by their ids, with the bounds of [Auth.UsersByID].
// It omits disabled and deleted users.
func (a *Auth) Profiles(ctx context.Context, ids []string) (map[string]PublicProfile, error) {
	users, err := a.UsersByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	profiles := make(map[string]PublicProfile, len(users))
	for id, user := range users {
		if user.DisabledAt.IsZero() {
			profiles[id] = PublicProfile{ID: id, Name: user.Name, Image: user.Image}
		}
	}
	return profiles, nil
}

// Addresses lists the e-mail addresses that were proved to be a user's, normalized: the current
// one, and older ones that the library can still restore, unless another user has them now.
// Capabilities use them to export and erase rows that they keep by address. It returns none for an
// unknown user.
func (a *Auth) Addresses(ctx context.Context, userID string) ([]string, error) {
	user, err := a.User(ctx, userID)
	if errors.Is(err, ErrUserNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var addresses []string
	if user.Email != "" && user.EmailVerified {
		addresses = append(addresses, user.Email)
	}
	if a.library.Addresses == nil {
		return addresses, nil
	}
	older, err := a.library.Addresses(ctx, userID)
	if err != nil {
		return nil, err
	}
	for _, address := range older {
		_, taken, err := a.UserByEmail(ctx, address)
		if err != nil {
			return nil, err
		}
		if !taken && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses, nil
}

// The records of an export.
type exportedUser struct {
	userBody
	DisplayUsername string         `json:"displayUsername,omitempty"`
	Profile         map[string]any `json:"profile,omitempty"`
}

// export emits the user, the devices and the live sessions, and what the library
// holds.
func (a *Auth) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	user, err := a.User(ctx, person.ID)
	switch {
	case errors.Is(err, ErrUserNotFound):
	case err != nil:
		return err
	default:
		record := exportedUser{userBody: newUserBody(user), DisplayUsername: user.DisplayUsername, Profile: user.Profile}
		if err := emit("user", record); err != nil {
			return err
		}
		if err := a.exportSessions(ctx, user.ID, emit); err != nil {
			return err
		}
	}
	if a.library.Export == nil {
		return nil
	}
	return a.library.Export(ctx, person, emit)
}

func (a *Auth) exportSessions(ctx context.Context, userID string, emit capability.Emit) error {
	page := capability.NewPage(capability.MaxLimit, "")
	for {
		devices, err := a.ListDevices(ctx, userID, page)
		if err != nil {
			return err
		}
		for _, d := range devices.Items {
			if err := emit("device", newDeviceBody(d)); err != nil {
				return err
			}
		}
		if devices.NextCursor == nil {
			break
		}
		page = capability.NewPage(capability.MaxLimit, *devices.NextCursor)
	}
	sessions, err := a.Sessions(ctx, userID)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if err := emit("session", newSessionBody(s)); err != nil {
			return err
		}
	}
	return nil
}

// erase deletes the user with all rows that refer to it, and the rows that the library keeps by
// address. It is idempotent.
func (a *Auth) erase(ctx context.Context, person capability.Person) (erased capability.Erasure, err error) {
	if a.library.Erase != nil {
		if erased, err = a.library.Erase(ctx, person); err != nil {
			return erased, err
		}
	}
	var removed int64
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		removed = 0
		_, found, err := a.store.lockUser(ctx, person.ID)
		if err != nil || !found {
			return err
		}
		if removed, err = a.store.rowsOf(ctx, person.ID); err != nil {
			return err
		}
		return a.DeleteUser(ctx, person.ID)
	})
	erased.Removed += removed
	return erased, err
}

// told fires the hooks for the changes of a user.
func (a *Auth) told(ctx context.Context, before, after User) error {
	var changed []string
	for _, field := range []struct {
		name string
		is   bool
	}{
		{"email", before.Email != after.Email},
		{"emailVerified", before.EmailVerified != after.EmailVerified},
		{"name", before.Name != after.Name},
		{"image", before.Image != after.Image},
		{"username", before.Username != after.Username || before.DisplayUsername != after.DisplayUsername},
		{"anonymous", before.Anonymous != after.Anonymous},
		{"profile", !sameFields(before.Profile, after.Profile)},
	} {
		if field.is {
			changed = append(changed, field.name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return a.host.Hooks.UserUpdated.Fire(ctx, hooks.UserUpdated{UserID: after.ID, Changed: changed})
}
