package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // the driver of the naive way

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/ledger"
)

const benchCallers = 64

// transfer moves one coin; n is unique.
type transfer func(ctx context.Context, from, to string, n int64) error

// BenchmarkTransfer compares a transfer through the ledger with what an
// application would write by hand on the same schema, all durable, from 64
// callers, on 2 accounts (hot) and on 10,000 (spread).
//
//	go test ./ledger -run '^$' -bench Transfer -benchtime 3s
func BenchmarkTransfer(b *testing.B) {
	for _, load := range []struct {
		name     string
		accounts int
	}{{"hot", 2}, {"spread", 10_000}} {
		b.Run("sqlite/naive/"+load.name, func(b *testing.B) {
			transfers(b, load.accounts, naive(b, load.accounts))
		})
		b.Run("sqlite/kit/"+load.name, func(b *testing.B) {
			l := benchLedger(b, databasetest.File(b))
			endow(b, l, load.accounts)
			transfers(b, load.accounts, throughLedger(l))
			addsUp(b, l)
		})
		for _, way := range []struct {
			name string
			move func(*database.DB, *ledger.Ledger) transfer
		}{
			{"plain", func(db *database.DB, _ *ledger.Ledger) transfer { return plain(db) }},
			{"statement", func(db *database.DB, _ *ledger.Ledger) transfer { return statement(db) }},
			{"kit", func(_ *database.DB, l *ledger.Ledger) transfer { return throughLedger(l) }},
		} {
			b.Run("postgres/"+way.name+"/"+load.name, func(b *testing.B) {
				db := benchPostgres(b)
				l := benchLedger(b, db)
				endow(b, l, load.accounts)
				transfers(b, load.accounts, way.move(db, l))
				addsUp(b, l)
			})
		}
	}
}

// transfers shares b.N transfers out to the callers and proves that no coin
// was lost.
func transfers(b *testing.B, accounts int, move transfer) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var next atomic.Int64
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range benchCallers {
		group.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				from := rand.IntN(accounts)
				to := (from + 1 + rand.IntN(accounts-1)) % accounts
				if err := move(ctx, benchUser(from), benchUser(to), n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	if b.Failed() {
		b.FailNow() // callers have stopped early: there is no rate
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transfers/s")
}

func benchUser(i int) string { return fmt.Sprintf("user-%05d", i) }

func benchLedger(b *testing.B, db *database.DB) *ledger.Ledger {
	l, err := ledger.New(capability.Host{DB: db}, config, ledger.Peers{})
	if err != nil {
		b.Fatal(err)
	}
	if err := db.Migrate(context.Background(), database.Migrations{Name: ledger.Name, FS: l.Capability().Migrations}); err != nil {
		b.Fatal(err)
	}
	return l
}

// benchPostgres is a database of its own, with the default of 16 connections,
// which suits the ways by hand best.
func benchPostgres(b *testing.B) *database.DB {
	b.Helper()
	own, _ := processtest.Database(b)
	db, err := postgres.Open(context.Background(), own)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// endow opens the accounts with a million coins each.
func endow(b *testing.B, l *ledger.Ledger, accounts int) {
	many(benchCallers, func(caller int) {
		for i := caller; i < accounts; i += benchCallers {
			if _, err := l.Credit(context.Background(), ledger.Entry{UserID: benchUser(i), Currency: "coins", Amount: 1_000_000, Ref: benchUser(i)}); err != nil {
				b.Error(err)
			}
		}
	})
}

func throughLedger(l *ledger.Ledger) transfer {
	return func(ctx context.Context, from, to string, n int64) error {
		_, err := l.Transfer(ctx, ledger.TransferEntry{From: from, To: to, Currency: "coins", Amount: 1, Ref: benchRef(n)})
		return err
	}
}

func benchRef(n int64) string { return fmt.Sprintf("transfer-%012d", n) }

// The statements of a transfer written by hand.
const (
	selectAccount = `SELECT balance - held, balance, sequence FROM ledger_account WHERE user_id = $1 AND currency = 'coins'`
	updateAccount = `UPDATE ledger_account SET balance = $2, sequence = $3 WHERE user_id = $1 AND currency = 'coins'`
	insertRows    = `INSERT INTO ledger_transaction (ref, user_id, currency, sequence, kind, amount, balance_after, held_after, related_ref, memo, created_at)
		VALUES ($1, $2, 'coins', $3, $4, 1, $5, 0, $6, '', 0), ($6, $7, 'coins', $8, $9, 1, $10, 0, $1, '', 0)`
)

// connection runs one statement in a transaction.
type connection struct {
	row  func(ctx context.Context, query string, args ...any) database.Scanner
	exec func(ctx context.Context, query string, args ...any) error
}

// byHand is the inside of a transaction a call: read both accounts in key
// order, decide, write.
func byHand(ctx context.Context, c connection, lock, from, to string, n int64) error {
	var available, balance, sequence [2]int64
	users, order := [2]string{from, to}, [2]int{0, 1}
	if to < from {
		order = [2]int{1, 0}
	}
	for _, i := range order {
		if err := c.row(ctx, selectAccount+lock, users[i]).Scan(&available[i], &balance[i], &sequence[i]); err != nil {
			return err
		}
	}
	if available[0] < 1 {
		return ledger.ErrInsufficientFunds
	}
	ref := benchRef(n)
	refs, kinds := [2]string{ref, ref + "#in"}, [2]string{"transfer_out", "transfer_in"}
	for i, change := range [2]int64{-1, 1} {
		if err := c.exec(ctx, updateAccount, users[i], balance[i]+change, sequence[i]+1); err != nil {
			return err
		}
	}
	return c.exec(ctx, insertRows, refs[0], users[0], sequence[0]+1, kinds[0], balance[0]-1,
		refs[1], users[1], sequence[1]+1, kinds[1], balance[1]+1)
}

// naive is database/sql on a file with the same durability.
func naive(b *testing.B, accounts int) transfer {
	path := filepath.Join(b.TempDir(), "kit.db")
	withLedger := func(use func(l *ledger.Ledger)) {
		db, err := database.OpenFile(path)
		if err != nil {
			b.Fatal(err)
		}
		use(benchLedger(b, db))
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
	withLedger(func(l *ledger.Ledger) { endow(b, l, accounts) })
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
		withLedger(func(l *ledger.Ledger) { addsUp(b, l) })
	})
	return func(ctx context.Context, from, to string, n int64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		c := connection{
			row: func(ctx context.Context, query string, args ...any) database.Scanner {
				return tx.QueryRowContext(ctx, query, args...)
			},
			exec: func(ctx context.Context, query string, args ...any) error {
				_, err := tx.ExecContext(ctx, query, args...)
				return err
			},
		}
		if err := byHand(ctx, c, "", from, to, n); err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	}
}

// plain locks the rows in key order, so that it does not deadlock.
func plain(db *database.DB) transfer {
	c := connection{
		row: func(ctx context.Context, query string, args ...any) database.Scanner {
			return db.QueryRow(ctx, query, args...)
		},
		exec: func(ctx context.Context, query string, args ...any) error {
			_, err := db.Exec(ctx, query, args...)
			return err
		},
	}
	return func(ctx context.Context, from, to string, n int64) error {
		return db.InTx(ctx, func(ctx context.Context) error { return byHand(ctx, c, " FOR UPDATE", from, to, n) })
	}
}

// statement does the same in one round trip.
func statement(db *database.DB) transfer {
	const query = `WITH locked AS MATERIALIZED (
			SELECT user_id, balance, held, sequence FROM ledger_account
			WHERE currency = 'coins' AND user_id IN ($1, $2) ORDER BY user_id FOR UPDATE
		), allowed AS (
			SELECT COUNT(*) = 2 AND bool_and(user_id <> $1 OR balance - held >= 1) AS ok FROM locked
		), moved AS (
			UPDATE ledger_account a SET balance = l.balance + CASE WHEN l.user_id = $1 THEN -1 ELSE 1 END, sequence = l.sequence + 1
			FROM locked l, allowed WHERE allowed.ok AND a.user_id = l.user_id AND a.currency = 'coins'
			RETURNING a.user_id, a.balance, a.held, a.sequence
		)
		INSERT INTO ledger_transaction (ref, user_id, currency, sequence, kind, amount, balance_after, held_after, related_ref, memo, created_at)
		SELECT CASE WHEN user_id = $1 THEN $3 ELSE $3 || '#in' END, user_id, 'coins', sequence,
			CASE WHEN user_id = $1 THEN 'transfer_out' ELSE 'transfer_in' END, 1, balance, held,
			CASE WHEN user_id = $1 THEN $3 || '#in' ELSE $3 END, '', 0 FROM moved`
	return func(ctx context.Context, from, to string, n int64) error {
		rows, err := db.Exec(ctx, query, from, to, benchRef(n))
		if err != nil || rows != 2 {
			return fmt.Errorf("%d rows: %w", rows, err)
		}
		return nil
	}
}
