package email_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/emersion/go-message"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/jobs"
)

const childVariable = "KIT_TEST_EMAIL_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var at sender
		if err := json.Unmarshal([]byte(text), &at); err != nil {
			log.Fatal(err)
		}
		at.work()
		return
	}
	os.Exit(m.Run())
}

// sender is a process that sends the queue of a database until it is killed. Later is how many
// minutes its clock is ahead, so that leases of killed processes have expired.
type sender struct {
	Address     string
	Port, Later int
}

func (s sender) work() {
	_, _, queue := s.open(os.Stdout)
	if err := queue.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// open composes email on the database; it writes a line for each accepted message.
func (s sender) open(accepted io.Writer) (*database.DB, *email.Email, *jobs.Queue) {
	db, err := processtest.Open(s.Address)
	if err != nil {
		log.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(s.Later) * time.Minute) }
	db.UseClock(now)
	quiet := slog.New(slog.DiscardHandler)
	queue := jobs.New(db, nil, jobs.Options{Log: quiet, Now: now})
	transport, err := email.NewSMTP(email.SMTP{Host: "127.0.0.1", Port: s.Port, TLS: "none"})
	if err != nil {
		log.Fatal(err)
	}
	e, err := email.New(capability.Host{
		DB: db, Jobs: queue, Log: quiet, Now: now, Environment: "test", Sealing: sealing, Hooks: hooks.New(), BaseURL: &url.URL{Scheme: "https", Host: "app.example"},
	}, email.Config{From: "hello@acme.example", Providers: []email.Provider{{Name: "relay", Transport: printing{transport, accepted}, PerSecond: -1}}},
		email.Peers{})
	if err != nil {
		log.Fatal(err)
	}
	if err := queue.Register(e.Capability().Jobs...); err != nil {
		log.Fatal(err)
	}
	return db, e, queue
}

type printing struct {
	email.Transport
	out io.Writer
}

func (p printing) Deliver(ctx context.Context, m email.Envelope) (string, error) {
	id, err := p.Transport.Deliver(ctx, m)
	if err == nil {
		fmt.Fprintln(p.out, "accepted")
	}
	return id, err
}

// TestKill kills the process with kill -9 repeatedly while mails are sent. None is lost. None
// arrives twice except those in progress at a kill, which have the same Message-ID.
func TestKill(t *testing.T) { processtest.Each(t, killed) }

func killed(t *testing.T, address string) {
	const mails, atOnce = 400, 40
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
	enqueue(t, sender{Address: address}, mails)

	kills, underWay := 0, 0
	// Keep more mails queued than a killed process may still affect: what it has sent is recorded
	// after its death.
	for waiting := mails; waiting >= atOnce+50; kills++ {
		text, err := json.Marshal(sender{address, srv.addr.Port, 2 * kills})
		if err != nil {
			t.Fatal(err)
		}
		processtest.Kill(t, processtest.Again(childVariable, string(text)), atOnce)
		db, err := processtest.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		var sending int
		waiting, sending = unsent(t, db)
		underWay += sending
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sendRest(t, sender{address, srv.addr.Port, 2 * kills})
	seen, repeated := map[string]int{}, 0
	for len(arrived) > 0 {
		line := <-arrived
		if seen[line]++; seen[line] > 1 {
			repeated++
		}
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
	t.Logf("%d mails, %d kills, %d under way at them, %d of those arrived again", mails, kills, underWay, repeated)
}

// sendRest sends all queued mails. Rows that a killed process has locked are only free once its
// server has noticed.
func sendRest(t *testing.T, s sender) {
	t.Helper()
	db, _, queue := s.open(io.Discard)
	for waiting, began := 1, time.Now(); waiting > 0 && time.Since(began) < time.Minute; waiting, _ = unsent(t, db) {
		if _, err := queue.RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, s sender, n int) {
	t.Helper()
	db, e, _ := s.open(io.Discard)
	if err := db.Migrate(t.Context(), jobs.Migrations(), database.Migrations{Name: "email", FS: e.Capability().Migrations}); err != nil {
		t.Fatal(err)
	}
	err := db.InTx(t.Context(), func(ctx context.Context) error {
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

// unsent counts the messages without an outcome, and those of them that were in progress when the
// process was killed.
func unsent(t *testing.T, db *database.DB) (waiting, sending int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*), count(CASE WHEN state = 'sending' THEN 1 END) FROM email_job
		WHERE state IN ('queued', 'sending')`).Scan(&waiting, &sending); err != nil {
		t.Fatal(err)
	}
	return waiting, sending
}
