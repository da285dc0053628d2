package database_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
)

var errRefused = errors.New("refused")

const insertAccount = `INSERT INTO account (id, balance) VALUES ($1, $2)`

func TestNestedTransactionsAreOne(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		accounts := func() int64 { return count(t, db, ctx, `SELECT count(*) FROM account`) }
		add := func(ctx context.Context, id string) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				_, err := db.Exec(ctx, insertAccount, id, 1)
				return err
			})
		}
		err := db.InTx(ctx, func(ctx context.Context) error {
			if err := add(ctx, "a"); err != nil {
				return err
			}
			if n := count(t, db, ctx, `SELECT count(*) FROM account`); n != 1 {
				t.Errorf("the transaction sees %d of its rows", n)
			}
			return db.Read(ctx, func(ctx context.Context) error { // a joined Read may not write, but its transaction may
				return add(ctx, "b")
			})
		})
		if err != nil || accounts() != 2 {
			t.Fatal(err, accounts())
		}
		err = db.InTx(ctx, func(ctx context.Context) error {
			if err := add(ctx, "c"); err != nil {
				return err
			}
			return errRefused
		})
		if err != errRefused || accounts() != 2 {
			t.Fatalf("outer refusal: %v, %d accounts", err, accounts())
		}
		err = db.InTx(ctx, func(ctx context.Context) error {
			if err := add(ctx, "d"); err != nil {
				return err
			}
			_ = db.InTx(ctx, func(ctx context.Context) error { // the outer callback drops the error
				_, err := db.Exec(ctx, insertAccount, "e", 1)
				return errors.Join(err, errRefused)
			})
			return nil
		})
		if !errors.Is(err, errRefused) || accounts() != 2 {
			t.Fatalf("inner refusal: %v, %d accounts", err, accounts())
		}
	})
}

func TestNoWayOnAfterARefusedStatement(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		err := db.InTx(ctx, func(ctx context.Context) error {
			if _, err := db.Exec(ctx, insertAccount, "a", 1); err != nil {
				return err
			}
			_, _ = db.Exec(ctx, insertAccount, "b", -1)
			if _, err := db.Exec(ctx, insertAccount, "c", 1); err == nil {
				t.Error("a failed transaction took another statement")
			}
			return nil
		})
		var violation *database.ConstraintError
		if !errors.As(err, &violation) || violation.Kind != database.Check {
			t.Fatal(err)
		}
		if n := count(t, db, ctx, `SELECT count(*) FROM account`); n != 0 {
			t.Fatalf("%d accounts", n)
		}
	})
}

func TestAfterCommit(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		var got []string
		note := func(ctx context.Context, text string) {
			database.AfterCommit(ctx, func() { got = append(got, text) })
		}
		check := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			got = nil
		}
		note(ctx, "at once")
		check("at once")

		err := db.InTx(ctx, func(inner context.Context) error {
			note(inner, "first")
			if err := db.InTx(inner, func(inner context.Context) error {
				note(inner, "nested")
				return nil
			}); err != nil {
				return err
			}
			database.AfterCommit(inner, func() { // outside the transaction and every lock
				got = append(got, "writes")
				execute(t, db, ctx, insertAccount, "after", 1)
			})
			if len(got) != 0 {
				t.Error("ran before the commit")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		check("first", "nested", "writes")

		if err := db.InTx(ctx, func(ctx context.Context) error {
			note(ctx, "dropped")
			return errRefused
		}); err != errRefused {
			t.Fatal(err)
		}
		check()

		if err := db.Read(ctx, func(ctx context.Context) error {
			note(ctx, "after Read")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		check("after Read")
	})
}

func TestAfterCommitOfTheInnermostDatabase(t *testing.T) {
	outer, inner := databasetest.Memory(t), databasetest.File(t)
	var got []string
	err := outer.InTx(t.Context(), func(ctx context.Context) error {
		got = nil
		err := inner.InTx(ctx, func(ctx context.Context) error {
			if !outer.InTransaction(ctx) || !inner.InTransaction(ctx) {
				t.Error("a transaction is not found")
			}
			database.AfterCommit(ctx, func() { got = append(got, "inner") })
			return nil
		})
		got = append(got, "outer goes on")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"inner", "outer goes on"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTestModeRunsTwice(t *testing.T) {
	check := func(t *testing.T, db *database.DB) {
		migrate(t, db)
		runs, after := 0, 0
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			runs++
			database.AfterCommit(ctx, func() { after++ })
			_, err := db.Exec(ctx, insertAccount, "a", 1)
			return err
		})
		if err != nil || runs != 2 || after != 1 {
			t.Fatalf("error %v, %d runs, %d after the commit", err, runs, after)
		}
	}
	t.Run("memory", func(t *testing.T) { check(t, databasetest.Memory(t)) })
	t.Run("file", func(t *testing.T) { check(t, databasetest.File(t, database.WithTestMode())) })
	t.Run("postgres", func(t *testing.T) { check(t, databasetest.Postgres(t, postgres.WithTestMode())) })
}

func TestNowStandsStillInATransaction(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		tick := time.Date(2030, 1, 2, 3, 4, 5, 987_654_321, time.FixedZone("somewhere", 3600))
		db.UseClock(func() time.Time {
			tick = tick.Add(time.Second)
			return tick
		})
		first := db.Now(ctx)
		if first.Location() != time.UTC || first.Nanosecond() != 987_000_000 {
			t.Error(first)
		}
		if !db.Now(ctx).After(first) {
			t.Error("the clock stands still outside a transaction")
		}
		seen := map[time.Time]bool{}
		err := db.InTx(ctx, func(ctx context.Context) error {
			seen[db.Now(ctx)] = true
			return db.InTx(ctx, func(ctx context.Context) error {
				seen[db.Now(ctx)] = true
				return nil
			})
		})
		if err != nil || len(seen) != 1 {
			t.Error(err, seen)
		}
	})
}

// TestReadSeesOneSnapshot leaves memory out: there a Read keeps writers waiting.
func TestReadSeesOneSnapshot(t *testing.T) {
	t.Run("file", func(t *testing.T) { readsOneSnapshot(t, databasetest.File(t)) })
	t.Run("postgres", func(t *testing.T) { readsOneSnapshot(t, databasetest.Postgres(t)) })
}

func readsOneSnapshot(t *testing.T, db *database.DB) {
	t.Helper()
	migrate(t, db)
	ctx := t.Context()
	execute(t, db, ctx, insertAccount, "a", 1)
	err := db.Read(ctx, func(inner context.Context) error {
		if n := count(t, db, inner, `SELECT count(*) FROM account`); n != 1 {
			t.Errorf("%d accounts", n)
		}
		execute(t, db, ctx, insertAccount, "b", 1) // another transaction
		if n := count(t, db, inner, `SELECT count(*) FROM account`); n != 1 {
			t.Errorf("the snapshot moved: %d accounts", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, ctx, `SELECT count(*) FROM account`); n != 2 {
		t.Errorf("%d accounts", n)
	}
}

func TestReadRefusesWrites(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		for name, write := range map[string]func(context.Context) error{
			"Exec": func(ctx context.Context) error { _, err := db.Exec(ctx, insertAccount, "a", 1); return err },
			"InTx": func(ctx context.Context) error {
				return db.InTx(ctx, func(context.Context) error { return nil })
			},
			"QueryRow": func(ctx context.Context) error {
				var id string
				return db.QueryRow(ctx, `INSERT INTO account (id, balance) VALUES ('a', 1) RETURNING id`).Scan(&id)
			},
		} {
			if err := db.Read(t.Context(), write); err == nil {
				t.Errorf("%s inside Read: no error", name)
			}
		}
		if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 0 {
			t.Errorf("%d accounts", n)
		}
	})
}

func TestContextOfAFinishedTransaction(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		var kept context.Context
		var rows *database.Rows
		err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
			kept = ctx
			rows, err = db.Query(ctx, `SELECT 1`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if rows.Next() || rows.Err() == nil {
			t.Error("rows outlive their transaction")
		}
		if _, err := db.Exec(kept, insertAccount, "a", 1); err == nil {
			t.Error("Exec: no error")
		}
		if err := db.InTx(kept, func(context.Context) error { return nil }); err == nil {
			t.Error("InTx: no error")
		}
		if err := db.QueryRow(kept, `SELECT 1`).Scan(new(int)); err == nil {
			t.Error("QueryRow: no error")
		}
	})
}

func TestContextEnds(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := db.InTx(cancelled, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("InTx: %v", err)
		}
		if _, err := db.Exec(cancelled, insertAccount, "a", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("Exec: %v", err)
		}
		if err := db.QueryRow(cancelled, `SELECT 1`).Scan(new(int)); !errors.Is(err, context.Canceled) {
			t.Errorf("QueryRow: %v", err)
		}
		if err := db.Read(cancelled, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("Read: %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		err := db.InTx(ctx, func(ctx context.Context) error {
			if _, err := db.Exec(ctx, insertAccount, "a", 1); err != nil {
				return err
			}
			cancel()
			_, err := db.Exec(ctx, insertAccount, "b", 1)
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in the middle: %v", err)
		}

		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		const forever = `WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c`
		if err := db.QueryRow(ctx, forever).Scan(new(int)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a query without end: %v", err)
		}
		if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 0 {
			t.Errorf("%d accounts", n)
		}
	})
}

func TestPanicIsItsCallersOwn(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		type value struct{ n int }
		got := func() (v any) {
			defer func() { v = recover() }()
			_ = db.InTx(ctx, func(ctx context.Context) error {
				if _, err := db.Exec(ctx, insertAccount, "a", 1); err != nil {
					return err
				}
				panic(value{1})
			})
			return nil
		}()
		if got != any(value{1}) {
			t.Fatalf("recovered %v", got)
		}
		execute(t, db, ctx, insertAccount, "b", 1)
		ids, err := database.All(ctx, db, scanText, `SELECT id FROM account`)
		if diff := cmp.Diff([]string{"b"}, ids); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}

func TestTestModeNamesMistakes(t *testing.T) {
	db := databasetest.Memory(t)
	migrate(t, db)
	ctx := t.Context()
	mistake := func(fn func()) (v any) {
		defer func() { v = recover() }()
		fn()
		return nil
	}
	for name, use := range map[string]func(){
		"Exec":     func() { _, _ = db.Exec(ctx, insertAccount, "a", 1) },
		"Query":    func() { _, _ = database.All(ctx, db, scanInt, `SELECT 1`) },
		"QueryRow": func() { _ = db.QueryRow(ctx, `SELECT 1`).Scan(new(int)) },
		"InTx":     func() { _ = db.InTx(ctx, func(context.Context) error { return nil }) },
		"Read":     func() { _ = db.Read(ctx, func(context.Context) error { return nil }) },
	} {
		if mistake(func() { _ = db.InTx(ctx, func(context.Context) error { use(); return nil }) }) == nil {
			t.Errorf("%s inside InTx passed", name)
		}
		if mistake(func() { _ = db.Read(ctx, func(context.Context) error { use(); return nil }) }) == nil {
			t.Errorf("%s inside Read passed", name)
		}
		if mistake(func() {
			rows, err := db.Query(ctx, `SELECT 1`)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			use()
		}) == nil {
			t.Errorf("%s with rows open passed", name)
		}
		if v := mistake(use); v != nil {
			t.Errorf("%s by itself: %v", name, v)
		}
		execute(t, db, ctx, `DELETE FROM account`)
	}
}

func TestClosed(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		_, execErr := db.Exec(ctx, `SELECT 1`)
		_, queryErr := db.Query(ctx, `SELECT 1`)
		for name, err := range map[string]error{
			"Exec":     execErr,
			"Query":    queryErr,
			"QueryRow": db.QueryRow(ctx, `SELECT 1`).Scan(new(int)),
			"InTx":     db.InTx(ctx, func(context.Context) error { return nil }),
			"Read":     db.Read(ctx, func(context.Context) error { return nil }),
			"Ping":     db.Ping(ctx),
			"Migrate":  db.Migrate(ctx),
		} {
			if !errors.Is(err, database.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestRowsAndScans(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if err := db.QueryRow(ctx, `SELECT id FROM account`).Scan(new(string)); err != sql.ErrNoRows {
			t.Errorf("no row: %v", err)
		}
		if _, ok, err := database.Get(ctx, db, scanText, `SELECT id FROM account`); ok || err != nil {
			t.Errorf("Get without a row: %v %v", ok, err)
		}
		if all, err := database.All(ctx, db, scanText, `SELECT id FROM account`); all == nil || len(all) != 0 || err != nil {
			t.Errorf("All without a row: %v %v", all, err)
		}
		type name string
		execute(t, db, ctx, `INSERT INTO kinds (id, ok, n, ratio, bytes, text) VALUES ($1, $2, $3, $4, $5, $6), ($7, $8, $9, $10, $11, $12)`,
			name("a"), true, int32(-7), 1.5, []byte{0, 1}, "ä", "b", nil, (*int64)(nil), nil, []byte(nil), sql.NullString{})
		type row struct {
			ok    *bool
			n     *int64
			ratio *float64
			bytes []byte
			text  sql.NullString
			named *name
		}
		rows, err := database.All(ctx, db, func(s database.Scanner) (r row, err error) {
			err = s.Scan(&r.ok, &r.n, &r.ratio, &r.bytes, &r.text, &r.named)
			return r, err
		}, `SELECT ok, n, ratio, bytes, text, text FROM kinds ORDER BY id`)
		if err != nil {
			t.Fatal(err)
		}
		want := []row{{new(bool), new(int64), new(float64), []byte{0, 1}, sql.NullString{String: "ä", Valid: true}, new(name)}, {}}
		*want[0].ok, *want[0].n, *want[0].ratio, *want[0].named = true, -7, 1.5, "ä"
		if diff := cmp.Diff(want, rows, cmp.AllowUnexported(row{})); diff != "" {
			t.Error(diff)
		}
		if err := db.QueryRow(ctx, `SELECT text FROM kinds WHERE id = 'b'`).Scan(new(string)); err == nil {
			t.Error("NULL into a string")
		}
		if err := db.QueryRow(ctx, `SELECT text FROM kinds WHERE id = 'a'`).Scan(new(int)); err == nil {
			t.Error("text into an int")
		}
		if _, err := db.Exec(ctx, `INSERT INTO kinds (id) VALUES ($1)`, "a\x00b"); err == nil {
			t.Error("NUL in text")
		}
		if _, err := db.Exec(ctx, `INSERT INTO kinds (id) VALUES ($1)`, "a\xffb"); err == nil {
			t.Error("invalid UTF-8 in text")
		}
		if _, err := db.Exec(ctx, `INSERT INTO kinds (id, n) VALUES ($1, $2)`, "c"); err == nil {
			t.Error("an argument missing")
		}
		if _, err := db.Exec(ctx, `INSERT INTO kinds (id, n) VALUES ($1, $2)`, "c", "seven"); err == nil {
			t.Error("text in an integer column")
		}
	})
}

func TestSeveralStatements(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		execute(t, db, ctx, `INSERT INTO account (id, balance) VALUES ('a', 1); INSERT INTO account (id, balance) VALUES ('b', 1);`)
		if _, err := db.Exec(ctx, `INSERT INTO account (id, balance) VALUES ('c', 1); INSERT INTO account (id, balance) VALUES ('d', -1)`); err == nil {
			t.Error("no error")
		}
		if n := count(t, db, ctx, `SELECT count(*) FROM account`); n != 2 {
			t.Errorf("%d accounts", n)
		}
	})
}

func TestRowsChanged(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		for _, test := range []struct {
			query string
			want  int64
		}{
			{`INSERT INTO account (id, balance) VALUES ('a', 1), ('b', 1)`, 2},
			{`SELECT id FROM account`, 0},
			{`UPDATE account SET balance = 2 WHERE id = 'a'`, 1},
			{`CREATE TABLE other (id TEXT)`, 0},
			{`INSERT INTO account (id, balance) VALUES ('a', 1) ON CONFLICT DO NOTHING`, 0},
			{`INSERT INTO account (id, balance) VALUES ('a', 3), ('c', 3) ON CONFLICT (id) DO UPDATE SET balance = excluded.balance`, 2},
			{`UPDATE account SET balance = 2 WHERE id = 'none'`, 0},
			{`DELETE FROM account`, 3},
		} {
			if n := execute(t, db, ctx, test.query); n != test.want {
				t.Errorf("%s: %d rows", test.query, n)
			}
		}
	})
}

func TestNoTransactionControl(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		for _, query := range []string{"BEGIN", "begin immediate", "COMMIT;", " commit", "END;", "ROLLBACK", "SAVEPOINT x", "RELEASE x", "START TRANSACTION"} {
			if _, err := db.Exec(t.Context(), query); err == nil {
				t.Errorf("%s: no error", query)
			}
			if err := db.InTx(t.Context(), func(ctx context.Context) error {
				_, err := db.Exec(ctx, query)
				return err
			}); err == nil {
				t.Errorf("%s inside InTx: no error", query)
			}
			for name, inside := range map[string]func(ctx context.Context) error{
				"QueryRow": func(ctx context.Context) error { return db.QueryRow(ctx, query).Scan(new(int)) },
				"Query":    func(ctx context.Context) error { _, err := db.Query(ctx, query); return err },
			} {
				if err := db.InTx(t.Context(), inside); err == nil || errors.Is(err, sql.ErrNoRows) {
					t.Errorf("%s by %s inside InTx: %v", query, name, err)
				}
			}
		}
	})
}

type explosive struct{}

func (explosive) Value() (driver.Value, error) { panic("boom") }

// A panic in an argument's own method takes no reader along.
func TestPanicOfAnArgumentLosesNoReader(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		for range 5 {
			func() {
				defer func() { _ = recover() }()
				_ = db.QueryRow(t.Context(), `SELECT $1`, explosive{}).Scan(new(int))
			}()
		}
		if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
		execute(t, db, t.Context(), insertAccount, "a", 1)
	})
}

func TestInList(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		odd := `it's "odd" \ <&> ü, ]`
		for _, id := range []string{"a", "b", "c", odd} {
			execute(t, db, ctx, insertAccount, id, 1)
		}
		for _, test := range []struct{ ask, want []string }{
			{[]string{"a", "c", "none"}, []string{"a", "c"}},
			{[]string{odd}, []string{odd}},
			{nil, []string{}},
		} {
			got, err := database.All(ctx, db, scanText, `SELECT id FROM account WHERE balance = $1 AND id `+database.InList(2)+
				` ORDER BY id`, 1, database.List(test.ask))
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		}
	})
}

// TestTransactionsThatLockANameFollowEachOther: the second begins behind the end of the
// first, whose rows it sees; one of another name waits for nobody.
func TestTransactionsThatLockANameFollowEachOther(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	migrate(t, dbs[0])
	var seen, other int64
	locked := func(db *database.DB, name string, accounts *int64) error {
		return db.InTx(t.Context(), func(ctx context.Context) error {
			if err := db.Lock(ctx, name); err != nil {
				return err
			}
			return db.QueryRow(ctx, `SELECT count(*) FROM account`).Scan(accounts)
		})
	}
	second := make(chan error, 1)
	if err := dbs[0].InTx(t.Context(), func(ctx context.Context) error {
		if err := dbs[0].Lock(ctx, "test a"); err != nil {
			return err
		}
		execute(t, dbs[0], ctx, insertAccount, "a", 1)
		if err := locked(dbs[1], "test b", &other); err != nil {
			return err
		}
		go func() { second <- locked(dbs[1], "test a", &seen) }()
		return databasetest.Waits(ctx, dbs[0], second)
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil || seen != 1 || other != 0 {
		t.Errorf("saw %d accounts behind the lock and %d with another name, %v", seen, other, err)
	}
	if err := dbs[0].Lock(t.Context(), "test a"); err == nil {
		t.Error("a lock outside of a transaction, which holds nothing, was not refused")
	}
}
