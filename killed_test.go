package kit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/storage"
)

// killDatabase makes the test binary a process that erases until it is killed.
const killDatabase = "KIT_KILL_DATABASE"

// killKeys are master keys that the process which is killed and the one after it share.
const killKeys = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

func TestMain(m *testing.M) {
	if address := os.Getenv(killDatabase); address != "" {
		log.Fatal(erasingChild(address))
	}
	os.Exit(m.Run())
}

// erasable is a kit in which a user leaves data in several capabilities, one of
// whose own: its erasure says that it has begun.
func erasable(db *database.DB, now func() time.Time, began func(userID string)) (*kit.Kit, error) {
	return kit.New(kit.WithDatabase(db), kit.WithClock(now), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithMasterKeys(func(context.Context) (string, error) { return killKeys, nil }),
		kit.WithAudit(audit.Config{}), kit.WithEmail(email.Config{}), kit.WithAuth(auth.Config{}), kit.WithLedger(coins()),
		kit.WithStorage(storage.Config{}), kit.WithEvents(events.Config{}),
		kit.WithCapability(func(*kit.Kit) (capability.Capability, error) {
			return capability.Capability{
				Name:   "witness",
				Export: func(context.Context, capability.Person, capability.Emit) error { return nil },
				Erase: func(_ context.Context, p capability.Person) (capability.Erasure, error) {
					began(p.ID)
					return capability.Erasure{}, nil
				},
			}, nil
		}))
}

// erasingChild makes users and asks for the erasure of each, while their erasures
// run; it prints the id of each whose erasure has begun.
func erasingChild(address string) error {
	db, err := processtest.Open(address)
	if err != nil {
		return err
	}
	k, err := erasable(db, time.Now, func(id string) { _, _ = os.Stdout.WriteString(id + "\n") })
	if err != nil {
		return err
	}
	ctx := context.Background()
	go func() { log.Fatal(k.Run(ctx)) }()
	for i := 0; ; i++ {
		id := fmt.Sprintf("u%d-%d", os.Getpid(), i)
		if err := leave(ctx, k, id); err != nil {
			return err
		}
		if err := k.EraseUser(ctx, id); err != nil {
			return err
		}
	}
}

// leave gives a user data in every capability of erasable.
func leave(ctx context.Context, k *kit.Kit, id string) error {
	address := canary + id + "@example.com"
	if _, err := k.Auth().CreateUser(ctx, auth.NewUser{ID: id, Email: address, EmailVerified: true, Name: canary}); err != nil {
		return err
	}
	if _, err := k.Auth().CreateSession(ctx, id); err != nil {
		return err
	}
	if _, err := k.Ledger().Credit(ctx, ledger.Entry{UserID: id, Currency: "coins", Amount: 5, Ref: "c:" + id, Memo: canary}); err != nil {
		return err
	}
	if _, err := k.Ledger().Hold(ctx, ledger.Entry{UserID: id, Currency: "coins", Amount: 2, Ref: "h:" + id, Memo: canary}); err != nil {
		return err
	}
	_, err := k.Email().Send(ctx, email.Message{To: address, Subject: canary, Text: canary, UserID: id})
	return err
}

// A process is killed while it erases. After a restart every erasure that was
// asked for is finished, and nothing of the users is left.
func TestErasureSurvivesKill(t *testing.T) {
	processtest.Each(t, func(t *testing.T, address string) {
		for _, begun := range []int{1, 7} {
			processtest.Kill(t, processtest.Again(killDatabase, address), begun)
		}
		db, err := processtest.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		clock := kittest.NewClock()
		clock.Advance(time.Since(clock.Now()))
		k, err := erasable(db, clock.Now, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close(context.Background())
		// The last user of a process may not have been asked to be erased yet.
		for _, id := range column(t, db, `SELECT id FROM auth_user`) {
			if err := k.EraseUser(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			if _, err := k.Jobs().RunDue(t.Context()); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Hour)
		}
		asked := column(t, db, `SELECT user_id FROM kit_erasure`)
		if len(asked) < 8 {
			t.Errorf("%d erasures, want at least those that had begun", len(asked))
		}
		for _, id := range asked {
			if e, err := k.Erasure(t.Context(), id); err != nil || e.FinishedAt.IsZero() {
				t.Errorf("%s is not erased: %+v %v", id, e, err)
			}
		}
		for table, text := range tables(t, db) {
			if strings.Contains(text, canary) {
				t.Errorf("%s still knows a user: %s", table, around(text))
			}
		}
		if open := column(t, db, `SELECT ref FROM ledger_hold WHERE status = 'open'`); len(open) > 0 {
			t.Errorf("holds are open: %v", open)
		}
	})
}

// Exports, erasures and use of the same user race. In the end the user is erased,
// and every export that ended without an error is whole.
func TestErasureRaces(t *testing.T) {
	race := func(t *testing.T, dbs ...*database.DB) {
		clock := kittest.NewClock()
		nodes := make([]*kit.Kit, len(dbs))
		for i, db := range dbs {
			k, err := erasable(db, clock.Now, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = k.Close(context.Background()) })
			nodes[i] = k
		}
		ctx := t.Context()
		if err := leave(ctx, nodes[0], "ada"); err != nil {
			t.Fatal(err)
		}
		fired := 0
		var mu sync.Mutex
		for _, k := range nodes {
			k.Hooks().UserDeleted.After(func(context.Context, hooks.UserDeleted) {
				mu.Lock()
				defer mu.Unlock()
				fired++
			})
		}
		var wg sync.WaitGroup
		for i := range 6 {
			k := nodes[i%len(nodes)]
			wg.Go(func() {
				var out strings.Builder
				if err := k.ExportUser(ctx, "ada", &out); err == nil && !json.Valid([]byte(out.String())) {
					t.Errorf("an export is cut off: %s", out.String())
				}
			})
			wg.Go(func() {
				if err := k.EraseUser(ctx, "ada"); err != nil {
					t.Error(err)
				}
				if _, err := k.Jobs().RunDue(ctx); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() { // what the user still does may be refused
				_, _ = k.Ledger().Debit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: fmt.Sprint("d", i), Memo: canary})
			})
		}
		wg.Wait()
		for range 4 {
			clock.Advance(time.Hour)
			if err := nodes[0].EraseUser(ctx, "ada"); err != nil {
				t.Fatal(err)
			}
			if _, err := nodes[0].Jobs().RunDue(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if e, err := nodes[0].Erasure(ctx, "ada"); err != nil || e.FinishedAt.IsZero() {
			t.Errorf("not erased: %+v %v", e, err)
		}
		for table, text := range tables(t, dbs[0]) {
			if strings.Contains(text, canary) {
				t.Errorf("%s still knows the user: %s", table, around(text))
			}
		}
		if mu.Lock(); fired != 1 {
			t.Errorf("the account has ended %d times, want once", fired)
		}
		mu.Unlock()
	}
	t.Run("file", func(t *testing.T) { race(t, databasetest.File(t)) })
	t.Run("two nodes", func(t *testing.T) { race(t, databasetest.Shared(t, 2)...) })
}
