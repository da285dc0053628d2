package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/storage"
)

// The job that remakes derivatives, and its bounds.
const (
	remake = "MEDIA_REMAKE"
	// atOnce bounds the jobs that one run of MEDIA_TIDY enqueues to remake derivatives.
	atOnce = 1000
)

// recipe returns a hash of the configuration that determines the derivatives.
func (c Config) recipe() string {
	text, err := json.Marshal(struct {
		Sizes        []Size
		Decoders     []string
		Vips, FFmpeg bool
		MaxFilm      time.Duration
	}{c.Derivatives, slices.Sorted(maps.Keys(c.Decoders)), c.Vips != "", c.FFmpeg != "", c.MaxFilm})
	if err != nil { // cannot fail: only numbers, texts and booleans
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// remakeStale enqueues jobs for items that were made by another recipe.
func (m *Media) remakeStale(ctx context.Context) error {
	ids, err := m.store.stale(ctx, m.recipe, atOnce)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := m.jobs.Enqueue(ctx, remake, payload{id}, jobs.Key(id)); err != nil {
			return err
		}
	}
	return nil
}

// runAgain remakes the derivatives of a ready item. The item keeps its derivatives until then, or
// permanently if that fails.
func (m *Media) runAgain(ctx context.Context, job jobs.Job) error {
	var p payload
	if err := json.Unmarshal(job.Payload, &p); err != nil {
		return jobs.Permanent(err)
	}
	i, ok, err := m.claim(ctx, p.ID, StatusReady)
	if err != nil || !ok {
		return err
	}
	if i.attempts > maxAttempts {
		return m.keep(ctx, i, errGivenUp)
	}
	out := &made{Item: i, again: true}
	if err = m.make(ctx, out); err == nil {
		err = m.finish(ctx, out)
	}
	if err == nil {
		return nil
	}
	m.release(context.WithoutCancel(ctx), out.staged)
	if back, ok := m.refund(ctx, i, err); ok {
		return back
	}
	if _, refused := refusal(err); refused || i.attempts >= maxAttempts || errors.Is(err, storage.ErrQuotaExceeded) {
		return m.keep(context.WithoutCancel(ctx), i, err)
	}
	return err
}

var errGivenUp = errors.New("media: the process ended each time")

// keep leaves an item unchanged and marks it as made by the current recipe.
func (m *Media) keep(ctx context.Context, i Item, why error) error {
	m.log.LogAttrs(ctx, slog.LevelWarn, "media: an item keeps the derivatives it has", slog.String("item", i.ID), slog.Any("error", why))
	return m.db.InTx(ctx, func(ctx context.Context) error {
		now, found, err := m.store.lockItem(ctx, i.ID)
		if err != nil {
			return err
		}
		if found && now.Status == StatusReady {
			now.recipe, now.attempts = m.recipe, 0
			if err := m.store.update(ctx, now); err != nil {
				return err
			}
		}
		return jobs.Complete(ctx)
	})
}
