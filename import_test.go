package kit_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/vector"
)

// TestImportMovesEverythingToPostgres moves an application in whose every capability a user has
// left data, and goes on with it.
func TestImportMovesEverythingToPostgres(t *testing.T) {
	t.Setenv("KIT_MASTER_KEYS", "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	ctx, db := t.Context(), databasetest.Postgres(t)
	old := lived(t, databasetest.File(t), new(syncBuffer))
	exported := func(k *kittest.Kit) (records any) {
		var out bytes.Buffer
		if err := k.ExportUser(ctx, "ada", &out); err != nil {
			t.Fatal(err)
		}
		var export struct{ Records []any }
		if err := json.Unmarshal(out.Bytes(), &export); err != nil {
			t.Fatal(err)
		}
		return export.Records
	}
	session, err := old.Auth().CreateSession(ctx, "ada")
	if err != nil {
		t.Fatal(err)
	}
	token, err := old.Auth().SessionAccessToken(ctx, session)
	if err != nil {
		t.Fatal(err)
	}
	before := exported(old)
	compose := func() *kittest.Kit {
		k := kittest.New(t, append(everything(), kit.WithDatabase(db), kit.WithClock(old.Clock.Now), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
		k.Clock = old.Clock
		return k
	}
	rows, err := compose().Import(ctx, map[string]*database.DB{kit.DefaultDatabase: old.Database()})
	if err != nil || rows < 100 {
		t.Fatalf("%d rows: %v", rows, err)
	}
	k := compose()
	if diff := cmp.Diff(before, exported(k)); diff != "" {
		t.Errorf("the export of a user differs:\n%s", diff)
	}
	k.Bearing("Bearer "+token).Get("/auth/devices").Want(200, "")
	gift := ledger.Entry{UserID: "ada", Currency: "coins", Amount: 10, Ref: "the credit of the person", Memo: canary}
	if tx, err := k.Ledger().Credit(ctx, gift); err != nil || tx.BalanceAfter != 10 {
		t.Errorf("the same credit again: %+v, %v", tx, err)
	}
	found, err := k.Vector().Query(ctx, vector.Space{Index: "notes", OwnerID: "ada"}, vector.Query{Text: canary, Mode: vector.ModeText})
	if err != nil || len(found.Items) != 1 {
		t.Errorf("a search: %+v, %v", found, err)
	}
	k.User("ada").Post("/vector/notes/documents", map[string]any{"documents": []map[string]any{{"id": "n2", "text": "new"}}}).Want(200, "")
	if err := k.Audit().Record(ctx, audit.Event{Action: "kit/moved"}); err != nil {
		t.Fatal(err)
	}
	k.Clock.Advance(time.Hour)
	k.RunJobs()
	trail, err := k.Audit().Verify(ctx)
	if err != nil || trail.Break != nil || trail.Waiting != 0 || trail.Sealed == 0 || trail.Checkpoints == 0 {
		t.Errorf("the trail: %+v, %v", trail, err)
	}
	money, err := k.Ledger().Verify(ctx)
	if err != nil || len(money.Findings) != 0 || money.Holds != 1 {
		t.Errorf("the ledger: %+v, %v", money, err)
	}
	if _, err := compose().Import(ctx, map[string]*database.DB{kit.DefaultDatabase: old.Database()}); err == nil {
		t.Error("a second import was not refused")
	}
	var triggers string
	err = db.QueryRow(ctx, `SELECT string_agg(DISTINCT tgenabled::text, '') FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND NOT tgisinternal AND c.relname LIKE 'audit%'`).Scan(&triggers)
	if err != nil || triggers != "A" {
		t.Errorf("the triggers of the trail are %q, %v, want A", triggers, err)
	}
}
