package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// many runs a function n times concurrently.
func many(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// TestQuotaUnderRace starts 100 uploads of a tenth of the quota: ten succeed.
func TestQuotaUnderRace(t *testing.T) {
	rigs(t, storage.Config{Quota: 1000}, func(t *testing.T, r *rig) {
		var won, lost atomic.Int64
		many(100, func(i int) {
			_, err := r.s.Start(context.Background(), storage.Upload{OwnerID: "ada", Path: fmt.Sprint(i), Size: 100})
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, storage.ErrQuotaExceeded):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
		if won.Load() != 10 || lost.Load() != 90 {
			t.Errorf("%d uploads began and %d were refused, want 10 and 90", won.Load(), lost.Load())
		}
		r.wantUsage("ada", 0, 1000)
	})
}

func TestReservationEndsByItself(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(""), storage.Config{Quota: 10, PendingTTL: 2 * time.Minute, NoSweep: true})
		s := r.start("ada", upload{"path": "a", "size": 10})
		r.do("ada", "POST", "/storage", upload{"path": "b", "size": 1}).want(413, "storage/quota_exceeded")
		r.k.Clock.Advance(2*time.Minute - time.Millisecond)
		r.do("ada", "POST", "/storage", upload{"path": "b", "size": 1}).want(413, "storage/quota_exceeded")
		r.k.Clock.Advance(time.Millisecond)
		if got := r.send(s.Upload.URL, s.Upload.Headers, bytesOf(10)); got.status < 400 {
			t.Errorf("a PUT after the expiry: %d", got.status)
		}
		r.do("ada", "POST", "/storage/"+s.Object.ID+"/complete", nil).want(404, "storage/not_found")
		r.start("ada", upload{"path": "b", "size": 10})
		r.wantUsage("ada", 0, 10)
		r.k.Clock.Advance(20 * time.Minute)
		r.k.RunJobs() // without another start, the job ends it
		r.wantUsage("ada", 0, 0)
	})
}

// TestEveryLapsedReservationEndsAtOnce has more expired uploads than one transaction removes, and
// aborted ones before them.
func TestEveryLapsedReservationEndsAtOnce(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(""), storage.Config{Quota: 101, NoSweep: true})
		ctx := context.Background()
		start := func(size int64) storage.Ref {
			s, err := r.s.Start(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: size})
			if err != nil {
				t.Fatal(err)
			}
			return storage.ByID(s.Object.ID)
		}
		for range 100 {
			if err := r.s.Abort(ctx, start(1)); err != nil {
				t.Fatal(err)
			}
		}
		r.k.Clock.Advance(time.Second)
		for range 101 {
			start(1)
		}
		r.k.Clock.Advance(25 * time.Hour)
		start(101)
		r.wantUsage("ada", 0, 101)
	})
}

// TestRowsOfUsageUnderRace starts uploads while the last object of the owner is deleted, which
// removes the row that is the owner's lock.
func TestRowsOfUsageUnderRace(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(""), storage.Config{})
		ctx := context.Background()
		many(50, func(int) {
			s, err := r.s.Start(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: 1})
			if err == nil {
				err = r.s.Delete(ctx, storage.ByID(s.Object.ID))
			}
			if err != nil {
				t.Error(err)
			}
		})
		r.addsUp("ada")
	})
}

// TestCompleteAgainstAbort runs complete, abort, replacement and sweep of the same objects
// concurrently; whatever wins, usage is the sum of the objects.
func TestCompleteAgainstAbort(t *testing.T) {
	t.Parallel()
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		ctx := context.Background()
		for range 10 {
			s := r.start("ada", upload{"path": "same", "size": 5})
			r.send(s.Upload.URL, s.Upload.Headers, []byte("hello")).want(200, "")
			ref := storage.ByID(s.Object.ID).As("ada")
			many(10, func(i int) {
				var err error
				switch i % 5 {
				case 0, 1:
					_, err = r.s.Complete(ctx, ref, nil)
				case 2:
					err = r.s.Abort(ctx, ref)
				case 3:
					_, err = r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: "same", Size: 3}, strings.NewReader("abc"))
				case 4:
					_, err = r.s.Sweep(ctx)
				}
				if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrUploadIncomplete) {
					t.Error(i, err)
				}
			})
			r.addsUp("ada")
		}
	})
}

// addsUp fails the test unless usage is the sum over the objects, each of which
// has its bytes.
func (r *rig) addsUp(user string) {
	r.t.Helper()
	var ready, pending int64
	if err := r.k.Database().QueryRow(context.Background(), `SELECT CAST(COALESCE(SUM(CASE WHEN state = 'ready' THEN size ELSE 0 END), 0) AS BIGINT),
		CAST(COALESCE(SUM(CASE WHEN state = 'pending' THEN size ELSE 0 END), 0) AS BIGINT) FROM storage_object WHERE owner_id = $1`, user).Scan(&ready, &pending); err != nil {
		r.t.Fatal(err)
	}
	r.wantUsage(user, ready, pending)
	list, err := r.s.List(context.Background(), storage.Filter{OwnerID: user}, capability.NewPage(200, ""))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, o := range list.Items {
		content, err := r.s.Open(context.Background(), storage.ByID(o.ID))
		if err != nil {
			r.t.Errorf("%s has no bytes: %v", o.Path, err)
			continue
		}
		_ = content.Close()
	}
}

// TestTwoNodes starts on one kit and completes on another, which share PostgreSQL and a directory.
func TestTwoNodes(t *testing.T) {
	dbs, dir := databasetest.Shared(t, 2), t.TempDir()
	t.Setenv("KIT_MASTER_KEYS", "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	kits := make([]*kittest.Kit, 2)
	var turn atomic.Int64 // requests alternate between the nodes
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		kits[turn.Add(1)%2].ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	for i, db := range dbs {
		kits[i] = kittest.New(t, kit.WithDatabase(db), kit.WithBaseURL(server.URL), kit.WithAuth(auth.Config{}),
			kit.WithStorage(storage.Config{Bucket: file.New(dir), MultipartThresholdBytes: small.MultipartThresholdBytes, PartSizeBytes: small.PartSizeBytes}))
	}
	r := &rig{t: t, k: kits[0], s: kits[0].Storage(), server: server}
	body := bytesOf(12 * mib)
	o := r.put("ada", "film", body)
	if got := r.do("ada", "GET", "/storage/"+o.ID, nil).want(200, ""); !bytes.Equal(got.body, body) {
		t.Error("other bytes came back")
	}
	var link struct{ URL string }
	for range 4 {
		r.do("ada", "GET", "/storage/"+o.ID+"/url", nil).want(200, "").json(&link)
		r.do("", "GET", link.URL, nil, "Range", "bytes=0-9").want(206, "")
		turn.Add(1)
	}
	// Both nodes complete concurrently, repeatedly: one object, counted once.
	for i := range 5 {
		s := r.start("ada", upload{"path": fmt.Sprint(i), "size": 12 * mib})
		for _, part := range s.Upload.Parts {
			at := int64(part.PartNumber-1) * s.Upload.PartSize
			r.send(part.URL, part.Headers, body[at:at+part.Size]).want(200, "")
		}
		many(4, func(n int) {
			if _, err := kits[n%2].Storage().Complete(context.Background(), storage.ByID(s.Object.ID), nil); err != nil {
				t.Errorf("node %d: %v", n%2, err)
			}
		})
		r.addsUp("ada")
	}
	r.wantUsage("ada", 6*12*mib, 0)
}
