package vector

import (
	"context"
	"time"

	"github.com/kitbackend/kit/jobs"
)

// keepRemovals is how long removals are kept for a node that is behind; after that it reads the
// whole partition.
const keepRemovals = 24 * time.Hour

func (v *Vector) bindings() []jobs.Binding {
	return []jobs.Binding{
		{Name: "VECTOR_SWEEP", Schedule: "17 4 * * *", Run: func(ctx context.Context, _ jobs.Job) error { return v.sweep(ctx) }},
		{Name: preparation, MaxAttempts: 50, Timeout: time.Hour, Run: v.runPreparation},
		{Name: reembedding, MaxAttempts: 50, Timeout: time.Hour, Run: v.runReembedding},
	}
}

// sweep deletes old removals, one partition at a time.
func (v *Vector) sweep(ctx context.Context) error {
	before := v.now().Add(-keepRemovals)
	for {
		space, revision, ok, err := v.store.oldest(ctx, before)
		if err != nil || !ok {
			return err
		}
		if err := v.inTx(ctx, func(ctx context.Context) error { return v.store.forget(ctx, space, revision) }); err != nil {
			return err
		}
	}
}
