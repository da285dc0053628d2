package rating

import (
	"context"

	"github.com/kitbackend/kit/jobs"
)

// sweepChunk bounds the keys that one statement removes.
const sweepChunk = 1000

// sweep removes the keys that have expired.
func (r *Rating) sweep(ctx context.Context, _ jobs.Job) error {
	for {
		rows, err := r.store.removeKeys(ctx, r.db.Now(ctx), sweepChunk)
		if err != nil || rows < sweepChunk {
			return err
		}
	}
}
