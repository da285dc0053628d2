package media_test

import (
	"context"
	"io"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// asked is a bucket that asks before it looks for an object or opens one.
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

// TestFinalizeAgainWhileTheFirstIsUnderWay: a client that gave up waiting calls
// again, and the job is done before the first call has looked at the bytes.
func TestFinalizeAgainWhileTheFirstIsUnderWay(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		b := &asked{Bucket: file.New(t.TempDir())}
		r := newRig(t, db, media.Config{}, storage.Config{Bucket: b})
		for i, at := range []*func(string) error{&b.head, &b.open} {
			c := r.upload("ada", "a.jpg", withExif(jpegOf(scene(80, 60, float64(i+1)), 80), 1)) // whose original is replaced
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
