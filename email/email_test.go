package email_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
)

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		e, err := email.New(h, email.Config{BasePath: basePath, Webhooks: email.Webhooks{SES: snsTopic}}, email.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return e.Capability(), nil
	})
}

func TestSendFollowsTheTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		undone := errors.New("undone")
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			if _, err := s.Send(ctx, hello("gone@example.com")); err != nil {
				return err
			}
			return undone
		})
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
		var id string
		err = db.InTx(t.Context(), func(ctx context.Context) (err error) {
			id, err = s.Send(ctx, email.Message{To: "Ada <Ada@EXAMPLE.com>", Subject: "Grüße", HTML: "<p>Hi <b>Ada</b></p>", UserID: "ada"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.wantState(id, email.StateQueued)
		s.runJobs()
		job := s.wantState(id, email.StateSent)
		mail := s.lastMail("ada@example.com")
		if mail.Subject != "Grüße" || mail.Text != "Hi Ada" || mail.HTML == "" || job.Attempts != 1 || *job.Provider != "mailbox" {
			t.Errorf("%+v %+v", mail, job)
		}
		if mail.Header("Message-Id") != job.MessageID || mail.Header("Auto-Submitted") != "auto-generated" {
			t.Errorf("%+v, job says %s", mail.Headers, job.MessageID)
		}
		if _, ok, _ := s.LastMail(t.Context(), "gone@example.com"); ok {
			t.Error("mail of a rolled back transaction went out")
		}
	})
}

func TestIdempotencyKey(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		m := hello("ada@example.com")
		m.IdempotencyKey = "welcome:ada"
		first := s.send(m)
		if again := s.send(m); again != first {
			t.Errorf("a repetition made job %s, want %s", again, first)
		}
		m.Subject = "Another"
		_, err := s.Send(t.Context(), m)
		wantRefusal(t, err, email.ErrIdempotency)
		s.clock.Advance(31 * 24 * time.Hour)
		s.runJobs()
		if later := s.send(m); later == first {
			t.Error("the key is kept for ever")
		}
	})
}

// TestIdempotencyKeyTogether sends one key from many callers concurrently.
func TestIdempotencyKeyTogether(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		m := hello("ada@example.com")
		m.IdempotencyKey = "once"
		const n = 16
		ids, errs := make(chan string, n), make(chan error, n)
		for range n {
			go func() {
				id, err := s.Send(context.Background(), m)
				ids <- id
				errs <- err
			}()
		}
		seen := map[string]bool{}
		for range n {
			seen[<-ids] = true
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if len(seen) != 1 {
			t.Errorf("one key, %d jobs", len(seen))
		}
	})
}

// TestTemplatesInTwoLanguages has a folder for each, with parts of the same names.
func TestTemplatesInTwoLanguages(t *testing.T) {
	files := fstest.MapFS{
		"_brand.txt":      {Data: []byte(`{{define "brand"}}Acme{{end}}`)},
		"en/_parts.txt":   {Data: []byte(`{{define "footer"}}Yours, {{template "brand"}}{{end}}`)},
		"en/welcome.txt":  {Data: []byte(`{{define "subject"}}Welcome{{end}}Hello {{.}}. {{template "footer"}}`)},
		"de/_parts.txt":   {Data: []byte(`{{define "footer"}}Grüße von {{template "brand"}}{{end}}`)},
		"de/welcome.txt":  {Data: []byte(`{{define "subject"}}Willkommen{{end}}Hallo {{.}}. {{template "footer"}}`)},
		"de/at/reset.txt": {Data: []byte(`{{define "subject"}}Servus{{end}}Servus {{.}}. {{template "footer"}}`)},
	}
	s := open(t, databasetest.Memory(t), email.Config{Templates: files})
	for name, want := range map[string]email.Content{
		"en/welcome":  {Subject: "Welcome", Text: "Hello Ada. Yours, Acme"},
		"de/welcome":  {Subject: "Willkommen", Text: "Hallo Ada. Grüße von Acme"},
		"de/at/reset": {Subject: "Servus", Text: "Servus Ada. Grüße von Acme"},
	} {
		got, err := s.Preview(name, "Ada")
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestTemplates(t *testing.T) {
	s := open(t, databasetest.Memory(t), email.Config{Templates: testTemplates})
	data := map[string]string{"Name": "Ada <b>", "Code": "123"}
	got, err := s.Preview("welcome", data)
	if err != nil {
		t.Fatal(err)
	}
	want := email.Content{
		Subject: "Welcome, Ada <b>", Text: "Hello Ada <b>.\nYour code is 123.",
		HTML: `<h1>Hello Ada &lt;b&gt;</h1><p>Your code is <b>123</b>.</p><a href="https://app.example/start?x=1&y=2">Start</a>`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	news, err := s.Preview("page", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("News\n\nFirst line\nsecond & last\nRead (https://acme.example/a)", news.Text); diff != "" {
		t.Error(diff)
	}
	_, err = s.Preview("absent", nil)
	wantRefusal(t, err, email.ErrTemplateNotFound)
	_, err = s.Preview("welcome", map[string]string{"Name": "Ada"})
	wantRefusal(t, err, email.ErrTemplateFailed)
	_, err = s.Preview("welcome", map[string]string{"Name": "Ada\r\nBcc: all@example.com", "Code": "1"})
	wantRefusal(t, err, email.ErrInvalidHeader)
	id := s.send(email.Message{To: "ada@example.com", Template: "welcome", Data: data})
	s.runJobs()
	if job := s.wantState(id, email.StateSent); *job.Template != "welcome" || job.Subject != want.Subject {
		t.Errorf("%+v", job)
	}
}

func TestRefusedMessages(t *testing.T) {
	s := open(t, databasetest.Memory(t), email.Config{PerRecipientPerHour: 2, MaxMessageBytes: 4096})
	with := func(change func(*email.Message)) email.Message {
		m := hello("ada@example.com")
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		m    email.Message
		want *capability.Error
	}{
		"category": {with(func(m *email.Message) { m.Category = "spam" }), capability.ErrInvalidRequest},
		"nothing":  {with(func(m *email.Message) { m.Text = "" }), capability.ErrInvalidRequest},
		"both":     {with(func(m *email.Message) { m.Template = "welcome" }), capability.ErrInvalidRequest},
		"late":     {with(func(m *email.Message) { m.SendAt = s.clock.Now().Add(8 * 24 * time.Hour) }), capability.ErrInvalidRequest},
		"key":      {with(func(m *email.Message) { m.IdempotencyKey = strings.Repeat("k", 257) }), capability.ErrInvalidRequest},
		"template": {email.Message{To: "ada@example.com", Template: "absent"}, email.ErrTemplateNotFound},
		"large":    {with(func(m *email.Message) { m.Text = strings.Repeat("x", 5000) }), email.ErrMessageTooLarge},
		"attached": {with(func(m *email.Message) {
			m.Attachments = []email.Attachment{{Name: "a.bin", ContentType: "application/octet-stream", Content: make([]byte, 4000)}}
		}), email.ErrMessageTooLarge},
		"reserved":  {with(func(m *email.Message) { m.Headers = map[string]string{"Bcc": "eve@example.com"} }), email.ErrInvalidHeader},
		"from":      {with(func(m *email.Message) { m.Headers = map[string]string{"From": "eve@example.com"} }), email.ErrInvalidHeader},
		"reply":     {with(func(m *email.Message) { m.ReplyTo = "nobody" }), email.ErrInvalidAddress},
		"messageid": {with(func(m *email.Message) { m.MessageID = "<a@b>\r\nX: y" }), email.ErrInvalidHeader},
		"inreplyto": {with(func(m *email.Message) { m.InReplyTo = "nothing" }), email.ErrInvalidHeader},
		"file": {with(func(m *email.Message) {
			m.Attachments = []email.Attachment{{Name: "a\r\nb", ContentType: "text/plain"}}
		}), email.ErrInvalidHeader},
	} {
		_, err := s.Send(t.Context(), c.m)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want.Code)
		}
	}
	s.send(hello("Ada@example.com"))
	s.send(hello("ada@EXAMPLE.com"))
	_, err := s.Send(t.Context(), hello("ada@example.com"))
	wantRefusal(t, err, email.ErrRateLimited)
	s.clock.Advance(time.Hour)
	s.send(hello("ada@example.com"))
}

// TestInjection tries to inject a header or a second address through every field that becomes part
// of one.
func TestInjection(t *testing.T) {
	s := open(t, databasetest.Memory(t), email.Config{PerRecipientPerHour: -1})
	for _, bad := range []string{"\r\nBcc: eve@evil.example", "\nBcc: eve@evil.example", "\rX", "\x00", "\u0085", "\u202eevil", "\u2066x\u2069", "\u2028", "\xff"} {
		for field, m := range map[string]email.Message{
			"to":         {To: "ada@example.com" + bad, Subject: "s", Text: "t"},
			"to name":    {To: "Ada" + bad + " <ada@example.com>", Subject: "s", Text: "t"},
			"quoted":     {To: "\"Ada" + bad + "\" <ada@example.com>", Subject: "s", Text: "t"},
			"subject":    {To: "ada@example.com", Subject: "s" + bad, Text: "t"},
			"reply to":   {To: "ada@example.com", ReplyTo: "ada@example.com" + bad, Subject: "s", Text: "t"},
			"header":     {To: "ada@example.com", Subject: "s", Text: "t", Headers: map[string]string{"X-Test": "v" + bad}},
			"name":       {To: "ada@example.com", Subject: "s", Text: "t", Headers: map[string]string{"X-Test" + bad: "v"}},
			"message id": {To: "ada@example.com", Subject: "s", Text: "t", MessageID: "<a" + bad + "@example.com>"},
			"references": {To: "ada@example.com", Subject: "s", Text: "t", References: []string{"<a@example.com" + bad + ">"}},
		} {
			if _, err := s.Send(t.Context(), m); !errors.Is(err, email.ErrInvalidHeader) && !errors.Is(err, email.ErrInvalidAddress) {
				t.Errorf("%s with %q: %v", field, bad, err)
			}
		}
	}
	for _, bad := range []string{"", "ada", "@example.com", "ada@", "a@b@c.com", "ada@example.com, eve@example.com", "ada@example..com", "ada @example.com",
		"ada@exa mple.com", "\"a b\"@example.com", "ada@[127.0.0.1]", "аda@example.com" /* Cyrillic а */, "ada@-example.com",
		strings.Repeat("a", 65) + "@example.com", "ada@" + strings.Repeat("a", 250) + ".com", "ada@example.com>", "ada@example.com <eve@example.com>x"} {
		if _, err := s.Send(t.Context(), hello(bad)); !errors.Is(err, email.ErrInvalidAddress) {
			t.Errorf("address %q: %v", bad, err)
		}
	}
	// A look-alike domain is distinct: it is shown in its ASCII form.
	id := s.send(hello("ada@exаmple.com"))
	if to := s.job(id).To; to != "ada@xn--exmple-4nf.com" {
		t.Errorf("a Cyrillic domain became %s", to)
	}
}

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"User@EXAMPLE.com":      "user@example.com",
		" ada@example.com ":     "ada@example.com",
		"Ada <ada@example.com>": "ada@example.com",
		"u@exämple.com":         "u@xn--exmple-cua.com",
		"u@XN--EXMPLE-CUA.com":  "u@xn--exmple-cua.com",
		"u@exa\u0308mple.com":   "u@xn--exmple-cua.com",
		"ada+shop@example.com":  "ada+shop@example.com",
		"a.d.a@example.com":     "a.d.a@example.com",
	} {
		if got, err := email.Canonical(text); err != nil || got != want {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"ada@example.com.", "ada@example.com\u3002", "ada@example.com\uff0e"} { // must not be another key for one mailbox
		if got, err := email.Canonical(text); !errors.Is(err, email.ErrInvalidAddress) {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
}

func TestSuppressionScopes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{FoldPlusTags: true})
		if _, added, err := s.Suppress(t.Context(), "Ada+x@Example.com", email.ScopeList, "asked by phone"); err != nil || !added {
			t.Fatal(added, err)
		}
		news := hello("ada@example.com")
		news.Category = email.CategoryList
		s.wantState(s.send(news), email.StateSuppressed)
		reset := s.send(hello("ada@example.com"))
		s.runJobs()
		s.wantState(reset, email.StateSent)

		// A suppression added while a message is queued applies to it too.
		later := hello("ada@example.com")
		later.SendAt = s.clock.Now().Add(time.Hour)
		waiting := s.send(later)
		if got, added, err := s.Suppress(t.Context(), "ada@example.com", email.ScopeAll, ""); err != nil || added || got.Scope != email.ScopeAll {
			t.Errorf("%+v %v %v", got, added, err)
		}
		if got, _, err := s.Suppress(t.Context(), "ada@example.com", email.ScopeList, ""); err != nil || got.Scope != email.ScopeAll {
			t.Errorf("the scope narrowed: %+v %v", got, err)
		}
		s.clock.Advance(2 * time.Hour)
		s.runJobs()
		s.wantState(waiting, email.StateSuppressed)
		if err := s.Unsuppress(t.Context(), "ADA@example.com", false); err != nil {
			t.Error(err)
		}
		wantRefusal(t, s.Unsuppress(t.Context(), "ada@example.com", false), email.ErrNotSuppressed)
		if _, err := s.Ingest(t.Context(), []email.Report{{Kind: email.ReportComplaint, Recipient: "ada@example.com"}}); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, s.Unsuppress(t.Context(), "ada@example.com", false), email.ErrProtected)
		if err := s.Unsuppress(t.Context(), "ada@example.com", true); err != nil {
			t.Error(err)
		}
	})
}

// TestTwoNodes processes one queue from two nodes: every mail is sent once, and the second node
// finds the key that the first one created.
func TestTwoNodes(t *testing.T) {
	const mails = 60
	var mu sync.Mutex
	sent := map[string]int{}
	provider := email.Provider{Name: "own", PerSecond: -1, Transport: transportFunc(func(_ context.Context, m email.Envelope) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		sent[m.JobID]++
		return "", nil
	})}
	var nodes []*setup
	for _, db := range databasetest.Shared(t, 2) {
		nodes = append(nodes, open(t, db, email.Config{Providers: []email.Provider{provider}}))
	}
	for i := range mails {
		nodes[i%2].send(hello(fmt.Sprintf("u%d@example.com", i)))
	}
	var work sync.WaitGroup
	for _, node := range nodes {
		work.Go(func() {
			if _, err := node.queue.RunDue(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if len(sent) != mails {
		t.Errorf("%d of %d mails went out", len(sent), mails)
	}
	for id, n := range sent {
		if n != 1 {
			t.Errorf("%s went out %d times", id, n)
		}
	}
	var keys int
	if err := nodes[0].db.QueryRow(t.Context(), `SELECT count(*) FROM email_token_key`).Scan(&keys); err != nil || keys != 1 {
		t.Errorf("%d token keys: %v", keys, err)
	}
}

func TestCancelAndRetry(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		refuse := true
		var seen []string
		provider := email.Provider{Name: "own", PerSecond: -1, Transport: transportFunc(func(_ context.Context, m email.Envelope) (string, error) {
			seen = append(seen, string(m.Message))
			if refuse {
				return "", &email.Failure{Kind: email.FailurePermanent, Code: 554, Message: "5.7.1 policy"}
			}
			return "p1", nil
		})}
		s := open(t, db, email.Config{Providers: []email.Provider{provider}})
		id := s.send(hello("ada@example.com"))
		taken := s.send(hello("bob@example.com"))
		if err := s.Cancel(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, s.Cancel(t.Context(), taken), email.ErrJobNotRetryable)
		wantRefusal(t, s.Cancel(t.Context(), "absent"), email.ErrJobNotFound)
		s.runJobs()
		s.wantState(id, email.StateFailed)
		s.wantState(taken, email.StateCancelled)
		_, err := s.Retry(t.Context(), taken)
		wantRefusal(t, err, email.ErrJobNotRetryable)
		_, err = s.Retry(t.Context(), "absent")
		wantRefusal(t, err, email.ErrJobNotFound)
		if _, _, err := s.Suppress(t.Context(), "ada@example.com", email.ScopeAll, ""); err != nil {
			t.Fatal(err)
		}
		_, err = s.Retry(t.Context(), id)
		wantRefusal(t, err, email.ErrSuppressed)
		if err := s.Unsuppress(t.Context(), "ada@example.com", false); err != nil {
			t.Fatal(err)
		}
		refuse = false
		if job, err := s.Retry(t.Context(), id); err != nil || job.State != email.StateQueued || job.Attempts != 0 {
			t.Fatalf("%+v %v", job, err)
		}
		s.runJobs()
		s.wantState(id, email.StateSent)
		if len(seen) != 2 || seen[0] != seen[1] {
			t.Errorf("%d attempts, not of the same bytes:\n%s", len(seen), strings.Join(seen, "\n----\n"))
		}
	})
}

func TestRetention(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		id := s.send(hello("ada@example.com"))
		s.runJobs()
		if len(s.job(id).Headers) == 0 {
			t.Error("no headers while the message is kept")
		}
		s.clock.Advance(31 * 24 * time.Hour)
		s.runJobs()
		if len(s.job(id).Headers) != 0 {
			t.Error("the message is kept beyond its time")
		}
		s.clock.Advance(335 * 24 * time.Hour)
		s.runJobs()
		_, err := s.Job(t.Context(), id)
		wantRefusal(t, err, email.ErrJobNotFound)
	})
}

// TestMessageOutlivesNodes has twenty nodes claim a message and die before they start it. It is
// still sent.
func TestMessageOutlivesNodes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		id := s.send(hello("ada@example.com"))
		_, err := db.Exec(t.Context(), `UPDATE kit_job SET state = 'running', attempt = 20, lease_token = 'dead', lease_until = $1`,
			s.clock.Now().UnixMilli()-1)
		if err != nil {
			t.Fatal(err)
		}
		s.runJobs()
		if job := s.wantState(id, email.StateSent); job.Attempts != 1 {
			t.Errorf("%d attempts, want 1", job.Attempts)
		}
	})
}

func TestAuditOfPeople(t *testing.T) {
	db := databasetest.Memory(t)
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
	if _, _, err := e.Suppress(t.Context(), "ada@example.com", email.ScopeAll, ""); err != nil {
		t.Fatal(err)
	}
	events, err := trail.ListEvents(t.Context(), audit.Filter{Namespace: "email"}, capability.NewPage(0, ""))
	if err != nil || len(events.Items) != 1 || events.Items[0].Action != "email/suppressed" {
		t.Errorf("%+v %v", events, err)
	}
}

func TestAssembly(t *testing.T) {
	host := capabilitytest.NewHost(t, databasetest.Memory(t))
	host.Environment = capability.Production
	_, err := email.New(host, email.Config{}, email.Peers{})
	wantRefusal(t, err, email.ErrNotConfigured)
	for name, cfg := range map[string]email.Config{
		"from":      {From: "nobody"},
		"provider":  {Providers: []email.Provider{{Name: "A"}}},
		"mailbox":   {Providers: []email.Provider{{Name: "mailbox", Transport: transportFunc(nil)}}},
		"attempts":  {Retry: email.Retry{MaxAttempts: 1000}},
		"retention": {Retention: email.Retention{Bodies: time.Hour}},
		"dkim":      {DKIM: []email.DKIM{{Domain: "acme.example", Selector: "s"}}},
		"webhook":   {Webhooks: email.Webhooks{Resend: "whsec_!", MailPace: "x", SES: "arn:aws:sns:here"}},
		"template":  {Templates: map2fs("a.txt", "no subject")},
		"syntax":    {Templates: map2fs("a.txt", "{{")},
		"missing":   {Templates: map2fs("a.txt", `{{define "subject"}}A{{end}}{{if .}}{{else}}{{template "footer"}}{{end}}`)},
		"in HTML":   {Templates: map2fs("a.html", `{{define "subject"}}A{{end}}{{range .}}{{template "footer"}}{{end}}`)},
	} {
		_, err := email.New(capabilitytest.NewHost(t, databasetest.Memory(t)), cfg, email.Peers{})
		if fault := new(capability.Fault); !errors.As(err, &fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unsealed := capabilitytest.NewHost(t, databasetest.Memory(t))
	unsealed.Sealing = func() (capability.Sealer, error) { return nil, errors.New("no master keys") }
	if _, err := email.New(unsealed, email.Config{}, email.Peers{}); err == nil || !strings.Contains(err.Error(), "no master keys") {
		t.Errorf("no master keys: %v", err)
	}
}

// TestRefusedMailLogsNoAddress checks that the log has no address of a recipient, which servers quote
// when they refuse it; the job has it.
func TestRefusedMailLogsNoAddress(t *testing.T) {
	var log bytes.Buffer
	clock := kittest.NewClock()
	host := newHost(t, databasetest.Memory(t), clock.Now)
	host.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := openOn(t, host, clock, email.Config{Providers: []email.Provider{{Name: "p", PerSecond: -1,
		Transport: transportFunc(func(_ context.Context, m email.Envelope) (string, error) {
			return "", &email.Failure{Kind: email.FailurePermanent, Code: 550, Message: "<" + strings.ToUpper(m.To) + ">: User unknown"}
		})}}})
	id := s.send(hello("ada@example.com"))
	s.runJobs()
	if job := s.wantState(id, email.StateBounced); !strings.Contains(string(job.LastError), "ADA@EXAMPLE.COM") {
		t.Errorf("the job has no reason: %s", job.LastError)
	}
	if text := strings.ToLower(log.String()); !strings.Contains(text, "user unknown") || strings.Contains(text, "ada@") {
		t.Errorf("the log says:\n%s", &log)
	}
}

// TestMasterKeyLost checks that a message waits for a node that has its master key, and is given up
// in the end.
func TestMasterKeyLost(t *testing.T) {
	db := databasetest.Memory(t)
	s := open(t, db, email.Config{})
	id := s.send(hello("ada@example.com"))
	var sealed []byte
	if err := db.QueryRow(t.Context(), `SELECT sealed FROM email_message`).Scan(&sealed); err != nil {
		t.Fatal(err)
	}
	replace := func(sealed []byte) {
		t.Helper()
		if _, err := db.Exec(t.Context(), `UPDATE email_message SET sealed = $1 WHERE job_id = $2`, sealed, id); err != nil {
			t.Fatal(err)
		}
		s.clock.Advance(time.Minute)
		s.runJobs()
	}
	replace([]byte("altered"))
	s.wantState(id, email.StateQueued)
	replace(sealed)
	s.wantState(id, email.StateSent)

	id = s.send(hello("bob@example.com"))
	replace([]byte("altered"))
	s.clock.Advance(48 * time.Hour)
	s.runJobs()
	if job := s.wantState(id, email.StateFailed); !strings.Contains(string(job.LastError), "master keys") {
		t.Errorf("%s", job.LastError)
	}
	var plain int
	s.send(email.Message{To: "ada@example.com", Subject: "s", Text: "the secret is 12345"})
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM email_message WHERE instr(sealed, CAST('12345' AS BLOB)) > 0`).Scan(&plain); err != nil || plain != 0 {
		t.Errorf("%d messages lie open: %v", plain, err)
	}
}

func TestLists(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		for i := range 5 {
			s.send(hello(fmt.Sprintf("u%d@example.com", i)))
			s.clock.Advance(time.Minute)
			if _, _, err := s.Suppress(t.Context(), fmt.Sprintf("s%d@example.com", i), email.ScopeAll, ""); err != nil {
				t.Fatal(err)
			}
		}
		first, err := s.ListJobs(t.Context(), email.JobFilter{State: email.StateQueued}, capability.NewPage(3, ""))
		if err != nil || len(first.Items) != 3 || first.Items[0].To != "u4@example.com" {
			t.Fatalf("%+v %v", first, err)
		}
		rest, err := s.ListJobs(t.Context(), email.JobFilter{}, capability.NewPage(3, *first.NextCursor))
		if err != nil || len(rest.Items) != 2 || rest.NextCursor != nil {
			t.Errorf("%+v %v", rest, err)
		}
		one, err := s.ListJobs(t.Context(), email.JobFilter{To: "U2@example.com", Since: s.clock.Now().Add(-time.Hour), Until: s.clock.Now()}, capability.NewPage(0, ""))
		if err != nil || len(one.Items) != 1 {
			t.Errorf("%+v %v", one, err)
		}
		page, err := s.ListSuppressions(t.Context(), email.SuppressionFilter{Begins: "s", Reason: email.ReasonManual, Scope: email.ScopeAll}, capability.NewPage(4, ""))
		if err != nil || len(page.Items) != 4 {
			t.Fatalf("%+v %v", page, err)
		}
		page, err = s.ListSuppressions(t.Context(), email.SuppressionFilter{}, capability.NewPage(4, *page.NextCursor))
		if err != nil || len(page.Items) != 1 || page.Items[0].Address != "s4@example.com" {
			t.Errorf("%+v %v", page, err)
		}
	})
}

// unreachable is a provider that cannot be reached while it is down.
func unreachable(down *bool) email.Transport {
	return transportFunc(func(context.Context, email.Envelope) (string, error) {
		if *down {
			return "", &email.Failure{Kind: email.FailureUnreachable, Message: "down"}
		}
		return "id", nil
	})
}

func TestGivesUpBehindAnOpenBreaker(t *testing.T) {
	down := true
	s := open(t, databasetest.Memory(t), email.Config{
		PerRecipientPerHour: -1, Failover: email.Failover{UnhealthyAfter: 1, Cooldown: time.Hour},
		Providers: []email.Provider{{Name: "p", PerSecond: -1, Transport: unreachable(&down)}},
	})
	var ids []string
	for range 20 {
		ids = append(ids, s.send(hello("ada@example.com")))
	}
	for range 60 {
		s.runJobs()
		s.clock.Advance(time.Hour + time.Second)
	}
	down = false
	for range 5 {
		s.runJobs()
		s.clock.Advance(time.Hour + time.Second)
	}
	sent := 0
	for _, id := range ids {
		if s.job(id).State == email.StateSent {
			sent++
		}
	}
	if sent > 0 {
		t.Errorf("%d of 20 messages went out after 60 hours, though Retry.GiveUpAfter is 48 h", sent)
	}
}

// TestProbeThatPanicsIsNotTheLast checks that a provider is tried again whose transport panics on
// the probe.
func TestProbeThatPanicsIsNotTheLast(t *testing.T) {
	calls := 0
	s := open(t, databasetest.Memory(t), email.Config{
		Failover: email.Failover{UnhealthyAfter: 1, Cooldown: time.Minute},
		Providers: []email.Provider{{Name: "p", PerSecond: -1, Transport: transportFunc(func(context.Context, email.Envelope) (string, error) {
			switch calls++; calls {
			case 1:
				return "", &email.Failure{Kind: email.FailureUnreachable, Message: "down"}
			case 2:
				panic("of the application")
			}
			return "", nil
		})}},
	})
	id := s.send(hello("ada@example.com"))
	for range 10 {
		s.runJobs()
		s.clock.Advance(10 * time.Minute)
	}
	s.wantState(id, email.StateSent)
}

// TestWarmUpOutlastsGivingUp checks that a message that waited for its warm-up longer than
// GiveUpAfter is still sent after a provider was down.
func TestWarmUpOutlastsGivingUp(t *testing.T) {
	down, clock := false, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := open(t, databasetest.Memory(t), email.Config{
		PerRecipientPerHour: -1, Failover: email.Failover{UnhealthyAfter: 1, Cooldown: time.Minute},
		Providers: []email.Provider{{Name: "p", PerSecond: -1, WarmUp: &email.WarmUp{Since: clock, StartPerDay: 4, Growth: 1.5},
			Transport: unreachable(&down)}},
	})
	var ids []string
	for range 30 {
		ids = append(ids, s.send(hello("ada@example.com")))
	}
	for hour := range 10 * 24 {
		down = 60 <= hour && hour < 84 // the fourth day
		s.runJobs()
		s.clock.Advance(time.Hour)
	}
	for _, id := range ids {
		s.wantState(id, email.StateSent)
	}
}
