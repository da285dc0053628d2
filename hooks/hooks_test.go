package hooks_test

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
)

func TestInCommitsAndRollsBackWithTheChange(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if _, err := db.Exec(ctx, `CREATE TABLE note (id TEXT PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		refuse := errors.New("no")
		h, refusing := hooks.New(), false
		h.UserCreated.In(func(ctx context.Context, e hooks.UserCreated) error {
			if _, err := db.Exec(ctx, `INSERT INTO note (id) VALUES ($1)`, e.UserID); err != nil {
				return err
			}
			if refusing {
				return refuse
			}
			return nil
		})
		create := func(id string) error {
			return db.InTx(ctx, func(ctx context.Context) error { return h.UserCreated.Fire(ctx, hooks.UserCreated{UserID: id}) })
		}
		if err := create("ada"); err != nil {
			t.Fatal(err)
		}
		refusing = true
		if err := create("bob"); !errors.Is(err, refuse) {
			t.Errorf("got %v, want the hook's own error", err)
		}
		if n := count(t, db); n != 1 {
			t.Errorf("%d rows, want that of the committed change alone", n)
		}
	})
}

func TestAfterSeesTheCommittedChangeAndMayUseTheDatabase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if _, err := db.Exec(ctx, `CREATE TABLE note (id TEXT PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		h := hooks.New()
		var seen int
		h.UserDeleted.After(func(ctx context.Context, _ hooks.UserDeleted) {
			if err := db.QueryRow(ctx, `SELECT COUNT(*) FROM note`).Scan(&seen); err != nil {
				t.Error(err)
			}
		})
		err := db.InTx(ctx, func(ctx context.Context) error {
			if _, err := db.Exec(ctx, `INSERT INTO note (id) VALUES ('ada')`); err != nil {
				return err
			}
			return h.UserDeleted.Fire(ctx, hooks.UserDeleted{UserID: "ada"})
		})
		if err != nil || seen != 1 {
			t.Errorf("saw %d rows, %v; want the committed one", seen, err)
		}
		if err := db.InTx(ctx, func(ctx context.Context) error {
			if err := h.UserDeleted.Fire(ctx, hooks.UserDeleted{}); err != nil {
				return err
			}
			seen = 0
			return errors.New("rolled back")
		}); err == nil || seen != 0 {
			t.Error("ran after a change that was rolled back")
		}
	})
}

func TestPanicsAreContained(t *testing.T) {
	db := databasetest.Memory(t)
	h := hooks.New()
	var told string
	h.OnPanic = func(hook string, _ any) { told = hook }
	h.SessionEnded.After(func(context.Context, hooks.SessionEnded) { panic("after") })
	fire := func() error {
		return db.InTx(t.Context(), func(ctx context.Context) error { return h.SessionEnded.Fire(ctx, hooks.SessionEnded{}) })
	}
	if err := fire(); err != nil || told != "session_ended" {
		t.Errorf("got %v, told of %q, want a committed change and the hook's name", err, told)
	}
	h.SessionEnded.In(func(context.Context, hooks.SessionEnded) error { panic("inside") })
	if err := fire(); err == nil {
		t.Error("a panic inside does not refuse the operation")
	}
}

func count(t *testing.T, db *database.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT COUNT(*) FROM note`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEveryHookIsListed(t *testing.T) {
	h := hooks.New()
	var names []string
	h.Each(func(hook hooks.Any) { names = append(names, hook.Name()) })
	fields := reflect.TypeFor[hooks.Hooks]()
	var want []string
	for i := range fields.NumField() {
		if fields.Field(i).Name != "OnPanic" {
			want = append(want, strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(fields.Field(i).Name, "${1}_$2")))
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("listed %v, want %v", names, want)
	}
}
