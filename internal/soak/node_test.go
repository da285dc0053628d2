//go:build linux || darwin

package soak

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/ledger"
)

// The environment of a node that a test starts: its database, and what it does.
const (
	nodeDatabase = "KIT_SOAK_DATABASE"
	nodeMode     = "KIT_SOAK_MODE"
)

// TestMain lets the test binary be the nodes that are killed.
func TestMain(m *testing.M) {
	address := os.Getenv(nodeDatabase)
	if address == "" {
		os.Exit(m.Run())
	}
	work := load
	if os.Getenv(nodeMode) == "full" {
		work = fill
	}
	if err := work(address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func open(address string) (*database.DB, error) {
	if strings.HasPrefix(address, "postgres://") {
		return postgres.Open(context.Background(), address)
	}
	return database.OpenFile(address)
}

const schema = `CREATE TABLE soak_effect (kind TEXT NOT NULL, ref TEXT NOT NULL);
CREATE TABLE soak_tick (tick TEXT NOT NULL, at BIGINT NOT NULL);`

// The binding whose effect is a row, and the one whose ticks are noted.
const (
	workBinding = "SOAK_WORK"
	tickBinding = "SOAK_TICK"
)

// compose makes the kit of a node. Its clock is the machine's, moved by skew.
func compose(db *database.DB, skew *atomic.Int64) (*kit.Kit, error) {
	note := func(ctx context.Context, kind, ref string) error {
		_, err := db.Exec(ctx, `INSERT INTO soak_effect (kind, ref) VALUES ($1, $2)`, kind, ref)
		return err
	}
	own := capability.Capability{
		Name: "soak", Version: "1", NoUserData: "a test", Database: db,
		Migrations: fstest.MapFS{"0001_soak.sql": {Data: []byte(schema)}},
		Jobs: []jobs.Binding{
			{Name: workBinding, Run: func(ctx context.Context, job jobs.Job) error {
				return db.InTx(ctx, func(ctx context.Context) error {
					if err := note(ctx, "job", job.Key); err != nil {
						return err
					}
					return jobs.Complete(ctx)
				})
			}},
			{Name: tickBinding, Schedule: "0 * * * *", Run: func(ctx context.Context, job jobs.Job) error {
				_, err := db.Exec(ctx, `INSERT INTO soak_tick (tick, at) VALUES ($1, $2)`, job.Key, db.Now(ctx).UnixMilli())
				return err
			}},
		},
	}
	return kit.New(kit.WithDatabase(db), kit.WithEnvironment("test"), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithClock(func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }),
		kit.WithMasterKeys(func(context.Context) (string, error) { return "1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", nil }),
		kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}),
		kit.WithCapability(func(*kit.Kit) (capability.Capability, error) { return own, nil }))
}

// node is a kit under load.
type node struct {
	*kit.Kit
	db    *database.DB
	kv    *kv.SQL
	token string
	mu    sync.Mutex // of the output
}

func start(address string, skew *atomic.Int64) (*node, error) {
	db, err := open(address)
	if err != nil {
		return nil, err
	}
	k, err := compose(db, skew)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	n := &node{Kit: k, db: db, kv: kv.NewSQL(db)}
	ctx := context.Background()
	if err := errors.Join(k.Auth().EnsureUser(ctx, "admin"), k.Auth().EnsureUser(ctx, "user0")); err != nil {
		return nil, err
	}
	n.token, err = k.Auth().IssueToken(ctx, "admin", []string{"ledger:admin"}, time.Hour)
	return n, err
}

// stop closes what start opened.
func (n *node) stop() error { return errors.Join(n.Close(context.Background()), n.db.Close()) }

// workers of a node, and users that they work for.
const (
	workers = 8
	users   = 5
)

// load works until the process is killed, and prints every effect that was
// acknowledged. What a lost connection or a lock may refuse is passed over;
// anything else is a fault, and printed as one.
func load(address string) error {
	n, err := start(address, new(atomic.Int64))
	if err != nil {
		return err
	}
	go func() { _ = n.Run(context.Background()) }()
	name := strings.ToLower(rand.Text()[:12])
	for worker := range workers {
		go func() {
			for i := 0; ; i++ {
				n.once(i, fmt.Sprintf("%s-%d-%d", name, worker, i))
			}
		}()
	}
	select {}
}

func (n *node) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// once does one thing of the mixed load, named ref.
func (n *node) once(i int, ref string) {
	ctx := context.Background()
	user, other := fmt.Sprintf("user%d", i%users), fmt.Sprintf("user%d", (i+1)%users)
	kinds := []struct {
		name string
		do   func() error
	}{
		{"credit", func() error {
			_, err := n.Ledger().Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 5, Ref: ref})
			return err
		}},
		{"transfer", func() error {
			_, err := n.Ledger().Transfer(ctx, ledger.TransferEntry{From: user, To: other, Currency: "coins", Amount: 1, Ref: ref})
			return err
		}},
		{"capture", func() error {
			if _, err := n.Ledger().Hold(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 2, Ref: ref}); err != nil {
				return err
			}
			_, err := n.Ledger().Capture(ctx, ref, ledger.CaptureOptions{Amount: 1})
			return err
		}},
		{"job", func() error {
			_, err := n.Jobs().Enqueue(ctx, workBinding, nil, jobs.Key(ref))
			return err
		}},
		{"event", func() error {
			return n.db.InTx(ctx, func(ctx context.Context) error {
				if err := n.Audit().Record(ctx, audit.Event{Action: "soak/done", Subject: audit.Target{Type: "soak", ID: ref}}); err != nil {
					return err
				}
				_, err := n.db.Exec(ctx, `INSERT INTO soak_effect (kind, ref) VALUES ('event', $1)`, ref)
				return err
			})
		}},
		{"key", func() error {
			first, err := n.kv.PutIfAbsent(ctx, ref, []byte(ref), time.Hour)
			if err == nil && !first {
				err = errors.New("a new key was there before")
			}
			return err
		}},
		{"http", func() error { return n.credit(ref) }},
	}
	kind := kinds[i%len(kinds)]
	switch err := kind.do(); {
	case err == nil:
		n.say("%s %s", kind.name, ref)
	case passing(err):
	default:
		n.say("fault %s %s: %v", kind.name, ref, err)
	}
}

// passing reports whether an error says that the database was away, or that an
// account had too little.
func passing(err error) bool {
	return capability.AsError(err).Is(capability.ErrUnavailable) || errors.Is(err, ledger.ErrInsufficientFunds) ||
		errors.Is(err, ledger.ErrAccountNotFound)
}

// credit is a credit over HTTP under an idempotency key, made twice.
func (n *node) credit(ref string) error {
	for range 2 {
		status, body := n.call("POST", "/ledger/coins/credit", fmt.Sprintf(`{"userId":"user0","amount":3,"ref":%q}`, ref), ref)
		switch status {
		case http.StatusCreated:
		case http.StatusServiceUnavailable:
			return capability.ErrUnavailable
		default:
			return fmt.Errorf("%d %s", status, body)
		}
	}
	return nil
}

// call makes a request of the administrator.
func (n *node) call(method, path, body, key string) (status int, response string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+n.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	rec := httptest.NewRecorder()
	n.ServeHTTP(rec, r)
	return rec.Code, rec.Body.String()
}

// code returns the code of a refusal.
func code(response string) string {
	var body struct{ Error struct{ Code string } }
	if json.Unmarshal([]byte(response), &body) != nil {
		return response
	}
	return body.Error.Code
}
