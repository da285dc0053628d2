package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/storage/bucket"
)

// Timeouts and bounds of the jobs.
const (
	disposeTimeout = 30 * time.Second
	disposePause   = time.Minute
	sweepTimeout   = 6 * time.Hour
	// grace is the minimum age of bytes without a row that are removed: younger ones may be about
	// to get a row.
	grace = time.Hour
	// keepShares is how long an expired share is distinguished from an unknown one.
	keepShares = 30 * 24 * time.Hour
	chunk      = 1000
)

// Swept counts what a sweep has removed.
type Swept struct {
	// Bytes counts objects of the bucket that had no row.
	Bytes int64
	// Rows counts complete objects whose bytes were missing.
	Rows int64
	// Uploads counts multipart uploads that had no row.
	Uploads int64
}

// tidy removes expired uploads, the bytes of removed rows, and old shares.
func (s *Storage) tidy(ctx context.Context) error {
	for {
		now := s.host.Now().UnixMilli()
		owners, err := s.store.lapsedOwners(ctx, now, chunk)
		if err != nil {
			return err
		}
		for _, owner := range owners {
			if err := s.db.InTx(ctx, func(ctx context.Context) error {
				if err := s.store.lockUsage(ctx, owner); err != nil {
					return err
				}
				if _, err := s.expire(ctx, owner, now); err != nil {
					return err
				}
				return s.store.removeUsage(ctx, owner)
			}); err != nil {
				return err
			}
		}
		if len(owners) == 0 {
			break
		}
	}
	if err := s.disposeDue(ctx); err != nil {
		return err
	}
	for {
		n, err := s.store.removeOldShares(ctx, s.host.Now().Add(-keepShares).UnixMilli(), chunk)
		if err != nil || n < chunk {
			return err
		}
	}
}

// disposeDue removes the bytes whose rows were removed. A failure does not stop it from removing
// the others.
func (s *Storage) disposeDue(ctx context.Context) error {
	var failed error
	for ctx.Err() == nil {
		list, err := s.store.dueGarbage(ctx, s.host.Now().UnixMilli(), chunk)
		if err != nil {
			return err
		}
		for _, g := range list {
			if err := s.dispose(ctx, g); err != nil {
				failed = err
				if err := s.store.deferGarbage(ctx, g.key, s.host.Now().Add(grace/6).UnixMilli()); err != nil {
					return err
				}
			}
		}
		if len(list) < chunk {
			break
		}
	}
	return errors.Join(failed, ctx.Err())
}

// ErrForeignBucket reports that the bucket belongs to another database, or is not the bucket of
// this database: a sweep would remove objects of others.
var ErrForeignBucket = errors.New("storage: the bucket is not the one of this database; nothing was swept")

// claimKey is the object that names the database a bucket belongs to.
const claimKey = "kitbucketofthisdatabasekit"

// Sweep makes rows and bucket agree, as the job STORAGE_SWEEP does daily: it removes bytes and
// uploads without a row that are older than an hour, and rows of complete objects without bytes.
// Its memory use does not depend on the number of objects. It refuses with [ErrForeignBucket] to
// sweep a bucket of another database.
func (s *Storage) Sweep(ctx context.Context) (swept Swept, err error) {
	if err := s.tidy(ctx); err != nil {
		return swept, err
	}
	if err := s.claim(ctx); err != nil {
		return swept, err
	}
	started := s.host.Now()
	if err := s.sweepObjects(ctx, started, &swept); err != nil {
		return swept, err
	}
	if err := s.sweepUploads(ctx, started, &swept); err != nil {
		return swept, err
	}
	if swept != (Swept{}) {
		s.host.Log.InfoContext(ctx, "storage: swept", slog.Int64("bytes", swept.Bytes), slog.Int64("rows", swept.Rows), slog.Int64("uploads", swept.Uploads))
	}
	return swept, s.bucket.Tidy(ctx, started.Add(-grace))
}

// claim checks that bucket and database belong together.
func (s *Storage) claim(ctx context.Context) error {
	id, claimed, err := s.store.bucketID(ctx, newKey())
	if err != nil {
		return err
	}
	body, err := s.bucket.Open(ctx, claimKey, 0, -1)
	switch {
	case err == nil:
		text, err := io.ReadAll(io.LimitReader(body, 64))
		if err := errors.Join(err, body.Close()); err != nil {
			return err
		}
		if string(text) != id {
			return ErrForeignBucket
		}
		if claimed {
			return nil
		}
	case !errors.Is(err, bucket.ErrNotFound):
		return err
	case claimed:
		return ErrForeignBucket
	default:
		_, err := s.bucket.Put(ctx, claimKey, strings.NewReader(id), int64(len(id)), octets)
		if errors.Is(err, bucket.ErrExists) { // another sweep has just written it
			return s.claim(ctx)
		}
		if err != nil {
			return err
		}
	}
	return s.store.claimBucket(ctx)
}

// sweepObjects merges the keys of the bucket with those of the rows.
func (s *Storage) sweepObjects(ctx context.Context, started time.Time, swept *Swept) error {
	after := ""
	for {
		objects, err := s.bucket.List(ctx, after, chunk)
		if err != nil {
			return err
		}
		until := highest // the last page covers the remaining rows
		if len(objects) == chunk {
			until = objects[chunk-1].Key
		}
		if err := s.sweepBytes(ctx, objects, started, swept); err != nil {
			return err
		}
		if err := s.sweepRows(ctx, objects, after, until, started, swept); err != nil {
			return err
		}
		if len(objects) < chunk {
			return nil
		}
		after = until
	}
}

// sweepBytes removes objects without a row.
func (s *Storage) sweepBytes(ctx context.Context, objects []bucket.Object, started time.Time, swept *Swept) error {
	var keys []string
	for _, o := range objects {
		if o.Key != claimKey && started.Sub(o.ModifiedAt) > grace {
			keys = append(keys, o.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	known, err := s.store.knownKeys(ctx, keys)
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		_, found := slices.BinarySearch(known, key)
		return found
	})
	if len(keys) == 0 {
		return nil
	}
	swept.Bytes += int64(len(keys))
	return s.bucket.Delete(ctx, keys...)
}

// sweepRows removes complete objects between two keys that are not in the list.
func (s *Storage) sweepRows(ctx context.Context, objects []bucket.Object, after, until string, started time.Time, swept *Swept) error {
	for {
		rows, err := s.store.readyBetween(ctx, after, until, started.Add(-grace).UnixMilli(), chunk)
		if err != nil {
			return err
		}
		for _, o := range rows {
			after = o.key
			_, listed := slices.BinarySearchFunc(objects, o.key, func(b bucket.Object, key string) int { return strings.Compare(b.Key, key) })
			if listed {
				continue
			}
			if _, err := s.bucket.Head(ctx, o.key); !errors.Is(err, bucket.ErrNotFound) {
				if err != nil {
					return err
				}
				continue
			}
			s.host.Log.WarnContext(ctx, "storage: an object has no bytes", slog.String("object", o.ID))
			if err := s.Namespace(o.Namespace).Delete(ctx, ByID(o.ID)); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			swept.Rows++
		}
		if len(rows) < chunk {
			return nil
		}
	}
}

// sweepUploads aborts multipart uploads without a row.
func (s *Storage) sweepUploads(ctx context.Context, started time.Time, swept *Swept) error {
	for cursor := ""; ; {
		uploads, next, err := s.bucket.Uploads(ctx, cursor, chunk)
		if err != nil {
			return err
		}
		for _, u := range uploads {
			if started.Sub(u.StartedAt) <= grace {
				continue
			}
			o, found, err := s.store.byKey(ctx, u.Key)
			if err != nil {
				return err
			}
			// A pending row without an upload ID is of bytes that the kit itself is writing.
			if found && o.State == StatePending && (o.uploadID == u.ID || o.uploadID == "") {
				continue
			}
			if err := s.bucket.Abort(ctx, u.Key, u.ID); err != nil {
				return fmt.Errorf("abort an upload: %w", err)
			}
			swept.Uploads++
		}
		if cursor = next; next == "" {
			return nil
		}
	}
}
