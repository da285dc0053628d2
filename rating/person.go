package rating

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// export emits a user's rows, one per pool.
func (r *Rating) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	pools, err := r.store.pools(ctx)
	if err != nil {
		return err
	}
	for _, pool := range pools {
		row, ok, err := r.store.record(ctx, pool, person.ID)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := emit("rating", row); err != nil {
			return err
		}
	}
	return nil
}

// erase removes a user's rows.
func (r *Rating) erase(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	out := capability.Erasure{Kept: []capability.Kept{{
		What: "outcomes recorded under a key in the last 7 days",
		Why:  "a repeated request gets the same response; they hold the user id and numbers, and expire",
	}}}
	pools, err := r.store.pools(ctx)
	if err != nil {
		return out, err
	}
	for _, pool := range pools {
		n, err := r.store.erase(ctx, pool, person.ID)
		if err != nil {
			return out, err
		}
		out.Removed += n
	}
	return out, nil
}
