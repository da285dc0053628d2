package audit

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/queue"
)

const batchSize = 256 // maximum number of events in one transaction

// Pending is an event that is prepared but not yet written. The zero value means no event.
type Pending struct {
	entry      Entry
	who        personal
	targets    string
	commitment []byte
	// origin is the request of the event; nil outside of one.
	origin *capability.RequestInfo
}

// Prepare completes an event with the request in ctx, for [Audit.RecordAll] in a transaction that
// several requests share. It does no I/O and returns [ErrInvalidEvent] for an event that violates
// the grammar. A nil *Audit prepares nothing.
func (a *Audit) Prepare(ctx context.Context, e Event) (Pending, error) {
	if a == nil {
		return Pending{}, nil
	}
	return a.prepare(ctx, e, true)
}

func (a *Audit) prepare(ctx context.Context, e Event, origin bool) (Pending, error) {
	entry, who, err := a.complete(ctx, e)
	if err != nil {
		return Pending{}, err
	}
	if !origin {
		who = personal{}
	}
	now := a.host.DB.Now(ctx)
	entry.ID, entry.OccurredAt = id.New(now), capability.Millis(now.UnixMilli())
	p := Pending{entry: entry, origin: capability.RequestInfoOf(ctx)}
	if p.targets, err = textOf(entry.Targets); err != nil {
		return Pending{}, err
	}
	if !who.empty() {
		p.who = who.salted()
		p.commitment = p.who.commitment()
	}
	p.entry.Hash = contentHash(entry, p.targets, p.commitment)
	return p, nil
}

// RecordAll writes prepared events in the transaction of ctx, which must have one, each as
// [Audit.Record] would in its own request. A nil *Audit writes nothing.
func (a *Audit) RecordAll(ctx context.Context, events ...Pending) error {
	if a == nil || len(events) == 0 {
		return nil
	}
	for _, p := range events {
		if p.origin != nil && p.entry.Outcome == OutcomeSucceeded {
			database.AfterCommit(ctx, p.origin.MarkRecorded)
		}
	}
	return a.store.insert(ctx, events)
}

// run writes the events of callers outside of a transaction. All of them are valid, so the database
// refuses all or none.
func (a *Audit) run(ctx context.Context, calls []*queue.Call[Pending, struct{}]) int {
	events := make([]Pending, len(calls))
	for i, c := range calls {
		events[i] = c.Op
	}
	err := a.host.DB.InTx(ctx, func(ctx context.Context) error { return a.RecordAll(ctx, events...) })
	for _, c := range calls {
		c.Err = err
	}
	return len(calls)
}
