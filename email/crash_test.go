package email_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/emersion/go-message"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
)

// The environment of a child process.
const (
	childPath  = "KIT_TEST_EMAIL_CHILD"
	childPort  = "KIT_TEST_EMAIL_PORT"
	childLater = "KIT_TEST_EMAIL_LATER"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		work(path)
		return
	}
	os.Exit(m.Run())
}

// work sends what is queued in the file at path until it is killed. Later is by
// how many minutes its clock is ahead, so that leases of the dead have ended.
func work(path string) {
	port, _ := strconv.Atoi(os.Getenv(childPort))
	later, _ := strconv.Atoi(os.Getenv(childLater))
	db, err := database.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	e, queue := onFile(db, port, func() time.Time { return time.Now().Add(time.Duration(later) * time.Minute) })
	if err := queue.Register(e.Capability().Jobs...); err != nil {
		log.Fatal(err)
	}
	if err := queue.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func onFile(db *database.DB, port int, now func() time.Time) (*email.Email, *jobs.Queue) {
	db.UseClock(now)
	quiet := slog.New(slog.DiscardHandler)
	queue := jobs.New(db, nil, jobs.Options{Log: quiet, Now: now})
	transport, err := email.NewSMTP(email.SMTP{Host: "127.0.0.1", Port: port, TLS: "none"})
	if err != nil {
		log.Fatal(err)
	}
	e, err := email.New(capability.Host{
		DB: db, Jobs: queue, Log: quiet, Now: now, Environment: "test", Sealing: sealing, Hooks: hooks.New(), BaseURL: &url.URL{Scheme: "https", Host: "app.example"},
	}, email.Config{From: "hello@acme.example", Providers: []email.Provider{{Name: "relay", Transport: transport, PerSecond: -1}}},
		email.Peers{})
	if err != nil {
		log.Fatal(err)
	}
	return e, queue
}

// TestKill kills the process with kill -9, again and again, while 1,000 mails go
// out. None is lost. None arrives twice except those that were under way at a
// kill, and they carry the same Message-ID.
func TestKill(t *testing.T) {
	const mails = 1000
	arrived := make(chan string, 4*mails)
	srv := serve(t, func(step, value string) error {
		if step == "data" {
			entity, err := message.Read(bytes.NewReader([]byte(value)))
			if err != nil {
				return err
			}
			arrived <- entity.Header.Get("To") + " " + entity.Header.Get("Message-Id")
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "kit.db")
	enqueue(t, path, srv.addr.Port, mails)

	seen, repeated, underWay := map[string]int{}, 0, 0
	count := func(line string) {
		if seen[line]++; seen[line] > 1 {
			repeated++
		}
	}
	for round := 0; len(seen) < mails; round++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childPath+"="+path, childPort+"="+strconv.Itoa(srv.addr.Port), childLater+"="+strconv.Itoa(2*round))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timeout := time.NewTimer(time.Minute)
		for n := 0; len(seen) < mails && (round >= 5 || n < 100+20*round); n++ {
			select {
			case line := <-arrived:
				count(line)
			case <-timeout.C:
				_ = cmd.Process.Kill()
				t.Fatalf("%d of %d arrived, then nothing", len(seen), mails)
			}
		}
		timeout.Stop()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		for done := false; !done; { // what the server had already accepted
			select {
			case line := <-arrived:
				count(line)
			default:
				done = true
			}
		}
		underWay += running(t, path)
	}
	byAddress := map[string]bool{}
	for line := range seen {
		var to, id string
		if _, err := fmt.Sscan(line, &to, &id); err != nil {
			t.Fatal(line, err)
		}
		if byAddress[to] {
			t.Errorf("%s got mail under two ids", to)
		}
		byAddress[to] = true
	}
	if len(byAddress) != mails {
		t.Errorf("%d of %d arrived", len(byAddress), mails)
	}
	if repeated > underWay {
		t.Errorf("%d arrived again, with only %d under way at the kills", repeated, underWay)
	}
	t.Logf("%d mails, %d under way at the kills, %d of them arrived again", mails, underWay, repeated)
}

func enqueue(t *testing.T, path string, port, n int) {
	t.Helper()
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e, queue := onFile(db, port, time.Now)
	if err := queue.Register(e.Capability().Jobs...); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context(), jobs.Migrations(), database.Migrations{Name: "email", FS: e.Capability().Migrations}); err != nil {
		t.Fatal(err)
	}
	err = db.InTx(t.Context(), func(ctx context.Context) error {
		for i := range n {
			if _, err := e.Send(ctx, hello(fmt.Sprintf("u%d@example.com", i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// running counts the messages that were under way when the process died.
func running(t *testing.T, path string) (n int) {
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
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM email_job WHERE state = 'sending'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
