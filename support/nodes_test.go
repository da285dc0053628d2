package support_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
	"github.com/kitbackend/kit/support"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("SUPPORT_TEST_CHILD"); path != "" {
		receiveUntilKilled(path)
		return
	}
	if path := os.Getenv("SUPPORT_TEST_HOLD"); path != "" {
		holdAMail(path)
		return
	}
	os.Exit(m.Run())
}

// TestTwoNodes lets two kits on one PostgreSQL receive the same mails, reply once, and classify
// once.
func TestTwoNodes(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	nodes := []*kittest.Kit{desk(t, support.Config{}, kit.WithDatabase(dbs[0])), desk(t, support.Config{}, kit.WithDatabase(dbs[1]))}
	const mails = 20
	var wg sync.WaitGroup
	threads := make([][2]string, mails)
	for n, k := range nodes {
		for i := range mails {
			wg.Go(func() {
				from := fmt.Sprintf("p%d@customer.example", i)
				got, err := k.Support().Receive(context.Background(), support.Envelope{From: from, To: []string{inbox}}, []byte(mail(from, "Refund", "Refund me.")))
				if err != nil {
					t.Error(err)
				}
				threads[i][n] = got.ThreadID
			})
		}
	}
	wg.Wait()
	for i, pair := range threads {
		if pair[0] != pair[1] || pair[0] == "" {
			t.Errorf("mail %d is in %v", i, pair)
		}
	}
	if n := count(t, nodes[0]); n != mails {
		t.Errorf("%d threads, want %d", n, mails)
	}
	for _, k := range nodes {
		wg.Go(func() { k.RunJobs() })
	}
	wg.Wait()
	var classified int
	if err := dbs[0].QueryRow(t.Context(), `SELECT count(*) FROM support_thread WHERE classified_by = 'fallback' AND classified_count = 1`).Scan(&classified); err != nil || classified != mails {
		t.Errorf("%d classified, want %d; %v", classified, mails, err)
	}
	for i := range 8 {
		wg.Go(func() {
			_, err := nodes[i%2].Support().Reply(context.Background(), support.Reply{ThreadID: threads[0][0], Message: "Done.", IdempotencyKey: "one"})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := thread(t, nodes[1], threads[0][0]); got.MessageCount != 2 || len(got.Messages) != 2 {
		t.Errorf("%d messages, want the mail and one reply", len(got.Messages))
	}
	var jobs int
	if err := dbs[0].QueryRow(t.Context(), `SELECT count(*) FROM email_job`).Scan(&jobs); err != nil || jobs != 1 {
		t.Errorf("%d mails, want one; %v", jobs, err)
	}
}

// TestAThreadsMessagesAtOnce receives a person's mails of one thread concurrently.
func TestAThreadsMessagesAtOnce(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		from := "grace@customer.example"
		first := receive(t, k, from, mail(from, "Help", "Help.", "Message-ID: <1@customer.example>"))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				raw := mail(from, "Re: Help", "More.", "References: <1@customer.example>", fmt.Sprintf("Message-ID: <m%d@customer.example>", i))
				if _, err := k.Support().Receive(context.Background(), support.Envelope{From: from, To: []string{inbox}}, []byte(raw)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := thread(t, k, first.ThreadID); got.MessageCount != 9 || len(got.Messages) != 9 {
			t.Errorf("%d counted, %d there, want 9", got.MessageCount, len(got.Messages))
		}
	})
}

func composed(db *database.DB, opts ...kit.Option) (*kit.Kit, error) {
	return kit.New(append(opts, kit.WithDatabase(db), kit.WithLogger(slog.New(slog.DiscardHandler)), kit.WithAudit(audit.Config{}), kit.WithEmail(email.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithSupport(support.Config{InboundAddresses: []string{inbox}, Guard: support.Guard{MaxPerHour: 1 << 30}}))...)
}

// receiveUntilKilled stores mails and prints the thread of each acknowledged one. It runs no job.
func receiveUntilKilled(path string) {
	db, err := database.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	k, err := composed(db)
	if err != nil {
		log.Fatal(err)
	}
	for i := 0; ; i++ {
		from := fmt.Sprintf("p%d-%d@customer.example", os.Getpid(), i)
		got, err := k.Support().Receive(context.Background(), support.Envelope{From: from, To: []string{inbox}}, []byte(mail(from, "Refund", "Refund me.")))
		if err != nil {
			log.Fatal(err)
		}
		_, _ = os.Stdout.WriteString(got.ThreadID + "\n")
	}
}

// TestKillBetweenStoreAndClassify kills the process that receives mail; the next process has the
// acknowledged mails and classifies them.
func TestKillBetweenStoreAndClassify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "SUPPORT_TEST_CHILD="+path)
	acknowledged := processtest.Kill(t, child, 30)
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	k, err := composed(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Jobs().RunDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range acknowledged {
		detail, err := k.Support().Thread(t.Context(), strings.TrimSpace(id))
		if err != nil || detail.By != support.ClassifierFallback || detail.Category != support.CategoryBilling {
			t.Errorf("%s: %s by %s, %v", id, detail.Category, detail.By, err)
		}
	}
	if len(acknowledged) < 30 {
		t.Errorf("%d mails acknowledged", len(acknowledged))
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// holdAMail receives a mail with a file and waits in its transaction.
func holdAMail(path string) {
	db, err := database.OpenFile(path)
	if err != nil {
		log.Fatal(err)
	}
	k, err := composed(db, kit.WithStorage(storage.Config{Bucket: file.New(path + ".objects")}))
	if err != nil {
		log.Fatal(err)
	}
	k.Hooks().SupportReceived.In(func(context.Context, hooks.SupportReceived) error {
		_, _ = os.Stdout.WriteString("received\n")
		select {}
	})
	raw := multipart("mixed", "Content-Type: text/plain\n\ntext", "Content-Type: image/png; name=p.png\n\nhello")
	_, err = k.Support().Receive(context.Background(), support.Envelope{From: "a@b.example", To: []string{inbox}}, []byte(raw))
	log.Fatal(err)
}

// TestKillLeavesNoFileWithoutItsMessage kills the process that receives a mail before the message
// commits: its file is one that storage expires.
func TestKillLeavesNoFileWithoutItsMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "SUPPORT_TEST_HOLD="+path)
	processtest.Kill(t, child, 1)
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var messages, objects, ready int
	if err := db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM support_message), count(*), count(CASE WHEN state = 'ready' THEN 1 END)
		FROM storage_object`).Scan(&messages, &objects, &ready); err != nil {
		t.Fatal(err)
	}
	if messages != 0 || objects != 1 || ready != 0 {
		t.Errorf("%d messages, %d files, %d of them ready; want one file that is not", messages, objects, ready)
	}
}

// TestPlans checks that every list uses its index, with some thousand threads.
func TestPlans(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := desk(t, support.Config{}, kit.WithDatabase(db))
		fill(t, db, 3000)
		for name, f := range map[string]support.Filter{
			"all": {}, "state": {State: support.StateOpen}, "category": {Category: "billing"}, "flag": {Flag: "starred"},
			"assignee": {Assignee: "s1"}, "user": {UserID: "u1"},
		} {
			began := time.Now()
			items, err := k.Support().ListThreads(t.Context(), f, capability.NewPage(50, ""))
			if err != nil || len(items.Items) == 0 {
				t.Errorf("%s: %d threads, %v", name, len(items.Items), err)
			}
			t.Logf("%s: %s", name, time.Since(began))
		}
		for name, condition := range map[string]string{
			"all": "t.state <> ''", "state": "t.state = 'open'", "category": "t.category = 'billing'", "priority": "t.priority = 'urgent'",
			"channel": "t.channel = 'app'", "starred": "t.starred", "needsReply": "t.needs_reply", "snoozed": "t.snoozed_until > 0",
			"assignee": "t.assignee = 's1' AND t.assignee <> ''", "user": "t.user_id = 'u1' AND t.user_id <> ''",
		} {
			if name == "all" && db.Dialect() == database.SQLite {
				continue
			}
			databasetest.Seeks(t, db, "", `SELECT t.id FROM support_thread t WHERE (t.last_at, t.id) < ($1, $2) AND `+condition+
				` ORDER BY t.last_at DESC, t.id DESC LIMIT 51`, int64(1)<<53, "")
		}
	})
}

// fill inserts threads without messages, some thousand in each statement.
func fill(t testing.TB, db *database.DB, n int) {
	t.Helper()
	numbers := database.Text("WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < $1) SELECT i + $2 AS i FROM g", "SELECT i + $2::bigint AS i FROM generate_series(1, $1::bigint) AS g(i)")
	for done := 0; done < n; done += 5000 {
		some := min(n-done, 5000)
		_, err := db.Exec(t.Context(), `INSERT INTO support_thread SELECT 't' || i, CASE WHEN i % 2 = 0 THEN 'app' ELSE 'email' END,
		'open', 'Subject ' || i, 'u' || (i % 50), 'a' || i || '@b.example', 'a' || i || '@b.example', '', FALSE, '', '', '',
		CASE WHEN i % 8 = 0 THEN 'billing' ELSE 'uncategorized' END, CASE WHEN i % 10 = 0 THEN 'urgent' ELSE 'normal' END, 'neutral', '', 0,
		'fallback', 1, 1, FALSE, i % 100 = 0, i % 3 = 0, FALSE, FALSE, CASE WHEN i % 20 = 0 THEN 's' || (i % 3) ELSE '' END,
		CASE WHEN i % 50 = 0 THEN i ELSE 0 END, 1, 0, i, 0, i, i, 0 FROM (`+numbers+`) AS numbers`, some, done)
		if err != nil {
			t.Fatal(err)
		}
	}
	if db.Dialect() == database.PostgreSQL {
		if _, err := db.Exec(t.Context(), `ANALYZE support_thread`); err != nil {
			t.Fatal(err)
		}
	}
}

// TestErasureMeetsAMessage erases a thread while a mail with a file is written to it, and while it
// is replied to.
func TestErasureMeetsAMessage(t *testing.T) {
	type step func(context.Context) error
	for name, write := range map[string]func(k *kittest.Kit, db *database.DB, thread string, meanwhile step) error{
		"a mail": func(k *kittest.Kit, _ *database.DB, _ string, meanwhile step) error {
			k.Hooks().SupportReceived.In(func(ctx context.Context, _ hooks.SupportReceived) error { return meanwhile(ctx) })
			raw := "References: <1@customer.example>\n" + multipart("mixed", "Content-Type: image/png; name=p.png\n\nhello")
			_, err := k.Support().Receive(t.Context(), support.Envelope{From: "a@b.example", To: []string{inbox}}, []byte(raw))
			return err
		},
		"a reply": func(k *kittest.Kit, db *database.DB, thread string, meanwhile step) error {
			return db.InTx(t.Context(), func(ctx context.Context) error {
				_, err := k.Support().Reply(ctx, support.Reply{ThreadID: thread, Message: "Dear Ada."})
				return errors.Join(err, meanwhile(ctx))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := databasetest.Postgres(t)
			k := desk(t, support.Config{}, kit.WithDatabase(db), kit.WithStorage(storage.Config{}))
			first := receive(t, k, "a@b.example", mail("a@b.example", "Help", "Help.", "Message-ID: <1@customer.example>"))
			erased := make(chan error, 1)
			if err := write(k, db, first.ThreadID, func(ctx context.Context) error {
				go func() {
					_, err := k.Support().Erase(context.Background(), capability.Person{ID: "ada", Emails: []string{"a@b.example"}})
					erased <- err
				}()
				return databasetest.Waits(ctx, db, erased)
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-erased; err != nil {
				t.Fatal(err)
			}
			for _, table := range []string{"support_message", "support_attachment", "storage_object"} {
				var left int
				if err := db.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&left); err != nil || left != 0 {
					t.Errorf("%d rows are left in %s, %v", left, table, err)
				}
			}
		})
	}
}
