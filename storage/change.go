package storage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/storage/bucket"
)

// Update renames an object, changes who may read it or replaces its metadata; no bytes move.
// Refuses with storage/not_found, storage/forbidden, storage/upload_incomplete and
// kit/invalid_request.
func (p Space) Update(ctx context.Context, ref Ref, c Change) (o Object, err error) {
	if c.Path != nil {
		path, err := checkPath(*c.Path)
		if err != nil {
			return o, err
		}
		c.Path = &path
	}
	if c.ContentType != nil {
		contentType, err := checkType(*c.ContentType)
		if err != nil {
			return o, err
		}
		c.ContentType = &contentType
	}
	if c.Visibility != nil && !c.Visibility.known() {
		return o, capability.ErrInvalidRequest.Saying("visibility is private or public.")
	}
	if err := checkMetadata(c.Metadata); err != nil {
		return o, err
	}
	err = p.s.db.InTx(ctx, func(ctx context.Context) error {
		if o, err = p.lockOwned(ctx, ref); err == nil && o.State != StateReady {
			err = ErrUploadIncomplete
		}
		if err != nil {
			return err
		}
		o, err = p.apply(ctx, o, c)
		return err
	})
	return o, err
}

// apply changes a ready object whose owner is locked.
func (p Space) apply(ctx context.Context, o Object, c Change) (Object, error) {
	if c.Path != nil && *c.Path != o.Path {
		if err := p.vacate(ctx, o.OwnerID, *c.Path); err != nil {
			return o, err
		}
		o.Path = *c.Path
	}
	if c.Metadata != nil {
		o.Metadata = maps.Clone(c.Metadata)
	}
	if c.ContentType != nil {
		o.ContentType = *c.ContentType
	}
	o.UpdatedAt = capability.Millis(p.s.db.Now(ctx).UnixMilli())
	if c.Visibility != nil && *c.Visibility != o.Visibility {
		o.Visibility = *c.Visibility
		if err := p.s.record(ctx, "storage/visibility_changed", o, map[string]string{"visibility": string(o.Visibility)}); err != nil {
			return o, err
		}
	}
	return o, p.s.store.update(ctx, o)
}

// record writes an audit event about an object.
func (s *Storage) record(ctx context.Context, action string, o Object, detail any) error {
	e := audit.Event{Action: action, Subject: audit.Target{Type: "object", ID: o.ID}, Detail: detail}
	if o.OwnerID != "" {
		e.Targets = []audit.Target{{Type: "user", ID: o.OwnerID}}
	}
	return s.audit.Record(ctx, e)
}

// Copy makes a copy of a complete object for its owner, inside the bucket.
// Refuses with storage/not_found, storage/forbidden, storage/upload_incomplete,
// storage/quota_exceeded, kit/invalid_request and what Config.Authorize returns.
func (p Space) Copy(ctx context.Context, ref Ref, to CopyTo) (Object, error) {
	s := p.s
	if s.db.InTransaction(ctx) {
		return Object{}, errInTransaction
	}
	from, err := p.ready(ctx, ref)
	if err != nil {
		return Object{}, err
	}
	u := Upload{OwnerID: from.OwnerID, Path: to.Path, Size: from.Size, ContentType: from.ContentType,
		Visibility: cmp.Or(to.Visibility, s.cfg.DefaultVisibility), Metadata: from.Metadata}
	o, err := p.draft(u)
	if err != nil {
		return o, err
	}
	if err := p.permit(ctx, u, o); err != nil {
		return o, err
	}
	o.SHA256 = from.SHA256
	if err := p.reserve(ctx, &o, u.PendingTTL); err != nil {
		return o, err
	}
	var ready Object
	_, err = s.bucket.Copy(ctx, from.key, o.key, storedType(o.ContentType))
	if err == nil {
		ready, err = p.commit(ctx, ByID(o.ID), true)
	} else {
		err = s.unread(ctx, from, err)
	}
	if err != nil {
		return Object{}, errors.Join(err, p.abandon(context.WithoutCancel(ctx), o))
	}
	return ready, nil
}

// Delete removes an object, its shares and, after the commit, its bytes, in the
// caller's transaction if there is one. A pending upload is aborted. Refuses with
// storage/not_found and storage/forbidden.
func (p Space) Delete(ctx context.Context, ref Ref) error {
	return p.s.db.InTx(ctx, func(ctx context.Context) error { return p.deleteIn(ctx, ref) })
}

// deleteIn is Delete in the caller's transaction, which can continue after a refusal: an InTx
// inside it would fail all of it.
func (p Space) deleteIn(ctx context.Context, ref Ref) error {
	o, err := p.lockOwned(ctx, ref)
	if err != nil {
		return err
	}
	if o.State == StateReady {
		if err := p.s.record(ctx, "storage/deleted", o, nil); err != nil {
			return err
		}
	}
	if err := p.s.eraseOne(ctx, o); err != nil {
		return err
	}
	return p.s.store.removeUsage(ctx, o.OwnerID)
}

// DeleteAll removes many objects, at most [MaxBatch], in the caller's transaction if there is one,
// and returns how many it removed.
func (p Space) DeleteAll(ctx context.Context, ids []string) (removed int, err error) {
	if len(ids) > MaxBatch {
		return 0, capability.ErrInvalidRequest.Saying("At most %d objects at once.", MaxBatch)
	}
	err = p.s.db.InTx(ctx, func(ctx context.Context) error {
		removed = 0
		objects, err := p.s.store.objects(ctx, p.namespace, ids)
		if err != nil {
			return err
		}
		// Locks are taken in the order of the owners, to avoid deadlocks.
		slices.SortStableFunc(objects, func(a, b Object) int { return strings.Compare(a.OwnerID, b.OwnerID) })
		for _, o := range objects {
			err := p.deleteIn(ctx, ByID(o.ID))
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			removed++
		}
		return nil
	})
	return removed, err
}

// Move renames the objects of an owner whose paths begin with one prefix so that they begin with
// another, at most [MaxBatch] at a time, and returns how many it moved and whether more are left.
// No bytes move. Refuses with kit/invalid_request, also if one of the prefixes begins with the
// other.
func (p Space) Move(ctx context.Context, ownerID, from, to string) (moved int, more bool, err error) {
	if from, err = checkPrefix(from); err != nil {
		return 0, false, err
	}
	if to, err = checkPrefix(to); err != nil {
		return 0, false, err
	}
	if from == "" || strings.HasPrefix(to, from) || strings.HasPrefix(from, to) {
		return 0, false, capability.ErrInvalidRequest.Saying("The two prefixes must not begin with one another.")
	}
	err = p.s.db.InTx(ctx, func(ctx context.Context) error {
		moved, more = 0, false
		if err := p.s.store.lockUsage(ctx, ownerID); err != nil {
			return err
		}
		objects, err := p.s.store.below(ctx, p.namespace, ownerID, from, "", MaxBatch+1)
		if err != nil {
			return err
		}
		more = len(objects) > MaxBatch
		for _, o := range objects[:min(len(objects), MaxBatch)] {
			path, err := checkPath(to + strings.TrimPrefix(o.Path, from))
			if err != nil {
				return err
			}
			if _, err := p.apply(ctx, o, Change{Path: &path}); err != nil {
				return err
			}
			moved++
		}
		return p.s.store.removeUsage(ctx, ownerID)
	})
	return moved, more, err
}

// discard schedules the removal of an object's bytes, after the commit. While a signed URL may
// still write the object, dispose keeps its key occupied.
func (s *Storage) discard(ctx context.Context, o Object) error {
	now := s.db.Now(ctx).UnixMilli()
	g := garbage{key: o.key, upload: o.uploadID, due: now, writableUntil: o.writableUntil}
	if err := s.store.addGarbage(ctx, g); err != nil {
		return err
	}
	database.AfterCommit(ctx, func() { s.disposeSoon(g) })
	return nil
}

// disposeSoon removes bytes after a commit. A caller may have many to remove, so that after a
// failure of the bucket it does nothing for a while; the job STORAGE_TIDY tries again.
func (s *Storage) disposeSoon(g garbage) {
	if s.host.Now().UnixMilli() < s.failing.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), disposeTimeout)
	defer cancel()
	if s.dispose(ctx, g) != nil {
		s.failing.Store(s.host.Now().Add(disposePause).UnixMilli())
	}
}

// dispose removes bytes and then the row of garbage.
func (s *Storage) dispose(ctx context.Context, g garbage) error {
	if g.upload != "" {
		if err := s.bucket.Abort(ctx, g.key, g.upload); err != nil {
			return err
		}
	}
	if err := s.bucket.Delete(ctx, g.key); err != nil {
		return err
	}
	if g.writableUntil > s.host.Now().UnixMilli() {
		// An empty object occupies the key: signed URLs only write if there is none. An object
		// written in between, by a signed URL or by another node that removes the same bytes, is
		// removed at the next try.
		_, err := s.bucket.Put(ctx, g.key, strings.NewReader(""), 0, octets)
		if errors.Is(err, bucket.ErrExists) {
			return s.store.deferGarbage(ctx, g.key, s.host.Now().Add(grace/6).UnixMilli())
		}
		if err != nil {
			return err
		}
		return s.store.deferGarbage(ctx, g.key, g.writableUntil)
	}
	return s.store.removeGarbage(ctx, g.key)
}
