package audit

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"time"
)

// purgeBatch limits the events that one transaction deletes.
const purgeBatch = 500

// Cut deletes the beginning of the trail: every event covered by the newest checkpoint signed at or
// before the given time, so no event that was sealed later. A checkpoint that follows a later one
// was signed by a clock that was behind and does not count. Cut returns how many events it deleted;
// without such a checkpoint, none. The chains remain verifiable from the cut on, and the cut is
// itself an event. Called again after a crash, Cut deletes the rest.
func (a *Audit) Cut(ctx context.Context, before time.Time) (deleted int64, err error) {
	if a.sealer == nil {
		return 0, ErrNoKeys
	}
	c, found, err := a.store.checkpointBefore(ctx, before.UnixMilli(), a.host.DB.Now(ctx).UnixMilli())
	if err != nil || !found {
		return 0, err
	}
	opened, err := a.signer.open(ctx)
	if err != nil {
		return 0, err
	}
	if key, ok := opened[c.KeyID]; !ok || !key.verify(c.statement(), c.Signature) {
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

// cutProof is a signed record of where the trail begins: the newest cut of every shard.
type cutProof struct {
	checkpoint, createdAt int64
	eventID, keyID        string
	signature             []byte
}

// statement returns the bytes that are signed.
func (p cutProof) statement(cuts map[int64]Head) []byte {
	d := newDigest("kit/audit/cut/v1")
	d.number(p.checkpoint, p.createdAt, int64(len(cuts)))
	for _, shard := range slices.Sorted(maps.Keys(cuts)) {
		d.number(shard, cuts[shard].Seq)
		d.bytes(cuts[shard].Hash)
	}
	d.text(p.eventID, p.keyID)
	return d.sum()
}

// setCut permits the deletion of the events covered by a checkpoint, and signs the cut.
func (a *Audit) setCut(ctx context.Context, c Checkpoint) error {
	key, err := a.signer.key(ctx, a.host.DB.Now(ctx))
	if err != nil {
		return err
	}
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
			if inserted { // no other node has inserted it meanwhile
				moved += by
			}
			cuts[h.Shard] = h
		}
		_, proven, err := a.store.proof(ctx)
		if err != nil || moved == 0 && (proven || len(cuts) == 0) {
			return err
		}
		eventID, err := a.record(ctx, Event{Action: cutAction,
			Subject: Target{Type: "checkpoint", ID: fmt.Sprint(c.Seq)}, Detail: map[string]int64{"events": moved}}, true)
		if err != nil {
			return err
		}
		p := cutProof{checkpoint: c.Seq, createdAt: a.host.DB.Now(ctx).UnixMilli(), eventID: eventID, keyID: key.id}
		p.signature = ed25519.Sign(key.private, p.statement(cuts))
		return a.store.insertProof(ctx, p)
	})
}

// cutAction is the action of the event of a cut.
const cutAction = "audit/trail_cut"

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
