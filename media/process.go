package media

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/media/internal/mp4"
	"github.com/kitbackend/kit/media/internal/picture"
	"github.com/kitbackend/kit/storage"
)

// The job that processes items, and its bounds.
const (
	process        = "MEDIA_PROCESS"
	processTimeout = 10 * time.Minute
	// maxAttempts bounds the runs of one item. It includes runs that ended with the process,
	// because the file may have crashed it.
	maxAttempts = 3
)

// payload is the payload of a job: its item.
type payload struct {
	ID string `json:"id"`
}

// made is the result of processing an item, staged in storage.
type made struct {
	Item
	original    *storage.Object // replaces the upload
	derivatives []Derivative
	staged      []string
	// again marks a ready item whose derivatives are remade: its original and its facts do not
	// change.
	again bool
}

func (m *Media) run(ctx context.Context, job jobs.Job) error {
	var p payload
	if err := json.Unmarshal(job.Payload, &p); err != nil {
		return jobs.Permanent(err)
	}
	i, ok, err := m.claim(ctx, p.ID, StatusProcessing)
	if err != nil || !ok {
		return err
	}
	if i.attempts > maxAttempts {
		return m.fail(ctx, i, ErrProcessingFailed, true)
	}
	out := &made{Item: i}
	err = m.make(ctx, out)
	if err == nil {
		err = m.finish(ctx, out)
	}
	if err == nil {
		return nil
	}
	m.release(context.WithoutCancel(ctx), out.staged)
	return m.failed(ctx, i, err)
}

// claim counts a run of an item, if it is still to be processed.
func (m *Media) claim(ctx context.Context, id string, status Status) (i Item, ok bool, err error) {
	err = m.db.InTx(ctx, func(ctx context.Context) error {
		if i, ok, err = m.store.lockItem(ctx, id); err != nil || !ok {
			return err
		}
		if ok = i.Status == status && (status == StatusProcessing || i.recipe != m.recipe); !ok {
			return nil
		}
		i.attempts++
		return m.store.update(ctx, i)
	})
	return i, ok, err
}

// failed handles an item that could not be processed.
func (m *Media) failed(ctx context.Context, i Item, err error) error {
	if back, ok := m.refund(ctx, i, err); ok {
		return back
	}
	if errors.Is(err, storage.ErrNotFound) {
		// A staged object may have expired: the item is lost only if its original is missing.
		if _, gone := m.space.Get(ctx, storage.ByID(i.ObjectID)); errors.Is(gone, storage.ErrNotFound) {
			return m.fail(ctx, i, ErrCorrupt, true)
		}
	}
	if refused, ok := refusal(err); ok {
		return m.fail(ctx, i, refused, true)
	}
	if i.attempts < maxAttempts && !errors.Is(err, storage.ErrQuotaExceeded) {
		return err
	}
	m.log.LogAttrs(ctx, slog.LevelError, "media: an item could not be processed", slog.String("item", i.ID), slog.Any("error", err))
	return m.fail(context.WithoutCancel(ctx), i, ErrProcessingFailed, true)
}

// refund does not count a run that ended through no fault of the file: the node stops, or it is
// processing another video.
func (m *Media) refund(ctx context.Context, i Item, err error) (error, bool) {
	busy := errors.Is(err, errBusy)
	if !busy && !errors.Is(ctx.Err(), context.Canceled) {
		return nil, false
	}
	ctx = context.WithoutCancel(ctx)
	failed := m.db.InTx(ctx, func(ctx context.Context) error {
		now, found, err := m.store.lockItem(ctx, i.ID)
		if err != nil || !found || now.Status != i.Status {
			return err
		}
		now.attempts = i.attempts - 1
		return m.store.update(ctx, now)
	})
	if busy && failed == nil {
		return jobs.Snooze(turn), true
	}
	return errors.Join(err, failed), true
}

// make reads an item's file and stages the results.
func (m *Media) make(ctx context.Context, out *made) error {
	switch {
	case picture.Describes(out.ContentType):
		return m.makePicture(ctx, out)
	case out.ContentType == "video/mp4" || out.ContentType == "video/quicktime" || out.ContentType == "audio/mp4":
		if err := m.probe(ctx, out); err != nil {
			return err
		}
	}
	if m.cfg.FFmpeg != "" && out.Kind == KindVideo {
		return m.makeFilm(ctx, out)
	}
	return m.checksum(ctx, out)
}

// checksum reads a file only for its checksum.
func (m *Media) checksum(ctx context.Context, out *made) error {
	if out.again {
		return nil
	}
	content, err := m.space.Open(ctx, storage.ByID(out.ObjectID))
	if err != nil {
		return err
	}
	defer content.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, content); err != nil {
		return err
	}
	out.summed(hex.EncodeToString(sum.Sum(nil)))
	return nil
}

// summed records the checksum of a file that is stored as uploaded.
func (out *made) summed(sum string) {
	if !out.again {
		out.source, out.sum = sum, sum
	}
}

// probe reads the metadata of an MP4 or QuickTime file.
func (m *Media) probe(ctx context.Context, out *made) error {
	info, err := mp4.Read(func(offset, length int64) ([]byte, error) { return m.read(ctx, out.ObjectID, offset, length) }, out.Size)
	if errors.Is(err, mp4.ErrCorrupt) || errors.Is(err, mp4.ErrTooLarge) {
		return ErrCorrupt.Because(err)
	}
	if err != nil {
		return err
	}
	if out.Kind = KindVideo; !info.HasVideo {
		out.Kind = KindAudio
	}
	if out.wanted != "" && out.wanted != out.Kind || !slices.Contains(m.cfg.Kinds, out.Kind) {
		return ErrUnsupportedType
	}
	out.Width, out.Height, out.DurationMs = info.Width, info.Height, info.DurationMs
	out.FrameRate, out.Codec, out.HasAudio = info.FrameRate, info.Codec, info.HasAudio
	return nil
}

// makePicture makes the derivatives of a picture, and analyzes the largest one.
func (m *Media) makePicture(ctx context.Context, out *made) error {
	largest, err := m.shrink(ctx, out)
	if err != nil || m.cfg.Analyzer == nil || largest == nil || out.again {
		return err
	}
	return m.analyze(ctx, out, largest)
}

// shrink decodes a picture and stages the results, within the memory bound of all decoders. It
// returns the largest derivative.
func (m *Media) shrink(ctx context.Context, out *made) ([]byte, error) {
	head, err := m.read(ctx, out.ObjectID, 0, min(headSize, out.Size))
	if err != nil {
		return nil, err
	}
	header, err := m.measure(ctx, out.ContentType, out.ObjectID, out.Size, head)
	if err != nil {
		return nil, err
	}
	release, err := m.weigh(ctx, m.weight(out, header))
	if err != nil {
		return nil, err
	}
	defer release()
	data, err := m.read(ctx, out.ObjectID, 0, out.Size)
	if err != nil {
		return nil, err
	}
	base, err := m.decode(ctx, out, header, data)
	if err != nil {
		return nil, err
	}
	if err := m.clean(ctx, out, data); err != nil || base == nil {
		return nil, err
	}
	return m.show(ctx, out, base)
}

// weigh waits until the memory that a decoder needs is available, in units of four bytes.
func (m *Media) weigh(ctx context.Context, weight int64) (release func(), err error) {
	weight = min(weight, inFlight)
	if err := m.memory.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	return func() { m.memory.Release(weight) }, nil
}

// weight returns the memory that a picture needs: twice the file, once the pixels, and the scratch
// memory of scaling.
func (m *Media) weight(out *made, header picture.Header) int64 {
	weight := out.Size/2 + header.Weight + picture.Scratch(header.Width, header.Height, targets(m.cfg.Derivatives))
	if m.cfg.Vips != "" {
		return max(weight, out.Size/2+maxSide*maxSide)
	}
	return weight
}

// show stages the placeholder, the hash and the derivatives of an upright picture.
func (m *Media) show(ctx context.Context, out *made, base *image.RGBA) ([]byte, error) {
	out.BlurHash, out.phash = picture.BlurHash(base), picture.Hash(base)
	return m.derive(ctx, out, base, m.cfg.Derivatives)
}

// clean stages the original without the metadata to remove.
func (m *Media) clean(ctx context.Context, out *made, data []byte) error {
	if out.again {
		return nil
	}
	clean, ok := picture.Clean(out.ContentType, data, picture.Strip(m.cfg.Strip))
	if !ok {
		return ErrCorrupt
	}
	if out.source, out.sum = checksum(data), checksum(clean); out.sum == out.source {
		return nil
	}
	o, err := m.stage(ctx, out, out.Filename, out.ContentType, clean)
	out.original = &o
	return err
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// decode decodes a picture and returns it upright and only as large as the derivatives need; nil if
// there is no decoder for its type.
func (m *Media) decode(ctx context.Context, out *made, header picture.Header, data []byte) (*image.RGBA, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.DecodeTimeout, fmt.Errorf("media: decoding took longer than %s", m.cfg.DecodeTimeout))
	defer cancel()
	exif := picture.ReadExif(picture.Metadata(out.ContentType, data))
	orientation := exif.Orientation
	var img image.Image
	var err error
	switch decoder := m.cfg.Decoders[out.ContentType]; {
	case m.cfg.Vips != "":
		var turned int
		img, turned, err = m.viaVips(ctx, out.ContentType, header, data)
		orientation = cmp.Or(turned, orientation)
	case decoder != nil:
		img, err = picture.DecodeWith(ctx, decoder, data)
		orientation = 1
	case picture.Decodes(out.ContentType):
		img, err = picture.Decode(ctx, out.ContentType, data)
	}
	if err != nil {
		return nil, pictureRefusal(err)
	}
	if !out.again {
		out.read(exif, header, m.cfg.Strip)
	}
	if img == nil {
		return nil, nil
	}
	base := picture.Base(img, orientation, targets(m.cfg.Derivatives))
	if !picture.Decodes(out.ContentType) { // its rotation is not in the EXIF block
		out.turnAs(base)
	}
	return base, nil
}

// targets returns the sizes to make, or one to hash if there are none.
func targets(sizes []Size) []picture.Target {
	if len(sizes) == 0 {
		return []picture.Target{{Width: hashed, Height: hashed}}
	}
	list := make([]picture.Target, 0, len(sizes))
	for _, s := range sizes {
		list = append(list, s.target())
	}
	return list
}

// hashed is the size at which a picture without derivatives is hashed.
const hashed = 128

// turnAs exchanges width and height if the upright picture has the other orientation.
func (out *made) turnAs(base *image.RGBA) {
	if (out.Width > out.Height) != (base.Rect.Dx() > base.Rect.Dy()) && base.Rect.Dx() != base.Rect.Dy() {
		out.Width, out.Height = out.Height, out.Width
	}
}

// read sets the facts from the metadata.
func (out *made) read(exif picture.Exif, header picture.Header, strip Strip) {
	out.Width, out.Height, out.Orientation = header.Width, header.Height, exif.Orientation
	if !picture.Decodes(out.ContentType) {
		out.Orientation = 0
	} else if exif.Orientation >= 5 {
		out.Width, out.Height = header.Height, header.Width
	}
	if !exif.TakenAt.IsZero() {
		at := capability.Millis(exif.TakenAt.UnixMilli())
		out.TakenAt = &at
	}
	if exif.Location != nil && strip == StripNone {
		out.Location = &Location{exif.Location.Latitude, exif.Location.Longitude}
	}
}

func (s Size) target() picture.Target {
	return picture.Target{Width: s.Width, Height: s.Height, Cover: s.Cover}
}

// derive stages the derivatives and returns the largest of them.
func (m *Media) derive(ctx context.Context, out *made, base *image.RGBA, sizes []Size) (largest []byte, err error) {
	area := 0
	for _, size := range sizes {
		small := picture.Fit(base, size.target())
		data, contentType, err := picture.Encode(small, size.Quality)
		if err != nil {
			return nil, err
		}
		extension := ".jpg"
		if contentType == "image/png" {
			extension = ".png"
		}
		o, err := m.stage(ctx, out, "derivatives/"+size.Name+extension, contentType, data)
		if err != nil {
			return nil, err
		}
		d := Derivative{Name: size.Name, ContentType: contentType, Width: small.Rect.Dx(), Height: small.Rect.Dy(), Size: o.Size, objectID: o.ID}
		if out.derivatives = append(out.derivatives, d); d.Width*d.Height > area {
			area, largest = d.Width*d.Height, data
		}
	}
	return largest, nil
}

func (m *Media) analyze(ctx context.Context, out *made, data []byte) error {
	found, err := m.cfg.Analyzer.Analyze(ctx, out.Item, bytes.NewReader(data))
	switch {
	case err != nil && m.cfg.BlockFlagged:
		return err
	case err != nil:
		m.log.LogAttrs(ctx, slog.LevelWarn, "media: an item was not described", slog.String("item", out.ID), slog.Any("error", err))
		return nil
	case found.Moderation.Flagged && m.cfg.BlockFlagged:
		return ErrModerationRejected
	}
	out.AI = &found
	return nil
}

// stage stores bytes that become part of an item when its transaction commits.
func (m *Media) stage(ctx context.Context, out *made, name, contentType string, data []byte) (storage.Object, error) {
	return m.stageFrom(ctx, out, name, contentType, bytes.NewReader(data), int64(len(data)))
}

func (m *Media) stageFrom(ctx context.Context, out *made, name, contentType string, r io.Reader, size int64) (storage.Object, error) {
	o, err := m.space.Stage(ctx, storage.Upload{OwnerID: out.OwnerID, Path: out.ID + "/" + name, Size: size,
		ContentType: contentType, Visibility: storage.VisibilityPrivate, PendingTTL: m.timeout()}, r)
	if err == nil {
		out.staged = append(out.staged, o.ID)
	}
	return o, err
}

// release removes staged objects that belong to no item.
func (m *Media) release(ctx context.Context, staged []string) {
	if _, err := m.space.DeleteAll(ctx, staged); err != nil {
		m.log.LogAttrs(ctx, slog.LevelWarn, "media: staged objects stay until they expire", slog.Any("error", err))
	}
}

// errGone reports that the item was removed while it was processed.
var errGone = errors.New("media: the item is gone")

// finish makes an item ready and completes the job, in one transaction.
func (m *Media) finish(ctx context.Context, out *made) error {
	err := m.db.InTx(ctx, func(ctx context.Context) error {
		now, found, err := m.store.lockItem(ctx, out.ID)
		if err != nil {
			return err
		}
		if !found || now.Status != out.Status || out.again && now.ObjectID != out.ObjectID {
			return errGone
		}
		if err := m.commit(ctx, out); err != nil {
			return err
		}
		i := out.Item
		if out.original != nil {
			i.ObjectID, i.Size = out.original.ID, out.original.Size
		}
		i.recipe, i.attempts = m.recipe, 0
		if !out.again {
			ready := capability.Millis(m.db.Now(ctx).UnixMilli())
			i.Status, i.ReadyAt = StatusReady, &ready
		}
		if err := m.store.update(ctx, i); err != nil {
			return err
		}
		if !out.again {
			if err := m.hooks.MediaReady.Fire(ctx, hooks.MediaReady{OwnerID: i.OwnerID, MediaID: i.ID}); err != nil {
				return err
			}
		}
		return jobs.Complete(ctx)
	})
	if errors.Is(err, errGone) {
		m.release(ctx, out.staged)
		return nil
	}
	return err
}

// commit makes the staged objects part of the item. An object at the same path replaces that of an
// earlier run or of the upload; other derivatives are removed.
func (m *Media) commit(ctx context.Context, out *made) error {
	before, err := m.store.derivatives(ctx, []string{out.ID})
	if err != nil {
		return err
	}
	for _, object := range out.staged {
		if _, err := m.space.Commit(ctx, storage.ByID(object)); err != nil {
			return err
		}
	}
	old := make([]string, 0, len(before))
	for _, d := range before {
		old = append(old, d.objectID)
	}
	if _, err := m.space.DeleteAll(ctx, old); err != nil {
		return err
	}
	if err := m.store.removeDerivatives(ctx, out.ID); err != nil {
		return err
	}
	for _, d := range out.derivatives {
		if err := m.store.addDerivative(ctx, out.ID, d); err != nil {
			return err
		}
	}
	return nil
}
