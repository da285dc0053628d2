package secrets_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/secrets"
)

// checked is a secret whose values must be those of the sandbox.
var checked = secrets.Secret{
	Name:   "rail-credentials",
	Blocks: []secrets.Block{{Name: "rail", Required: []string{"key"}}, {Name: "other", Required: []string{"key"}}},
	Check: func(blocks secrets.Blocks) error {
		switch key := blocks["rail"]["key"].Reveal(); {
		case strings.HasPrefix(key, "panic"):
			panic(key)
		case key != "" && !strings.HasPrefix(key, "sandbox_"):
			return errors.New("The key of the rail is not one of the sandbox.")
		}
		return nil
	},
}

// TestCheckRefusesBeforeTheWrite checks that invalid values are never stored, and that no refusal
// quotes one.
func TestCheckRefusesBeforeTheWrite(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{checked}})
		for _, value := range []string{"live_" + canary, "panic" + canary} {
			_, err := n.Rotate(context.Background(), checked.Name, blocks("rail", "key", value))
			if !errors.Is(err, secrets.ErrInvalidValue) || strings.Contains(err.Error(), canary) {
				t.Errorf("%v, want secrets/invalid_value without the value", err)
			}
		}
		h, err := n.Handle(checked.Name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Get(context.Background()); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("something was stored: %v", err)
		}
		n.rotate(checked.Name, blocks("rail", "key", "sandbox_1"))
		n.rotate(checked.Name, blocks("other", "key", "x")) // the unchanged blocks are checked too
		data, err := h.Get(context.Background())
		if fields, ok := data.Block("rail"); err != nil || !ok || fields["key"].Reveal() != "sandbox_1" {
			t.Errorf("%v", err)
		}
	})
}

// TestCheckRefusesWhatARotatorMakes checks that an automatic rotation ends with the refusal.
func TestCheckRefusesWhatARotatorMakes(t *testing.T) {
	wrong := checked
	nothing := func(context.Context, secrets.Blocks, secrets.Blocks) error { return nil }
	wrong.Rotator = &secrets.Rotator{
		Create: func(context.Context, secrets.Blocks) (secrets.Blocks, error) {
			return blocks("rail", "key", "live_1"), nil
		},
		Set: nothing, Finish: nothing,
		Test: func(context.Context, secrets.Blocks) error { return nil },
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{wrong}})
		if _, err := n.Rotate(context.Background(), wrong.Name, nil); err != nil {
			t.Fatal(err)
		}
		n.runJobs()
		if r := n.rotations(wrong.Name)[0]; r.Status != secrets.StatusFailed || r.Code != "secrets/invalid_value" {
			t.Errorf("%+v, want failed with secrets/invalid_value", r)
		}
	})
}

// TestCheckRefusesReadsOfReadOnlyProviders checks reads, because the kit did not check the write.
func TestCheckRefusesReadsOfReadOnlyProviders(t *testing.T) {
	value := "live_1"
	provider := secrets.NewEnvironment(func(name string) string {
		if name != "KIT_SECRET_RAIL_CREDENTIALS" {
			return ""
		}
		return `{"rail":{"key":"` + value + `"}}`
	})
	n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: provider, Secrets: []secrets.Secret{checked}})
	h, err := n.Handle(checked.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Get(context.Background()); !errors.Is(err, secrets.ErrInvalidValue) {
		t.Errorf("%v, want secrets/invalid_value", err)
	}
	page, err := n.ListSecrets(context.Background(), capability.NewPage(0, ""))
	if err != nil {
		t.Fatal(err)
	}
	if list := page.Items; list[0].Problem != "The key of the rail is not one of the sandbox." {
		t.Errorf("the status says %q", list[0].Problem)
	}
	value = "sandbox_1"
	if _, err := h.Get(context.Background()); err != nil {
		t.Errorf("after it was set right: %v", err)
	}
}

// TestHistoryIsBounded checks that only the newest of old versions and rotations remain, and that
// version numbers continue.
func TestHistoryIsBounded(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments}})
		for range 5 {
			n.rotate(payments.Name, blocks("paddle", "apiKey", canary))
		}
		count := func(table string) (rows int) {
			if err := db.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		if rows := count("secrets_version"); rows != 2 {
			t.Errorf("%d versions are kept, want the newest and the one before", rows)
		}
		n.runJobs()
		n.advance(366 * 24 * time.Hour)
		n.runJobs()
		if rows := count("secrets_rotation"); rows != 1 {
			t.Errorf("%d rotations are kept after a year, want the newest", rows)
		}
		if r := n.rotate(payments.Name, blocks("paddle", "apiKey", "next")); r.ToVersion != 6 {
			t.Errorf("version %d, want 6", r.ToVersion)
		}
	})
}

// TestRewrapGoesOn checks that a version that cannot be decrypted does not stop the rewrap.
func TestRewrapGoesOn(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments, bucket}})
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
		n.rotate(bucket.Name, blocks("bucket", "accountId", "a", "bucketName", "b"))
		if _, err := db.Exec(t.Context(), `UPDATE secrets_version SET sealed = $1 WHERE name = $2`, []byte("lost"), payments.Name); err != nil {
			t.Fatal(err)
		}
		host := n.host
		host.Sealing = sealing(masterKeys(t, "nk"))
		s, err := secrets.New(host, secrets.Config{Secrets: []secrets.Secret{payments, bucket}}, secrets.Peers{})
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := s.Rewrap(t.Context()); changed != 1 || err == nil || !strings.Contains(err.Error(), payments.Name) {
			t.Errorf("%d rewrapped, %v; want the one that opens, and the other named", changed, err)
		}
	})
}

// recording records the names that a provider is called with.
type recording struct {
	secrets.Provider
	deleted []string
}

func (r *recording) Delete(ctx context.Context, name string) error {
	r.deleted = append(r.deleted, name)
	return r.Provider.Delete(ctx, name)
}

// TestRotationsPrepareApart checks that a rotation cleans up only its own pending version, so that
// one that ends late removes nothing of the next.
func TestRotationsPrepareApart(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := &recording{Provider: secrets.NewMemory(time.Now)}
		n := newNode(t, db, secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
		var ids []string
		for _, key := range []string{"p1", "p2"} {
			r := n.rotate(payments.Name, blocks("paddle", "apiKey", key))
			ids = append(ids, r.ID)
		}
		if len(p.deleted) != 2 || !strings.HasSuffix(p.deleted[0], ids[0]) || !strings.HasSuffix(p.deleted[1], ids[1]) {
			t.Errorf("rotations %v cleaned up %v", ids, p.deleted)
		}
	})
}
