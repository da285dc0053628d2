package ledger_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/ledger"
)

// TestKill kills a process with kill -9 while 16 callers move money, a hundred times,
// ten on one file: each restart looks at the whole ledger. After each every
// acknowledged operation is there once, and the ledger adds up.
func TestKill(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	var path string
	total := 0
	for round := range rounds {
		if round%10 == 0 {
			path = filepath.Join(t.TempDir(), "kit.db")
			inspect(t, path, nil)
		}
		acknowledged := processtest.Kill(t, child("load", path), rand.IntN(150)+1)
		inspect(t, path, acknowledged)
		total += len(acknowledged)
	}
	t.Logf("%d operations acknowledged in %d rounds", total, rounds)
}

// inspect opens the file as a restart would.
func inspect(t *testing.T, path string, acknowledged []string) {
	t.Helper()
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	l := open(t, db)
	stored := make(map[string]int)
	refs, err := database.All(t.Context(), db, func(row database.Scanner) (ref string, err error) {
		return ref, row.Scan(&ref)
	}, `SELECT ref FROM ledger_transaction`)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		stored[ref]++
	}
	for _, ref := range acknowledged {
		if stored[ref] != 1 {
			t.Errorf("%s was acknowledged and is there %d times", ref, stored[ref])
		}
	}
	addsUp(t, l)
}

// loadChild moves money until it is killed and prints the ref of every
// transaction that was acknowledged. Each line is one write to a pipe, which
// is whole or not there.
func loadChild(path string) {
	ctx := context.Background()
	db, err := database.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	l, _, err := build(db)
	if err != nil {
		log.Fatal(err)
	}
	run := os.Getpid()
	done := func(ref string, err error) {
		if err != nil {
			log.Fatal(err)
		}
		_, _ = os.Stdout.WriteString(ref + "\n")
	}
	many(16, func(i int) {
		from, to := fmt.Sprint("user-", i), fmt.Sprint("user-", (i+1)%4)
		for n := 0; ; n++ {
			ref := fmt.Sprintf("%d-%d-%d-", run, i, n)
			_, err := l.Credit(ctx, ledger.Entry{UserID: from, Currency: "coins", Amount: 3, Ref: ref + "c"})
			done(ref+"c", err)
			_, err = l.Transfer(ctx, ledger.TransferEntry{From: from, To: to + "-to", Currency: "coins", Amount: 1, Ref: ref + "t"})
			done(ref+"t#in", err)
			_, err = l.Hold(ctx, ledger.Entry{UserID: from, Currency: "coins", Amount: 2, Ref: ref + "h"})
			done(ref+"h", err)
			_, err = l.Capture(ctx, ref+"h", ledger.CaptureOptions{Amount: 1})
			done(ref+"h#release", err)
		}
	})
}
