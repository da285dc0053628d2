package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/file"
	"github.com/kitbackend/kit/storage/bucket/s3"
)

func (r *rig) text(ref storage.Ref) string {
	r.t.Helper()
	content, err := r.s.Open(context.Background(), ref)
	if err != nil {
		r.t.Fatal(err)
	}
	defer content.Close()
	raw, err := io.ReadAll(content)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(raw)
}

func TestPutFromAReader(t *testing.T) {
	t.Parallel()
	rigs(t, storage.Config{Quota: 20 << 20}, func(t *testing.T, r *rig) {
		ctx := context.Background()
		for _, size := range []int64{5, -1} {
			o, err := r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: size}, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
			if o.Size != 5 || o.SHA256 == nil || *o.SHA256 != sum || r.text(storage.ByID(o.ID)) != "hello" {
				t.Errorf("%d: %+v", size, o)
			}
			r.wantUsage("ada", 5, 0)
		}
		for name, c := range map[string]struct {
			u    storage.Upload
			body io.Reader
			want error
		}{
			"fewer bytes":     {storage.Upload{Size: 6}, strings.NewReader("hello"), capability.ErrInvalidRequest},
			"more bytes":      {storage.Upload{Size: 4}, strings.NewReader("hello"), capability.ErrInvalidRequest},
			"another sum":     {storage.Upload{Size: 5, SHA256: strings.Repeat("0", 64)}, strings.NewReader("hello"), capability.ErrInvalidRequest},
			"over the quota":  {storage.Upload{Size: -1}, io.LimitReader(zeros{}, 21<<20), storage.ErrQuotaExceeded},
			"a broken reader": {storage.Upload{Size: -1}, io.MultiReader(strings.NewReader("he"), broken{}), errBroken},
		} {
			c.u.OwnerID, c.u.Path = "ada", "b"
			if _, err := r.s.Put(ctx, c.u, c.body); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			r.wantUsage("ada", 5, 0)
		}
		if o, err := r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: "b", Size: -1}, io.LimitReader(zeros{}, 20<<20-5)); err != nil || o.Size != 20<<20-5 {
			t.Errorf("all that is left: %d %v", o.Size, err)
		}
		r.addsUp("ada")
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Read([]byte) (int, error) { return 0, errBroken }

func TestAStreamWhoseReservationEndsKeepsNoSpace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(""), storage.Config{Quota: 100 * mib})
		ctx := context.Background()
		for name, end := range map[string]during{
			"lapsed": func() { r.k.Clock.Advance(25 * time.Hour); r.k.RunJobs() },
			"erased": func() {
				if _, err := r.s.Capability().Erase(ctx, capability.Person{ID: "ada"}); err != nil {
					t.Error(err)
				}
			},
		} {
			stream := io.MultiReader(io.LimitReader(zeros{}, mib), end, io.LimitReader(zeros{}, 9*mib))
			if _, err := r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: -1}, stream); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
			r.wantUsage("ada", 0, 0)
		}
	})
}

// during is a reader that calls a function and ends.
type during func()

func (d during) Read([]byte) (int, error) { d(); return 0, io.EOF }

// copying is a bucket that calls a function when a copy of an open object starts.
type copying struct {
	bucket.Served
	begun func()
}

func (b copying) Copy(ctx context.Context, from, to, contentType string) (bucket.Info, error) {
	source, err := b.Open(ctx, from, 0, -1)
	if err != nil {
		return bucket.Info{}, err
	}
	defer source.Close()
	b.begun()
	return b.Put(ctx, to, source, -1, contentType)
}

func TestBytesThatComeBehindAnErasureAreRemoved(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		var r *rig
		erase := func() {
			if _, err := r.s.Capability().Erase(ctx, capability.Person{ID: "ada"}); err != nil {
				t.Error(err)
			}
		}
		r = newRig(t, db, copying{file.New(t.TempDir()), erase}, storage.Config{})
		left := func(what string, err error) {
			if !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
			if list, err := r.bucket.List(ctx, "", 10); err != nil || len(list) > 0 {
				t.Errorf("%s: left are %v, %v", what, list, err)
			}
			r.wantUsage("ada", 0, 0)
		}
		_, err := r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: 5}, io.MultiReader(strings.NewReader("he"), during(erase), strings.NewReader("llo")))
		left("put", err)
		o := r.put("ada", "a", []byte("hello"))
		_, err = r.s.Copy(ctx, storage.ByID(o.ID), storage.CopyTo{Path: "b"})
		left("copy", err)
	})
}

// stubborn is a bucket that removes nothing while it is down.
type stubborn struct {
	bucket.Served
	down  bool
	asked int
}

func (b *stubborn) Delete(ctx context.Context, keys ...string) error {
	if b.asked++; b.down {
		return errBroken
	}
	return b.Served.Delete(ctx, keys...)
}

func TestABucketThatFailsIsWaitedForOnceBehindACommit(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, b := context.Background(), &stubborn{Served: file.New(t.TempDir())}
		r := newRig(t, db, b, storage.Config{})
		var ids []string
		for i := range 5 {
			ids = append(ids, r.put("ada", fmt.Sprint(i), []byte("x")).ID)
		}
		b.down = true
		if n, err := r.s.DeleteAll(ctx, ids[:3]); err != nil || n != 3 || b.asked != 1 {
			t.Errorf("%d removed, the bucket was asked %d times: %v", n, b.asked, err)
		}
		b.down = false
		r.k.Clock.Advance(2 * time.Minute)
		if _, err := r.s.DeleteAll(ctx, ids[3:]); err != nil || b.asked != 3 {
			t.Errorf("once it works again it was asked %d times: %v", b.asked, err)
		}
		r.k.Clock.Advance(20 * time.Minute)
		r.k.RunJobs()
		if list, err := b.List(ctx, "", 10); err != nil || len(list) > 0 {
			t.Errorf("left are %v, %v", list, err)
		}
	})
}

func TestWhatCannotBeCommittedHoldsNoReservation(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		r := newRig(t, db, file.New(t.TempDir()), storage.Config{})
		o := r.put("ada", "a", []byte("hello"))
		exec := func(query string) {
			t.Helper()
			if _, err := db.Exec(ctx, query); err != nil {
				t.Fatal(err)
			}
		}
		exec(database.Text(`CREATE TRIGGER broken BEFORE UPDATE OF completed_at ON storage_object BEGIN SELECT RAISE(ABORT, 'broken'); END`,
			`CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
			CREATE TRIGGER broken BEFORE UPDATE OF completed_at ON storage_object FOR EACH ROW EXECUTE FUNCTION broken()`))
		_, copied := r.s.Copy(ctx, storage.ByID(o.ID), storage.CopyTo{Path: "b"})
		_, put := r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: "c", Size: 5}, strings.NewReader("hello"))
		if copied == nil || put == nil {
			t.Fatalf("%v and %v, want both broken", copied, put)
		}
		r.wantUsage("ada", 5, 0)
		if list, err := r.bucket.List(ctx, "", 10); err != nil || len(list) != 1 {
			t.Errorf("left are %v, %v", list, err)
		}
	})
}

// TestASweepLeavesWhatIsBeingPut checks that a sweep does not abort the multipart uploads by which
// the S3 client writes large objects.
func TestASweepLeavesWhatIsBeingPut(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), buckettest.S3(t), storage.Config{})
	ctx := context.Background()
	for _, size := range []int64{-1, 40 * mib} {
		sweep := during(func() {
			r.later(2 * time.Hour)
			if _, err := r.s.Sweep(ctx); err != nil {
				t.Error(err)
			}
		})
		stream := io.MultiReader(io.LimitReader(zeros{}, 36*mib), sweep, io.LimitReader(zeros{}, 4*mib))
		if o, err := r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: size}, stream); err != nil || o.Size != 40*mib {
			t.Errorf("of size %d: %d bytes, %v", size, o.Size, err)
		}
	}
}

// TestCallersTransaction commits and deletes together with rows of the caller.
func TestCallersTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(t.TempDir()), storage.Config{})
		ctx := context.Background()
		media := r.s.Namespace("media")
		staged, err := media.Stage(ctx, storage.Upload{OwnerID: "ada", Path: "item", Size: 5}, strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := media.Open(ctx, storage.ByID(staged.ID)); !errors.Is(err, storage.ErrUploadIncomplete) {
			t.Errorf("a staged object: %v", err)
		}
		back := errors.New("back")
		commit := func(end error) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				if _, err := media.Commit(ctx, storage.ByID(staged.ID)); err != nil {
					return err
				}
				return end
			})
		}
		if err := commit(back); !errors.Is(err, back) {
			t.Fatal(err)
		}
		r.wantUsage("ada", 0, 5)
		if err := commit(nil); err != nil {
			t.Fatal(err)
		}
		r.wantUsage("ada", 5, 0)
		remove := func(end error) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				if err := media.Delete(ctx, storage.ByID(staged.ID)); err != nil {
					return err
				}
				return end
			})
		}
		if err := remove(back); !errors.Is(err, back) {
			t.Fatal(err)
		}
		if got, err := media.Open(ctx, storage.ByID(staged.ID)); err != nil {
			t.Errorf("after a rollback of delete: %v", err)
		} else {
			_ = got.Close()
		}
		if err := remove(nil); err != nil {
			t.Fatal(err)
		}
		if objects, err := r.bucket.List(ctx, "", 10); err != nil || len(objects) != 0 {
			t.Errorf("bytes are left after the commit of delete: %v %v", objects, err)
		}
		err = db.InTx(ctx, func(ctx context.Context) error {
			_, err := media.Put(ctx, storage.Upload{OwnerID: "ada", Path: "x", Size: 1}, strings.NewReader("x"))
			return err
		})
		if err == nil {
			t.Error("Put moves bytes inside a transaction")
		}
	})
}

// TestNamespacesAreInvisible checks that no route reaches objects of other capabilities.
func TestNamespacesAreInvisible(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), file.New(""), storage.Config{Quota: 10})
	o, err := r.s.Namespace("media").Put(context.Background(), storage.Upload{OwnerID: "ada", Path: "secret", Size: 6, Visibility: storage.VisibilityPublic}, strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	at := "/storage/" + o.ID
	for _, c := range [][2]string{{"GET", at}, {"GET", at + "/url"}, {"GET", at + "/parts"}, {"POST", at + "/complete"}, {"POST", at + "/abort"},
		{"POST", at + "/shares"}, {"DELETE", at + "/shares/x"}, {"DELETE", at}} {
		r.do("ada", c[0], c[1], nil).want(404, "storage/not_found")
	}
	r.do("ada", "PATCH", at, upload{"path": "x"}).want(404, "storage/not_found")
	r.do("ada", "POST", at+"/copy", upload{"path": "x"}).want(404, "storage/not_found")
	if got := r.do("ada", "HEAD", at, nil); got.status != 404 {
		t.Errorf("HEAD: %d", got.status)
	}
	var list struct{ Items []object }
	if r.do("ada", "GET", "/storage", nil).json(&list); len(list.Items) != 0 {
		t.Errorf("listed: %+v", list)
	}
	r.do("ada", "POST", "/storage", upload{"path": "b", "size": 5}).want(413, "storage/quota_exceeded")
	r.put("ada", "secret", []byte("mine"))
	r.wantUsage("ada", 10, 0)
}

func TestBatches(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(""), storage.Config{})
		ctx := context.Background()
		var ids []string
		for _, p := range []string{"a/1", "a/2", "a/b/3", "c"} {
			ids = append(ids, r.put("ada", p, []byte(p)).ID)
		}
		links, err := r.s.SignAll(ctx, append(ids, "absent"), storage.SignOptions{})
		if err != nil || len(links) != 4 {
			t.Fatalf("%v %v", links, err)
		}
		if got := r.do("", "GET", links[ids[2]].URL, nil).want(200, ""); string(got.body) != "a/b/3" {
			t.Errorf("got %q", got.body)
		}
		if n, more, err := r.s.Move(ctx, "ada", "a/", "moved/"); n != 3 || more || err != nil {
			t.Errorf("moved %d %v %v", n, more, err)
		}
		if _, _, err := r.s.Move(ctx, "ada", "moved/", "moved/deeper/"); !errors.Is(err, capability.ErrInvalidRequest) {
			t.Errorf("into itself: %v", err)
		}
		if o, err := r.s.At(ctx, "ada", "moved/b/3"); err != nil || o.ID != ids[2] {
			t.Errorf("%+v %v", o, err)
		}
		if n, err := r.s.DeleteAll(ctx, append(ids[:2:2], "absent")); n != 2 || err != nil {
			t.Errorf("deleted %d %v", n, err)
		}
		r.addsUp("ada")
	})
}

func TestSweepBothWays(t *testing.T) {
	rigs(t, storage.Config{}, func(t *testing.T, r *rig) {
		ctx := context.Background()
		kept, lost := r.put("ada", "kept", []byte("kept")), r.put("ada", "lost", []byte("lost!"))
		orphan := buckettest.NewKey()
		if _, err := r.bucket.Put(ctx, orphan, strings.NewReader("orphan"), 6, "text/plain"); err != nil {
			t.Fatal(err)
		}
		upload, err := r.bucket.Start(ctx, buckettest.NewKey(), bucket.Plan{Size: 5 << 20, PartSize: 5 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if r.bucket.Name() == "s3" { // the clock of S3 cannot be moved, so nothing is old enough
			if swept, err := r.s.Sweep(ctx); err != nil || swept != (storage.Swept{}) {
				t.Errorf("%+v %v", swept, err)
			}
			return
		}
		var key string
		if err := r.k.Database().QueryRow(ctx, `SELECT object_key FROM storage_object WHERE id = $1`, lost.ID).Scan(&key); err != nil {
			t.Fatal(err)
		}
		if err := r.bucket.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		// The files have the machine's time, the rows that of the test's clock.
		r.k.Clock.Advance(time.Until(r.k.Clock.Now()).Abs() + 2*time.Hour)
		if time.Now().After(r.k.Clock.Now()) {
			r.k.Clock.Advance(time.Since(r.k.Clock.Now()) + 2*time.Hour)
		}
		swept, err := r.s.Sweep(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(storage.Swept{Bytes: 1, Rows: 1, Uploads: 1}, swept); diff != "" {
			t.Error(diff)
		}
		if swept, err := r.s.Sweep(ctx); err != nil || swept != (storage.Swept{}) {
			t.Errorf("a second sweep: %+v %v", swept, err)
		}
		r.do("ada", "GET", "/storage/"+lost.ID, nil).want(404, "storage/not_found")
		r.do("ada", "GET", "/storage/"+kept.ID, nil).want(200, "")
		if err := r.bucket.Abort(ctx, orphan, upload); err != nil {
			t.Error(err)
		}
		r.addsUp("ada")
	})
}

func TestSweepRefusesAForeignBucket(t *testing.T) {
	dir := t.TempDir()
	first := newRig(t, databasetest.Memory(t), file.New(dir), storage.Config{})
	first.put("ada", "a", []byte("a"))
	if _, err := first.s.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	second := newRig(t, databasetest.Memory(t), file.New(dir), storage.Config{})
	second.k.Clock.Advance(10 * 365 * 24 * time.Hour)
	if _, err := second.s.Sweep(context.Background()); !errors.Is(err, storage.ErrForeignBucket) {
		t.Errorf("another database sweeps the bucket: %v", err)
	}
	if err := os.RemoveAll(dir + "/objects"); err != nil {
		t.Fatal(err)
	}
	first.k.Clock.Advance(10 * 365 * 24 * time.Hour)
	if _, err := first.s.Sweep(context.Background()); !errors.Is(err, storage.ErrForeignBucket) {
		t.Errorf("the rows of an empty bucket are swept: %v", err)
	}
}

func TestDispatchableSweep(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), file.New(""), storage.Config{})
	for _, job := range r.s.Capability().Jobs {
		if got := job.Dispatch.Allowed(); got != (job.Name == "STORAGE_SWEEP") {
			t.Errorf("%s: %v", job.Name, got)
		}
	}
	without := newRig(t, databasetest.Memory(t), file.New(""), storage.Config{NoSweep: true})
	if n := len(without.s.Capability().Jobs); n != 1 {
		t.Errorf("%d jobs without the sweep", n)
	}
}

func TestExportAndErase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(""), storage.Config{})
		ctx := context.Background()
		r.put("ada", "a", []byte("a"), "visibility", "public")
		bobs := r.put("bob", "b", []byte("b"))
		r.start("ada", upload{"path": "pending", "size": 4})
		if _, err := r.s.Namespace("media").Put(ctx, storage.Upload{OwnerID: "ada", Path: "m", Size: 1}, strings.NewReader("m")); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		c := r.s.Capability()
		if err := c.Export(ctx, capability.Person{ID: "ada"}, func(kind string, _ any) error { kinds = append(kinds, kind); return nil }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"usage", "object", "object", "object"}, kinds); diff != "" {
			t.Error(diff)
		}
		for _, want := range []int64{3, 0} {
			erasure, err := c.Erase(ctx, capability.Person{ID: "ada"})
			if err != nil || erasure.Removed != want {
				t.Errorf("%+v %v, want %d", erasure, err, want)
			}
		}
		kinds = nil
		if err := c.Export(ctx, capability.Person{ID: "ada"}, func(kind string, _ any) error { kinds = append(kinds, kind); return nil }); err != nil || len(kinds) != 0 {
			t.Errorf("after Erase: %q %v", kinds, err)
		}
		objects, err := r.bucket.List(ctx, "", 10)
		if err != nil || len(objects) != 1 {
			t.Errorf("%d objects are left, want bob's: %v", len(objects), err)
		}
		r.do("bob", "GET", "/storage/"+bobs.ID, nil).want(200, "")
	})
}

// TestNoRowStaysOfAnErasedOwner stages objects for an owner, like work that is concurrent with an
// erasure.
func TestNoRowStaysOfAnErasedOwner(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newRig(t, db, file.New(""), storage.Config{})
		ctx, media := context.Background(), r.s.Namespace("media")
		stage := func() string {
			o, err := media.Stage(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: 5}, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			return o.ID
		}
		for name, end := range map[string]func() error{
			"deleted": func() error { _, err := media.DeleteAll(ctx, []string{stage()}); return err },
			"lapsed":  func() error { stage(); r.k.Clock.Advance(25 * time.Hour); r.k.RunJobs(); return nil },
			"broken": func() error {
				if _, err := media.Stage(ctx, storage.Upload{OwnerID: "ada", Path: "a", Size: 5}, broken{}); !errors.Is(err, errBroken) {
					return fmt.Errorf("staged: %w", err)
				}
				return nil
			},
		} {
			if err := end(); err != nil {
				t.Fatal(name, err)
			}
			var n int
			if err := db.QueryRow(ctx, `SELECT COUNT(*) FROM storage_usage WHERE owner_id = 'ada'`).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d rows %v", name, n, err)
			}
		}
	})
}

func TestConfigFaults(t *testing.T) {

	for name, c := range map[string]struct {
		cfg  storage.Config
		want string
	}{
		"threshold":  {storage.Config{MultipartThresholdBytes: 5<<30 + 1}, "multipartThresholdBytes"},
		"part size":  {storage.Config{PartSizeBytes: 5<<20 - 1}, "partSizeBytes"},
		"ttl":        {storage.Config{PendingTTL: time.Second}, "pendingTtlSeconds"},
		"quota":      {storage.Config{Quota: -1}, "quota"},
		"max":        {storage.Config{MaxObjectBytes: -1}, "maxObjectBytes"},
		"visibility": {storage.Config{DefaultVisibility: "secret"}, "defaultVisibility"},
		"type":       {storage.Config{AllowedTypes: []string{"image/png", "image"}}, "allowedTypes[1]"},
		"secrets":    {storage.Config{Bucket: s3.New(s3.Config{})}, "peers"},
		"no secret":  {storage.Config{Bucket: s3.New(s3.Config{Bucket: "b", AccessKeyID: "a"})}, "bucket"},
		"no key":     {storage.Config{Bucket: s3.New(s3.Config{Bucket: "b", SecretAccessKey: "s"})}, "bucket"},
	} {
		_, err := storage.New(newHost(t), c.cfg, storage.Peers{})
		var fault *capability.Fault
		if !errors.As(err, &fault) || fault.Key != c.want {
			t.Errorf("%s: %v, want a fault of %s", name, err, c.want)
		}
	}
	production := newHost(t)
	production.Environment = capability.Production
	for _, cfg := range []storage.Config{{}, {Bucket: file.New("")}} { // file.New("") as from a variable that is not set
		var fault *capability.Fault
		if _, err := storage.New(production, cfg, storage.Peers{}); !errors.As(err, &fault) || fault.Key != "bucket" {
			t.Errorf("production takes a temporary directory: %v", err)
		}
	}
	if _, err := storage.New(production, storage.Config{Bucket: file.New(t.TempDir())}, storage.Peers{}); err != nil {
		t.Error(err)
	}
}

// TestCredentialsOfTheBucket reads the credentials from the secret, both halves or none.
func TestCredentialsOfTheBucket(t *testing.T) {
	address := os.Getenv(buckettest.Variable)
	if address == "" {
		address = "http://key:secret@127.0.0.1:1/kit"
	}
	cfg, err := s3.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	key, secret, name := cfg.AccessKeyID, cfg.SecretAccessKey, cfg.Bucket
	cfg.AccessKeyID, cfg.SecretAccessKey, cfg.Bucket, cfg.Prefix = "", "", "", buckettest.NewKey()+"/"
	r := newRig(t, databasetest.Memory(t), s3.New(cfg), storage.Config{})
	ctx := context.Background()
	r.do("ada", "POST", "/storage", upload{"path": "a", "size": 1}).want(503, "kit/unavailable")
	put := func(fields secrets.Fields) error {
		_, err := r.k.Secrets().Rotate(ctx, storage.CredentialsSecret, secrets.Blocks{"bucket": fields})
		return err
	}
	if err := put(secrets.Fields{"bucket": secrets.NewValue(name), "accessKeyId": secrets.NewValue(key)}); !errors.Is(err, secrets.ErrIncompleteBlock) {
		t.Errorf("half a pair: %v", err)
	}
	if err := put(secrets.Fields{"bucket": secrets.NewValue(name), "accessKeyId": secrets.NewValue(key), "secretAccessKey": secrets.NewValue(secret)}); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(buckettest.Variable) != "" {
		r.put("ada", "a", []byte("by the secret"))
	}
}
