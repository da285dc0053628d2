package matchmaking_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

// childFile is the environment variable of a child process with the path of its database.
const childFile = "MATCHMAKING_TEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		queueChild(path)
	}
	os.Exit(m.Run())
}

// TestKill kills a process with kill -9 while players enter the queue and matches are swept and
// formed, repeatedly on one file. At the end every player whose ticket was acknowledged is in one
// session; one may be left over.
func TestKill(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	path := filepath.Join(t.TempDir(), "kit.db")
	var users []string
	for range rounds {
		users = append(users, processtest.Kill(t, sweepingChild(path), rand.IntN(150)+20)...)
	}

	end := quick() // the time of the next start, after the leases of the dead process have ended
	k, done := openQueue(path, func() time.Time { return end })
	defer done()
	for range 90 {
		end = end.Add(time.Second)
		if _, err := k.Jobs().RunDue(ctx); err != nil {
			t.Fatal(err)
		}
	}
	waiting := 0
	sessions := make(map[string]int)
	for _, user := range users {
		var state, match string // from the row: the API returns it for ten minutes only, and this clock is fast
		row := k.Database().QueryRow(ctx, `SELECT state, match_id FROM matchmaking_ticket WHERE user_id = $1`, user)
		if err := row.Scan(&state, &match); err != nil {
			t.Fatalf("%s is lost: %v", user, err)
		}
		if state == "waiting" {
			waiting++
			continue
		}
		view, err := k.Multiplayer().View(ctx, match, user)
		if err != nil || len(view.Players) != 2 {
			t.Fatalf("%s is %s in %s with %v: %v", user, state, match, view.Players, err)
		}
		sessions[match]++
	}
	// The last players may be there although their acknowledgement was lost.
	unknown := 0
	for id, n := range sessions {
		if n > 2 {
			t.Errorf("session %s has %d players", id, n)
		}
		if n == 1 {
			unknown++
		}
	}
	if waiting > 1 {
		t.Errorf("%d players still wait", waiting)
	}
	t.Logf("%d players acknowledged in %d rounds, %d sessions, %d with a player who was not, %d waiting", len(users), rounds, len(sessions), unknown, waiting)
}

// sweepingChild returns the command that runs this test binary as another node.
func sweepingChild(path string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+path)
	return cmd
}

// quick is a clock that runs twenty times as fast, the same in every process, so that sweeps follow
// each other quickly.
func quick() time.Time {
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return epoch.Add(20 * time.Since(epoch))
}

// openQueue composes the capabilities that TestKill needs, on a file.
func openQueue(path string, now func() time.Time) (k *kit.Kit, done func()) {
	db, err := database.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	k, err = kit.New(
		kit.WithDatabase(db), kit.WithClock(now), kit.WithEnvironment("test"), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{duelModel()}}),
		kit.WithMatchmaking(matchmaking.Config{Games: []matchmaking.Game{{
			Key: "duel", Players: 2, Snapshot: &multiplayer.Game{Kind: "duel", Rules: duelRules{}},
			Queue: matchmaking.Queue{SweepSeconds: 1, MaxWaitSeconds: 24 * 60 * 60},
		}}}))
	if err != nil {
		log.Fatal(err)
	}
	return k, func() { _, _ = k.Close(context.Background()), db.Close() }
}

// queueChild runs a node, and enqueues players and prints each once it is acknowledged, until it is
// killed.
func queueChild(path string) {
	k, _ := openQueue(path, quick)
	go func() { log.Fatal(k.Run(ctx)) }()
	var n atomic.Int64
	for range 4 {
		go func() {
			for {
				user := fmt.Sprintf("user-%d-%d", os.Getpid(), n.Add(1))
				if _, err := k.Matchmaking().Enqueue(ctx, "duel", "", user); err != nil {
					log.Fatal(err)
				}
				fmt.Println(user)
			}
		}()
	}
	select {}
}
