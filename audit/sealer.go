package audit

import "context"

// sealBatch limits the events that one transaction seals.
const sealBatch = 500

// Seal chains all committed events that are not sealed and signs a checkpoint when one is due: an
// hour or 10,000 events after the last. It returns how many events it sealed. Several nodes may
// call it concurrently: a shard that another node is sealing is skipped.
func (a *Audit) Seal(ctx context.Context) (sealed int64, err error) {
	heads, err := a.store.heads(ctx)
	if err != nil {
		return 0, err
	}
	for _, h := range heads {
		for {
			n, err := a.sealNext(ctx, h.Shard)
			if sealed += int64(n); err != nil {
				return sealed, err
			}
			if n < sealBatch {
				break
			}
		}
	}
	if a.sealer != nil {
		_, err = a.checkpoint(ctx, checkpointEvery, checkpointEvents)
	}
	return sealed, err
}

// sealNext seals the next events of a shard and returns their number.
func (a *Audit) sealNext(ctx context.Context, shard int64) (n int, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		n = 0
		head, free, err := a.store.lockShard(ctx, shard)
		if err != nil || !free {
			return err
		}
		events, err := a.store.waiting(ctx, shard, sealBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		links := make([]link, len(events))
		for i, e := range events {
			l := link{seq: head.Seq + 1, eventID: e.id, prev: head.Hash}
			l.hash = sealHash(shard, l.seq, e.id, e.hash, l.prev)
			links[i], head.Seq, head.Hash = l, l.seq, l.hash
		}
		n = len(links)
		return a.store.appendSeals(ctx, shard, links)
	})
	return n, err
}
