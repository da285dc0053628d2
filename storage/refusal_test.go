package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

func TestCopyCountsAgainstTheQuota(t *testing.T) {
	rigs(t, storage.Config{Quota: 5}, func(t *testing.T, r *rig) {
		o := r.put("ada", "a.txt", []byte("123"))
		r.do("ada", "POST", "/storage/"+o.ID+"/copy", upload{"path": "b.txt"}).want(413, "storage/quota_exceeded")
		r.wantUsage("ada", 3, 0)
	})
}

// TestFailingDiskIsUnavailable checks that a client of a signed address may repeat what the disk did
// not take.
func TestFailingDiskIsUnavailable(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, databasetest.Memory(t), file.New(dir), storage.Config{})
	r.put("ada", "first.txt", []byte("123"))
	s := r.start("ada", upload{"path": "a.txt", "size": 3})
	put := func() response {
		return r.do("", "PUT", s.Upload.URL, strings.NewReader("123"), header(s.Upload.Headers)...)
	}
	temp := filepath.Join(dir, "tmp") // where bytes are written first
	if err := os.Remove(temp); err != nil {
		t.Fatal(err)
	}
	put().want(503, "kit/unavailable")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	put().want(200, "")
}
