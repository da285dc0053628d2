package database_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
)

// killedChild is the environment variable that makes the test binary the child of TestKill.
const killedChild = "KIT_TEST_KILLED_CHILD"

// writeUntilKilled prints the number of every row once it is acknowledged.
func writeUntilKilled(path string) {
	db, err := database.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	var mu sync.Mutex
	for caller := range int64(32) {
		go func() {
			for n := caller; ; n += 32 {
				err := db.InTx(context.Background(), func(ctx context.Context) error {
					for range 2 { // both halves or none
						if _, err := db.Exec(ctx, `INSERT INTO log (n) VALUES ($1)`, n); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					log.Fatal(err)
				}
				mu.Lock()
				fmt.Println(n)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// Whatever moment the process is killed at, every acknowledged transaction is in the file once, and whole.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	path := filepath.Join(t.TempDir(), "kit.db")
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, t.Context(), `CREATE TABLE log (n INTEGER NOT NULL)`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for range rounds {
		acknowledged := processtest.Kill(t, processtest.Again(killedChild, path), 1+rand.IntN(200))
		db, err := database.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		checkIntegrity(t, db)
		found := map[int64]int64{}
		numbers, err := database.All(t.Context(), db, scanInt, `SELECT n FROM log`)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers {
			found[n]++
		}
		for n, times := range found {
			if times != 2 {
				t.Fatalf("transaction %d is there %d/2 times", n, times)
			}
		}
		for _, line := range acknowledged {
			if n, err := strconv.ParseInt(line, 10, 64); err != nil || found[n] == 0 {
				t.Fatalf("transaction %s was acknowledged and is lost; %v", line, err)
			}
		}
		total += len(acknowledged)
		execute(t, db, t.Context(), `DELETE FROM log`)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d acknowledged transactions in %d rounds", total, rounds)
}
