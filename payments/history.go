package payments

import (
	"context"
	"errors"
	"log/slog"

	"github.com/kitbackend/kit/audit"
)

// history reads the rail's history since the last run, a page at a time. It stores its position
// after each page, up to one that could not be written.
func (w *walk) history(ctx context.Context, r *railWalk) error {
	if r.rail.History == nil {
		return nil
	}
	now := w.p.host.Now()
	at, known, err := w.p.store.history(ctx, r.rail.ID)
	if err != nil {
		return err
	}
	switch {
	case !known:
		at = historyRow{since: At(now.Add(-firstHistory)), until: At(now)}
	case at.until > At(now):
		// A clock that was ahead wrote it, so nobody knows when the window was read.
		if at.since > At(now) {
			at.since = At(now) - deliveryAge
		}
		at = historyRow{since: at.since, until: At(now)}
	case at.cursor == "":
		at = historyRow{since: at.until - Instant(historyOverlap.Milliseconds()), until: At(now)}
	}
	again, left := false, false
	for range maxPages {
		access, err := w.p.access(ctx, r.rail)
		if err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, callBudget)
		page, err := r.rail.History(asking, access, Window{Since: at.since, Until: at.until, Cursor: at.cursor, Limit: batchSize})
		late := asking.Err() != nil
		cancel()
		if err != nil && !late && !again && at.cursor != "" && !IsTransient(err) {
			// The rail may have forgotten the cursor: the window is read from its beginning. The
			// cursor is replaced only once a page was read.
			w.p.host.Log.WarnContext(ctx, "payments: the history of a rail is read again", slog.String("rail", string(r.rail.ID)), slog.Any("error", err))
			again, at.cursor, at.until = true, "", At(now)
			continue
		}
		if err != nil {
			w.run.failed++
			r.part.Failed++
			return err
		}
		unwritten, err := w.historyPage(ctx, r, page)
		if err != nil {
			return err
		}
		left = left || unwritten
		at.cursor = page.Next
		if left && page.Next == "" { // the next run reads the window again, as long as webhooks are kept
			at.until = max(at.since, At(now)-deliveryAge) + Instant(historyOverlap.Milliseconds())
		}
		if !left || page.Next == "" {
			if err := w.p.store.setHistory(ctx, r.rail.ID, at); err != nil {
				return err
			}
		}
		if ok, err := w.beat(ctx, r.part); err != nil || !ok || page.Next == "" {
			return err
		}
	}
	r.part.More = true
	return nil
}

// historyPage writes a page. Deliveries that fail are stored in the inbox; unwritten says that an
// observation, for which there is no inbox, has to be read again.
func (w *walk) historyPage(ctx context.Context, r *railWalk, page HistoryPage) (unwritten bool, err error) {
	for _, d := range page.Deliveries {
		received, err := w.p.deliver(ctx, r.rail, d, callBudget)
		if err != nil {
			if err := w.undelivered(ctx, r, d, err); err != nil {
				return false, err
			}
			continue
		}
		r.failures = 0
		if received.Outcome == OutcomeApplied {
			r.part.Recovered++
		}
	}
	for _, each := range page.Observations {
		checked, err := w.p.checkObservations(r.rail, []Observation{each})
		if errors.Is(err, ErrEnvironmentMismatch) {
			continue // a tester's purchase in the history of all
		}
		if err != nil {
			return unwritten, err
		}
		o := checked[0]
		c := &change{rail: r.rail, actor: audit.Actor{Kind: audit.ActorJob, ID: ReconcileBinding}}
		if err := w.p.host.DB.InTx(ctx, func(ctx context.Context) error { return w.p.apply(ctx, c, []Observation{o}) }); err != nil {
			unwritten = true
			w.unwritten(ctx, r.part, o.TransactionID, err)
			continue
		}
		w.p.afterApply(ctx, c)
		w.count(r.part, c, o.TransactionID)
	}
	return unwritten, nil
}
