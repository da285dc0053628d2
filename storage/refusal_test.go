package storage_test

import (
	"testing"

	"github.com/kitbackend/kit/storage"
)

func TestCopyCountsAgainstTheQuota(t *testing.T) {
	rigs(t, storage.Config{Quota: 5}, func(t *testing.T, r *rig) {
		o := r.put("ada", "a.txt", []byte("123"))
		r.do("ada", "POST", "/storage/"+o.ID+"/copy", upload{"path": "b.txt"}).want(413, "storage/quota_exceeded")
		r.wantUsage("ada", 3, 0)
	})
}
