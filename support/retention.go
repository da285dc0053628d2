package support

import (
	"context"

	"github.com/kitbackend/kit/jobs"
)

const sweepChunk = 500

// runSweep deletes the counters of past hours, one chunk in each statement.
func (s *Support) runSweep(ctx context.Context, _ jobs.Job) error {
	hour := s.host.Now().Unix() / 3600
	for {
		n, err := s.store.sweepGuard(ctx, hour, sweepChunk)
		if err != nil || n < sweepChunk {
			return err
		}
	}
}
