package secrets

import (
	"context"
	"log/slog"
	"time"

	"github.com/kitbackend/kit/jobs"
)

const (
	// keepRotations is how long a finished rotation stays in the history; the newest of each secret
	// is never deleted.
	keepRotations = 365 * 24 * time.Hour
	// leftovers is the age of finished rotations up to which the sweep deletes pending versions
	// that a killed process has left behind.
	leftovers  = 48 * time.Hour
	sweepChunk = 500
)

// runSweep deletes expired rotations, one chunk in each transaction, and the pending versions of
// ended rotations.
func (s *Secrets) runSweep(ctx context.Context, _ jobs.Job) error {
	now := s.host.DB.Now(ctx)
	if !s.provider.ReadOnly() {
		ended, err := s.store.endedSince(ctx, now.Add(-leftovers), sweepChunk)
		if err != nil {
			return err
		}
		for _, r := range ended {
			if err := s.provider.Delete(ctx, pendingName(r)); err != nil {
				s.host.Log.WarnContext(ctx, "secrets: the pending version of a rotation is left behind",
					slog.String("secret", r.Name), slog.Any("error", err))
			}
		}
	}
	for {
		n, err := s.store.sweepRotations(ctx, now.Add(-keepRotations), sweepChunk)
		if err != nil || n < sweepChunk {
			return err
		}
	}
}
