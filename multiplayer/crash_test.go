package multiplayer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	crand "crypto/rand"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
)

const (
	crashMatches = 200
	crashGift    = 1_000_000
)

// TestKill kills a node with kill -9 in the middle of 200 staked matches. After the restart every
// acknowledged action is in the log, some matches are played to their end and the others abandoned
// when their time is over, and every stake has been captured or released once: no coin is lost or
// created.
func TestKill(t *testing.T) {
	t.Run("file", func(t *testing.T) { killedInMatches(t, filepath.Join(t.TempDir(), "kit.db")) })
	t.Run("postgres", func(t *testing.T) {
		address, _ := processtest.Database(t)
		killedInMatches(t, address)
	})
}

func killedInMatches(t *testing.T, address string) {
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	accepted := 0
	for range rounds {
		acknowledged := processtest.Kill(t, nodeChild(address), crashMatches/2+rand.IntN(4*crashMatches))
		afterRestart(t, address, acknowledged)
		accepted += len(acknowledged)
	}
	t.Logf("%d actions acknowledged in %d rounds", accepted, rounds)
}

func openAddress(address string) (*database.DB, error) {
	if strings.HasPrefix(address, "postgres") {
		return postgres.Open(context.Background(), address, postgres.WithConnections(16))
	}
	return database.OpenFile(address)
}

// nodeChild returns the command that runs this test binary as another node.
func nodeChild(address string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MULTIPLAYER_TEST_CHILD="+address)
	return cmd
}

// afterRestart continues the matches of the child and checks them.
func afterRestart(t *testing.T, address string, acknowledged []string) {
	t.Helper()
	db, err := openAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := node(t, db, kittest.NewClock(), trickConfig())
	ctx := t.Context()
	stored, err := database.All(ctx, db, func(row database.Scanner) (line string, err error) {
		var id string
		var version int64
		err = row.Scan(&id, &version)
		return fmt.Sprint(id, " ", version), err
	}, `SELECT session_id, version FROM multiplayer_action`)
	r.ok(err)
	there := make(map[string]int)
	for _, line := range stored {
		there[line]++
	}
	for _, line := range acknowledged {
		if there[line] != 1 {
			t.Errorf("%q was acknowledged and is there %d times", line, there[line])
		}
	}

	type left struct{ id, players string }
	live, err := database.All(ctx, db, func(row database.Scanner) (l left, err error) { return l, row.Scan(&l.id, &l.players) },
		`SELECT id, players FROM multiplayer_session WHERE phase = 'active' ORDER BY id`)
	r.ok(err)
	for _, l := range live[:len(live)/2] {
		r.finish(l.id, strings.Split(strings.Trim(l.players, `[]"`), `","`)...)
	}
	r.clock.Advance(25 * time.Hour)
	r.runJobs()

	var unfinished, holds int
	r.ok(db.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM multiplayer_session WHERE phase IN ('open', 'active')),
		(SELECT COUNT(*) FROM ledger_hold WHERE status = 'open')`).Scan(&unfinished, &holds))
	if unfinished != 0 || holds != 0 {
		t.Errorf("%d sessions are not over, %d holds are open", unfinished, holds)
	}
	ids, err := database.All(ctx, db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
		`SELECT id FROM multiplayer_session`)
	r.ok(err)
	for _, id := range ids {
		r.replays(id)
	}
	var balance, gifts int64
	r.ok(db.QueryRow(ctx, `SELECT (SELECT CAST(SUM(balance) AS BIGINT) FROM ledger_account),
		(SELECT CAST(SUM(amount) AS BIGINT) FROM ledger_transaction WHERE ref LIKE 'gift-%')`).Scan(&balance, &gifts))
	if balance != gifts {
		t.Errorf("of %d coins %d are left", gifts, balance)
	}
	r.ok(errorOf(db.Exec(ctx, `ANALYZE`))) // autovacuum would have done so on a real server
	report, err := r.ledger.Verify(ctx)
	if err == nil {
		err = report.Err()
	}
	r.ok(err)
	r.ok(r.close(context.Background()))
}

// TestMain makes this binary a node that plays matches until it is killed.
func TestMain(m *testing.M) {
	if address := os.Getenv("MULTIPLAYER_TEST_CHILD"); address != "" {
		playMatches(address)
	}
	if os.Getenv(holder) != "" {
		holdSockets(os.Stdin)
	}
	os.Exit(m.Run())
}

// playMatches plays 200 matches at a time, repeatedly, and prints every action that was
// acknowledged. Each line is one write to a pipe, which is atomic.
func playMatches(address string) {
	db, err := openAddress(address)
	if err != nil {
		log.Fatal(err)
	}
	r := &rig{db: db, clock: kittest.NewClock(), log: &logged{}}
	if err := r.build(trickConfig()); err != nil {
		log.Fatal(err)
	}
	run := crand.Text()
	var group sync.WaitGroup
	for i := range crashMatches {
		group.Go(func() {
			a, b := fmt.Sprintf("%s-%d-a", run, i), fmt.Sprintf("%s-%d-b", run, i)
			for _, user := range []string{a, b} {
				must(r.ledger.Credit(context.Background(), ledger.Entry{UserID: user, Currency: "coins", Amount: crashGift, Ref: "gift-" + user}))
			}
			for {
				playMatch(r, a, b)
			}
		})
	}
	group.Wait()
}

func playMatch(r *rig, a, b string) {
	ctx := context.Background()
	id := must(r.Create(ctx, "staked", a)).ID
	must(r.Join(ctx, id, b))
	for {
		for _, user := range []string{a, b} {
			ack, err := r.play(id, user, trickMove{})
			switch {
			case errors.Is(err, multiplayer.ErrInvalidTransition):
				return
			case err != nil:
				log.Fatal(err)
			}
			_, _ = fmt.Fprintln(os.Stdout, id, ack.Version)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
