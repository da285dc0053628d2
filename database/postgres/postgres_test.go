package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
)

func execute(t testing.TB, db *database.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func text(t testing.TB, db *database.DB, query string, args ...any) string {
	t.Helper()
	value, ok, err := database.Get(t.Context(), db, func(s database.Scanner) (value string, err error) {
		err = s.Scan(&value)
		return value, err
	}, query, args...)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return value
}

func accounts(t testing.TB, db *database.DB) {
	t.Helper()
	execute(t, db, `CREATE TABLE account (id TEXT PRIMARY KEY, balance BIGINT NOT NULL)`)
	execute(t, db, `INSERT INTO account (id, balance) VALUES ('a', 0), ('b', 0)`)
}

func TestSession(t *testing.T) {
	db := databasetest.Postgres(t)
	for setting, want := range map[string]string{
		"statement_timeout":                   "30s",
		"idle_in_transaction_session_timeout": "5s",
		"lock_timeout":                        "8s",
		"application_name":                    "kit",
	} {
		if got := text(t, db, `SELECT current_setting($1)`, setting); got != want {
			t.Errorf("%s is %s", setting, got)
		}
	}
	if got := text(t, db, `SELECT current_schema()`); !strings.HasPrefix(got, "kit_test_") {
		t.Errorf("schema %s", got)
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// Two transactions that lock the same rows in opposite order deadlock; the one PostgreSQL chooses runs again.
func TestDeadlockIsRetried(t *testing.T) {
	nodes := databasetest.Shared(t, 2)
	accounts(t, nodes[0])
	var both sync.WaitGroup
	both.Add(2)
	var runs atomic.Int64
	var group sync.WaitGroup
	for i, db := range nodes {
		first, second := "a", "b"
		if i == 1 {
			first, second = second, first
		}
		group.Go(func() {
			met := false
			err := db.InTx(t.Context(), func(ctx context.Context) error {
				runs.Add(1)
				if _, err := db.Exec(ctx, `SET LOCAL deadlock_timeout = '20ms'`); err != nil {
					return err
				}
				if _, err := db.Exec(ctx, `UPDATE account SET balance = balance + 1 WHERE id = $1`, first); err != nil {
					return err
				}
				if !met { // until both hold their first row
					met = true
					both.Done()
					both.Wait()
				}
				if _, err := db.Exec(ctx, `UPDATE account SET balance = balance + 1 WHERE id = $1`, second); err != nil {
					return errors.New("hidden: " + err.Error())
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := text(t, nodes[0], `SELECT string_agg(balance::text, ' ') FROM account`); got != "2 2" || runs.Load() != 3 {
		t.Errorf("balances %s after %d runs", got, runs.Load())
	}
}

func TestConflictsAreSpent(t *testing.T) {
	db := databasetest.Postgres(t)
	for name, use := range map[string]func(run func()) error{
		"InTx": func(run func()) error {
			return db.InTx(t.Context(), func(ctx context.Context) error {
				run()
				_, err := db.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
				return err
			})
		},
	} {
		runs := 0
		if err := use(func() { runs++ }); !errors.Is(err, database.ErrConflict) || runs != 5 {
			t.Errorf("%s: %v after %d runs", name, err, runs)
		}
	}
	if _, err := db.Exec(t.Context(), `DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$`); !errors.Is(err, database.ErrConflict) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := db.InTx(ctx, func(ctx context.Context) error {
		_, err := db.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		cancel()
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The backend is killed between the last statement and the commit: no success, no row.
func TestBackendKilledBeforeCommit(t *testing.T) {
	nodes := databasetest.Shared(t, 2)
	db, other := nodes[0], nodes[1]
	accounts(t, db)
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		if _, err := db.Exec(ctx, `UPDATE account SET balance = 1`); err != nil {
			return err
		}
		var pid int64
		if err := db.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			return err
		}
		execute(t, other, `SELECT pg_terminate_backend($1, 10000)`, pid)
		return nil
	})
	if err == nil {
		t.Error("success")
	}
	if got := text(t, other, `SELECT string_agg(balance::text, ' ') FROM account`); got != "0 0" {
		t.Errorf("balances %s", got)
	}
	execute(t, db, `UPDATE account SET balance = 2`) // on a new connection
}

// proxy passes bytes on to the server until a message that holds a word is to be sent, with which it breaks the
// connection: before the server gets it, or after the server has replied.
type proxy struct {
	server string
	word   string
	before bool
	armed  atomic.Bool
}

func (p *proxy) url(t *testing.T, original string) string {
	t.Helper()
	u, err := url.Parse(original)
	if err != nil {
		t.Fatal(err)
	}
	p.server = u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.pass(client)
		}
	}()
	u.Host = listener.Addr().String()
	return u.String()
}

func (p *proxy) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var breaking atomic.Bool
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil || breaking.Load() {
				client.Close()
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if p.armed.Load() && strings.Contains(strings.ToLower(string(buf[:n])), p.word) {
			p.armed.Store(false)
			breaking.Store(true)
			if p.before {
				return
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestConnectionLostDuringCommit(t *testing.T) {
	original := os.Getenv("KIT_TEST_POSTGRES")
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before=%v", before), func(t *testing.T) {
			direct := databasetest.Postgres(t)
			accounts(t, direct)
			schema := text(t, direct, `SELECT current_schema()`)
			for name, change := range map[string]func(ctx context.Context, db *database.DB) error{
				"commit": func(ctx context.Context, db *database.DB) error {
					return db.InTx(ctx, func(ctx context.Context) error {
						_, err := db.Exec(ctx, `UPDATE account SET balance = balance + 1`)
						return err
					})
				},
				"update account set balance = balance + 1": func(ctx context.Context, db *database.DB) error {
					_, err := db.Exec(ctx, `UPDATE account SET balance = balance + 1`)
					return err
				},
			} {
				execute(t, direct, `UPDATE account SET balance = 0`)
				p := &proxy{word: name + "\x00", before: before}
				db, err := postgres.Open(t.Context(), p.url(t, original), postgres.WithSchema(schema))
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				was := text(t, direct, `SELECT string_agg(balance::text, ' ') FROM account`)
				p.armed.Store(true)
				if err := change(t.Context(), db); !errors.Is(err, database.ErrUnknownOutcome) {
					t.Errorf("%s: %v", name, err)
				}
				// A lock on the rows waits for the server to end the broken session.
				now := text(t, direct, `SELECT string_agg(balance::text, ' ') FROM (SELECT balance FROM account FOR UPDATE) a`)
				if (now == was) != before {
					t.Errorf("%s: balances %s, were %s", name, now, was)
				}
			}
		})
	}
}

// setting returns the test database's URL with a setting of the session, in the schema of db.
func setting(t *testing.T, db *database.DB, name, value string) *database.DB {
	t.Helper()
	u, err := url.Parse(os.Getenv("KIT_TEST_POSTGRES"))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	other, err := postgres.Open(t.Context(), u.String(), postgres.WithSchema(text(t, db, `SELECT current_schema()`)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return other
}

// A node that stands still in a transaction loses it, and its locks, to the others.
func TestLocksOfANodeThatStandsStillEnd(t *testing.T) {
	db := databasetest.Postgres(t)
	accounts(t, db)
	still := setting(t, db, "idle_in_transaction_session_timeout", "200ms")
	locked, proceed, ended := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		ended <- still.InTx(t.Context(), func(ctx context.Context) error {
			if _, err := still.Exec(ctx, `UPDATE account SET balance = 7 WHERE id = 'a'`); err != nil {
				return err
			}
			close(locked)
			<-proceed
			_, err := still.Exec(ctx, `UPDATE account SET balance = 7 WHERE id = 'b'`)
			return err
		})
	}()
	<-locked
	execute(t, db, `UPDATE account SET balance = balance + 1`) // waits until the server ends the other
	close(proceed)
	if err := <-ended; !errors.Is(err, database.ErrUnavailable) {
		t.Errorf("the node that stood still: %v, want ErrUnavailable", err)
	}
	if got := text(t, db, `SELECT string_agg(balance::text, ' ') FROM account`); got != "1 1" {
		t.Errorf("balances %s, want those of the other node alone", got)
	}
}

func TestWaitingForALockEnds(t *testing.T) {
	db := databasetest.Postgres(t)
	accounts(t, db)
	waiting := setting(t, db, "lock_timeout", "100ms")
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		if _, err := db.Exec(ctx, `UPDATE account SET balance = 1`); err != nil {
			return err
		}
		if _, err := waiting.Exec(t.Context(), `UPDATE account SET balance = 2`); !errors.Is(err, database.ErrUnavailable) {
			t.Errorf("a statement that waits for a lock: %v, want ErrUnavailable", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Callers that go away leave no sessions behind that work on.
func TestCancelledCallersLeaveNoSessions(t *testing.T) {
	db, watch := databasetest.Postgres(t), databasetest.Postgres(t)
	schema := text(t, db, `SELECT current_schema()`)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				_, err := db.Exec(ctx, `SELECT $1::text, pg_sleep(20)`, schema)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled call: %v, want the context's error", err)
				}
			})
		}
		running := func() string {
			return text(t, watch, `SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%$1::text, pg_sleep(20)%'
				AND state = 'active' AND pid <> pg_backend_pid()`)
		}
		for running() != "8" {
		}
		cancel()
		group.Wait()
		if got := running(); got != "0" {
			t.Errorf("%s statements run on after their callers have gone", got)
		}
	}
	execute(t, db, `SELECT 1`)
}

func TestLostServerIsUnavailable(t *testing.T) {
	direct := databasetest.Postgres(t)
	p := &proxy{word: "select 77", before: true}
	db, err := postgres.Open(t.Context(), p.url(t, os.Getenv("KIT_TEST_POSTGRES")), postgres.WithSchema(text(t, direct, `SELECT current_schema()`)))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, use := range map[string]func() error{
		"a query": func() error {
			var n int
			return db.QueryRow(t.Context(), `SELECT 77`).Scan(&n)
		},
		"a transaction": func() error {
			return db.InTx(t.Context(), func(ctx context.Context) error {
				_, err := db.Exec(ctx, `SELECT 77`)
				return err
			})
		},
		"a read": func() error {
			return db.Read(t.Context(), func(ctx context.Context) error {
				var n int
				return db.QueryRow(ctx, `SELECT 77`).Scan(&n)
			})
		},
	} {
		p.armed.Store(true)
		if err := use(); !errors.Is(err, database.ErrUnavailable) || errors.Is(err, database.ErrUnknownOutcome) {
			t.Errorf("%s on a lost connection: %v, want ErrUnavailable", name, err)
		}
	}
}

func TestListen(t *testing.T) {
	nodes := databasetest.Shared(t, 2)
	listener, sender := nodes[0], nodes[1]
	channel := "kit " + text(t, sender, `SELECT current_schema()`)
	ctx, cancel := context.WithCancel(t.Context())
	ready, payloads, ended := make(chan bool, 8), make(chan string, 8), make(chan error, 1)
	go func() {
		ended <- listener.Listen(ctx, channel, func() { ready <- true }, func(payload string) { payloads <- payload })
	}()
	notify := func(payload string) {
		execute(t, sender, `SELECT pg_notify($1, $2)`, channel, payload)
	}
	<-ready
	notify("one")
	got := []string{<-payloads}
	execute(t, sender, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' || $1 || '%' AND pid <> pg_backend_pid()`,
		channel)
	<-ready // connected again
	notify("two")
	got = append(got, <-payloads)
	if diff := cmp.Diff([]string{"one", "two"}, got); diff != "" {
		t.Error(diff)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { ended <- listener.Listen(t.Context(), channel, func() { ready <- true }, func(string) {}) }()
	<-ready
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, database.ErrClosed) {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "this is not PostgreSQL")
			c.Close()
		}
	}()
	for _, address := range []string{"postgres://%zz", "postgres://nobody@" + listener.Addr().String() + "/nothing?sslmode=disable"} {
		if db, err := postgres.Open(t.Context(), address); err == nil {
			t.Errorf("%s: opened", address)
			db.Close()
		}
	}
}
