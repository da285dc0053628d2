package audit

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// verifyPage limits what Verify holds in memory.
const verifyPage = 500

func (b *Break) String() string {
	if b.Kind == BreakCheckpoint {
		return fmt.Sprintf("checkpoint %d: %s", b.Checkpoint, b.Reason)
	}
	return fmt.Sprintf("%s: shard %d, number %d, event %q: %s", b.Kind, b.Shard, b.Seq, b.EventID, b.Reason)
}

// Verify reads the whole trail in small pages, concurrently with writers, and reports the first
// break: an event that was changed, is missing, inserted or out of order, a gap, an invalid
// checkpoint, or an unsigned cut. Every anchor identifies a checkpoint that the trail must have;
// without anchors, a database that was reset or emptied as a whole verifies. The error is a read
// error only.
func (a *Audit) Verify(ctx context.Context, anchors ...Anchor) (Report, error) {
	for {
		v := &verification{audit: a, store: a.store, anchors: anchors}
		err := v.walk(ctx)
		if err != nil || v.report.Break == nil {
			return v.report, err
		}
		if moved, err := v.cutMoved(ctx); err != nil || !moved {
			return v.report, err
		}
		// Retention overtook the walk: the missing events are those it has cut.
	}
}

// verification is one pass over the trail.
type verification struct {
	audit   *Audit
	store   store
	anchors []Anchor
	report  Report
	heads   []Head
	cuts    map[int64]Head
}

func (v *verification) broken(b Break) { v.report.Break = &b }

func (v *verification) walk(ctx context.Context) (err error) {
	if v.heads, err = v.store.heads(ctx); err != nil {
		return err
	}
	if v.cuts, err = v.store.cuts(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{v.anchored, v.chains, v.queues, v.strays, v.checkpoints, v.cut} {
		if err := step(ctx); err != nil || v.report.Break != nil {
			return err
		}
	}
	return nil
}

// cutMoved reports whether the trail was cut since the pass began.
func (v *verification) cutMoved(ctx context.Context) (bool, error) {
	cuts, err := v.store.cuts(ctx)
	for shard, cut := range cuts {
		if cut.Seq > v.cuts[shard].Seq {
			return true, err
		}
	}
	return false, err
}

// anchored checks that the trail has the anchors.
func (v *verification) anchored(ctx context.Context) error {
	for _, anchor := range v.anchors {
		c, found, err := v.store.checkpointAt(ctx, anchor.Checkpoint)
		if err != nil {
			return err
		}
		if !found {
			v.broken(Break{Kind: BreakCheckpoint, Checkpoint: anchor.Checkpoint, Reason: "it was logged and the trail does not have it"})
			return nil
		}
		if !bytes.Equal(c.hash(), anchor.Hash) {
			v.broken(Break{Kind: BreakCheckpoint, Checkpoint: anchor.Checkpoint, Reason: "it is not the one that was logged"})
			return nil
		}
	}
	return nil
}

// cut checks the beginning of the trail against its signature and against the event of the cut,
// which is later than its checkpoint, so that no cut covers it.
func (v *verification) cut(ctx context.Context) error {
	if v.audit.sealer == nil || len(v.cuts) == 0 {
		return nil
	}
	bad := func(checkpoint int64, reason string) error {
		v.broken(Break{Kind: BreakCheckpoint, Checkpoint: checkpoint, Reason: reason})
		return nil
	}
	p, found, err := v.store.proof(ctx)
	if err != nil {
		return err
	}
	if !found {
		return bad(0, "the trail is cut and nobody signed that")
	}
	opened, err := v.audit.signer.open(ctx)
	if err != nil {
		return err
	}
	key, known := opened[p.keyID]
	switch {
	case !known && v.audit.sealer.Ephemeral():
	case !known:
		return bad(p.checkpoint, "the cut was signed with a key that does not open with the master keys")
	case !key.verify(p.statement(v.cuts), p.signature):
		return bad(p.checkpoint, "the trail is not cut where that was signed")
	}
	e, found, err := v.store.event(ctx, p.eventID)
	if err == nil && (!found || e.Action != cutAction || e.Subject != (Target{"checkpoint", fmt.Sprint(p.checkpoint)})) {
		return bad(p.checkpoint, "the event of the cut is gone")
	}
	return err
}

// chains verifies every shard from its cut to its head.
func (v *verification) chains(ctx context.Context) error {
	if len(v.heads) == 0 {
		v.broken(Break{Kind: BreakMissing, Reason: "the heads of all chains are gone"})
	}
	for i, head := range v.heads {
		if head.Shard != int64(i) {
			v.broken(Break{Kind: BreakMissing, Shard: int64(i), Reason: "the head of the chain is gone"})
			return nil
		}
		if err := v.chain(ctx, head); err != nil || v.report.Break != nil {
			return err
		}
	}
	return nil
}

// chain verifies one shard.
func (v *verification) chain(ctx context.Context, head Head) error {
	last := Head{Shard: head.Shard, Hash: make([]byte, 32)}
	if cut, ok := v.cuts[head.Shard]; ok {
		if err := v.covered(ctx, cut); err != nil || v.report.Break != nil {
			return err
		}
		last = cut
	}
	v.report.Cut += last.Seq
	for last.Seq < head.Seq {
		page, err := v.store.chain(ctx, head.Shard, last.Seq, head.Seq, verifyPage)
		if err != nil {
			return err
		}
		begin := last.Seq
		erased, b, err := v.follow(ctx, &last, page)
		v.report.Sealed, v.report.Erased = v.report.Sealed+last.Seq-begin, v.report.Erased+erased
		if err != nil || b != nil {
			v.report.Break = b
			return err
		}
		if len(page) < verifyPage {
			break
		}
	}
	switch {
	case last.Seq < head.Seq:
		v.broken(Break{Kind: BreakMissing, Shard: head.Shard, Seq: last.Seq + 1, Reason: "the chain ends before its head"})
	case !bytes.Equal(last.Hash, head.Hash):
		v.broken(Break{Kind: BreakMissing, Shard: head.Shard, Seq: head.Seq, Reason: "the head is not the last link of the chain"})
	}
	return nil
}

// covered verifies what is left under a cut: retention deletes from the beginning on, so that the
// remaining links must be the end of the cut part, without gaps.
func (v *verification) covered(ctx context.Context, cut Head) error {
	last := Head{Shard: cut.Shard}
	for last.Seq < cut.Seq {
		page, err := v.store.chain(ctx, cut.Shard, last.Seq, cut.Seq, verifyPage)
		if err != nil || len(page) == 0 && last.Seq == 0 {
			return err
		}
		if last.Seq == 0 { // the links before it are deleted
			last.Seq, last.Hash = page[0].seq-1, page[0].prev
		}
		if _, b, err := v.follow(ctx, &last, page); err != nil || b != nil {
			v.report.Break = b
			return err
		}
		if len(page) < verifyPage {
			break
		}
	}
	if last.Seq < cut.Seq || !bytes.Equal(last.Hash, cut.Hash) {
		v.broken(Break{Kind: BreakMissing, Shard: cut.Shard, Seq: last.Seq + 1, Reason: "what is left under the cut does not lead to it"})
	}
	return nil
}

// follow verifies the links of a page and their events, starting from the previous link, and counts
// the events without personal data.
func (v *verification) follow(ctx context.Context, last *Head, page []link) (erased int64, b *Break, err error) {
	ids := make([]string, len(page))
	for i, l := range page {
		ids[i] = l.eventID
	}
	events, err := v.store.records(ctx, ids)
	if err != nil {
		return 0, nil, err
	}
	for _, l := range page {
		e, found := events[l.eventID]
		if b := checkLink(*last, l, e, found); b != nil {
			return erased, b, nil
		}
		if e.commitment != nil && e.salt == nil {
			erased++
		}
		last.Seq, last.Hash = l.seq, l.hash
	}
	return erased, nil, nil
}

// checkLink verifies a link and its event against the previous link.
func checkLink(last Head, l link, e record, found bool) *Break {
	b := Break{Shard: last.Shard, Seq: l.seq, EventID: l.eventID}
	fault := func(kind BreakKind, reason string) *Break {
		b.Kind, b.Reason = kind, reason
		return &b
	}
	switch reason := e.fault(); {
	case l.seq != last.Seq+1:
		b.Seq = last.Seq + 1
		b.EventID = ""
		return fault(BreakGap, "the chain skips a number")
	case !bytes.Equal(l.prev, last.Hash):
		return fault(BreakReordered, "the link does not follow from the one before")
	case !found:
		return fault(BreakMissing, "the event is gone")
	case reason != "":
		return fault(BreakAltered, reason)
	case !bytes.Equal(l.hash, sealHash(last.Shard, l.seq, l.eventID, e.Hash, l.prev)):
		return fault(BreakAltered, "the link is not over this event")
	}
	return nil
}

// fault returns the inconsistency in a record, or "".
func (r record) fault() string {
	if !bytes.Equal(r.Hash, contentHash(r.Entry, r.targets, r.commitment)) {
		return "the event is not what was recorded"
	}
	if r.salt == nil {
		return ""
	}
	who := personal{IP: r.IP, UserAgent: r.UserAgent, Salt: r.salt}
	if !bytes.Equal(r.commitment, who.commitment()) {
		return "the personal data is not what was recorded"
	}
	return ""
}

// queues verifies the unsealed events.
func (v *verification) queues(ctx context.Context) error {
	for _, head := range v.heads {
		for after := ""; ; {
			ids, err := v.store.queued(ctx, head.Shard, after, verifyPage)
			if err != nil {
				return err
			}
			events, err := v.store.records(ctx, ids)
			if err != nil {
				return err
			}
			for _, id := range ids {
				e, found := events[id]
				switch reason := e.fault(); {
				case !found:
					v.broken(Break{Kind: BreakMissing, Shard: head.Shard, EventID: id, Reason: "the event waited for a seal and is gone"})
					return nil
				case reason != "":
					v.broken(Break{Kind: BreakAltered, Shard: head.Shard, EventID: id, Reason: reason})
					return nil
				}
				v.report.Waiting++
				after = id
			}
			if len(ids) < verifyPage {
				break
			}
		}
	}
	return nil
}

// strays searches for events and links that were inserted without the sealer.
func (v *verification) strays(ctx context.Context) error {
	for after := ""; ; {
		n, last, stray, err := v.store.strays(ctx, after, verifyPage)
		if err != nil {
			return err
		}
		if stray != "" {
			v.broken(Break{Kind: BreakInserted, EventID: stray, Reason: "the event is neither sealed nor waiting"})
			return nil
		}
		if n < verifyPage {
			break
		}
		after = last
	}
	l, found, err := v.store.strayLink(ctx)
	if found {
		v.broken(Break{Kind: BreakInserted, Shard: l.Shard, Seq: l.Seq, Reason: "the link is in no chain"})
	}
	return err
}

// checkpoints verifies the signatures of checkpoints and that the chains match them.
func (v *verification) checkpoints(ctx context.Context) error {
	if v.audit.sealer == nil {
		return nil
	}
	opened, err := v.audit.signer.open(ctx)
	if err != nil {
		return err
	}
	uncovered := make(map[int64]Head, len(v.cuts))
	for shard, cut := range v.cuts {
		uncovered[shard] = cut
	}
	var last Checkpoint
	for {
		page, err := v.store.checkpoints(ctx, last.Seq, verifyPage)
		if err != nil {
			return err
		}
		for _, c := range page {
			reason, err := v.checkpoint(ctx, opened, last, c)
			if err != nil {
				return err
			}
			if reason != "" {
				v.broken(Break{Kind: BreakCheckpoint, Checkpoint: last.Seq + 1, Reason: reason})
				return nil
			}
			for _, h := range c.Heads {
				if cut, ok := uncovered[h.Shard]; ok && cut.Seq == h.Seq && bytes.Equal(cut.Hash, h.Hash) {
					delete(uncovered, h.Shard)
				}
			}
			last = c
		}
		if len(page) < verifyPage {
			break
		}
	}
	for _, cut := range uncovered {
		v.broken(Break{Kind: BreakCheckpoint, Shard: cut.Shard, Checkpoint: last.Seq, Reason: "the trail is cut where no checkpoint is"})
		break
	}
	return nil
}

// checkpoint returns the fault of a checkpoint that follows last, or "".
func (v *verification) checkpoint(ctx context.Context, opened map[string]keyPair, last, c Checkpoint) (reason string, err error) {
	prev := make([]byte, 32)
	if last.Seq > 0 {
		prev = last.hash()
	}
	key, known := opened[c.KeyID]
	switch {
	case c.Seq != last.Seq+1:
		return "it is missing", nil
	case !bytes.Equal(c.Prev, prev):
		return "it does not follow from the one before", nil
	case !known && v.audit.sealer.Ephemeral():
		v.report.Unverified++
	case !known:
		return "it was signed with a key that does not open with the master keys", nil
	case !key.verify(c.statement(), c.Signature):
		return "its signature does not verify", nil
	default:
		v.report.Checkpoints++
	}
	sealed, err := v.store.sealedAt(ctx, c.Seq)
	if err != nil {
		return "", err
	}
	for _, h := range c.Heads {
		at := slices.IndexFunc(sealed, func(s Head) bool { return s.Shard == h.Shard })
		cut := v.cuts[h.Shard]
		switch {
		case h.Seq < cut.Seq || h.Seq == 0:
		case h.Seq == cut.Seq && bytes.Equal(h.Hash, cut.Hash):
		case at < 0:
			return fmt.Sprintf("number %d of shard %d is gone", h.Seq, h.Shard), nil
		case !bytes.Equal(sealed[at].Hash, h.Hash):
			return fmt.Sprintf("the chain of shard %d is another one", h.Shard), nil
		}
	}
	return "", nil
}
