package media_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// asked is a bucket that calls a function before Head or Open of an object.
type asked struct {
	*file.Bucket
	head, open func(key string) error
}

func (b *asked) Head(ctx context.Context, key string) (bucket.Info, error) {
	if b.head != nil {
		if err := b.head(key); err != nil {
			return bucket.Info{}, err
		}
	}
	return b.Bucket.Head(ctx, key)
}

func (b *asked) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if b.open != nil {
		if err := b.open(key); err != nil {
			return nil, err
		}
	}
	return b.Bucket.Open(ctx, key, offset, length)
}

// TestFinalizeAgainWhileTheFirstIsUnderWay finalizes again, like a client after a timeout, and
// completes the job before the first call has read the bytes.
func TestFinalizeAgainWhileTheFirstIsUnderWay(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		b := &asked{Bucket: file.New(t.TempDir())}
		r := newRig(t, db, media.Config{}, storage.Config{Bucket: b})
		for i, at := range []*func(string) error{&b.head, &b.open} {
			c := r.upload("ada", "a.jpg", withExif(jpegOf(scene(80, 60, float64(i+1)), 80), 1)) // its original is replaced
			*at = func(string) error {
				*at = nil
				r.finalize("ada", c.Item.ID, 202, "")
				r.k.RunJobs()
				return nil
			}
			r.finalize("ada", c.Item.ID, 202, "")
			if i := r.get("ada", c.Item.ID); i.Status != "ready" {
				t.Errorf("%+v", i)
			}
		}
	})
}

// interrupted stores files whose items are not finalized, as if the process was killed during Put.
func (r *rig) interrupted(b *asked, files ...[]byte) (ids []string) {
	r.t.Helper()
	b.open = func(string) error { return errors.New("the process ends here") }
	for _, data := range files {
		if _, err := r.k.Media().Put(context.Background(), media.Upload{OwnerID: "ada", Filename: "a.jpg", Size: int64(len(data))}, bytes.NewReader(data)); err == nil {
			r.t.Fatal("want Put interrupted")
		}
	}
	b.open = nil
	var list struct{ Items []item }
	r.k.User("ada").Get("/media?status=pending").Want(200, "").JSON(&list)
	for _, i := range list.Items {
		ids = append([]string{i.ID}, ids...)
	}
	return ids
}

// tidy runs only MEDIA_TIDY.
func (r *rig) tidy() error {
	for _, b := range r.k.Media().Capability().Jobs {
		if b.Name == "MEDIA_TIDY" {
			return b.Run(context.Background(), jobs.Job{})
		}
	}
	panic("no such job")
}

func TestTidyLeavesAnItemThatWasProcessedMeanwhile(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		b := &asked{Bucket: file.New(t.TempDir())}
		r := newRig(t, db, media.Config{}, storage.Config{Bucket: b})
		data := withExif(jpegOf(scene(80, 60, 1), 80), 1) // its original is replaced
		ids := r.interrupted(b, data, data)
		r.k.Clock.Advance(25 * time.Hour)
		b.open = func(string) error { // called for the first of the two
			b.open = nil
			r.finalize("ada", ids[1], 202, "")
			r.k.RunJobs()
			return nil
		}
		if err := r.tidy(); err != nil {
			t.Fatal(err)
		}
		if i := r.get("ada", ids[1]); i.Status != "ready" {
			t.Errorf("%+v", i)
		}
	})
}

func TestTidyGoesOnBehindAnItemThatFails(t *testing.T) {
	b := &asked{Bucket: file.New(t.TempDir())}
	r := newRig(t, databasetest.Memory(t), media.Config{}, storage.Config{Bucket: b})
	data := jpegOf(scene(80, 60, 1), 80)
	ids := r.interrupted(b, data, data)
	r.k.Clock.Advance(25 * time.Hour)
	lost := ""
	b.open = func(key string) error {
		if lost == "" {
			lost = key
		}
		if key == lost {
			return bucket.ErrNotFound
		}
		return nil
	}
	if err := r.tidy(); err == nil {
		t.Error("want the failure of the first reported")
	}
	r.k.RunJobs()
	if first, second := r.get("ada", ids[0]), r.get("ada", ids[1]); first.Status != "pending" || second.Status != "ready" {
		t.Errorf("%s and %s", first.Status, second.Status)
	}
}
