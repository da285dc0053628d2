package kit_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
)

// mistake is one that is made in the first hour, and how.
type mistake struct {
	name string
	make func(t *testing.T, say func(any))
}

// third is a capability of an application with what a mistake leaves wrong.
func third(change func(*capability.Capability, *kit.Kit)) kit.Option {
	return kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) {
		c := capability.Capability{Name: "shop", NoUserData: "a test"}
		change(&c, k)
		return c, nil
	})
}

// refused says what New returns.
func refused(opts ...kit.Option) func(*testing.T, func(any)) {
	return func(t *testing.T, say func(any)) {
		_, err := kittest.Compose(t, opts...)
		if err == nil {
			t.Error("the composition was not refused")
		}
		say(err)
	}
}

// warns says what the log says while f makes the mistake.
func warns(f func(t *testing.T, log kit.Option)) func(*testing.T, func(any)) {
	return func(t *testing.T, say func(any)) {
		var log bytes.Buffer
		f(t, kit.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))))
		say(log.String())
	}
}

func keysOf(letter string) kit.Option {
	return kit.WithMasterKeys(func(context.Context) (string, error) {
		return letter + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(letter), 32)), nil
	})
}

var mistakes = []mistake{
	{"a capability with migrations and no database", refused(third(func(c *capability.Capability, _ *kit.Kit) {
		c.Migrations = fstest.MapFS{"0001_a.sql": {Data: []byte("CREATE TABLE shop (id TEXT);")}}
	}))},
	{"a capability with migrations and no files", refused(third(func(c *capability.Capability, k *kit.Kit) {
		c.Migrations, c.Database = fstest.MapFS{}, k.Database()
	}))},
	{"migrations with a gap", refused(third(func(c *capability.Capability, k *kit.Kit) {
		c.Migrations, c.Database = fstest.MapFS{"0001_a.sql": {}, "0003_b.sql": {}}, k.Database()
	}))},
	{"a migration that changed after it was applied", func(t *testing.T, say func(any)) {
		db := databasetest.Memory(t)
		with := func(text string) kit.Option {
			return third(func(c *capability.Capability, _ *kit.Kit) {
				c.Migrations, c.Database = fstest.MapFS{"0001_a.sql": {Data: []byte(text)}}, db
			})
		}
		kittest.New(t, kit.WithDatabase(db), with("CREATE TABLE shop (id TEXT);"))
		refused(kit.WithDatabase(db), with("CREATE TABLE shop (id TEXT, price BIGINT);"))(t, say)
	}},
	{"a job with a schedule of another form", refused(third(func(c *capability.Capability, _ *kit.Kit) {
		c.Jobs = []jobs.Binding{{Name: "SHOP_MAIL", Schedule: "@daily", Run: nothing}}
	}))},
	{"a capability that says nothing of users' data", refused(third(func(c *capability.Capability, _ *kit.Kit) { c.NoUserData = "" }))},
	{"the same option twice", refused(kit.WithLedger(coins()), kit.WithLedger(coins()))},
	{"a rate class that does not exist", refused(kit.WithRateLimit("reads", 10, time.Second))},
	{"an environment spelled almost like production", refused(kit.WithEnvironment("prod"))},
	{"production without what it needs", func(t *testing.T, say func(any)) {
		t.Setenv("KIT_MASTER_KEYS", "")
		t.Setenv("KIT_MASTER_KEYS_FILE", "")
		_, err := kit.New(quiet(), kit.WithEnvironment("production"), kit.WithAuth(auth.Config{}))
		say(err)
	}},
	{"a database that nobody gave", refused(kit.WithLedger(ledger.Config{Currencies: coins().Currencies, Database: "MONEY"}))},
	{"a database opened without looking at the error", refused(kit.WithDatabase(nil))},
	{"two nodes with different master keys", warns(func(t *testing.T, log kit.Option) {
		db := databasetest.Memory(t)
		kittest.New(t, kit.WithDatabase(db), kit.WithAuth(auth.Config{}), keysOf("a"), log)
		kittest.New(t, kit.WithDatabase(db), kit.WithAuth(auth.Config{}), keysOf("b"), log)
	})},
	{"a sign-in mail with nothing to send it", func(t *testing.T, say func(any)) {
		k := kittest.New(t, kit.WithAuth(auth.Config{}))
		say(string(k.Anonymous().Post("/auth/sign-in/magic-link", `{"email":"ada@example.com"}`).Body))
	}},
	{"a mount prefix that no request matches", warns(func(t *testing.T, log kit.Option) {
		k := kittest.New(t, kit.WithLedger(coins()), kit.WithBaseURL("http://localhost:8080/api"), log)
		k.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/backend/ledger/coins", nil))
	})},
	{"a proxy that nobody named", warns(func(t *testing.T, log kit.Option) {
		k := kittest.New(t, log)
		r := httptest.NewRequest("GET", "/health", nil)
		r.Header.Set("X-Forwarded-For", "192.0.2.7")
		k.ServeHTTP(httptest.NewRecorder(), r)
	})},
	{"a page of an origin that nobody trusts", func(t *testing.T, say func(any)) {
		k := kittest.New(t, kit.WithAuth(auth.Config{}))
		page := k.Browser("ada").With("Origin", "http://localhost:5173").With("Sec-Fetch-Site", "same-site")
		say(string(page.Post("/auth/sign-out", `{}`).Body))
	}},
	{"a currency that there is not", func(t *testing.T, say func(any)) {
		k := kittest.New(t, kit.WithLedger(coins()))
		_, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "gold", Amount: 1, Ref: "r"})
		say(err)
	}},
	{"a job of a binding that there is not", func(t *testing.T, say func(any)) {
		_, err := kittest.New(t).Jobs().Enqueue(t.Context(), "WEKLY_REPORT", nil)
		say(err)
	}},
	{"a queue that nobody runs", func(t *testing.T, say func(any)) {
		k := kittest.New(t, third(func(c *capability.Capability, _ *kit.Kit) {
			c.Jobs = []jobs.Binding{{Name: "SHOP_MAIL", Run: func(context.Context, jobs.Job) error { return nil }}}
		}))
		if _, err := k.Jobs().Enqueue(t.Context(), "SHOP_MAIL", nil); err != nil {
			t.Fatal(err)
		}
		k.Clock.Advance(5 * time.Minute)
		say(k.Ready(t.Context()))
	}},
	{"Run after Close", func(t *testing.T, say func(any)) {
		k := kittest.New(t)
		if err := k.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		say(k.Run(t.Context()))
	}},
	{"a database closed before the kit", func(t *testing.T, say func(any)) {
		db, err := database.OpenMemory()
		if err != nil {
			t.Fatal(err)
		}
		k := kittest.New(t, kit.WithDatabase(db))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		say(k.Run(t.Context()))
	}},
	{"Commit of a transaction that was lent", func(t *testing.T, say func(any)) {
		db := kittest.New(t).Database()
		say(db.InTx(t.Context(), func(ctx context.Context) error {
			tx, err := db.SQL(ctx)
			return errors.Join(err, tx.Commit())
		}))
	}},
}

// requestIDs differ from run to run.
var requestIDs = regexp.MustCompile(`"requestId":"[^"]*"`)

// TestMistakes makes each mistake; what it prints is in one file, for people to
// judge.
func TestMistakes(t *testing.T) {
	t.Setenv("KIT_ENVIRONMENT", "")
	var b strings.Builder
	for _, m := range mistakes {
		fmt.Fprintf(&b, "## %s\n", m.name)
		m.make(t, func(said any) {
			text := strings.TrimSpace(fmt.Sprint(said))
			if said == nil || text == "" {
				t.Errorf("%s: it passes in silence", m.name)
			}
			fmt.Fprintf(&b, "%s\n\n", requestIDs.ReplaceAllString(text, `"requestId":"…"`))
		})
	}
	const golden = "testdata/mistakes.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("what a mistake prints has changed; if that is meant, run go test -run TestMistakes -update .\n%s", diff)
	}
}
