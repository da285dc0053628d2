package audit

import (
	"context"
	"fmt"
	"time"
)

// purgeBatch bounds the events one transaction deletes.
const purgeBatch = 500

// Cut deletes the beginning of the trail: every event under the newest
// checkpoint that was signed at the given instant or before it, so none that
// was sealed later. It returns how many it deleted; without such a checkpoint
// none. The chains stay verifiable from the cut on, and the cut is an event
// itself. Called again after a crash it finishes what is left.
func (a *Audit) Cut(ctx context.Context, before time.Time) (deleted int64, err error) {
	if a.sealer == nil {
		return 0, ErrNoKeys
	}
	c, found, err := a.store.checkpointBefore(ctx, before.UnixMilli())
	if err != nil || !found {
		return 0, err
	}
	opened, err := a.signer.open(ctx)
	if err != nil {
		return 0, err
	}
	if key, ok := opened[c.KeyID]; !ok || !key.verify(c) {
		return 0, fmt.Errorf("audit: checkpoint %d does not verify, the trail is not cut there", c.Seq)
	}
	if err := a.setCut(ctx, c); err != nil {
		return 0, err
	}
	cuts, err := a.store.cuts(ctx)
	if err != nil {
		return 0, err
	}
	for _, cut := range cuts {
		n, err := a.purge(ctx, cut)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// setCut allows the events under a checkpoint to be deleted.
func (a *Audit) setCut(ctx context.Context, c Checkpoint) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		cuts, err := a.store.cuts(ctx)
		if err != nil {
			return err
		}
		moved := int64(0)
		for _, h := range c.Heads {
			by := h.Seq - cuts[h.Shard].Seq
			if by <= 0 {
				continue
			}
			inserted, err := a.store.insertCut(ctx, h)
			if err != nil {
				return err
			}
			if inserted {
				moved += by
			}
		}
		if moved == 0 {
			return nil
		}
		return a.Record(ctx, Event{Action: "audit/trail_cut",
			Subject: Target{Type: "checkpoint", ID: fmt.Sprint(c.Seq)}, Detail: map[string]int64{"events": moved}})
	})
}

func (a *Audit) purge(ctx context.Context, cut Head) (deleted int64, err error) {
	for {
		n := 0
		err := a.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
			n, err = a.store.purge(ctx, cut, purgeBatch)
			return err
		})
		if deleted += int64(n); err != nil || n < purgeBatch {
			return deleted, err
		}
	}
}
