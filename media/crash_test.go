package media_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/file"
	"github.com/kitbackend/kit/storage/bucket/s3"
)

const childVariable = "MEDIA_TEST_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var at place
		check(json.Unmarshal([]byte(text), &at))
		loadChild(at)
		return
	}
	os.Exit(m.Run())
}

// place is the storage of a child process: bytes in a directory or on S3. Side is the size of its
// derivatives.
type place struct {
	Dir, S3, Prefix string
	Round, Side     int
}

// TestKill kills a process with kill -9 while it uploads pictures, makes derivatives, remakes them
// in another size, and deletes. KIT_SOAK sets a hundred rounds.
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
	} {
		t.Run(name, func(t *testing.T) {
			at, total := where(t), 0
			for round := range rounds {
				at.Round, at.Side = round, 20+round
				text, err := json.Marshal(at)
				if err != nil {
					t.Fatal(err)
				}
				acknowledged := processtest.Kill(t, processtest.Again(childVariable, string(text)), rand.IntN(12)+1)
				total += len(acknowledged)
				inspect(t, at, acknowledged)
			}
			t.Logf("%d operations acknowledged in %d rounds", total, rounds)
		})
	}
}

// build composes media in a place, as after a restart.
func build(at place, now func() time.Time) (*kit.Kit, *database.DB, error) {
	db, err := database.OpenFile(filepath.Join(at.Dir, "kit.db"))
	if err != nil {
		return nil, nil, err
	}
	var b bucket.Bucket = file.New(filepath.Join(at.Dir, "objects"))
	if at.S3 != "" {
		cfg, err := s3.Parse(at.S3)
		if err != nil {
			return nil, nil, err
		}
		cfg.Prefix = at.Prefix
		b = s3.New(cfg)
	}
	k, err := kit.New(kit.WithDatabase(db), kit.WithEnvironment("test"), kit.WithClock(now), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithSecrets(secrets.Config{}), kit.WithStorage(storage.Config{Bucket: b}),
		kit.WithMedia(media.Config{Derivatives: []media.Size{{Name: "thumb", Width: at.Side, Height: at.Side}}}))
	return k, db, err
}

// inspect opens the place days later and runs the jobs: every acknowledged item is complete, and no
// object is left that belongs to none.
func inspect(t *testing.T, at place, acknowledged []string) {
	t.Helper()
	ctx := context.Background()
	begun := time.Now()
	later := time.Duration(at.Round+1) * 48 * time.Hour // schedules must not move back
	k, db, err := build(at, func() time.Time { return begun.Add(later) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(k.Close(ctx), db.Close()); err != nil {
			t.Error(err)
		}
	}()
	for range 6 {
		for n := 1; n > 0; {
			if n, err = k.Jobs().RunDue(ctx); err != nil {
				t.Fatal(err)
			}
		}
		later += time.Hour
	}
	if _, err := k.Storage().Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	for _, line := range acknowledged {
		verb, id := line[:4], line[5:]
		i, err := k.Media().Get(ctx, "ada", id)
		if kept := err == nil && i.Status == media.StatusReady; kept != (verb == "kept") {
			t.Errorf("%s: %s %v", line, i.Status, err)
		}
	}
	var strange, used, loose int64
	if err := db.QueryRow(ctx, `SELECT COUNT(*) FROM media_item WHERE status <> 'ready'`).Scan(&strange); err != nil || strange != 0 {
		t.Errorf("%d items are not ready: %v", strange, err)
	}
	if err := db.QueryRow(ctx, `SELECT COUNT(*) FROM storage_object WHERE state <> 'ready' OR id NOT IN (SELECT object_id FROM media_item)
		AND id NOT IN (SELECT object_id FROM media_derivative)`).Scan(&loose); err != nil || loose != 0 {
		t.Errorf("%d objects belong to no item: %v", loose, err)
	}
	if err := db.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM storage_object`).Scan(&used); err != nil {
		t.Fatal(err)
	}
	if u, err := k.Storage().Usage(ctx, "ada"); err != nil || u.Used != used || u.Reserved != 0 {
		t.Errorf("usage is %+v and the sum %d: %v", u, used, err)
	}
	everyDerivative(t, k, db, at.Side)
}

// everyDerivative checks that each item has one derivative of the last size, with its bytes.
func everyDerivative(t *testing.T, k *kit.Kit, db *database.DB, side int) {
	t.Helper()
	ctx := context.Background()
	rows, err := db.Query(ctx, `SELECT i.id, i.object_id, COALESCE(d.object_id, ''), COALESCE(MAX(d.width, d.height), 0) FROM media_item i
		LEFT JOIN media_derivative d ON d.item_id = i.id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, original, derivative string
		var width int
		if err := rows.Scan(&id, &original, &derivative, &width); err != nil {
			t.Fatal(err)
		}
		if width != side {
			t.Errorf("%s has a derivative of %d pixels, want %d", id, width, side)
		}
		for _, object := range []string{original, derivative} {
			content, err := k.Storage().Namespace(media.Name).Open(ctx, storage.ByID(object))
			if err != nil {
				t.Errorf("%s has no bytes: %v", id, err)
				continue
			}
			var text bytes.Buffer
			if n, err := text.ReadFrom(content); err != nil || n != content.Size {
				t.Errorf("%s has %d bytes of %d: %v", id, n, content.Size, err)
			}
			_ = content.Close()
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// loadChild works until it is killed and prints the acknowledged operations.
func loadChild(at place) {
	ctx := context.Background()
	k, _, err := build(at, time.Now)
	check(err)
	go func() { check(k.Run(ctx)) }()
	for n := 0; ; n++ {
		data := withExif(jpegOf(scene(64, 48, float64(n%7+1)), 80), n%8+1)
		i, err := k.Media().Put(ctx, media.Upload{OwnerID: "ada", Filename: "a.jpg", Size: int64(len(data))}, bytes.NewReader(data))
		check(err)
		for wait := time.NewTicker(time.Millisecond); i.Status != media.StatusReady; {
			<-wait.C
			i, err = k.Media().Get(ctx, "ada", i.ID)
			check(err)
		}
		verb := "kept"
		if n%3 == 2 {
			check(k.Media().Delete(ctx, "ada", i.ID))
			verb = "gone"
		}
		_, _ = os.Stdout.WriteString(verb + " " + i.ID + "\n")
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
