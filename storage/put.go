package storage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/kitbackend/kit/capability"
)

// Put stores the bytes of r as a complete object, for the application itself: the quota of the
// owner applies, Config.AllowedTypes and Config.Authorize do not. It moves bytes and so cannot be
// called inside a transaction. Refuses with storage/quota_exceeded, kit/invalid_request,
// kit/body_too_large, and storage/not_found if the reservation ended before r did.
func (p Space) Put(ctx context.Context, u Upload, r io.Reader) (Object, error) {
	o, err := p.Stage(ctx, u, r)
	if err != nil {
		return Object{}, err
	}
	ready, err := p.Commit(ctx, ByID(o.ID))
	if err != nil {
		return Object{}, errors.Join(err, p.abandon(context.WithoutCancel(ctx), o))
	}
	return ready, nil
}

// Stage stores the bytes of r as a pending object, which [Space.Commit] makes readable inside the
// caller's transaction. If it is not committed, it expires after Config.PendingTTL, or after the
// PendingTTL of the upload if that is longer. Refuses as Put does.
func (p Space) Stage(ctx context.Context, u Upload, r io.Reader) (Object, error) {
	s := p.s
	if s.db.InTransaction(ctx) {
		return Object{}, errInTransaction
	}
	o, err := p.draft(u)
	if err != nil {
		return o, err
	}
	want := o.SHA256
	o.SHA256 = nil
	if err := p.reserve(ctx, &o, u.PendingTTL); err != nil {
		return o, err
	}
	in := &metered{p: p, ctx: ctx, r: r, o: &o, fixed: u.Size >= 0}
	sum := sha256.New()
	_, err = s.bucket.Put(ctx, o.key, io.TeeReader(in, sum), u.Size, storedType(o.ContentType))
	sha := hex.EncodeToString(sum.Sum(nil))
	switch {
	case in.err != nil:
		err = in.err
	case err != nil:
		err = unavailable(err)
	case want != nil && *want != sha:
		err = capability.ErrInvalidRequest.Saying("The bytes do not have the sha256 that was given.")
	default:
		err = s.staged(ctx, o, in.n, sha)
	}
	if err != nil {
		return Object{}, errors.Join(err, p.abandon(context.WithoutCancel(ctx), o))
	}
	o.Size, o.SHA256, o.stored = in.n, &sha, true
	return o, nil
}

// staged records that the bytes of a pending object are stored, and their size and checksum.
func (s *Storage) staged(ctx context.Context, o Object, size int64, sha string) error {
	return s.db.InTx(ctx, func(ctx context.Context) error {
		if err := s.store.lockUsage(ctx, o.OwnerID); err != nil {
			return err
		}
		now, found, err := s.store.lockObject(ctx, o.Namespace, o.ID)
		if err == nil && (!found || now.State != StatePending) {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		if err := s.store.account(ctx, o.OwnerID, 0, size-now.Size); err != nil {
			return err
		}
		return s.store.setStored(ctx, o.ID, size, sha)
	})
}

// Commit makes a staged object readable and replaces an object of the owner at the same path, in
// the caller's transaction if there is one. Refuses with storage/not_found and
// storage/upload_incomplete.
func (p Space) Commit(ctx context.Context, ref Ref) (Object, error) { return p.commit(ctx, ref, false) }

// growth is how many bytes are reserved at a time for an object whose size is not known.
const growth = 8 << 20

// metered is a reader that never returns more bytes than are reserved. It extends the reservation
// of an object whose size is not known.
type metered struct {
	p     Space
	ctx   context.Context
	r     io.Reader
	o     *Object
	fixed bool
	n     int64
	err   error
}

func (m *metered) Read(buf []byte) (int, error) {
	n, err := m.r.Read(buf)
	m.n += int64(n)
	if m.n > m.o.Size {
		if failed := m.grow(); failed != nil {
			m.err = failed
			return 0, failed
		}
	}
	if err != nil && err != io.EOF {
		m.err = err
	}
	if err == io.EOF && m.fixed && m.n < m.o.Size {
		m.err = capability.ErrInvalidRequest.Saying("The object has %d bytes, not the %d that were given.", m.n, m.o.Size)
		return n, m.err
	}
	return n, err
}

func (m *metered) grow() error {
	if m.fixed {
		return capability.ErrInvalidRequest.Saying("The object has more than the %d bytes that were given.", m.o.Size)
	}
	s, o := m.p.s, m.o
	if err := s.fits(m.n); err != nil {
		return err
	}
	quota, err := s.quota(m.ctx, o.OwnerID)
	if err != nil {
		return err
	}
	size := m.n + growth
	err = s.db.InTx(m.ctx, func(ctx context.Context) error {
		if err := s.store.lockUsage(ctx, o.OwnerID); err != nil {
			return err
		}
		if size = m.n + growth; quota > 0 {
			u, err := s.store.usage(ctx, o.OwnerID)
			if err != nil {
				return err
			}
			size = max(m.n, min(size, o.Size+quota-u.Used-u.Reserved))
		}
		// If the reservation has ended in the meantime, nothing would release what is added.
		pending, err := s.store.setSize(ctx, o.ID, size)
		if err != nil || !pending {
			return cmp.Or(err, error(ErrNotFound))
		}
		return s.charge(ctx, o.OwnerID, size-o.Size, quota)
	})
	if err == nil {
		o.Size = size
	}
	return err
}
