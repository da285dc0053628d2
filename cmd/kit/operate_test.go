package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
)

// TestOperate checks that the command works on the file of an application that is not running, and
// that the application finds all changes in its audit trail.
func TestOperate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	application := func(f func(k *kittest.Kit)) {
		t.Helper()
		db, err := database.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		k := kittest.New(t, kit.WithDatabase(db), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
			kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}))
		f(k)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	application(func(k *kittest.Kit) {
		if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: "ada"}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 10, Ref: "r"}); err != nil {
			t.Fatal(err)
		}
	})
	run := func(args ...string) string {
		t.Helper()
		out, err := invoke(t, "", append([]string{"operate", "-database", path, "-as", "grace"}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{`"balanceAfter": 15`, []string{"ledger", "credit", "ada", "coins", "5", "gift:1"}},
		{`"kind": "credit"`, []string{"ledger", "find", "gift:1"}},
		{`"disabledAt"`, []string{"user", "disable", "ada"}},
		{`"requestedAt"`, []string{"user", "erase", "ada"}},
		{`KIT_ERASE_PERSON`, []string{"jobs", "list", "-state", "available"}},
	} {
		if out := run(c.args...); !strings.Contains(out, c.want) {
			t.Errorf("%v: %s, want %s", c.args, out, c.want)
		}
	}
	application(func(k *kittest.Kit) {
		k.Clock.Advance(1 << 50) // past the real time, which the command uses
		k.RunJobs()
		if e, err := k.Erasure(t.Context(), "ada"); err != nil || e.FinishedAt.IsZero() {
			t.Errorf("the application has not erased the user: %+v %v", e, err)
		}
		items, err := k.Audit().ListEvents(t.Context(), audit.Filter{}, capability.NewPage(100, ""))
		if err != nil {
			t.Fatal(err)
		}
		var by []string
		for _, e := range items.Items {
			if e.Actor.Kind == audit.ActorOperator && e.Actor.ID == "grace" {
				by = append(by, e.Action)
			}
		}
		if all := strings.Join(by, " "); !strings.Contains(all, "ledger/credited") || !strings.Contains(all, "auth/user_disabled") {
			t.Errorf("the operator's trail is %v", by)
		}
	})
}

func TestOperateMistakes(t *testing.T) {
	t.Setenv("KIT_DATABASE", "")
	for want, args := range map[string][]string{
		"needs -database":               {"operate", "jobs", "list"},
		"no such file":                  {"operate", "-database", filepath.Join(t.TempDir(), "none.db"), "-as", "grace", "jobs", "list"},
		"flag provided but not defined": {"operate", "-all"},
	} {
		if _, err := invoke(t, "", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := invoke(t, "", "operate", "-database", path, "-as", "grace", "jobs", "list"); err == nil || !strings.Contains(err.Error(), "not the database of a kit") {
		t.Errorf("a database that is no kit's: %v", err)
	}
}
