package storage

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// Start reserves the space of an upload and returns where a client sends the bytes; the upload is
// complete after [Space.Complete]. Refuses with storage/quota_exceeded, storage/multipart_failed
// for more than 10,000 parts, kit/invalid_request, kit/body_too_large, kit/unsupported_media_type
// and what Config.Authorize returns.
func (p Space) Start(ctx context.Context, u Upload) (Started, error) {
	var none Started
	if p.s.db.InTransaction(ctx) {
		return none, errInTransaction
	}
	if u.Size < 0 {
		return none, capability.ErrInvalidRequest.Saying("size is a number of bytes, 0 or more.")
	}
	o, err := p.draft(u)
	if err != nil {
		return none, err
	}
	if err := p.permit(ctx, u, o); err != nil {
		return none, err
	}
	if o.Size > p.s.cfg.MultipartThresholdBytes {
		o.partSize = p.s.cfg.PartSizeBytes
		o.SHA256 = nil
		if o.plan().Parts() > bucket.MaxParts {
			return none, ErrMultipartFailed.Saying("The object would need more than %d parts.", bucket.MaxParts)
		}
	}
	if err := p.reserve(ctx, &o, u.PendingTTL); err != nil {
		return none, err
	}
	plan, err := p.s.begin(ctx, &o)
	if err != nil {
		return none, errors.Join(err, p.abandon(context.WithoutCancel(ctx), o))
	}
	return Started{Object: o, Upload: plan}, nil
}

// draft checks the description of an upload and returns the pending object.
func (p Space) draft(u Upload) (o Object, err error) {
	if p.namespace == "" || u.OwnerID != "" {
		if err := capability.CheckUserID(u.OwnerID); err != nil {
			return o, err
		}
	}
	if u.Path, err = checkPath(u.Path); err != nil {
		return o, err
	}
	if u.ContentType, err = checkType(u.ContentType); err != nil {
		return o, err
	}
	u.Visibility = cmp.Or(u.Visibility, p.s.cfg.DefaultVisibility)
	if !u.Visibility.known() {
		return o, capability.ErrInvalidRequest.Saying("visibility is private or public.")
	}
	if err := checkMetadata(u.Metadata); err != nil {
		return o, err
	}
	key := newKey()
	o = Object{ID: id.New(p.s.host.Now()), OwnerID: u.OwnerID, Namespace: p.namespace, Path: u.Path, Size: max(u.Size, 0),
		ContentType: u.ContentType, Visibility: u.Visibility, State: StatePending, Metadata: u.Metadata, ETag: file.ETag(key), key: key}
	if o.Metadata == nil {
		o.Metadata = map[string]string{}
	}
	if u.SHA256 != "" {
		if sum, err := hex.DecodeString(u.SHA256); err != nil || len(sum) != sha256.Size {
			return o, capability.ErrInvalidRequest.Saying("sha256 has 64 hexadecimal digits.")
		}
		sha := strings.ToLower(u.SHA256)
		o.SHA256 = &sha
	}
	return o, p.s.fits(o.Size)
}

// fits refuses objects above the largest size.
func (s *Storage) fits(size int64) error {
	if most := cmp.Or(s.cfg.MaxObjectBytes, maxSize); size > most {
		return capability.BodyOver(most).Saying("An object has at most %d bytes.", most)
	}
	return nil
}

func newKey() string { return strings.ToLower(rand.Text()) }

func checkMetadata(m map[string]string) error {
	if len(m) > MaxMetadataKeys {
		return capability.ErrInvalidRequest.Saying("metadata has at most %d names.", MaxMetadataKeys)
	}
	for name, value := range m {
		if err := capability.CheckText("a name in metadata", name, 1, MaxMetadata); err != nil {
			return err
		}
		if err := capability.CheckText("a value in metadata", value, 0, MaxMetadata); err != nil {
			return err
		}
	}
	if text, err := json.Marshal(m); err != nil || len(text) > MaxMetadata {
		return capability.ErrInvalidRequest.Saying("metadata has at most %d bytes.", MaxMetadata)
	}
	return nil
}

// permit applies the rules for uploads of users.
func (p Space) permit(ctx context.Context, u Upload, o Object) error {
	if p.namespace != "" {
		return nil
	}
	if !p.s.cfg.allowed(o.ContentType) {
		return capability.ErrUnsupportedMediaType.Saying("Objects of the type %s cannot be uploaded here.", o.ContentType)
	}
	if p.s.cfg.Authorize == nil {
		return nil
	}
	u.Path, u.ContentType, u.Visibility = o.Path, o.ContentType, o.Visibility
	return p.s.cfg.Authorize(ctx, u)
}

// reserve adds the pending object, if its owner's quota allows it.
func (p Space) reserve(ctx context.Context, o *Object, ttl time.Duration) error {
	s := p.s
	quota, err := s.quota(ctx, o.OwnerID)
	if err != nil {
		return err
	}
	var refused error
	for range MaxPending / expireAtOnce {
		err := s.db.InTx(ctx, func(ctx context.Context) error {
			now := s.db.Now(ctx)
			o.CreatedAt, o.UpdatedAt = capability.Millis(now.UnixMilli()), capability.Millis(now.UnixMilli())
			o.expires = now.Add(max(ttl, s.cfg.PendingTTL)).UnixMilli()
			expires := capability.Millis(o.expires)
			o.ExpiresAt = &expires
			if !o.multipart() && s.served == nil {
				o.writableUntil = min(now.Add(UploadTTL).UnixMilli(), o.expires)
			}
			if err := s.store.lockUsage(ctx, o.OwnerID); err != nil {
				return err
			}
			ended, err := s.expire(ctx, o.OwnerID, now.UnixMilli())
			if err != nil {
				return err
			}
			refused, err = nil, p.admit(ctx, *o, quota)
			if ended == expireAtOnce && (errors.Is(err, ErrQuotaExceeded) || errors.Is(err, capability.ErrRateLimited)) {
				// More may have expired; a rollback would restore the uploads that have just been
				// removed.
				refused, err = err, s.store.removeUsage(ctx, o.OwnerID)
			}
			return err
		})
		if err != nil || refused == nil {
			return err
		}
	}
	return refused
}

// admit adds a pending object in a transaction that has the owner's lock.
func (p Space) admit(ctx context.Context, o Object, quota int64) error {
	if p.namespace == "" {
		if n, err := p.s.store.countPending(ctx, o.OwnerID); err != nil || n >= MaxPending {
			return errors.Join(err, tooManyPending(n))
		}
	}
	if err := p.s.charge(ctx, o.OwnerID, o.Size, quota); err != nil {
		return err
	}
	return p.s.store.insert(ctx, o)
}

func tooManyPending(n int64) error {
	if n < MaxPending {
		return nil
	}
	return capability.ErrRateLimited.Saying("At most %d uploads may be under way; complete or abort some.", MaxPending)
}

// charge reserves bytes, in a transaction that has the owner's lock.
func (s *Storage) charge(ctx context.Context, owner string, size, quota int64) error {
	ok, err := s.store.reserve(ctx, owner, size, quota)
	if err != nil || ok {
		return err
	}
	u, err := s.store.usage(ctx, owner)
	if err != nil {
		return err
	}
	return ErrQuotaExceeded.With(Excess{Requested: size, Available: max(quota-u.Used-u.Reserved, 0)})
}

// begin opens the upload of a reserved object and signs its addresses.
func (s *Storage) begin(ctx context.Context, o *Object) (Plan, error) {
	if !o.multipart() {
		signed, err := s.signPut(ctx, *o)
		if err != nil {
			return Plan{}, unavailable(err)
		}
		return Plan{Mode: ModeSingle, Method: signed.Method, URL: signed.URL, Headers: signed.Header, ExpiresAt: s.uploadEnd(*o)}, nil
	}
	upload, err := s.bucket.Start(ctx, o.key, o.plan())
	if err != nil {
		return Plan{}, unavailable(err)
	}
	o.uploadID = upload
	set, err := s.store.setUpload(ctx, o.ID, upload)
	if err != nil || !set {
		return Plan{}, errors.Join(cmp.Or(err, error(ErrNotFound)), s.bucket.Abort(context.WithoutCancel(ctx), o.key, upload))
	}
	plan := Plan{Mode: ModeMultipart, UploadID: upload, PartSize: o.partSize, PartCount: o.plan().Parts(), ExpiresAt: s.uploadEnd(*o)}
	for n := 1; n <= min(plan.PartCount, pageOfParts); n++ {
		part, err := s.partURL(ctx, *o, n)
		if err != nil {
			return Plan{}, unavailable(err)
		}
		plan.Parts = append(plan.Parts, part)
	}
	return plan, nil
}

// uploadTTL is how long a URL that writes is valid: never longer than the reservation of its
// upload.
func (s *Storage) uploadTTL(o Object) time.Duration {
	left := time.Duration(o.expires-s.host.Now().UnixMilli()) * time.Millisecond
	return min(UploadTTL, left)
}

func (s *Storage) uploadEnd(o Object) capability.Time {
	return capability.Millis(s.host.Now().Add(s.uploadTTL(o)).UnixMilli())
}

func (s *Storage) signPut(ctx context.Context, o Object) (bucket.Signed, error) {
	put := bucket.Put{Size: o.Size, ContentType: storedType(o.ContentType)}
	if o.SHA256 != nil {
		put.SHA256, _ = hex.DecodeString(*o.SHA256) // checked when it was stored
	}
	return s.bucket.SignPut(ctx, o.key, put, s.uploadTTL(o))
}

func (s *Storage) partURL(ctx context.Context, o Object, number int) (PartURL, error) {
	size := o.plan().Part(number)
	signed, err := s.bucket.SignPart(ctx, o.key, o.uploadID, number, size, s.uploadTTL(o))
	return PartURL{PartNumber: number, Size: size, URL: signed.URL, Headers: signed.Header}, err
}

// pending is owned for an upload in progress.
func (p Space) pending(ctx context.Context, ref Ref) (Object, error) {
	o, err := p.owned(ctx, ref)
	if err == nil && o.State != StatePending {
		err = ErrNotFound.Saying("This object has no upload under way.")
	}
	return o, err
}

// Complete makes the object of an upload readable, once its bytes are in the bucket, and replaces
// an object of the owner at the same path. If parts is nil, the bucket's own list is used. Complete
// is idempotent. Refuses with storage/not_found, storage/forbidden, storage/upload_incomplete while
// bytes are missing, and storage/multipart_failed when the parts are not those stored.
func (p Space) Complete(ctx context.Context, ref Ref, parts []PartTag) (Object, error) {
	if p.s.db.InTransaction(ctx) {
		return Object{}, errInTransaction
	}
	o, err := p.owned(ctx, ref)
	if err != nil || o.State == StateReady {
		return o, err
	}
	for try := 1; ; try++ {
		if o.multipart() {
			err = p.s.assemble(ctx, o, parts)
		} else {
			err = p.s.arrived(ctx, o)
		}
		if err == nil {
			return p.commit(ctx, ref, true)
		}
		// Another caller may be completing it: the parts disappear as the object appears.
		if now, failed := p.owned(ctx, ref); failed == nil && now.State == StateReady {
			return now, nil
		}
		if try == completeTries || !o.multipart() || !errors.Is(err, ErrUploadIncomplete) && !errors.Is(err, ErrMultipartFailed) {
			return Object{}, err
		}
		select {
		case <-ctx.Done():
			return Object{}, err
		case <-time.After(completeWait):
		}
	}
}

// How often Complete checks whether another caller has completed the upload, and how long it waits
// between checks.
const (
	completeTries = 6
	completeWait  = 20 * time.Millisecond
)

// arrived checks that the bytes of an upload are in the bucket.
func (s *Storage) arrived(ctx context.Context, o Object) error {
	info, err := s.bucket.Head(ctx, o.key)
	switch {
	case absent(err), err == nil && info.Size != o.Size:
		return ErrUploadIncomplete
	case err != nil:
		return unavailable(err)
	}
	return nil
}

// assemble makes one object of the parts. After a crash or a lost response it finds that this was
// done.
func (s *Storage) assemble(ctx context.Context, o Object, tags []PartTag) error {
	if o.uploadID == "" {
		return ErrUploadIncomplete
	}
	parts, err := s.storedParts(ctx, o)
	if errors.Is(err, bucket.ErrNoUpload) {
		return s.arrived(ctx, o)
	}
	if err != nil {
		return unavailable(err)
	}
	if err := matchParts(o, parts, tags); err != nil {
		return err
	}
	_, err = s.bucket.Complete(ctx, o.key, o.uploadID, parts)
	switch {
	case errors.Is(err, bucket.ErrParts):
		return ErrMultipartFailed.Because(err)
	case errors.Is(err, bucket.ErrNoUpload):
		return s.arrived(ctx, o)
	case err != nil:
		return unavailable(err)
	}
	return s.arrived(ctx, o)
}

func (s *Storage) storedParts(ctx context.Context, o Object) (parts []bucket.Part, err error) {
	for after := 0; ; {
		page, err := s.bucket.Parts(ctx, o.key, o.uploadID, after, pageOfParts)
		if err != nil {
			return nil, err
		}
		parts = append(parts, page...)
		if len(page) < pageOfParts {
			return parts, nil
		}
		after = page[len(page)-1].Number
	}
}

// matchParts compares the stored parts with the plan, and with the parts that a client reports.
func matchParts(o Object, parts []bucket.Part, tags []PartTag) error {
	plan := o.plan()
	whole := len(parts) == plan.Parts()
	for i, part := range parts {
		whole = whole && part.Number == i+1
		if part.Size != plan.Part(part.Number) {
			return ErrMultipartFailed.Saying("Part %d has %d bytes and not %d.", part.Number, part.Size, plan.Part(part.Number))
		}
	}
	if tags == nil {
		if !whole {
			return ErrUploadIncomplete
		}
		return nil
	}
	if !whole || len(tags) != len(parts) {
		return ErrMultipartFailed.Saying("%d parts were reported and %d are stored of %d.", len(tags), len(parts), plan.Parts())
	}
	for i, tag := range tags {
		if tag.PartNumber != parts[i].Number || strings.Trim(tag.ETag, `"`) != strings.Trim(parts[i].ETag, `"`) {
			return ErrMultipartFailed.Saying("Part %d is not the one that is stored.", tag.PartNumber)
		}
	}
	return nil
}

// commit makes a pending object ready, in the caller's transaction if there is one. found reports
// that its bytes have just been found in the bucket.
func (p Space) commit(ctx context.Context, ref Ref, found bool) (o Object, err error) {
	s := p.s
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		if o, err = p.lockOwned(ctx, ref); err != nil || o.State == StateReady {
			return err
		}
		if !found && !o.stored {
			return ErrUploadIncomplete
		}
		if err := p.vacate(ctx, o.OwnerID, o.Path); err != nil {
			return err
		}
		now := s.db.Now(ctx)
		if err := s.store.setReady(ctx, o.ID, now.UnixMilli()); err != nil {
			return err
		}
		if err := s.store.account(ctx, o.OwnerID, o.Size, -o.Size); err != nil {
			return err
		}
		o, _, err = s.store.object(ctx, p.namespace, o.ID)
		return err
	})
	return o, err
}

// vacate removes the object at a path, in a transaction that has the owner's lock.
func (p Space) vacate(ctx context.Context, owner, path string) error {
	old, found, err := p.s.store.atPath(ctx, p.namespace, owner, path)
	if err != nil || !found {
		return err
	}
	return p.s.drop(ctx, old)
}

// drop removes the row of a ready object and schedules the removal of its bytes.
func (s *Storage) drop(ctx context.Context, o Object) error {
	if err := s.store.remove(ctx, o.ID); err != nil {
		return err
	}
	if err := s.store.account(ctx, o.OwnerID, -o.Size, 0); err != nil {
		return err
	}
	return s.discard(ctx, o)
}

// Abort ends an upload and its reservation; it is idempotent. Refuses with storage/not_found, also
// when the object is complete, and storage/forbidden.
func (p Space) Abort(ctx context.Context, ref Ref) error {
	return p.s.db.InTx(ctx, func(ctx context.Context) error {
		o, found, err := p.s.store.object(ctx, p.namespace, ref.id)
		if err != nil {
			return err
		}
		if found && o.State == stateAborted && (!ref.restricted || ref.user == o.OwnerID) {
			return nil
		}
		o, err = p.lockOwned(ctx, ref)
		if err == nil && o.State != StatePending {
			err = ErrNotFound.Saying("This object has no upload under way.")
		}
		if err != nil {
			return err
		}
		if err := p.s.store.setAborted(ctx, o.ID, p.s.db.Now(ctx).UnixMilli()); err != nil {
			return err
		}
		return p.s.release(ctx, o)
	})
}

// abandon removes an upload that failed.
func (p Space) abandon(ctx context.Context, o Object) error {
	return p.s.db.InTx(ctx, func(ctx context.Context) error {
		now, err := p.lockOwned(ctx, ByID(o.ID))
		switch {
		case errors.Is(err, ErrNotFound):
			return p.s.discard(ctx, o) // it may have been ended before its bytes were stored
		case err != nil || now.State != StatePending:
			return err
		}
		if err := p.s.eraseOne(ctx, now); err != nil {
			return err
		}
		return p.s.store.removeUsage(ctx, now.OwnerID)
	})
}

// release ends the reservation of an upload and discards its bytes.
func (s *Storage) release(ctx context.Context, o Object) error {
	if err := s.store.account(ctx, o.OwnerID, 0, -o.Size); err != nil {
		return err
	}
	return s.discard(ctx, o)
}

// expireAtOnce bounds how many expired uploads one transaction removes.
const expireAtOnce = 100

// expire removes the expired uploads of an owner, so that reservations end without a job, and
// returns how many of them held one. The caller has the owner's lock.
func (s *Storage) expire(ctx context.Context, owner string, now int64) (ended int, err error) {
	lapsed, err := s.store.lapsed(ctx, owner, now, expireAtOnce)
	if err != nil {
		return 0, err
	}
	for _, o := range lapsed {
		if err := s.store.remove(ctx, o.ID); err != nil {
			return 0, err
		}
		if o.State == stateAborted {
			continue
		}
		if err := s.release(ctx, o); err != nil {
			return 0, err
		}
		ended++
	}
	return ended, nil
}
