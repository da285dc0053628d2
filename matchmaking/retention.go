package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/jobs"
)

// maxCleaned bounds the rows of each kind that one run removes.
const maxCleaned = 10_000

// runClean removes expired rows, and recovers from dead nodes: it restarts the chain of sweeps of a
// game with waiting players, and takes the users of dead nodes offline.
func (m *Matchmaking) runClean(ctx context.Context, _ jobs.Job) error {
	for _, g := range m.games {
		err := m.host.DB.InTx(ctx, func(ctx context.Context) error {
			waiting, err := m.store.isWaiting(ctx, g.Key)
			if err != nil || !waiting {
				return err
			}
			return m.scheduleSweep(ctx, g)
		})
		if err != nil {
			return err
		}
	}
	if err := m.buryNodes(ctx); err != nil {
		return err
	}
	return m.store.clean(ctx, m.now(ctx))
}
