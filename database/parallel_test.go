package database_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestGuardedDebits(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		execute(t, db, ctx, insertAccount, "a", 100)
		var accepted, refused atomic.Int64
		var group sync.WaitGroup
		for i := range 200 {
			group.Go(func() {
				var done int64
				debit := func(ctx context.Context) (err error) {
					done, err = db.Exec(ctx, `UPDATE account SET balance = balance - 1 WHERE id = $1 AND balance >= 1`, "a")
					return err
				}
				var err error
				if i%2 == 0 {
					err = db.InTx(ctx, debit)
				} else {
					err = debit(ctx)
				}
				switch {
				case err != nil:
					t.Error(err)
				case done == 1:
					accepted.Add(1)
				default:
					refused.Add(1)
				}
			})
		}
		group.Wait()
		if balance := count(t, db, ctx, `SELECT balance FROM account`); balance != 0 || accepted.Load() != 100 || refused.Load() != 100 {
			t.Errorf("balance %d, %d accepted, %d refused", balance, accepted.Load(), refused.Load())
		}
	})
}

// Callbacks that fail, before and after their first change, leave nothing and take nothing from their neighbours.
func TestFailuresStayAlone(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		var mu sync.Mutex
		want := []string{}
		var group sync.WaitGroup
		for caller := range 16 {
			group.Go(func() {
				for i := range 21 {
					id := fmt.Sprintf("%02d-%02d", caller, i)
					kind := (caller + i) % 7
					ctx, cancel := context.WithCancel(ctx)
					var after int
					var panicked any
					err := func() error {
						defer func() { panicked = recover() }()
						return db.InTx(ctx, func(ctx context.Context) error {
							database.AfterCommit(ctx, func() { after++ })
							if kind == 1 {
								return errRefused
							}
							if _, err := db.Exec(ctx, insertAccount, id, 1); err != nil {
								return err
							}
							switch kind {
							case 2:
								return errRefused
							case 3:
								_, err := db.Exec(ctx, `UPDATE account SET balance = -1 WHERE id = $1`, id)
								return err
							case 4:
								cancel()
								return ctx.Err()
							case 5:
								panic(id)
							}
							return nil
						})
					}()
					cancel()
					var violation *database.ConstraintError
					if (panicked == id) != (kind == 5) {
						t.Errorf("panic: %v", panicked)
					}
					if (after == 1) != (kind == 0 || kind == 6) {
						t.Errorf("kind %d: %d after the commit", kind, after)
					}
					switch {
					case kind == 1 || kind == 2:
						if err != errRefused {
							t.Errorf("refusal: %v", err)
						}
					case kind == 3:
						if !errors.As(err, &violation) {
							t.Errorf("violation: %v", err)
						}
					case kind == 4:
						if !errors.Is(err, context.Canceled) {
							t.Errorf("cancelled: %v", err)
						}
					case kind == 5:
					case err != nil:
						t.Error(err)
					default:
						mu.Lock()
						want = append(want, id)
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		slices.Sort(want)
		got, err := database.All(ctx, db, scanText, `SELECT id FROM account ORDER BY id`)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

// Goroutines that a callback waits for share its transaction and take turns.
func TestGoroutinesOfACallback(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			errs := make(chan error, 8)
			for i := range cap(errs) {
				go func() {
					_, err := db.Exec(ctx, insertAccount, fmt.Sprint(i), 1)
					errs <- errors.Join(err, db.QueryRow(ctx, `SELECT balance FROM account WHERE id = $1`, fmt.Sprint(i)).Scan(new(int)))
				}()
			}
			var all error
			for range cap(errs) {
				all = errors.Join(all, <-errs)
			}
			return all
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 8 {
			t.Errorf("%d accounts", n)
		}
	})
}

func TestReadersNeverSeeUncommittedRows(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		execute(t, db, ctx, insertAccount, "a", 500)
		execute(t, db, ctx, insertAccount, "b", 500)
		var writers, readers sync.WaitGroup
		done := make(chan struct{})
		for i := range 4 {
			writers.Go(func() {
				for range 25 {
					err := db.InTx(ctx, func(ctx context.Context) error {
						if _, err := db.Exec(ctx, `UPDATE account SET balance = balance - 1 WHERE id = 'a'`); err != nil {
							return err
						}
						if _, err := db.Exec(ctx, `UPDATE account SET balance = balance + 1 WHERE id = 'b'`); err != nil {
							return err
						}
						if i == 0 {
							return errRefused
						}
						return nil
					})
					if err != nil && err != errRefused {
						t.Error(err)
					}
				}
			})
			readers.Go(func() {
				whileOpen(done, func() bool {
					sum := count(t, db, ctx, `SELECT CAST(sum(balance) AS BIGINT) FROM account`)
					if sum != 1000 {
						t.Errorf("a reader sees %d", sum)
					}
					return sum == 1000
				})
			})
		}
		writers.Wait()
		close(done)
		readers.Wait()
	})
}

// whileOpen runs fn until the channel is closed or fn returns false.
func whileOpen(done <-chan struct{}, fn func() bool) {
	for fn() {
		select {
		case <-done:
			return
		default:
		}
	}
}

// queued starts transactions that wait behind one that is under way, so that they make one batch.
func queued(t *testing.T, db *database.DB, n int, fn func(i int)) (release func()) {
	t.Helper()
	running, proceed := make(chan struct{}), make(chan struct{})
	started := sync.OnceFunc(func() { close(running) })
	var group sync.WaitGroup
	group.Go(func() {
		err := db.InTx(context.Background(), func(context.Context) error {
			started()
			<-proceed
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-running
	for i := range n {
		group.Go(func() { fn(i) })
		for database.Queued(db) < i+1 {
			runtime.Gosched()
		}
	}
	return func() {
		close(proceed)
		group.Wait()
	}
}

func TestPanicInABatch(t *testing.T) {
	for _, abrupt := range []string{"panic", "Goexit"} {
		t.Run(abrupt, func(t *testing.T) {
			db := databasetest.File(t)
			migrate(t, db)
			var left atomic.Int64
			queued(t, db, 9, func(i int) {
				defer func() {
					v := recover()
					if (v == "boom") != (i == 4 && abrupt == "panic") {
						t.Errorf("job %d recovers %v", i, v)
					}
					left.Add(1)
				}()
				err := db.InTx(t.Context(), func(ctx context.Context) error {
					_, err := db.Exec(ctx, insertAccount, fmt.Sprint(i), 1)
					if i == 4 && abrupt == "panic" {
						panic("boom")
					}
					if i == 4 {
						runtime.Goexit()
					}
					return err
				})
				if err != nil || i == 4 {
					t.Errorf("job %d: %v", i, err)
				}
			})()
			ids, err := database.All(t.Context(), db, scanText, `SELECT id FROM account ORDER BY id`)
			if diff := cmp.Diff([]string{"0", "1", "2", "3", "5", "6", "7", "8"}, ids); err != nil || diff != "" || left.Load() != 9 {
				t.Error(err, diff, left.Load())
			}
		})
	}
}

// The first failure has its batch run again, with savepoints; those of the next batches disturb nobody. A transaction
// whose caller has left does not run again.
func TestBatchesRunAgainForTheFirstFailureOnly(t *testing.T) {
	db := databasetest.File(t)
	migrate(t, db)
	batch := func(round int, leaves bool) (runs [9]int) {
		queued(t, db, len(runs), func(i int) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := db.InTx(ctx, func(ctx context.Context) error {
				runs[i]++
				if _, err := db.Exec(ctx, insertAccount, fmt.Sprint(round, i), 1); err != nil || i != 4 {
					return err
				}
				if leaves {
					cancel()
				}
				return errRefused
			})
			if (i == 4) != (err == errRefused) || i != 4 && err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		})()
		return runs
	}
	first := batch(0, true)
	for i, n := range first {
		if n > 2 || i == 4 && n != 1 {
			t.Errorf("job %d ran %d times, want twice at most and once if its caller has left", i, n)
		}
	}
	undone := slices.Max(first[:]) == 2 // else the first nine were no one batch
	if runs := batch(1, false); undone && slices.Max(runs[:]) > 1 {
		t.Errorf("after a failure callbacks run %v times, want once each", runs)
	}
	for range 100 { // until there was no failure for a while
		execute(t, db, t.Context(), `UPDATE account SET balance = balance`)
	}
	for i, n := range batch(2, false) {
		if n > 2 {
			t.Errorf("after a while job %d ran %d times, want twice at most", i, n)
		}
	}
	if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 3*8 {
		t.Errorf("%d rows, want those of all but the three that failed", n)
	}
}

// A transaction that has taken all its time does not take it again, whatever its error says.
func TestATransactionThatIsLateRunsOnce(t *testing.T) {
	db, err := database.OpenFile(filepath.Join(t.TempDir(), "kit.db"), database.WithLimit(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	migrate(t, db)
	var runs [2]int
	queued(t, db, len(runs), func(i int) {
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			runs[i]++
			_, err := db.Exec(ctx, insertAccount, fmt.Sprint(i), 1)
			for i == 1 && err == nil {
				_, err = db.Exec(ctx, `UPDATE account SET balance = balance + 1`)
			}
			if err != nil {
				return errors.New("hidden: " + err.Error())
			}
			return nil
		})
		if (i == 1) != (err != nil) {
			t.Errorf("job %d: %v", i, err)
		}
	})()
	if runs[1] != 1 {
		t.Errorf("callbacks run %v times, want the late one to run once", runs)
	}
}

// A single statement that keeps what it has changed before it fails is undone all the same.
func TestFailedExecLeavesNothing(t *testing.T) {
	db := databasetest.File(t)
	migrate(t, db)
	const three = `INSERT OR FAIL INTO account (id, balance) VALUES ('a', 1), ('b', 1), ($1, 1)`
	for round := range 3 { // by itself, in a batch without savepoints, in one with them
		queued(t, db, 5, func(i int) {
			if i == 2 {
				if _, err := db.Exec(t.Context(), three, "a"); err == nil {
					t.Error("two rows of one id")
				}
				return
			}
			if _, err := db.Exec(t.Context(), insertAccount, fmt.Sprint(round, i), 1); err != nil {
				t.Error(err)
			}
		})()
		if _, err := db.Exec(t.Context(), three, "b"); err == nil {
			t.Error("two rows of one id")
		}
		if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != int64(4*(round+1)) {
			t.Errorf("round %d: %d rows, want the four of the neighbours", round, n)
		}
	}
}

func TestCancelledWhileQueued(t *testing.T) {
	db := databasetest.File(t)
	migrate(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan bool, 1)
	result := make(chan error, 1)
	release := queued(t, db, 1, func(int) {
		result <- db.InTx(ctx, func(context.Context) error {
			ran <- true
			return nil
		})
	})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) { // while the writer is still busy
		t.Error(err)
	}
	release()
	if len(ran) != 0 {
		t.Error("a withdrawn transaction ran")
	}
}

// A transaction that has run is not withdrawn: its caller hears that it is durable.
func TestCancelledAfterItRan(t *testing.T) {
	db := databasetest.File(t)
	migrate(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	queued(t, db, 2, func(i int) {
		if i == 0 {
			if err := db.InTx(ctx, func(ctx context.Context) error {
				_, err := db.Exec(ctx, insertAccount, "a", 1)
				return err
			}); err != nil {
				t.Error(err)
			}
			return
		}
		if err := db.InTx(t.Context(), func(context.Context) error {
			cancel()
			return nil
		}); err != nil {
			t.Error(err)
		}
	})()
	if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 1 {
		t.Errorf("%d accounts", n)
	}
}

func TestDeferredViolationStaysAlone(t *testing.T) {
	db := databasetest.File(t)
	migrate(t, db)
	execute(t, db, t.Context(), `INSERT INTO parent (id) VALUES ('p')`)
	queued(t, db, 5, func(i int) {
		later := "p"
		if i == 2 {
			later = "none"
		}
		_, err := db.Exec(t.Context(), `INSERT INTO child (id, parent, later) VALUES ($1, 'p', $2)`, fmt.Sprint(i), later)
		var violation *database.ConstraintError
		if errors.As(err, &violation) != (i == 2) {
			t.Errorf("job %d: %v", i, err)
		}
	})()
	if n := count(t, db, t.Context(), `SELECT count(*) FROM child`); n != 4 {
		t.Errorf("%d children", n)
	}
}

// Close lets what has begun end well, and refuses the rest.
func TestCloseUnderLoad(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "kit.db")
		db, err := database.OpenFile(path, database.WithReaders(4))
		if err != nil {
			t.Fatal(err)
		}
		migrate(t, db)
		var mu sync.Mutex
		want := []string{}
		var group sync.WaitGroup
		begun := make(chan bool, 16)
		for caller := range 16 {
			group.Go(func() {
				for i := 0; ; i++ {
					id := fmt.Sprintf("%02d-%05d", caller, i)
					err := db.InTx(t.Context(), func(ctx context.Context) error {
						_, err := db.Exec(ctx, insertAccount, id, 1)
						return err
					})
					if err != nil {
						if err != database.ErrClosed {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					want = append(want, id)
					mu.Unlock()
					if i == 0 {
						begun <- true
					}
					if _, err := database.All(t.Context(), db, scanText, `SELECT id FROM account LIMIT 3`); err != nil && err != database.ErrClosed {
						t.Error(err)
					}
				}
			})
		}
		<-begun
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
		if db, err = database.OpenFile(path); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		got, err := database.All(t.Context(), db, scanText, `SELECT id FROM account ORDER BY id`)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
		if err := errors.Join(db.Ping(t.Context()), db.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A callback that waits for the database with a foreign context waits for itself. Outside test mode, which catches it
// at once, it is freed in the end.
func TestCallbackThatWaitsForItself(t *testing.T) {
	db := databasetest.File(t, database.WithLimit(50*time.Millisecond))
	migrate(t, db)
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		if _, err := db.Exec(t.Context(), insertAccount, "a", 1); err == nil {
			t.Error("written inside another transaction")
		}
		_, err := db.Exec(ctx, insertAccount, "b", 1)
		return err
	})
	if err == nil {
		t.Error("a transaction over its time limit was committed")
	}
	execute(t, db, t.Context(), insertAccount, "c", 1)
}

func TestTimeLimits(t *testing.T) {
	const forever = `WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c`
	db := databasetest.File(t, database.WithLimit(50*time.Millisecond))
	migrate(t, db)
	endless := func(ctx context.Context) error { return db.QueryRow(ctx, forever).Scan(new(int)) }
	if err := db.InTx(t.Context(), endless); err == nil {
		t.Error("InTx has no time limit")
	}
	if err := db.Read(t.Context(), endless); err == nil {
		t.Error("Read has no time limit")
	}
	execute(t, db, t.Context(), insertAccount, "c", 1)
}

func TestInMemoryARowsLeakIsNamed(t *testing.T) {
	db, err := database.OpenMemory(database.WithLimit(10 * time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query(t.Context(), `SELECT 1`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `CREATE TABLE x (id TEXT)`); err == nil {
		t.Error("written while rows are open")
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	execute(t, db, t.Context(), `CREATE TABLE x (id TEXT)`)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
