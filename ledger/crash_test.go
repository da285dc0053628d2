package ledger_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/ledger"
)

// killedFiles is how many ledgers a process has that is killed: what most of a kill costs is to start the next one.
const killedFiles = 10

func killedFile(folder string, file int) string {
	return filepath.Join(folder, fmt.Sprint(file, ".db"))
}

// TestKill kills a process with kill -9 while 16 callers move money on each of ten files,
// ten times: each of the hundred restarts looks at a whole ledger. After each every
// acknowledged operation is there once, and the ledger adds up. KIT_SOAK sets a hundred kills.
func TestKill(t *testing.T) {
	kills := 10
	if testing.Short() {
		kills = 2
	}
	if os.Getenv("KIT_SOAK") != "" {
		kills = 100
	}
	folder := t.TempDir()
	for file := range killedFiles {
		inspect(t, killedFile(folder, file), nil)
	}
	total := 0
	for range kills {
		acknowledged := make(map[string][]string)
		for _, line := range processtest.Kill(t, child("load", folder), rand.IntN(150*killedFiles)+1) {
			file, ref, _ := strings.Cut(line, " ")
			acknowledged[file] = append(acknowledged[file], ref)
			total++
		}
		for file := range killedFiles {
			inspect(t, killedFile(folder, file), acknowledged[fmt.Sprint(file)])
		}
	}
	t.Logf("%d operations acknowledged on %d files in %d kills", total, killedFiles, kills)
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

// loadChild moves money on every file until it is killed.
func loadChild(folder string) {
	many(killedFiles, func(file int) { load(killedFile(folder, file), fmt.Sprint(file)) })
}

// load moves money and prints the name of the file and the ref of every transaction that
// was acknowledged. Each line is one write to a pipe, which is whole or not there.
func load(path, name string) {
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
		_, _ = os.Stdout.WriteString(name + " " + ref + "\n")
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
