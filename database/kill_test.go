package database_test

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
)

// killedChild is the environment variable that makes the test binary the child of TestKill.
const killedChild = "KIT_TEST_KILLED_CHILD"

// killedFiles is how many databases a process has that is killed: what most of a kill costs is to start the next one.
const killedFiles = 10

func killedFile(folder string, file int) string {
	return filepath.Join(folder, fmt.Sprint(file, ".db"))
}

// writeUntilKilled writes to every file.
func writeUntilKilled(folder string) {
	for file := range killedFiles {
		go appendUntilKilled(killedFile(folder, file), file)
	}
	select {}
}

// appendUntilKilled prints the numbers of the file and of every row once it is acknowledged.
func appendUntilKilled(path string, file int) {
	db, err := database.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
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
				fmt.Println(file, n) // one write to a pipe, which is whole or not there
			}
		}()
	}
}

// Whatever moment a process is killed at, every acknowledged transaction is in its file once, and whole: ten files, each
// killed ten times. KIT_SOAK sets a hundred kills.
func TestKill(t *testing.T) {
	t.Parallel()
	kills := 10
	if testing.Short() {
		kills = 2
	}
	if os.Getenv("KIT_SOAK") != "" {
		kills = 100
	}
	folder := t.TempDir()
	for file := range killedFiles {
		db, err := database.OpenFile(killedFile(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		execute(t, db, t.Context(), `CREATE TABLE log (n INTEGER NOT NULL)`)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for range kills {
		acknowledged := make([][]int64, killedFiles)
		for _, line := range processtest.Kill(t, processtest.Again(killedChild, folder), 1+rand.IntN(200*killedFiles)) {
			var file int
			var n int64
			if _, err := fmt.Sscan(line, &file, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			acknowledged[file] = append(acknowledged[file], n)
			total++
		}
		for file, numbers := range acknowledged {
			checkAfterKill(t, killedFile(folder, file), numbers)
		}
	}
	t.Logf("%d acknowledged transactions on %d files in %d kills", total, killedFiles, kills)
}

// checkAfterKill opens the file as a restart would, and empties it for the next process.
func checkAfterKill(t *testing.T, path string, acknowledged []int64) {
	t.Helper()
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
	for _, n := range acknowledged {
		if found[n] == 0 {
			t.Fatalf("transaction %d was acknowledged and is lost", n)
		}
	}
	execute(t, db, t.Context(), `DELETE FROM log`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
