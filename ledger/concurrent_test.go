package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/ledger"
)

// many runs fn in n goroutines, i from 0.
func many(n int, fn func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { fn(i) })
	}
	group.Wait()
}

// each runs fn with the ledgers of one node on every database and, on
// PostgreSQL, of two nodes on one.
func each(t *testing.T, fn func(t *testing.T, nodes ...*ledger.Ledger)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { fn(t, open(t, db)) })
	t.Run("two nodes", func(t *testing.T) {
		dbs := databasetest.Shared(t, 2)
		fn(t, open(t, dbs[0]), open(t, dbs[1]))
	})
}

// TestManyDebits lets 64 callers empty one account: nothing is lost and
// nothing is taken twice, although every ref is used by two of them.
func TestManyDebits(t *testing.T) {
	each(t, func(t *testing.T, nodes ...*ledger.Ledger) {
		ctx := t.Context()
		const callers, refs, balance = 64, 10, 200
		must(nodes[0].Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: balance, Ref: "start"}))(t)
		var taken, replayed, refused atomic.Int64
		many(callers, func(i int) {
			for n := range refs {
				ref := fmt.Sprintf("%d-%d", i/2, n) // i and its neighbour share it
				r, err := nodes[i%len(nodes)].Debit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: ref})
				switch {
				case errors.Is(err, ledger.ErrInsufficientFunds):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				case r.Replayed:
					replayed.Add(1)
				default:
					taken.Add(1)
				}
			}
		})
		if taken.Load() != balance || taken.Load()+replayed.Load()+refused.Load() != callers*refs {
			t.Errorf("taken %d, replayed %d, refused %d", taken.Load(), replayed.Load(), refused.Load())
		}
		balanceIs(t, nodes[0], "ada", 0, 0)
		addsUp(t, nodes[0])
	})
}

// TestSameRef lets many callers credit an account that nobody has opened yet,
// all under one ref and inside transactions of their own.
func TestSameRef(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		var done atomic.Int64
		many(16, func(i int) {
			var r ledger.Transaction
			if err := db.InTx(ctx, func(ctx context.Context) (err error) {
				r, err = l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "once"})
				return err
			}); err != nil {
				t.Error(err)
			}
			if !r.Replayed {
				done.Add(1)
			}
		})
		if done.Load() != 1 {
			t.Errorf("done %d times", done.Load())
		}
		balanceIs(t, l, "ada", 5, 0)
		addsUp(t, l)
	})
}

// TestCaptureRacesRelease ends each hold both ways at once: one of them wins.
func TestCaptureRacesRelease(t *testing.T) {
	each(t, func(t *testing.T, nodes ...*ledger.Ledger) {
		ctx, last := t.Context(), nodes[len(nodes)-1]
		const holds = 50
		must(nodes[0].Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: holds, Ref: "start"}))(t)
		var captured atomic.Int64
		for i := range holds {
			ref := fmt.Sprint("hold-", i)
			must(nodes[0].Hold(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: ref}))(t)
			var won atomic.Int64
			end := func(err error, count *atomic.Int64) {
				switch {
				case err == nil:
					won.Add(1)
					count.Add(1)
				case !errors.Is(err, ledger.ErrHoldNotOpen):
					t.Error(err)
				}
			}
			var released atomic.Int64
			many(4, func(n int) {
				if n%2 == 0 {
					_, err := nodes[0].Capture(ctx, ref, ledger.CaptureOptions{})
					end(err, &captured)
				} else {
					_, err := last.Release(ctx, ref)
					end(err, &released)
				}
			})
			if won.Load() != 1 {
				t.Fatalf("%s: %d won", ref, won.Load())
			}
		}
		balanceIs(t, nodes[0], "ada", holds-captured.Load(), 0)
		addsUp(t, nodes[0])
	})
}

// TestOppositeTransfers sends money both ways between two accounts, on their
// own and inside callers' transactions.
func TestOppositeTransfers(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := open(t, db)
		fund(t, l)
		if err := transferBothWays(db, l, "x"); err != nil {
			t.Error(err)
		}
		addsUp(t, l)
	})
}

func fund(t *testing.T, l *ledger.Ledger) {
	for _, user := range []string{"ada", "bob"} {
		must(l.Credit(t.Context(), ledger.Entry{UserID: user, Currency: "coins", Amount: 1000, Ref: "start-" + user}))(t)
	}
}

// transferBothWays also runs where there is no test: in the second process.
func transferBothWays(db *database.DB, l *ledger.Ledger, prefix string) error {
	ctx := context.Background()
	errs := make([]error, 16)
	many(len(errs), func(i int) {
		e := ledger.TransferEntry{From: "ada", To: "bob", Currency: "coins", Amount: 1}
		if i%2 == 0 {
			e.From, e.To = e.To, e.From
		}
		transfer := func(ctx context.Context) error {
			_, err := l.Transfer(ctx, e)
			return err
		}
		for n := 0; n < transfersEach && errs[i] == nil; n++ {
			e.Ref = fmt.Sprintf("%s-%d-%d", prefix, i, n)
			if i%4 < 2 {
				errs[i] = transfer(ctx)
			} else {
				errs[i] = db.InTx(ctx, transfer)
			}
		}
	})
	return errors.Join(errs...)
}

const transfersEach = 30

// TestOppositeTransfersFromTwoProcesses does the same with a second process,
// in a database of its own whose count of deadlocks stays 0.
func TestOppositeTransfersFromTwoProcesses(t *testing.T) {
	address, deadlocks := processtest.Database(t)
	db, err := postgres.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	l := open(t, db)
	fund(t, l)
	other := child("transfer", address)
	var output strings.Builder
	other.Stdout, other.Stderr = &output, &output
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := transferBothWays(db, l, "parent"); err != nil {
		t.Error(err)
	}
	if err := other.Wait(); err != nil {
		t.Fatalf("%v: %s", err, output.String())
	}
	addsUp(t, l)
	report := must(l.Verify(t.Context()))(t)
	if report.Transactions != 2+2*2*16*transfersEach {
		t.Errorf("%+v", report)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if n := deadlocks(); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// transferChild is the second process of the test above.
func transferChild(address string) {
	db, err := postgres.Open(context.Background(), address)
	if err != nil {
		log.Fatal(err)
	}
	l, _, err := build(db)
	if err != nil {
		log.Fatal(err)
	}
	if err := transferBothWays(db, l, "child"); err != nil {
		log.Fatal(err)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}

// child is this test binary, run again as something else.
func child(as, argument string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEDGER_TEST_CHILD="+as, "LEDGER_TEST_ARGUMENT="+argument)
	return cmd
}

func TestMain(m *testing.M) {
	switch argument := os.Getenv("LEDGER_TEST_ARGUMENT"); os.Getenv("LEDGER_TEST_CHILD") {
	case "transfer":
		transferChild(argument)
	case "load":
		loadChild(argument)
	default:
		os.Exit(m.Run())
	}
}

// TestFirstCreditsAtOnceAllCount lets callers open one account at the same
// instant, inside transactions of their own, round after round.
func TestFirstCreditsAtOnceAllCount(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		const rounds, callers = 40, 8
		for round := range rounds {
			user := fmt.Sprintf("user-%d", round)
			many(callers, func(i int) {
				err := db.InTx(ctx, func(ctx context.Context) error {
					_, err := l.Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 1, Ref: fmt.Sprintf("%s-%d", user, i)})
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
			balanceIs(t, l, user, callers, 0)
		}
		addsUp(t, l)
	})
}
