package media

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/media/internal/picture"
	"github.com/kitbackend/kit/storage"
)

// headSize is how many bytes Finalize reads of most files.
const headSize = 1 << 20

// Create creates an item and returns where a client sends its bytes; after the upload, call
// [Media.Finalize]. If the owner has a ready item with the same checksum, Create returns that item
// and creates nothing. Refuses with kit/invalid_request, kit/body_too_large, media/unsupported_type
// for a Kind that is not configured, kit/rate_limited above [MaxPending] and the refusals of
// storage's Start.
func (m *Media) Create(ctx context.Context, n Upload) (Created, error) {
	i, err := m.draft(n)
	if err != nil {
		return Created{}, err
	}
	if n.SHA256 != "" && n.OnDuplicate != DuplicateAllow {
		same, found, err := m.store.bySum(ctx, n.OwnerID, strings.ToLower(n.SHA256))
		if err != nil {
			return Created{}, err
		}
		if found {
			same, err = m.whole(ctx, same)
			return Created{Item: same, DuplicateOf: &same.ID}, err
		}
	}
	started, err := m.space.Start(ctx, storage.Upload{OwnerID: n.OwnerID, Path: i.ID + "/" + i.Filename, Size: n.Size,
		ContentType: n.ContentType, SHA256: n.SHA256, Metadata: n.Metadata, Visibility: storage.VisibilityPrivate})
	if err != nil {
		return Created{}, err
	}
	i.ObjectID, i.ContentType, i.Metadata = started.Object.ID, started.Object.ContentType, started.Object.Metadata
	if err := m.add(ctx, &i); err != nil {
		return Created{}, errors.Join(err, m.space.Abort(context.WithoutCancel(ctx), storage.ByID(i.ObjectID)))
	}
	return Created{Item: i, Upload: &started.Upload}, nil
}

// Put stores the Size bytes of r as an item and starts its processing, for the application itself.
// It moves bytes and so cannot be called inside a transaction. If the owner has a ready item with
// the given checksum, Put returns that item. Refuses as Create and [Media.Finalize] do.
func (m *Media) Put(ctx context.Context, n Upload, r io.Reader) (Item, error) {
	i, err := m.draft(n)
	if err != nil {
		return Item{}, err
	}
	if n.SHA256 != "" && n.OnDuplicate != DuplicateAllow {
		same, found, err := m.store.bySum(ctx, n.OwnerID, strings.ToLower(n.SHA256))
		if err != nil {
			return Item{}, err
		}
		if found {
			return m.whole(ctx, same)
		}
	}
	o, err := m.space.Stage(ctx, storage.Upload{OwnerID: n.OwnerID, Path: i.ID + "/" + i.Filename, Size: n.Size,
		ContentType: n.ContentType, SHA256: n.SHA256, Metadata: n.Metadata, Visibility: storage.VisibilityPrivate}, r)
	if err != nil {
		return Item{}, err
	}
	i.ObjectID, i.ContentType, i.Metadata = o.ID, o.ContentType, o.Metadata
	err = m.db.InTx(ctx, func(ctx context.Context) error {
		if _, err := m.space.Commit(ctx, storage.ByID(o.ID)); err != nil {
			return err
		}
		return m.add(ctx, &i)
	})
	if err != nil {
		m.release(context.WithoutCancel(ctx), []string{o.ID})
		return Item{}, err
	}
	return m.Finalize(ctx, i.OwnerID, i.ID, nil)
}

// draft checks the description of an upload; storage checks path, type, checksum and metadata.
func (m *Media) draft(n Upload) (i Item, err error) {
	if err := capability.CheckUserID(n.OwnerID); err != nil {
		return i, err
	}
	name := path.Base(strings.ReplaceAll(n.Filename, `\`, "/"))
	if n.Filename == "" || name == "." || name == "/" || name == ".." {
		return i, capability.ErrInvalidRequest.Saying("filename is the name of a file, 1 to %d bytes.", MaxFilename)
	}
	if err := capability.CheckText("filename", name, 1, MaxFilename); err != nil {
		return i, err
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return i, capability.ErrInvalidRequest.Saying("filename holds a control character.")
	}
	if err := capability.CheckText("caption", n.Caption, 0, MaxCaption); err != nil {
		return i, err
	}
	n.Visibility, n.OnDuplicate = cmp.Or(n.Visibility, storage.VisibilityPrivate), cmp.Or(n.OnDuplicate, DuplicateReturn)
	switch {
	case n.Size < 1:
		err = capability.ErrInvalidRequest.Saying("size is a number of bytes, 1 or more.")
	case n.Kind != "" && !n.Kind.known():
		err = capability.ErrInvalidRequest.Saying("kind is image, video, audio or other.")
	case n.Visibility != storage.VisibilityPrivate && n.Visibility != storage.VisibilityPublic:
		err = capability.ErrInvalidRequest.Saying("visibility is private or public.")
	case n.OnDuplicate != DuplicateReturn && n.OnDuplicate != DuplicateAllow:
		err = capability.ErrInvalidRequest.Saying("onDuplicate is return or allow.")
	}
	if err != nil {
		return i, err
	}
	if n.Kind != "" && !slices.Contains(m.cfg.Kinds, n.Kind) {
		return i, ErrUnsupportedType
	}
	kind := cmp.Or(n.Kind, kindOf(n.ContentType))
	if most := m.most(kind); n.Size > most {
		return i, capability.BodyOver(most).Saying("A file of this kind has at most %d bytes.", most)
	}
	return Item{ID: id.New(m.host.Now()), OwnerID: n.OwnerID, Kind: kind, Status: StatusPending, Visibility: n.Visibility,
		Filename: name, Size: n.Size, Caption: n.Caption, Derivatives: []Derivative{}, wanted: n.Kind}, nil
}

// most returns how many bytes a file of a kind may have. Before the kind is detected a file is a
// picture if nothing else is taken.
func (m *Media) most(kind Kind) int64 {
	if kind == KindImage || !slices.ContainsFunc(m.cfg.Kinds, func(k Kind) bool { return k != KindImage }) {
		return min(m.cfg.MaxImageBytes, m.cfg.MaxBytes)
	}
	return m.cfg.MaxBytes
}

// kindOf returns the kind of a media type.
func kindOf(contentType string) Kind {
	kind, _, _ := mime.ParseMediaType(contentType)
	family, _, _ := strings.Cut(kind, "/")
	if k := Kind(family); k.known() {
		return k
	}
	return KindOther
}

// add adds a pending item, unless its owner has too many of them.
func (m *Media) add(ctx context.Context, i *Item) error {
	return m.db.InTx(ctx, func(ctx context.Context) error {
		if err := m.store.lockOwner(ctx, i.OwnerID); err != nil {
			return err
		}
		n, err := m.store.countPending(ctx, i.OwnerID)
		if err != nil {
			return err
		}
		if n >= MaxPending {
			return capability.ErrRateLimited.Saying("At most %d items may wait for their upload; finalize or delete some.", MaxPending)
		}
		now := capability.Millis(m.db.Now(ctx).UnixMilli())
		i.CreatedAt, i.UpdatedAt = now, now
		return m.store.insert(ctx, *i)
	})
}

// Finalize checks that the bytes of an item are uploaded, detects their type, and leaves the rest
// to the job MEDIA_PROCESS. It does nothing to an item that is processing or ready; one that failed
// with media/processing_failed is processed again, and one that failed otherwise is refused again.
// A refused file is removed. If parts is nil, the stored ones are used. Refuses with
// media/not_found, media/not_uploaded, media/unsupported_type, media/too_many_pixels,
// media/corrupt, media/moderation_rejected and storage/multipart_failed.
func (m *Media) Finalize(ctx context.Context, ownerID, id string, parts []storage.PartTag) (Item, error) {
	i, err := m.own(ctx, ownerID, id)
	if err != nil {
		return Item{}, err
	}
	switch {
	case i.Status == StatusProcessing || i.Status == StatusReady:
		return m.whole(ctx, i)
	case i.Status == StatusFailed && i.failure != ErrProcessingFailed.Code:
		return Item{}, failure(i.failure)
	}
	object, err := m.space.Complete(ctx, storage.ByID(i.ObjectID), parts)
	var contentType string
	var kind Kind
	if err == nil {
		contentType, kind, err = m.inspect(ctx, i, object)
	}
	if errors.Is(err, storage.ErrUploadIncomplete) || errors.Is(err, storage.ErrNotFound) {
		return m.absent(ctx, i, parts, err)
	}
	if refused, ok := refusal(err); ok {
		if err := m.fail(ctx, i, refused, false); err != nil {
			return Item{}, err
		}
		return Item{}, refused
	}
	if err != nil {
		return Item{}, err
	}
	return m.begin(ctx, i, contentType, kind)
}

// absent is Finalize of an item whose bytes are missing: a concurrent call may have been faster,
// and its job may have replaced them.
func (m *Media) absent(ctx context.Context, i Item, parts []storage.PartTag, why error) (Item, error) {
	now, err := m.own(ctx, i.OwnerID, i.ID)
	switch {
	case err != nil:
		return Item{}, err
	case now.Status != i.Status || now.failure != i.failure:
		return m.Finalize(ctx, i.OwnerID, i.ID, parts)
	case errors.Is(why, storage.ErrUploadIncomplete):
		return Item{}, ErrNotUploaded
	default:
		return Item{}, ErrNotUploaded.Saying("The time of this upload is over. Create the item again.")
	}
}

// begin enqueues the job of an item whose bytes were inspected.
func (m *Media) begin(ctx context.Context, i Item, contentType string, kind Kind) (Item, error) {
	err := m.db.InTx(ctx, func(ctx context.Context) error {
		now, err := m.lockOwn(ctx, i.OwnerID, i.ID)
		if err != nil {
			return err
		}
		if now.Status == StatusPending || now.Status == StatusFailed && now.failure == ErrProcessingFailed.Code {
			now.Status, now.ContentType, now.Kind = StatusProcessing, contentType, kind
			now.failure, now.Error, now.attempts = "", nil, 0
			if err := m.store.update(ctx, now); err != nil {
				return err
			}
			// Signed URLs of the original have the type of the object.
			if _, err := m.space.Update(ctx, storage.ByID(now.ObjectID), storage.Change{ContentType: &contentType}); err != nil {
				return err
			}
			if _, err := m.jobs.Enqueue(ctx, process, payload{now.ID}, jobs.Key(now.ID)); err != nil {
				return err
			}
		}
		i, _, err = m.store.item(ctx, i.ID)
		return err
	})
	if err != nil {
		return Item{}, err
	}
	return m.whole(ctx, i)
}

// inspect reads the first bytes of a file and returns its type, if it may be decoded.
func (m *Media) inspect(ctx context.Context, i Item, object storage.Object) (contentType string, kind Kind, err error) {
	head, err := m.read(ctx, object.ID, 0, min(headSize, object.Size))
	if err != nil {
		return "", "", err
	}
	contentType = picture.Sniff(head)
	kind = kindOf(contentType)
	if kind == KindOther {
		contentType = "application/octet-stream"
	}
	sound := kind == KindVideo && i.wanted == KindAudio // only the whole file tells audio from video
	if !slices.Contains(m.cfg.Kinds, kind) && !sound || i.wanted != "" && i.wanted != kind && !sound || object.Size > m.most(kind) {
		return "", "", ErrUnsupportedType
	}
	if picture.Describes(contentType) {
		_, err = m.measure(ctx, contentType, object.ID, object.Size, head)
	}
	return contentType, kind, err
}

// measure reads the header of a picture from the first bytes of its file, or from the whole file if
// the metadata before the header is long.
func (m *Media) measure(ctx context.Context, contentType, object string, size int64, head []byte) (picture.Header, error) {
	header, err := picture.Inspect(contentType, head, m.cfg.MaxPixels)
	if !errors.Is(err, picture.ErrCorrupt) || size <= int64(len(head)) {
		return header, pictureRefusal(err)
	}
	release, err := m.weigh(ctx, size/4)
	if err != nil {
		return header, err
	}
	defer release()
	whole, err := m.read(ctx, object, 0, size)
	if err != nil {
		return header, err
	}
	header, err = picture.Inspect(contentType, whole, m.cfg.MaxPixels)
	return header, pictureRefusal(err)
}

// pictureRefusal returns the refusal for an error of package picture.
func pictureRefusal(err error) error {
	switch {
	case errors.Is(err, picture.ErrTooManyPixels):
		return ErrTooManyPixels
	case errors.Is(err, picture.ErrCorrupt):
		return ErrCorrupt.Because(err)
	default:
		return err
	}
}

// read reads a part of an object.
func (m *Media) read(ctx context.Context, object string, offset, length int64) ([]byte, error) {
	content, err := m.space.OpenRange(ctx, storage.ByID(object), offset, length)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	data := make([]byte, length)
	_, err = io.ReadFull(content, data)
	return data, err
}

// fail makes an item failed with a refusal. Its bytes are removed, unless it can be processed
// again. inJob completes the job in the same transaction.
func (m *Media) fail(ctx context.Context, i Item, why *capability.Error, inJob bool) error {
	return m.db.InTx(ctx, func(ctx context.Context) error {
		now, found, err := m.store.lockItem(ctx, i.ID)
		if err != nil || !found || now.Status == StatusReady {
			return err
		}
		if why.Code != ErrProcessingFailed.Code {
			if err := m.removeBytes(ctx, now); err != nil {
				return err
			}
		}
		now.Status, now.failure = StatusFailed, why.Code
		if err := m.store.update(ctx, now); err != nil {
			return err
		}
		if why.Code == ErrModerationRejected.Code {
			if err := m.record(ctx, "media/rejected", now); err != nil {
				return err
			}
		}
		if inJob {
			return jobs.Complete(ctx)
		}
		return nil
	})
}
