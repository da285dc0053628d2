package media

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// eraseAtOnce bounds the items that one transaction of an erasure removes.
const eraseAtOnce = 50

// export emits the items of a user as "media_item"; their files are in storage's export, by
// objectId.
func (m *Media) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	for after := ""; ; {
		items, err := m.store.ownedBy(ctx, person.ID, after, eraseAtOnce)
		if err != nil || len(items) == 0 {
			return err
		}
		for _, i := range items {
			if err := emit("media_item", i); err != nil {
				return err
			}
			after = i.ID
		}
	}
}

// erase removes the items of a user and their files.
func (m *Media) erase(ctx context.Context, person capability.Person) (erasure capability.Erasure, err error) {
	for more := true; more; {
		var removed int64
		err := m.db.InTx(ctx, func(ctx context.Context) error {
			removed = 0
			items, err := m.store.ownedBy(ctx, person.ID, "", eraseAtOnce)
			if err != nil {
				return err
			}
			for _, i := range items {
				if err := m.removeBytes(ctx, i); err != nil {
					return err
				}
				gone, err := m.store.remove(ctx, i.ID)
				if err != nil {
					return err
				}
				if gone {
					removed++
				}
			}
			more = len(items) == eraseAtOnce
			if more {
				return nil
			}
			return m.store.removeOwner(ctx, person.ID)
		})
		if err != nil {
			return erasure, err
		}
		erasure.Removed += removed
	}
	return erasure, nil
}
