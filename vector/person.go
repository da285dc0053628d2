package vector

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// exported is the form of a document in an export.
type exported struct {
	Index string `json:"index"`
	Stored
}

// export emits a user's documents as "document", with their vectors.
func (v *Vector) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	indexes, err := v.store.indexesOf(ctx, person.ID)
	if err != nil {
		return err
	}
	for _, index := range indexes {
		for after := ""; ; {
			rows, err := v.store.whole(ctx, Space{Index: index, OwnerID: person.ID}, after, walkSize/5)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				break
			}
			for _, d := range rows {
				if err := emit("document", exported{index, d}); err != nil {
					return err
				}
			}
			after = rows[len(rows)-1].ID
		}
	}
	return nil
}

// erase removes a user's documents and their partitions, including those of indexes that are no
// longer configured. Each transaction removes a portion, so that erase can be killed at any point
// and run again.
func (v *Vector) erase(ctx context.Context, person capability.Person) (out capability.Erasure, err error) {
	if person.ID == "" {
		return out, nil // the partitions of shared indexes have no owner
	}
	indexes, err := v.store.indexesOf(ctx, person.ID)
	if err != nil {
		return out, err
	}
	for _, index := range indexes {
		for more := true; more; {
			var removed int64
			err := v.inTx(ctx, func(ctx context.Context) (err error) {
				space := Space{Index: index, OwnerID: person.ID}
				removed, more, err = v.store.erase(ctx, space, walkSize)
				database.AfterCommit(ctx, func() { v.cache.drop(space) })
				return err
			})
			if err != nil {
				return out, err
			}
			out.Removed += removed
		}
	}
	// Always, since an earlier run may have been killed before this.
	return out, v.store.forgetWords(ctx)
}
