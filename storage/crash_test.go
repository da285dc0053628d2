package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

const childVariable = "STORAGE_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		loadChild(dir)
		return
	}
	os.Exit(m.Run())
}

// TestKill kills a process with kill -9 while it uploads whole and in parts,
// completes, replaces, deletes and sweeps, again and again on one directory.
func TestKill(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	if os.Getenv("KIT_SOAK") != "" {
		rounds = 100
	}
	t.Setenv("KIT_MASTER_KEYS", "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	dir := t.TempDir()
	total := 0
	for range rounds {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+dir)
		acknowledged := processtest.Kill(t, child, rand.IntN(60)+1)
		total += len(acknowledged)
		inspect(t, dir, acknowledged)
	}
	t.Logf("%d operations acknowledged in %d rounds", total, rounds)
}

// build composes storage on a directory, as a restart would.
func build(dir string, now func() time.Time) (*kit.Kit, *database.DB, *file.Bucket, error) {
	db, err := database.OpenFile(filepath.Join(dir, "kit.db"))
	if err != nil {
		return nil, nil, nil, err
	}
	b := file.New(filepath.Join(dir, "objects"))
	k, err := kit.New(kit.WithDatabase(db), kit.WithEnvironment("test"), kit.WithClock(now), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithStorage(storage.Config{Bucket: b, MultipartThresholdBytes: 1 << 20, PartSizeBytes: 5 << 20}))
	return k, db, b, err
}

// inspect opens the directory two days later: what was acknowledged is there,
// nothing else is, and rows, bytes and usage agree.
func inspect(t *testing.T, dir string, acknowledged []string) {
	t.Helper()
	ctx := context.Background()
	k, db, b, err := build(dir, func() time.Time { return time.Now().Add(48 * time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(k.Close(ctx), db.Close()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := k.Storage().Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	for _, line := range acknowledged {
		verb, id, _ := strings.Cut(line, " ")
		_, err := k.Storage().Get(ctx, storage.ByID(id))
		if kept := err == nil; kept != (verb == "kept") {
			t.Errorf("%s: %v", line, err)
		}
	}
	keys := make(map[string]bool)
	rows, err := db.Query(ctx, `SELECT id, object_key, size, sha256, state FROM storage_object`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var used int64
	for rows.Next() {
		var id, key, sum, state string
		var size int64
		if err := rows.Scan(&id, &key, &size, &sum, &state); err != nil {
			t.Fatal(err)
		}
		if state != "ready" {
			t.Errorf("%s is %s after its expiry", id, state)
		}
		keys[key], used = true, used+size
		f, err := b.File(ctx, key)
		if err != nil {
			t.Errorf("%s has no bytes: %v", id, err)
			continue
		}
		var text bytes.Buffer
		if _, err := text.ReadFrom(f); err != nil {
			t.Error(err)
		}
		_ = f.Close()
		if got := sha256.Sum256(text.Bytes()); int64(text.Len()) != size || sum != "" && sum != hex.EncodeToString(got[:]) ||
			sum == "" && !bytes.Equal(text.Bytes(), bytes.Repeat(text.Bytes()[:1], text.Len())) {
			t.Errorf("%s has other bytes than were sent", id)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	objects, err := b.List(ctx, "", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if !keys[o.Key] && o.Key != "kitbucketofthisdatabasekit" {
			t.Errorf("%s has no row", o.Key)
		}
	}
	if uploads, _, err := b.Uploads(ctx, "", 1000); err != nil || len(uploads) != 0 {
		t.Errorf("uploads are left: %v %v", uploads, err)
	}
	if u, err := k.Storage().Usage(ctx, "ada"); err != nil || u.Used != used || u.Reserved != 0 {
		t.Errorf("usage is %+v and the sum %d: %v", u, used, err)
	}
}

// loadChild works until it is killed and prints what was acknowledged.
func loadChild(dir string) {
	ctx := context.Background()
	k, _, _, err := build(dir, time.Now)
	check(err)
	s, run := k.Storage(), os.Getpid()
	done := func(verb, id string) { _, _ = os.Stdout.WriteString(verb + " " + id + "\n") }
	put := func(path string) string {
		o, err := s.Put(ctx, storage.Upload{OwnerID: "ada", Path: path, Size: -1}, strings.NewReader(path))
		check(err)
		return o.ID
	}
	many(4, func(i int) {
		for n := 0; ; n++ {
			switch i {
			case 0:
				done("kept", put(fmt.Sprintf("keep/%d/%d", run, n)))
			case 1:
				old := put("swapped")
				fresh := put("swapped")
				_, err := s.Get(ctx, storage.ByID(fresh))
				check(err)
				done("gone", old)
			case 2:
				id := put(fmt.Sprintf("delete/%d/%d", run, n))
				check(s.Delete(ctx, storage.ByID(id)))
				done("gone", id)
				if _, err := s.Sweep(ctx); err != nil {
					log.Fatal(err)
				}
			case 3:
				inParts(k, n)
			}
		}
	})
}

// inParts replaces an object of two parts, each byte of it the same.
func inParts(k *kit.Kit, n int) {
	ctx, s := context.Background(), k.Storage()
	body := bytes.Repeat([]byte{byte(n + 1)}, 5<<20+1)
	started, err := s.Start(ctx, storage.Upload{OwnerID: "ada", Path: "film", Size: int64(len(body))})
	check(err)
	for _, part := range started.Upload.Parts {
		at := int64(part.PartNumber-1) * started.Upload.PartSize
		w := httptest.NewRecorder()
		k.ServeHTTP(w, httptest.NewRequest(http.MethodPut, part.URL, bytes.NewReader(body[at:at+part.Size])))
		if w.Code != http.StatusOK {
			log.Fatal(w.Body)
		}
	}
	_, err = s.Complete(ctx, storage.ByID(started.Object.ID), nil)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
