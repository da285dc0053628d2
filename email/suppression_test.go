package email_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
)

// newsTo returns a list message.
func newsTo(to string) email.Message {
	m := hello(to)
	m.Category = email.CategoryList
	return m
}

// soften makes an address soft-bounce until it is temporarily suppressed.
func (s *setup) soften(to string) {
	s.t.Helper()
	for i := range 3 {
		m := hello(to)
		m.MessageID = fmt.Sprintf("<soft-%d@acme.example>", i)
		s.send(m)
		s.runJobs()
		if n, err := s.Ingest(s.t.Context(), []email.Report{{Kind: email.ReportSoftBounce, MessageID: m.MessageID}}); err != nil || n != 1 {
			s.t.Fatalf("%d reports applied, %v", n, err)
		}
	}
}

// TestSuppressionsEndByThemselves checks that a soft bounce and an unsubscription neither widen nor
// extend each other.
func TestSuppressionsEndByThemselves(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		if _, _, err := s.Suppress(t.Context(), "ada@example.com", email.ScopeList, "asked by phone"); err != nil {
			t.Fatal(err)
		}
		s.soften("ada@example.com")
		s.wantState(s.send(hello("ada@example.com")), email.StateSuppressed)
		s.clock.Advance(31 * 24 * time.Hour)
		reset := s.send(hello("ada@example.com"))
		s.runJobs()
		s.wantState(reset, email.StateSent)
		s.wantState(s.send(newsTo("ada@example.com")), email.StateSuppressed)
	})
}

// TestLiftingKeepsUnsubscription checks that removing a hard bounce does not resubscribe a
// recipient, and that the reader's own link removes only the reader's own unsubscription.
func TestLiftingKeepsUnsubscription(t *testing.T) {
	m := mount(t, email.Config{})
	form := m.Anonymous().With("Content-Type", "application/x-www-form-urlencoded")
	link := unsubscribeLink(m.delivered(newsletter()))
	form.Post(link, "List-Unsubscribe=One-Click").Want(200, "")
	if _, err := m.mail.Ingest(t.Context(), []email.Report{{Kind: email.ReportHardBounce, Recipient: "ada@example.com"}}); err != nil {
		t.Fatal(err)
	}
	if err := m.mail.Unsuppress(t.Context(), "ada@example.com", false); err != nil {
		t.Fatal(err)
	}
	if scope := m.suppressed("ada@example.com"); scope != "list" {
		t.Errorf("the unsubscription is %q after the bounce was lifted, want list", scope)
	}
	wantRefusal(t, m.mail.Unsuppress(t.Context(), "ada@example.com", false), email.ErrProtected)

	if _, _, err := m.mail.Suppress(t.Context(), "ada@example.com", email.ScopeList, "the operator's"); err != nil {
		t.Fatal(err)
	}
	form.Post(link, "do=resubscribe")
	if s, held, err := m.mail.Suppression(t.Context(), "ada@example.com"); err != nil || !held || s.Reason != email.ReasonManual {
		t.Errorf("the reader took the operator's suppression away: %+v %v", s, err)
	}
	if err := m.mail.Unsuppress(t.Context(), "ada@example.com", true); err != nil {
		t.Fatal(err)
	}
	if scope := m.suppressed("ada@example.com"); scope != "" {
		t.Errorf("force left %q", scope)
	}
}

// TestRecipientLimitHoldsOverNodes checks that concurrent nodes never exceed the limit of an
// address, and that one quota does not use up another.
func TestRecipientLimitHoldsOverNodes(t *testing.T) {
	run := func(t *testing.T, nodes ...*database.DB) {
		const limit = 5
		a := open(t, nodes[0], email.Config{PerRecipientPerHour: limit})
		b := openAt(t, nodes[len(nodes)-1], a.clock, email.Config{PerRecipientPerHour: limit})
		var mu sync.Mutex
		sent := 0
		var wg sync.WaitGroup
		for i := range 4 * limit {
			wg.Go(func() {
				_, err := []*setup{a, b}[i%2].Send(context.Background(), hello("ada@example.com"))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					sent++
				} else if !errors.Is(err, email.ErrRateLimited) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if sent != limit {
			t.Errorf("%d mails to one address, the limit is %d", sent, limit)
		}
		own := hello("ada@example.com")
		own.Quota = "known-client"
		if _, err := a.Send(t.Context(), own); err != nil {
			t.Errorf("another quota: %v", err)
		}
	}
	t.Run("one node", func(t *testing.T) { run(t, databasetest.Memory(t)) })
	t.Run("two nodes", func(t *testing.T) { run(t, databasetest.Shared(t, 2)...) })
}

// TestTrailHoldsNoAddress checks that audit events of suppressions identify an address by a keyed
// hash, always the same.
func TestTrailHoldsNoAddress(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		host := capabilitytest.NewHost(t, db)
		trail, err := audit.New(host, audit.Config{}, audit.Peers{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := email.New(host, email.Config{}, email.Peers{Audit: trail})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Migrate(t.Context(), database.Migrations{Name: "audit", FS: trail.Capability().Migrations},
			database.Migrations{Name: "email", FS: e.Capability().Migrations}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.Suppress(t.Context(), "Ada@Example.com", email.ScopeAll, "of ada@example.com"); err != nil {
			t.Fatal(err)
		}
		if err := e.Unsuppress(t.Context(), "ada@example.com", false); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if n, err := trail.Export(t.Context(), &out, audit.Filter{Namespace: "email"}); err != nil || n != 2 {
			t.Fatalf("%d events, %v", n, err)
		}
		if strings.Contains(strings.ToLower(out.String()), "ada@") {
			t.Errorf("the trail holds the address: %s", out.String())
		}
		events, err := trail.ListEvents(t.Context(), audit.Filter{}, capability.NewPage(0, ""))
		if err != nil || len(events.Items) != 2 || events.Items[0].Subject != events.Items[1].Subject {
			t.Errorf("%+v %v", events, err)
		}
	})
}

// TestHooksOfSuppressions checks that hooks run inside the transaction, and that an error of a hook
// rolls it back.
func TestHooksOfSuppressions(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		var heard []hooks.MailSuppressed
		refuse := errors.New("refused by a hook")
		s.hooks.MailSuppressed.In(func(ctx context.Context, event hooks.MailSuppressed) error {
			if event.Address == "eve@example.com" {
				return refuse
			}
			if !db.InTransaction(ctx) {
				t.Error("a hook outside of the transaction")
			}
			return nil
		})
		s.hooks.MailSuppressed.After(func(_ context.Context, event hooks.MailSuppressed) { heard = append(heard, event) })
		m := hello("ada@example.com")
		m.UserID, m.MessageID = "u1", "<m1@acme.example>"
		s.send(m)
		s.runJobs()
		for range 2 {
			if _, err := s.Ingest(t.Context(), []email.Report{{Kind: email.ReportHardBounce, MessageID: m.MessageID}}); err != nil {
				t.Fatal(err)
			}
		}
		want := []hooks.MailSuppressed{{Address: "ada@example.com", Scope: "all", Reason: "hard_bounce", UserID: "u1"}}
		if diff := cmp.Diff(want, heard); diff != "" {
			t.Errorf("told otherwise than once of the bounce:\n%s", diff)
		}
		if _, _, err := s.Suppress(t.Context(), "eve@example.com", email.ScopeAll, ""); !errors.Is(err, refuse) {
			t.Errorf("the hook's error did not refuse: %v", err)
		}
		if _, held, err := s.Suppression(t.Context(), "eve@example.com"); err != nil || held {
			t.Errorf("suppressed against the hook: %v", err)
		}
	})
}

// TestHookOfUnsubscribing checks that a click on the link fires the hook of unsubscriptions, with
// the user.
func TestHookOfUnsubscribing(t *testing.T) {
	m := mount(t, email.Config{})
	var heard []hooks.MailSuppressed
	m.Kit.Hooks().MailUnsubscribed.After(func(_ context.Context, event hooks.MailSuppressed) { heard = append(heard, event) })
	news := newsletter()
	news.UserID = "u1"
	form := m.Anonymous().With("Content-Type", "application/x-www-form-urlencoded")
	link := unsubscribeLink(m.delivered(news))
	for range 2 {
		form.Post(link, "List-Unsubscribe=One-Click").Want(200, "")
	}
	want := []hooks.MailSuppressed{{Address: "ada@example.com", Scope: "list", Reason: "unsubscribe", UserID: "u1"}}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Error(diff)
	}
}

// TestHeldBack checks many addresses at a time.
func TestHeldBack(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		if _, _, err := s.Suppress(t.Context(), "list@example.com", email.ScopeList, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ingest(t.Context(), []email.Report{{Kind: email.ReportComplaint, Recipient: "angry@example.com"}}); err != nil {
			t.Fatal(err)
		}
		asked := []string{"List@Example.com", "angry@example.com", "free@example.com", "nobody"}
		for category, want := range map[email.Category]map[string]email.Reason{
			email.CategoryTransactional: {"angry@example.com": email.ReasonComplaint},
			email.CategoryList:          {"angry@example.com": email.ReasonComplaint, "List@Example.com": email.ReasonManual},
		} {
			held, err := s.HeldBack(t.Context(), category, asked...)
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]email.Reason)
			for address, suppression := range held {
				got[address] = suppression.Reason
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s:\n%s", category, diff)
			}
		}
		_, err := s.HeldBack(t.Context(), email.CategoryList, make([]string, 1001)...)
		wantRefusal(t, err, capability.ErrInvalidRequest)
	})
}

// TestEraseLeavesNoAddress checks that no row contains data of an erased person, and that their
// suppressions still apply.
func TestEraseLeavesNoAddress(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		part := s.Capability()
		waiting := hello("Ada@Example.com")
		waiting.SendAt = s.clock.Now().Add(time.Hour)
		sent := hello("ada@example.com")
		sent.UserID = "u1"
		elsewhere := hello("ada@work.example")
		elsewhere.UserID = "u1"
		other := hello("bob@example.com")
		other.UserID = "u2"
		for _, m := range []email.Message{sent, elsewhere, other} {
			s.send(m)
			s.runJobs()
		}
		s.send(waiting)
		if _, _, err := s.Suppress(t.Context(), "ada@example.com", email.ScopeList, "ada@example.com asked"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ingest(t.Context(), []email.Report{{Kind: email.ReportHardBounce, Recipient: "ada@work.example"}}); err != nil {
			t.Fatal(err)
		}
		person := capability.Person{ID: "u1", Emails: []string{"ada@example.com"}}
		kinds := map[string]int{}
		if err := part.Export(t.Context(), person, func(kind string, record any) error { kinds[kind]++; return nil }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int{"email_job": 3, "email_suppression": 1}, kinds); diff != "" {
			t.Errorf("exported:\n%s", diff)
		}
		for range 2 { // an earlier run may have been killed
			if _, err := part.Erase(t.Context(), person); err != nil {
				t.Fatal(err)
			}
		}
		for _, query := range []string{
			`SELECT count(*) FROM email_job WHERE address_key LIKE 'ada%' OR user_id = 'u1'`,
			`SELECT count(*) FROM email_message WHERE job_id NOT IN (SELECT id FROM email_job)`,
			`SELECT count(*) FROM email_event WHERE job_id NOT IN (SELECT id FROM email_job)`,
			`SELECT count(*) FROM email_suppression WHERE address_key LIKE '%ada@%' OR note <> '' OR job_id <> ''`,
			`SELECT count(*) FROM email_mailbox WHERE address_key LIKE 'ada%'`,
		} {
			var n int
			if err := db.QueryRow(t.Context(), query).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d %v", query, n, err)
			}
		}
		if jobs, err := s.ListJobs(t.Context(), email.JobFilter{}, capability.NewPage(0, "")); err != nil || len(jobs.Items) != 1 {
			t.Errorf("others lost mail: %+v %v", jobs, err)
		}
		s.wantState(s.send(newsTo("ada@example.com")), email.StateSuppressed)
		s.wantState(s.send(hello("ada@work.example")), email.StateSuppressed)
		free := s.send(hello("ada@example.com"))
		s.clock.Advance(2 * time.Hour)
		s.runJobs()
		s.wantState(free, email.StateSent)
	})
}

// TestErasureMeetsAnAttempt checks that an attempt that ends while its job is erased leaves no mail
// behind, whichever commits first, also for an unproved address.
func TestErasureMeetsAnAttempt(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		ctx, box := t.Context(), email.Keep(s.Email)
		envelope := func(userID string) email.Envelope {
			m := hello(userID + "@example.com")
			m.UserID, m.SendAt = userID, s.clock.Now().Add(time.Hour)
			return email.Envelope{JobID: s.send(m), To: m.To, Message: []byte("Subject: hello\r\n\r\n")}
		}
		erase := func(userID string) {
			if _, err := s.Capability().Erase(ctx, capability.Person{ID: userID}); err != nil {
				t.Fatal(err)
			}
		}
		first, second := envelope("ada"), envelope("bob")
		if _, err := box.Deliver(ctx, first); err != nil {
			t.Fatal(err)
		}
		erase("ada")
		erase("bob")
		if _, err := box.Deliver(ctx, second); err == nil {
			t.Error("a mail of a job that is erased was kept")
		}
		for _, e := range []email.Envelope{first, second} {
			if mail, ok, err := s.LastMail(ctx, e.To); err != nil || ok {
				t.Errorf("kept after the erasure: %+v %v", mail, err)
			}
		}
	})
}

// TestErasureMeetsARefusal checks that a mail that is permanently refused while its user is erased
// leaves the address in no suppression, and fires no hook.
func TestErasureMeetsARefusal(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var s *setup
		s = open(t, db, email.Config{Providers: []email.Provider{{Name: "p", PerSecond: -1, Transport: transportFunc(func(context.Context, email.Envelope) (string, error) {
			if _, err := s.Capability().Erase(t.Context(), capability.Person{ID: "ada", Emails: []string{"ada@example.com"}}); err != nil {
				t.Error(err)
			}
			return "", &email.Failure{Kind: email.FailurePermanent, Code: 550, Enhanced: "5.1.1", Message: "no such user"}
		})}}})
		s.hooks.MailSuppressed.In(func(_ context.Context, e hooks.MailSuppressed) error {
			t.Errorf("told of %s", e.Address)
			return nil
		})
		m := hello("ada@example.com")
		m.UserID = "ada"
		s.send(m)
		s.runJobs()
		wantErased(t, db)
	})
}

// TestErasureMeetsABounce checks that a bounce or an unsubscription that is recorded while the
// messages of a user are removed leaves the address in no suppression.
func TestErasureMeetsABounce(t *testing.T) {
	type step func(ctx context.Context, s *setup, mail email.Kept) error
	bounce := func(ctx context.Context, s *setup, mail email.Kept) error {
		_, err := s.Ingest(ctx, []email.Report{{Kind: email.ReportHardBounce, MessageID: mail.Header("Message-Id")}})
		return err
	}
	leave := func(ctx context.Context, s *setup, mail email.Kept) error {
		link := strings.Trim(mail.Header("List-Unsubscribe"), "<>")
		return email.Unsubscribe(ctx, s.Email, link[strings.LastIndexByte(link, '/')+1:])
	}
	erase := func(ctx context.Context, s *setup, _ email.Kept) error {
		_, err := s.Capability().Erase(ctx, capability.Person{ID: "ada", Emails: []string{"ada@example.com"}})
		return err
	}
	for name, steps := range map[string][2]step{
		"a bounce before": {bounce, erase}, "a bounce after": {erase, bounce}, "an unsubscription": {leave, erase},
	} {
		t.Run(name, func(t *testing.T) {
			db := databasetest.Postgres(t)
			s := open(t, db, email.Config{})
			m := newsTo("ada@example.com")
			m.UserID = "ada"
			s.send(m)
			s.runJobs()
			mail := s.lastMail("ada@example.com")
			ended := make(chan error, 1)
			if err := db.InTx(t.Context(), func(ctx context.Context) error {
				if err := steps[0](ctx, s, mail); err != nil {
					return err
				}
				go func() { ended <- steps[1](context.Background(), s, mail) }()
				return databasetest.Waits(ctx, db, ended)
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			wantErased(t, db)
		})
	}
}

// TestReportAfterAnErasureStoresNoAddress checks that reports about messages that were erased still
// suppress, by the hash alone, and that others name the address as before.
func TestReportAfterAnErasureStoresNoAddress(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		var told []string
		s.hooks.MailSuppressed.In(func(_ context.Context, e hooks.MailSuppressed) error {
			told = append(told, e.Address)
			return nil
		})
		for _, address := range []string{"ada@example.com", "bob@example.com"} {
			s.send(hello(address))
		}
		s.runJobs()
		id := s.lastMail("ada@example.com").Header("Message-Id")
		if _, err := s.Capability().Erase(t.Context(), capability.Person{ID: "ada", Emails: []string{"ada@example.com"}}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // providers repeat their reports
			if _, err := s.Ingest(t.Context(), []email.Report{
				{Kind: email.ReportHardBounce, MessageID: id, Recipient: "Ada@example.com"},
				{Kind: email.ReportComplaint, Recipient: "ada@example.com"},
			}); err != nil {
				t.Fatal(err)
			}
		}
		wantErased(t, db)
		s.wantState(s.send(hello("ada@example.com")), email.StateSuppressed)
		if len(told) > 0 {
			t.Errorf("told of %s", told)
		}
		if _, err := s.Ingest(t.Context(), []email.Report{{Kind: email.ReportHardBounce, Recipient: "bob@example.com"}}); err != nil {
			t.Fatal(err)
		}
		if held, _, err := s.Suppression(t.Context(), "bob@example.com"); err != nil || held.Address != "bob@example.com" || !slices.Equal(slices.Compact(told), []string{"bob@example.com"}) {
			t.Errorf("of an address with a message: %+v, %v, told of %s", held, err, told)
		}
	})
}

func wantErased(t testing.TB, db *database.DB) {
	t.Helper()
	var n int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM email_suppression WHERE address_key LIKE '%@%'`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d suppressions name the address, %v", n, err)
	}
}

// TestUnsubscribeOfTheSender checks that the sender's own link is in the headers and in the
// template, and is never rewritten.
func TestUnsubscribeOfTheSender(t *testing.T) {
	const own = "https://app.example/testers/leave/tok?x=1&y=2"
	templates := map2fs("news.html", `{{define "subject"}}News{{end}}<p>Hello</p><a href="{{unsubscribe}}">Leave</a>`)
	s := open(t, databasetest.Memory(t), email.Config{Templates: templates, Tracking: email.Tracking{Clicks: true}})
	for _, category := range []email.Category{email.CategoryList, email.CategoryTransactional} {
		s.send(email.Message{To: "ada@example.com", Category: category, Template: "news", Unsubscribe: own})
		s.runJobs()
		mail := s.lastMail("ada@example.com")
		if got := mail.Header("List-Unsubscribe"); got != "<"+own+">" {
			t.Errorf("%s: List-Unsubscribe is %q", category, got)
		}
		if mail.Header("List-Unsubscribe-Post") != "List-Unsubscribe=One-Click" {
			t.Errorf("%s: no one-click", category)
		}
		if !strings.Contains(mail.HTML, `href="https://app.example/testers/leave/tok?x=1&amp;y=2"`) || !strings.Contains(mail.Text, own) {
			t.Errorf("%s: %s\n%s", category, mail.HTML, mail.Text)
		}
	}
	s.send(email.Message{To: "ada@example.com", Category: email.CategoryList, Template: "news"})
	s.runJobs()
	if mail := s.lastMail("ada@example.com"); !strings.Contains(mail.HTML, strings.Trim(mail.Header("List-Unsubscribe"), "<>")) {
		t.Errorf("the kit's own link is not in the template: %s", mail.HTML)
	}
	for _, bad := range []string{"mailto:leave@acme.example", "javascript:alert(1)", "https://", "https://a.example/<x>", "https://a.example/a,b",
		"https://a.example/a b", "https://user@a.example/", "https://a.example/" + strings.Repeat("x", 900), "https://a.example/\r\nBcc: x"} {
		_, err := s.Send(t.Context(), email.Message{To: "ada@example.com", Text: "t", Unsubscribe: bad})
		wantRefusal(t, err, email.ErrInvalidHeader)
	}
	_, err := s.Send(t.Context(), email.Message{To: "ada@example.com", Text: "t", Quota: "No"})
	wantRefusal(t, err, capability.ErrInvalidRequest)
}

// TestSubjectFolds checks that a long subject is folded, that no line has only a space, and that it
// decodes to the original.
func TestSubjectFolds(t *testing.T) {
	s := open(t, databasetest.Memory(t), email.Config{})
	for _, subject := range []string{
		"Short", "Two  spaces", strings.Repeat("word ", 30) + "end", strings.Repeat("x", 200), "a " + strings.Repeat("x", 200),
		strings.Repeat("grüße an alle ", 12) + "ende", "Ünï",
	} {
		s.send(email.Message{To: "ada@example.com", Subject: subject, Text: "t"})
		s.runJobs()
		mail := s.lastMail("ada@example.com")
		if mail.Subject != subject {
			t.Errorf("%q reads %q", subject, mail.Subject)
		}
		_, rest, _ := strings.Cut(string(mail.Source), "\r\nSubject:")
		if line, _, _ := strings.Cut(rest, "\r\n"); strings.TrimSpace(line) == "" {
			t.Errorf("%q: the first line is empty", subject)
		}
		s.clock.Advance(time.Hour)
	}
}

// TestAutoSubmittedIsSigned checks that DKIM covers Auto-Submitted, so that receivers can rely on
// it.
func TestAutoSubmittedIsSigned(t *testing.T) {
	if !strings.Contains(strings.Join(email.SignedHeaders, " "), "Auto-Submitted") {
		t.Error("DKIM does not cover Auto-Submitted")
	}
}

// TestMailboxIsSealed checks that stored mail is not readable in the database.
func TestMailboxIsSealed(t *testing.T) {
	db := databasetest.Memory(t)
	s := open(t, db, email.Config{})
	s.send(email.Message{To: "ada@example.com", Subject: "s", Text: "the secret is 12345"})
	s.runJobs()
	var plain int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM email_mailbox WHERE instr(message, CAST('12345' AS BLOB)) > 0`).Scan(&plain); err != nil || plain != 0 {
		t.Errorf("%d mails are readable in the database: %v", plain, err)
	}
	if mail := s.lastMail("ada@example.com"); !strings.Contains(mail.Text, "12345") {
		t.Errorf("%q", mail.Text)
	}
}

// TestCallbackPathIsClaimed checks that no other capability can be mounted at the path of the
// links.
func TestCallbackPathIsClaimed(t *testing.T) {
	s := open(t, databasetest.Memory(t), email.Config{CallbackPath: "/cb"})
	if diff := cmp.Diff([]string{"/cb"}, s.Capability().Claims); diff != "" {
		t.Error(diff)
	}
}

// TestErasedSuppressionHoldsAWaitingMail erases a user who got mail at an earlier address, which is
// suppressed for lists.
func TestErasedSuppressionHoldsAWaitingMail(t *testing.T) {
	s := open(t, databasetest.Memory(t), email.Config{})
	ctx := t.Context()
	s.send(email.Message{To: "old@example.com", Subject: "Welcome", Text: "x", UserID: "grace"})
	s.runJobs()
	news := s.send(email.Message{To: "old@example.com", Subject: "News", Text: "x", Category: email.CategoryList, SendAt: s.clock.Now().Add(24 * time.Hour)})
	if _, _, err := s.Suppress(ctx, "old@example.com", email.ScopeList, "asked by phone"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Capability().Erase(ctx, capability.Person{ID: "grace", Emails: []string{"new@example.com"}}); err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(25 * time.Hour)
	s.runJobs()
	s.wantState(news, email.StateSuppressed)
}
