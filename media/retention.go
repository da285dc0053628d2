package media

import (
	"context"
	"errors"
	"time"

	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/storage"
)

// Bounds of MEDIA_TIDY.
const (
	chunk = 200
	// stuck is after how long, in addition to the job's timeout, an item that is still processing
	// gets a new job, in case the first was lost.
	stuck = time.Hour
	// abandoned is the age at which a pending item is checked: it is removed if its upload was.
	abandoned = 24 * time.Hour
)

func (m *Media) bindings() []jobs.Binding {
	return []jobs.Binding{
		{Name: process, Timeout: m.timeout(), MaxAttempts: 2 * maxAttempts, Run: m.run},
		{Name: remake, Timeout: m.timeout(), MaxAttempts: 2 * maxAttempts, Run: m.runAgain},
		{Name: "MEDIA_TIDY", Schedule: "*/20 * * * *", Run: func(ctx context.Context, _ jobs.Job) error { return m.tidy(ctx) }},
	}
}

// timeout returns the time limit of one run of a job.
func (m *Media) timeout() time.Duration {
	if m.cfg.FFmpeg == "" {
		return processTimeout
	}
	return processTimeout + m.cfg.FilmTimeout
}

// tidy enqueues jobs for items that have lost theirs and for items that were made by another
// recipe, and removes items whose upload was given up.
func (m *Media) tidy(ctx context.Context) error {
	if err := m.remakeStale(ctx); err != nil {
		return err
	}
	err := m.walk(ctx, StatusProcessing, stuck+m.timeout(), func(ctx context.Context, i Item) error {
		_, err := m.jobs.Enqueue(ctx, process, payload{i.ID}, jobs.Key(i.ID))
		return err
	})
	if err != nil {
		return err
	}
	return m.walk(ctx, StatusPending, abandoned, func(ctx context.Context, i Item) error {
		o, err := m.space.Get(ctx, storage.ByID(i.ObjectID))
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return m.store.removePending(ctx, i.ID)
		case err != nil || o.State != storage.StateReady:
			return err
		}
		// Its bytes are stored, but the process ended before it finalized the item.
		_, err = m.Finalize(ctx, i.OwnerID, i.ID, nil)
		if _, refused := refusal(err); refused {
			return nil
		}
		return err
	})
}

// walk calls fn for the items of a status that did not change for some time. A failure does not
// stop it.
func (m *Media) walk(ctx context.Context, status Status, since time.Duration, fn func(context.Context, Item) error) error {
	before := m.host.Now().Add(-since).UnixMilli()
	var failed error
	for after := ""; ; {
		items, err := m.store.unfinished(ctx, status, before, after, chunk)
		if err != nil || len(items) == 0 {
			return errors.Join(failed, err)
		}
		for _, i := range items {
			if err := fn(ctx, i); err != nil {
				failed = err
			}
			after = i.ID
		}
	}
}
