package events_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/kittest"
)

// The environment variables that make the test binary run as the process to be killed.
const (
	killDatabase = "EVENTS_KILL_DATABASE" // a file or the address of PostgreSQL
	killReceiver = "EVENTS_KILL_RECEIVER"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(killDatabase); address != "" {
		log.Fatal(child(address, os.Getenv(killReceiver)))
	}
	os.Exit(m.Run())
}

func openAt(address string) (*database.DB, error) {
	if strings.HasPrefix(address, "postgres") {
		return postgres.Open(context.Background(), address, postgres.WithConnections(4))
	}
	return database.OpenFile(address)
}

func serving(db *database.DB, receiver string, now func() time.Time) (*kit.Kit, error) {
	return kit.New(kit.WithDatabase(db), kit.WithClock(now), kit.WithLogger(slog.New(slog.DiscardHandler)), kit.WithAuth(auth.Config{}), kit.WithEvents(events.Config{
		Endpoints: []events.Endpoint{{Name: "crm", URL: receiver, Secret: secret, Private: true, Events: []string{"user.created"}}}}))
}

// child creates users and delivers until it is killed. It prints the id of each user when it is
// committed.
func child(address, receiver string) error {
	db, err := openAt(address)
	if err != nil {
		return err
	}
	k, err := serving(db, receiver, time.Now)
	if err != nil {
		return err
	}
	ctx := context.Background()
	go func() { log.Fatal(k.Run(ctx)) }()
	for i := 0; ; i++ {
		id := fmt.Sprintf("u%d-%d", os.Getpid(), i)
		if _, err := k.Auth().CreateUser(ctx, auth.NewUser{ID: id}); err != nil {
			return err
		}
		_, _ = os.Stdout.WriteString(id + "\n")
	}
}

// TestKill kills a process while it creates users and delivers. After a restart the endpoint
// receives the events of every acknowledged user, and of no user that does not exist.
func TestKill(t *testing.T) {
	for name, address := range map[string]func(t *testing.T) string{
		"file":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "kit.db") },
		"postgres": func(t *testing.T) string { address, _ := processtest.Database(t); return address },
	} {
		t.Run(name, func(t *testing.T) {
			r, at := newReceiver(t), address(t)
			var made []string
			for round := range 2 {
				command := exec.CommandContext(t.Context(), os.Args[0])
				command.Env = append(os.Environ(), killDatabase+"="+at, killReceiver+"="+r.URL)
				made = append(made, processtest.Kill(t, command, 20+30*round)...)
			}
			db, err := openAt(at)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			clock := kittest.NewClock()
			clock.Advance(time.Since(clock.Now()))
			k, err := serving(db, r.URL, clock.Now)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close(context.Background())
			users := finish(t, db, k, clock)
			told := make(map[string]bool)
			for _, one := range r.got {
				id, _, _ := strings.Cut(strings.TrimPrefix(string(one.Data), `{"userId":"`), `"`)
				told[id] = true
			}
			for _, id := range made {
				if !told[id] || !slices.Contains(users, id) {
					t.Errorf("%s was acknowledged; told: %v, there: %v", id, told[id], slices.Contains(users, id))
				}
			}
			if len(told) != len(users) {
				t.Errorf("told of %d users, there are %d", len(told), len(users))
			}
		})
	}
}

// finish delivers the remaining messages, on a clock that advances past the leases of the killed
// process, and returns the users.
func finish(t *testing.T, db *database.DB, k *kit.Kit, clock *kittest.Clock) []string {
	t.Helper()
	for range 5 {
		if _, err := k.Jobs().RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.Advance(10 * time.Minute)
	}
	users, err := database.All(t.Context(), db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) }, `SELECT id FROM auth_user`)
	if err != nil {
		t.Fatal(err)
	}
	return users
}
