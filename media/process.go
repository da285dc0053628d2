package media

import (
	"bytes"
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

// How items are processed.
const (
	process        = "MEDIA_PROCESS"
	processTimeout = 10 * time.Minute
	// maxAttempts bounds the runs of one item, those that ended with the process
	// included: a file may be what ended it.
	maxAttempts = 3
)

// payload names the item of a job.
type payload struct {
	ID string `json:"id"`
}

// made is what a run has made of an item, staged in storage.
type made struct {
	Item
	original    *storage.Object // in place of the upload
	derivatives []Derivative
	staged      []string
}

func (m *Media) run(ctx context.Context, job jobs.Job) error {
	var p payload
	if err := json.Unmarshal(job.Payload, &p); err != nil {
		return jobs.Permanent(err)
	}
	i, ok, err := m.claim(ctx, p.ID)
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

// claim counts a run of an item that is to be processed.
func (m *Media) claim(ctx context.Context, id string) (i Item, ok bool, err error) {
	err = m.db.InTx(ctx, func(ctx context.Context) error {
		if i, ok, err = m.store.lockItem(ctx, id); err != nil || !ok {
			return err
		}
		if ok = i.Status == StatusProcessing; !ok {
			return nil
		}
		i.attempts++
		return m.store.update(ctx, i)
	})
	return i, ok, err
}

// failed decides what becomes of an item that could not be processed.
func (m *Media) failed(ctx context.Context, i Item, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) { // the node stops, which is not the file's fault
		ctx := context.WithoutCancel(ctx)
		i.attempts--
		return errors.Join(err, m.db.InTx(ctx, func(ctx context.Context) error {
			now, found, err := m.store.lockItem(ctx, i.ID)
			if err != nil || !found || now.Status != StatusProcessing {
				return err
			}
			now.attempts = i.attempts
			return m.store.update(ctx, now)
		}))
	}
	if errors.Is(err, storage.ErrNotFound) {
		return m.fail(ctx, i, ErrCorrupt, true)
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

// make reads an item's file and stages what is made of it.
func (m *Media) make(ctx context.Context, out *made) error {
	switch {
	case picture.Decodes(out.ContentType):
		return m.makePicture(ctx, out)
	case out.ContentType == "video/mp4" || out.ContentType == "video/quicktime" || out.ContentType == "audio/mp4":
		if err := m.probe(ctx, out); err != nil {
			return err
		}
	}
	return m.checksum(ctx, out)
}

// checksum reads a file for its checksum only.
func (m *Media) checksum(ctx context.Context, out *made) error {
	content, err := m.space.Open(ctx, storage.ByID(out.ObjectID))
	if err != nil {
		return err
	}
	defer content.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, content); err != nil {
		return err
	}
	out.source = hex.EncodeToString(sum.Sum(nil))
	out.sum = out.source
	return nil
}

// probe reads what a film says of itself.
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

// makePicture makes everything that is shown of a picture, and has the largest
// derivative described.
func (m *Media) makePicture(ctx context.Context, out *made) error {
	largest, err := m.shrink(ctx, out)
	if err != nil || m.cfg.Analyzer == nil || largest == nil {
		return err
	}
	return m.analyze(ctx, out, largest)
}

// shrink decodes a picture and stages what is made of it, within what all of them
// may hold in memory. It returns the largest derivative.
func (m *Media) shrink(ctx context.Context, out *made) ([]byte, error) {
	head, err := m.read(ctx, out.ObjectID, 0, min(headSize, out.Size))
	if err != nil {
		return nil, err
	}
	header, err := picture.Inspect(out.ContentType, head, m.cfg.MaxPixels)
	if err != nil {
		return nil, pictureRefusal(err)
	}
	weight := min(header.Weight+out.Size/2, inFlight) // the file is held twice
	if err := m.memory.Acquire(ctx, weight); err != nil {
		return nil, err
	}
	defer m.memory.Release(weight)
	data, err := m.read(ctx, out.ObjectID, 0, out.Size)
	if err != nil {
		return nil, err
	}
	out.source = checksum(data)
	base, err := m.decode(ctx, out, header, data)
	if err != nil {
		return nil, err
	}
	if err := m.clean(ctx, out, data); err != nil {
		return nil, err
	}
	out.BlurHash, out.phash = picture.BlurHash(base), picture.Hash(base)
	return m.derive(ctx, out, base)
}

// clean stages the original without what is to be removed from it.
func (m *Media) clean(ctx context.Context, out *made, data []byte) error {
	clean, ok := picture.Clean(out.ContentType, data, picture.Strip(m.cfg.Strip))
	if !ok {
		return ErrCorrupt
	}
	if out.sum = checksum(clean); out.sum == out.source {
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

// decode decodes a picture and returns it upright and only as large as the
// derivatives need.
func (m *Media) decode(ctx context.Context, out *made, header picture.Header, data []byte) (*image.RGBA, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.DecodeTimeout, fmt.Errorf("media: decoding took longer than %s", m.cfg.DecodeTimeout))
	defer cancel()
	img, err := picture.Decode(ctx, out.ContentType, data)
	if err != nil {
		return nil, pictureRefusal(err)
	}
	exif := picture.ReadExif(picture.Metadata(out.ContentType, data))
	out.read(exif, header, m.cfg.Strip)
	targets := make([]picture.Target, 0, len(m.cfg.Derivatives))
	for _, d := range m.cfg.Derivatives {
		targets = append(targets, d.target())
	}
	if len(targets) == 0 {
		targets = []picture.Target{{Width: hashed, Height: hashed}}
	}
	return picture.Base(img, exif.Orientation, targets), nil
}

// hashed is the size at which a picture is hashed that has no derivatives.
const hashed = 128

// read takes over what the metadata says.
func (out *made) read(exif picture.Exif, header picture.Header, strip Strip) {
	out.Width, out.Height, out.Orientation = header.Width, header.Height, exif.Orientation
	if exif.Orientation >= 5 {
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
func (m *Media) derive(ctx context.Context, out *made, base *image.RGBA) (largest []byte, err error) {
	area := 0
	for _, size := range m.cfg.Derivatives {
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

// stage stores bytes that belong to an item when its transaction commits.
func (m *Media) stage(ctx context.Context, out *made, name, contentType string, data []byte) (storage.Object, error) {
	o, err := m.space.Stage(ctx, storage.Upload{OwnerID: out.OwnerID, Path: out.ID + "/" + name, Size: int64(len(data)),
		ContentType: contentType, Visibility: storage.VisibilityPrivate}, bytes.NewReader(data))
	if err == nil {
		out.staged = append(out.staged, o.ID)
	}
	return o, err
}

// release gives up what was staged and belongs to no item.
func (m *Media) release(ctx context.Context, staged []string) {
	if _, err := m.space.DeleteAll(ctx, staged); err != nil {
		m.log.LogAttrs(ctx, slog.LevelWarn, "media: staged objects stay until they expire", slog.Any("error", err))
	}
}

// errGone: the item was removed while it was processed.
var errGone = errors.New("media: the item is gone")

// finish makes an item ready: all of it in one transaction, with the end of the job.
func (m *Media) finish(ctx context.Context, out *made) error {
	err := m.db.InTx(ctx, func(ctx context.Context) error {
		now, found, err := m.store.lockItem(ctx, out.ID)
		if err != nil {
			return err
		}
		if !found || now.Status != StatusProcessing {
			return errGone
		}
		if err := m.commit(ctx, out); err != nil {
			return err
		}
		i := out.Item
		if out.original != nil {
			i.ObjectID, i.Size = out.original.ID, out.original.Size
		}
		ready := capability.Millis(m.db.Now(ctx).UnixMilli())
		i.Status, i.ReadyAt = StatusReady, &ready
		if err := m.store.update(ctx, i); err != nil {
			return err
		}
		if err := m.hooks.MediaReady.Fire(ctx, hooks.MediaReady{OwnerID: i.OwnerID, MediaID: i.ID}); err != nil {
			return err
		}
		return jobs.Complete(ctx)
	})
	if errors.Is(err, errGone) {
		m.release(ctx, out.staged)
		return nil
	}
	return err
}

// commit makes the staged objects those of the item. One at the same path takes
// the place of what an earlier run or the upload left there.
func (m *Media) commit(ctx context.Context, out *made) error {
	for _, object := range out.staged {
		if _, err := m.space.Commit(ctx, storage.ByID(object)); err != nil {
			return err
		}
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
