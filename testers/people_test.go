package testers_test

import (
	"context"
	"html/template"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
)

// bounce makes an address bounce permanently.
func bounce(t testing.TB, k *kittest.Kit, address string) {
	t.Helper()
	report(t, k, address, email.ReportHardBounce)
}

// report sends a mail to an address and reports it as bounced.
func report(t testing.TB, k *kittest.Kit, address string, kind email.ReportKind) {
	t.Helper()
	m := email.Message{To: address, Subject: "Hello", Text: "Hello.", MessageID: "<" + string(kind) + "." + address + ">"}
	if _, err := k.Email().Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if n, err := k.Email().Ingest(t.Context(), []email.Report{{Kind: kind, MessageID: m.MessageID, Recipient: address}}); err != nil || n != 1 {
		t.Fatalf("%d reports applied, %v", n, err)
	}
}

// TestFeedbackIsLinked lets testers and others write to support.
func TestFeedbackIsLinked(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		k := compose(t, testers.Config{}, kit.WithDatabase(db), kit.WithSupport(support.Config{}))
		ada := join(t, k, "ada@example.com")
		gone := join(t, k, "gone@example.com")
		write := func(address, thread string) support.TicketDetail {
			t.Helper()
			user, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: address, EmailVerified: true})
			if err != nil {
				found, _, _ := k.Auth().UserByEmail(ctx, address)
				user.ID = found.ID
			}
			ticket, _, err := k.Support().Submit(ctx, support.Feedback{UserID: user.ID, ThreadID: thread, Message: "It crashes."})
			if err != nil {
				t.Fatal(err)
			}
			return ticket
		}
		if err := k.Testers().Withdraw(ctx, "gone@example.com"); err != nil {
			t.Fatal(err)
		}
		first := write("ada@example.com", "")
		write("ada@example.com", first.ID)
		second := write("ada@example.com", "")
		write("gone@example.com", "")
		write("stranger@example.com", "")
		if m := member(t, k, ada.ID); m.FeedbackThreads != 2 || m.UserID == nil {
			t.Errorf("%d threads of a tester, want 2, and the user linked", m.FeedbackThreads)
		}
		if m := member(t, k, gone.ID); m.FeedbackThreads != 0 {
			t.Errorf("%d threads of somebody who withdrew, want none", m.FeedbackThreads)
		}
		page, err := k.Testers().ListFeedback(ctx, ada.ID, capability.NewPage(1, ""))
		if err != nil || len(page.Items) != 1 || page.Items[0].ThreadID != second.ID || page.NextCursor == nil {
			t.Fatalf("feedback: %+v, %v", page, err)
		}
		page, err = k.Testers().ListFeedback(ctx, ada.ID, capability.NewPage(1, *page.NextCursor))
		if err != nil || len(page.Items) != 1 || page.Items[0].ThreadID != first.ID || page.NextCursor != nil {
			t.Errorf("the rest: %+v, %v", page, err)
		}
		if _, err := k.Testers().ListFeedback(ctx, "", capability.NewPage(1, "")); code(err) != "kit/invalid_request" {
			t.Errorf("without a member: %v", err)
		}
		kinds := make(map[string]int)
		person := capability.Person{ID: *member(t, k, ada.ID).UserID, Emails: []string{"ada@example.com"}}
		if err := k.Testers().Export(ctx, person, func(kind string, _ any) error {
			kinds[kind]++
			return nil
		}); err != nil || kinds["tester_feedback"] != 2 {
			t.Errorf("exported %v, %v", kinds, err)
		}
		if _, err := k.Testers().Erase(ctx, person); err != nil {
			t.Fatal(err)
		}
		if page, err := k.Testers().ListFeedback(ctx, ada.ID, capability.NewPage(10, "")); err != nil || len(page.Items) != 0 {
			t.Errorf("after erasing: %+v, %v", page, err)
		}
	})
}

// TestHealthWeighsReach compares a tester whose mail is delivered, one whose mail bounced once, and
// one whose mail is undeliverable.
func TestHealthWeighsReach(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		health := make(map[string]int)
		for _, name := range []string{"fine", "soft", "gone"} {
			address := name + "@example.com"
			m := join(t, k, address)
			user, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: address, EmailVerified: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Testers().Seen(ctx, user.ID, testers.Visit{}); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "soft":
				report(t, k, address, email.ReportSoftBounce)
			case "gone":
				bounce(t, k, address)
			}
			health[name] = *member(t, k, m.ID).Health
		}
		// Seen today, 1 day of 14: 50 + 30/14, plus 20, 10 or 0 for the mail.
		if health["fine"] != 72 || health["soft"] != 62 || health["gone"] != 52 {
			t.Errorf("health: %v, want 72, 62 and 52", health)
		}
		k.Clock.Advance(30 * day)
		if m := member(t, k, cohort(t, k).Members[1].ID); m.Activity == testers.PresenceUnreachable {
			t.Error("one temporary bounce makes nobody unreachable")
		}
	})
}

// TestLinkKeysRotate follows links from before and after a rotation, on a node that has not read
// the new key, and after a change of the master keys.
func TestLinkKeysRotate(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		old := invite(t, k, "old@example.com")
		oldConfirm, oldOut := links(t, k, "old@example.com")
		if err := k.Testers().RotateLinkKey(ctx); err != nil {
			t.Fatal(err)
		}
		fresh := invite(t, k, "new@example.com")
		newConfirm, _ := links(t, k, "new@example.com")
		k.Anonymous().Get(oldConfirm+"?go=1").Want(200, "")
		k.Anonymous().Get(newConfirm+"?go=1").Want(200, "")
		want(t, k, old.ID, testers.StateAccepted)
		want(t, k, fresh.ID, testers.StateAccepted)
		k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(oldOut, "do=opt-out").Want(200, "")
		want(t, k, old.ID, testers.StateWithdrawn)
		if _, err := k.Testers().Invite(ctx, "", []testers.Tester{{Email: "old@example.com"}}); code(err) != "testers/withdrawn" {
			t.Errorf("invited after a rotation and a withdrawal: %v", err)
		}
		if n, err := k.Testers().Rewrap(ctx); err != nil || n != 0 {
			t.Errorf("rewrapped %d keys under the same master key, %v", n, err)
		}
	})
	dbs := databasetest.Shared(t, 2)
	nodes := []*kittest.Kit{compose(t, testers.Config{}, kit.WithDatabase(dbs[0])), compose(t, testers.Config{}, kit.WithDatabase(dbs[1]))}
	invite(t, nodes[0], "a@example.com")
	before, _ := links(t, nodes[0], "a@example.com")
	nodes[1].Anonymous().Get(before+"?go=1").Want(200, "")
	if err := nodes[0].Testers().RotateLinkKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	invite(t, nodes[0], "b@example.com")
	after, _ := links(t, nodes[0], "b@example.com")
	nodes[1].Anonymous().Get(after+"?go=1").Want(200, "")
}

// TestOwnPagesAndMails replaces the built-in texts.
func TestOwnPagesAndMails(t *testing.T) {
	pages := template.Must(template.New("").Parse(`<!doctype html><title>{{.Page}}</title><p lang="{{.Language}}">Seite {{.Page}}: {{.Cohort}}, {{.Days}} Tage.</p>{{with .Next}}<a href="{{.}}">weiter</a>{{end}}`))
	templates := fstest.MapFS{
		"invite.txt": {Data: []byte(`{{define "subject"}}Einladung zu {{.Cohort}}{{end}}` + "Hallo {{.Name}}, testest du {{.Cohort}}?\n{{.Link}}\nAbmelden: {{.OptOut}}\n")},
		"trap.txt":   {Data: []byte(`{{define "subject"}}Ohne Ausgang{{end}}` + "Hallo {{.Name}}: {{.Link}}\n")},
	}
	cfg := testers.Config{Pages: pages, MailTemplate: func(_ context.Context, kind testers.MailKind, m testers.Member) (string, error) {
		switch {
		case kind == testers.MailInvite && strings.HasPrefix(m.Email, "trap"):
			return "trap", nil
		case kind == testers.MailInvite:
			return "invite", nil
		}
		return "", nil // the built-in text
	}}
	cfg.CohortDefaults.StoreURL = storeURL
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithTesters(cfg), kit.WithMasterKeys(masterKeys),
		kit.WithEmail(email.Config{From: "Acme <hello@acme.example>", Templates: templates}))
	if _, err := k.Testers().Invite(t.Context(), "", []testers.Tester{{Email: "ada@example.com", Name: "Ada"}}); err != nil {
		t.Fatal(err)
	}
	mail := k.LastMail("ada@example.com")
	if !strings.HasPrefix(mail.Subject, "Einladung zu") || !strings.Contains(mail.Text, "Hallo Ada, testest du") {
		t.Errorf("mail: %s\n%s", mail.Subject, mail.Text)
	}
	confirm, out := links(t, k, "ada@example.com")
	for _, one := range [][2]string{{confirm, "Seite confirm:"}, {out, "Seite opt-out:"}, {"/testers/confirm/x", "Seite invalid:"}, {confirm + "?go=1", "Seite confirmed:"}} {
		if page := k.Anonymous().Get(one[0]); !strings.Contains(string(page.Body), one[1]) {
			t.Errorf("%s: %s, want %s", one[0], page.Body, one[1])
		}
	}
	for accept, want := range map[string]string{"de-AT,de;q=0.9,en;q=0.5": `lang="de-AT"`, "": `lang="en"`, "<script>": `lang="en"`, "*": `lang="en"`} {
		if page := k.Anonymous().With("Accept-Language", accept).Get(confirm); !strings.Contains(string(page.Body), want) {
			t.Errorf("Accept-Language %q: %s, want %s", accept, page.Body, want)
		}
	}
	if _, err := k.Testers().Invite(t.Context(), "", []testers.Tester{{Email: "trap@example.com"}}); code(err) != "testers/copy_not_allowed" {
		t.Errorf("a template without the way out: %v", err)
	}
	if n := len(cohort(t, k).Members); n != 1 {
		t.Errorf("%d members, want the refused one not to be there", n)
	}
}

// TestAutomaticNudges lets the daily pass send reminders, within cooldown and cap.
func TestAutomaticNudges(t *testing.T) {
	each(t, testers.Config{Nudges: testers.Nudges{Auto: true, DailyCap: 2}}, func(t *testing.T, k *kittest.Kit) {
		for _, name := range []string{"a", "b", "c"} {
			invite(t, k, name+"@example.com")
		}
		invite(t, k, "gone@example.com")
		if err := k.Testers().Withdraw(t.Context(), "gone@example.com"); err != nil {
			t.Fatal(err)
		}
		nudged := func() (n int) {
			t.Helper()
			if err := k.Testers().Daily(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, m := range cohort(t, k).Members {
				if m.LastNudge != nil {
					n++
				}
			}
			return n
		}
		if n := nudged(); n != 0 {
			t.Errorf("%d reminded on the day of the invitation, want none", n)
		}
		k.Clock.Advance(2 * day)
		if n := nudged(); n != 2 {
			t.Errorf("%d reminded, want the cap of 2", n)
		}
		if n := nudged(); n != 2 {
			t.Errorf("%d reminded after a second pass, want the same 2", n)
		}
		k.Clock.Advance(day)
		if n := nudged(); n != 3 {
			t.Errorf("%d reminded a day later, want 3: two are in cooldown", n)
		}
		for _, m := range cohort(t, k).Members {
			if m.State == testers.StateWithdrawn && m.LastNudge != nil {
				t.Error("somebody who withdrew was reminded")
			}
		}
	})
}

// TestCarryKeepsDays checks that carry continues counting after a lapse, and reset starts over.
func TestCarryKeepsDays(t *testing.T) {
	for policy, want := range map[testers.ResetPolicy]struct{ streak, elapsed, resets int }{
		testers.ResetPolicyReset: {2, 1, 1}, testers.ResetPolicyCarry: {5, 4, 0},
	} {
		cfg := testers.Config{CohortDefaults: testers.CohortDefaults{TargetSize: 1}, Forecast: testers.Forecast{ResetPolicy: policy}}
		each(t, cfg, func(t *testing.T, k *kittest.Kit) {
			m := join(t, k, "a@example.com")
			pass := func() {
				t.Helper()
				if err := k.Testers().Daily(t.Context()); err != nil {
					t.Fatal(err)
				}
				k.Clock.Advance(day)
			}
			for range 3 {
				pass()
			}
			if err := k.Testers().Left(t.Context(), testers.Ref{MemberID: m.ID}); err != nil {
				t.Fatal(err)
			}
			pass()
			if _, err := k.Testers().Resend(t.Context(), testers.Ref{MemberID: m.ID}); err != nil {
				t.Fatal(err)
			}
			optIn, _ := links(t, k, "a@example.com")
			k.Anonymous().Get(optIn+"?go=1").Want(303, "")
			k.Clock.Advance(day) // the day of the opt-in was counted before it
			pass()
			k.Clock.Advance(-day)
			got, c := member(t, k, m.ID), cohort(t, k)
			if got.StreakDays != want.streak || c.Forecast.Observed.WindowDaysElapsed != want.elapsed || c.Forecast.Observed.Resets != want.resets {
				t.Errorf("%s: %d days, window %d, %d resets; want %+v", policy, got.StreakDays,
					c.Forecast.Observed.WindowDaysElapsed, c.Forecast.Observed.Resets, want)
			}
			if c.Forecast.ResetPolicy != policy {
				t.Errorf("the forecast says %s", c.Forecast.ResetPolicy)
			}
		})
	}
}

// invitedElsewhere invites a user at another address than that of the account.
func invitedElsewhere(t *testing.T) (k *kittest.Kit, m testers.Member, confirm string) {
	t.Helper()
	k = compose(t, testers.Config{})
	if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: "ada", Email: "ada@work.example", EmailVerified: true, Name: "Ada"}); err != nil {
		t.Fatal(err)
	}
	m = invite(t, k, "private@home.example")
	confirm, _ = links(t, k, "private@home.example")
	return k, m, confirm
}

func TestErasureTakesTheMailsOfTheMembership(t *testing.T) {
	k, m, confirm := invitedElsewhere(t)
	ctx := t.Context()
	k.User("ada").Get(confirm+"?go=1").Want(200, "") // links the member to ada
	if got := member(t, k, m.ID); got.UserID == nil || *got.UserID != "ada" {
		t.Fatalf("not linked: %+v", got)
	}
	k.Clock.Advance(49 * time.Hour)
	if err := k.EraseUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if e, err := k.Erasure(ctx, "ada"); err != nil || e.FinishedAt.IsZero() {
		t.Fatal(e, err)
	}
	var n int
	if err := k.Database().QueryRow(ctx, `SELECT count(*) FROM email_job WHERE address = 'private@home.example'`).Scan(&n); err != nil || n > 0 {
		t.Errorf("%d mails to the erased person's address are kept, %v", n, err)
	}
}

func TestErasureTakesBackTheWaitingMail(t *testing.T) {
	k, m, confirm := invitedElsewhere(t)
	ctx := t.Context()
	k.Clock.Advance(49 * time.Hour)
	r, err := k.Testers().Nudge(ctx, testers.NudgeRequest{Kind: testers.MailConfirm, MemberIDs: []string{m.ID}}) // stays queued
	if err != nil || len(r.Sent) != 1 {
		t.Fatal(r, err)
	}
	k.User("ada").Get(confirm+"?go=1").Want(200, "")
	if err := k.EraseUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Testers().Erase(ctx, capability.Person{ID: "ada"}); err != nil { // before the mail is sent
		t.Fatal(err)
	}
	k.RunJobs()
	var sent int
	if err := k.Database().QueryRow(ctx, `SELECT count(*) FROM email_job WHERE state = 'sent' AND address = 'private@home.example'`).Scan(&sent); err != nil || sent > 1 {
		t.Errorf("%d mails went to the person, one of them after the erasure; %v", sent, err)
	}
}
