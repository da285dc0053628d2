package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/file"
	"github.com/kitbackend/kit/storage/bucket/s3"
)

const childVariable = "STORAGE_TEST_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var at place
		check(json.Unmarshal([]byte(text), &at))
		loadChild(at)
		return
	}
	os.Exit(m.Run())
}

// place is the storage of a child process: rows in a SQLite file or PostgreSQL, bytes in a
// directory or on S3.
type place struct{ Dir, Postgres, S3, Prefix string }

// TestKill kills a process with kill -9 while it uploads whole and in parts, completes, replaces,
// deletes and sweeps, repeatedly in one place. KIT_SOAK sets a hundred rounds of each.
func TestKill(t *testing.T) {
	rounds := 3
	if os.Getenv("KIT_SOAK") != "" {
		rounds = 100
	}
	t.Setenv("KIT_MASTER_KEYS", "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	for name, where := range map[string]func(t *testing.T) place{
		"directory": func(t *testing.T) place { return place{Dir: t.TempDir()} },
		"s3": func(t *testing.T) place {
			buckettest.S3(t) // creates the bucket
			return place{Dir: t.TempDir(), S3: os.Getenv(buckettest.Variable), Prefix: buckettest.NewKey() + "/"}
		},
		"s3 and postgres": func(t *testing.T) place {
			buckettest.S3(t)
			address, _ := processtest.Database(t)
			return place{Postgres: address, S3: os.Getenv(buckettest.Variable), Prefix: buckettest.NewKey() + "/"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := where(t)
			text, err := json.Marshal(at)
			if err != nil {
				t.Fatal(err)
			}
			total := 0
			for range rounds {
				acknowledged := processtest.Kill(t, processtest.Again(childVariable, string(text)), rand.IntN(60)+1)
				total += len(acknowledged)
				inspect(t, at, acknowledged)
			}
			t.Logf("%d operations acknowledged in %d rounds", total, rounds)
		})
	}
}

// build composes storage in a place, as after a restart.
func build(at place, now func() time.Time) (*kit.Kit, *database.DB, bucket.Bucket, error) {
	db, err := at.database()
	if err != nil {
		return nil, nil, nil, err
	}
	var b bucket.Bucket = file.New(filepath.Join(at.Dir, "objects"))
	if at.S3 != "" {
		cfg, err := s3.Parse(at.S3)
		if err != nil {
			return nil, nil, nil, err
		}
		cfg.Prefix = at.Prefix
		b = s3.New(cfg)
	}
	k, err := kit.New(kit.WithDatabase(db), kit.WithEnvironment("test"), kit.WithClock(now), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithSecrets(secrets.Config{}), kit.WithStorage(storage.Config{Bucket: b, MultipartThresholdBytes: 1 << 20, PartSizeBytes: 5 << 20}))
	return k, db, b, err
}

func (at place) database() (*database.DB, error) {
	if at.Postgres != "" {
		return postgres.Open(context.Background(), at.Postgres)
	}
	return database.OpenFile(filepath.Join(at.Dir, "kit.db"))
}

// inspect opens the place two days later: acknowledged objects exist, no others do, and rows, bytes
// and usage agree.
func inspect(t *testing.T, at place, acknowledged []string) {
	t.Helper()
	ctx := context.Background()
	k, db, b, err := build(at, func() time.Time { return time.Now().Add(48 * time.Hour) })
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
		f, err := b.Open(ctx, key, 0, -1)
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
	for after := ""; ; {
		objects, err := b.List(ctx, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if !keys[o.Key] && o.Key != "kitbucketofthisdatabasekit" {
				t.Errorf("%s has no row", o.Key)
			}
			after = o.Key
		}
		if len(objects) < 1000 {
			break
		}
	}
	if uploads, _, err := b.Uploads(ctx, "", 1000); err != nil || len(uploads) != 0 {
		t.Errorf("uploads are left: %v %v", uploads, err)
	}
	if u, err := k.Storage().Usage(ctx, "ada"); err != nil || u.Used != used || u.Reserved != 0 {
		t.Errorf("usage is %+v and the sum %d: %v", u, used, err)
	}
}

// loadChild works until it is killed and prints the acknowledged operations.
func loadChild(at place) {
	ctx := context.Background()
	k, _, _, err := build(at, time.Now)
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

// inParts replaces an object of two parts with one whose bytes are all the same.
func inParts(k *kit.Kit, n int) {
	ctx, s := context.Background(), k.Storage()
	body := bytes.Repeat([]byte{byte(n + 1)}, 5<<20+1)
	started, err := s.Start(ctx, storage.Upload{OwnerID: "ada", Path: "film", Size: int64(len(body))})
	check(err)
	for _, part := range started.Upload.Parts {
		at := int64(part.PartNumber-1) * started.Upload.PartSize
		r := httptest.NewRequest(http.MethodPut, part.URL, bytes.NewReader(body[at:at+part.Size]))
		if !strings.Contains(r.URL.Path, "/_kit/storage/") { // a URL of S3
			r.RequestURI = ""
			for name, value := range part.Headers {
				r.Header.Set(name, value)
			}
			response, err := http.DefaultClient.Do(r)
			check(err)
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				log.Fatal(response.Status)
			}
			continue
		}
		w := httptest.NewRecorder()
		if k.ServeHTTP(w, r); w.Code != http.StatusOK {
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
