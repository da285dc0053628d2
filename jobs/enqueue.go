package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kitbackend/kit/internal/id"
)

// The bounds of a job in bytes, and how many EnqueueAll takes.
const (
	MaxPayload = 256 << 10
	MaxKey     = 256
	MaxJobs    = 10_000
)

// insertChunk is how many of them are in one statement.
const insertChunk = 1000

// Errors of Enqueue, SetAlarm and CancelAlarm.
var (
	ErrUnknownBinding = errors.New("jobs: unknown binding")
	ErrInvalidKey     = fmt.Errorf("jobs: a key is at most %d bytes of UTF-8 without NUL", MaxKey)
	ErrInvalidPayload = fmt.Errorf("jobs: a payload is at most %d bytes of JSON", MaxPayload)
)

// ErrTooMany refuses more than [MaxJobs] at once.
var ErrTooMany = fmt.Errorf("jobs: more than %d jobs at once", MaxJobs)

// errBusy reports that another job took the key at every try, which is next to impossible.
var errBusy = errors.New("jobs: the key is too busy")

// maxTries bounds the repetitions when a job ends between two statements.
const maxTries = 20

// EnqueueOption adjusts one Enqueue.
type EnqueueOption func(*row)

// Key makes the job the only one of its binding and key: while one is available or running, Enqueue returns its id and
// adds nothing, so what a run under way has already read is not read again. At most 256 bytes; empty means no key.
func Key(key string) EnqueueOption { return func(r *row) { r.Key = key } }

// At makes the job due at t instead of now. The zero time means now.
func At(t time.Time) EnqueueOption {
	return func(r *row) {
		if !t.IsZero() {
			r.runAt = t.UnixMilli()
		}
	}
}

// Enqueue adds a job and returns its id. It joins the transaction in ctx. The payload is stored as JSON, at most
// 256 KiB; nil as null. It refuses with [ErrUnknownBinding], [ErrInvalidKey] and [ErrInvalidPayload].
func (q *Queue) Enqueue(ctx context.Context, binding string, payload any, opts ...EnqueueOption) (string, error) {
	r, err := q.newRow(binding, payload)
	if err != nil {
		return "", err
	}
	r.trace = traceOf(ctx)
	for _, opt := range opts {
		opt(&r)
	}
	if err := checkKey(r.Key); err != nil {
		return "", err
	}
	if r.Key == "" {
		if err := q.add(ctx, &r); err != nil {
			return "", err
		}
		q.wake(ctx, r.runAt)
		return r.ID, nil
	}
	for range maxTries {
		added, err := q.insert(ctx, &r)
		if err != nil {
			return "", err
		}
		if added == 1 {
			q.wake(ctx, r.runAt)
			return r.ID, nil
		}
		first, found, err := q.keyHolder(ctx, r.Binding, r.Key)
		if err != nil || found {
			return first, err
		}
	}
	return "", errBusy
}

// add adds a job without a key: in the transaction in ctx, or with those of other callers.
func (q *Queue) add(ctx context.Context, r *row) error {
	if q.db.InTransaction(ctx) {
		_, err := q.insert(ctx, r)
		return err
	}
	_, err := q.batches.added.Do(ctx, r)
	return err
}

// EnqueueAll adds a job for each of the payloads, all or none, and returns their ids. It joins the transaction in ctx.
// There may be [MaxJobs] of them; options are for all, so a key is refused. Refusals are those of Enqueue, and
// [ErrTooMany].
func (q *Queue) EnqueueAll(ctx context.Context, binding string, payloads []any, opts ...EnqueueOption) ([]string, error) {
	if len(payloads) > MaxJobs {
		return nil, ErrTooMany
	}
	ids, rows, trace := make([]string, len(payloads)), make([]*row, len(payloads)), traceOf(ctx)
	for i, payload := range payloads {
		r, err := q.newRow(binding, payload)
		if err != nil {
			return nil, err
		}
		r.trace = trace
		for _, opt := range opts {
			opt(&r)
		}
		if r.Key != "" {
			return nil, ErrInvalidKey
		}
		ids[i], rows[i] = r.ID, &r
	}
	if len(rows) == 0 {
		return ids, nil
	}
	err := q.db.InTx(ctx, func(ctx context.Context) error {
		for chunk := range slices.Chunk(rows, insertChunk) {
			if _, err := q.insert(ctx, chunk...); err != nil {
				return err
			}
		}
		q.wake(ctx, rows[0].runAt)
		return nil
	})
	return ids, err
}

// SetAlarm makes a job of this binding and key due at the given instant, with this payload. It joins the transaction in
// ctx. It replaces the job that holds the key: a job that waits, for its time or for a retry, is
// moved and its attempts are counted from zero; one that is running runs to its end but is not
// retried if it fails, and the new job is added. The key is required; refusals are those of
// Enqueue.
func (q *Queue) SetAlarm(ctx context.Context, binding, key string, at time.Time, payload any) error {
	r, err := q.newRow(binding, payload)
	if err != nil {
		return err
	}
	if key == "" {
		return ErrInvalidKey
	}
	if err := checkKey(key); err != nil {
		return err
	}
	r.Key, r.runAt, r.trace = key, at.UnixMilli(), traceOf(ctx)
	return q.db.InTx(ctx, func(ctx context.Context) error {
		for range maxTries {
			set, err := q.upsert(ctx, r)
			if err != nil {
				return err
			}
			if set {
				q.wake(ctx, r.runAt)
				return nil
			}
			if err := q.takeKey(ctx, binding, key); err != nil {
				return err
			}
		}
		return errBusy
	})
}

// CancelAlarm cancels the job that holds the key: a job that waits is canceled; one that is running
// runs to its end but is not retried if it fails. It joins the transaction in ctx. It is no error
// if there is no such job.
func (q *Queue) CancelAlarm(ctx context.Context, binding, key string) error {
	if !q.Has(binding) {
		return fmt.Errorf("%w %s", ErrUnknownBinding, binding)
	}
	if err := checkKey(key); err != nil {
		return err
	}
	return q.cancelKey(ctx, binding, key, q.now().UnixMilli())
}

func (q *Queue) newRow(binding string, payload any) (row, error) {
	b, ok := q.binding(binding)
	if !ok {
		return row{}, fmt.Errorf("%w %s", ErrUnknownBinding, binding)
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return row{}, fmt.Errorf("%w: %w", ErrInvalidPayload, err)
	}
	if len(text) > MaxPayload || !utf8.Valid(text) {
		return row{}, ErrInvalidPayload
	}
	now := q.now()
	return row{
		Job:   Job{ID: id.New(now), Binding: binding, Payload: text},
		runAt: now.UnixMilli(), createdAt: now.UnixMilli(), maxAttempts: b.MaxAttempts,
	}, nil
}

func checkKey(key string) error {
	if len(key) > MaxKey || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return ErrInvalidKey
	}
	return nil
}
