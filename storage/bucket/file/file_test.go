package file_test

import (
	"testing"

	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/file"
)

func TestBucket(t *testing.T) {
	for name, dir := range map[string]func(testing.TB) string{
		"directory": func(t testing.TB) string { return t.TempDir() },
		"temporary": func(testing.TB) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			buckettest.Run(t, func(t testing.TB) bucket.Bucket {
				b := file.New(dir(t))
				t.Cleanup(func() {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
				return b
			})
		})
	}
}
