package mail

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
)

var kinds = []auth.MailKind{
	auth.MailVerifyEmail, auth.MailResetPassword, auth.MailMagicLink, auth.MailSignInCode, auth.MailSecondFactor, auth.MailChangeEmail, auth.MailApproveChange, auth.MailDeleteAccount,
	auth.MailAccountExists, auth.MailPasswordChanged, auth.MailEmailChanged, auth.MailFactorChanged, auth.MailAccountConnected,
}

func TestMails(t *testing.T) {
	const link = "https://api.example.com/auth/verify-email?token=a%2Bb&x=<y>"
	for _, kind := range kinds {
		message, err := compose(auth.Mail{
			App: "Arcade", To: "ada@example.com", Kind: kind, Name: "Ada", Link: link, Code: "123456", ExpiresIn: 5 * time.Minute, Detail: "new@example.com",
		})
		if err != nil {
			t.Fatal(err)
		}
		if message.Subject == "" || len(message.Subject) > 78 || !strings.Contains(message.Subject, "Arcade") || strings.Contains(message.Text, "<no value>") ||
			!strings.HasPrefix(message.Text, "Hello Ada,\n\n") || strings.Contains(message.Text, "\n\n\n") || !strings.HasSuffix(message.Text, ".\n") {
			t.Errorf("%s: %q\n%s", kind, message.Subject, message.Text)
		}
		if !strings.Contains(message.Text, "\n"+link+"\n") && strings.Contains(message.Text, "https:") {
			t.Errorf("%s: the link does not stand alone:\n%s", kind, message.Text)
		}
		if strings.Contains(message.HTML, "<y>") || strings.Contains(message.HTML, "ZgotmplZ") || strings.Contains(message.HTML, link) {
			t.Errorf("%s: not escaped:\n%s", kind, message.HTML)
		}
		if message.To != "ada@example.com" || message.Category == email.CategoryList {
			t.Errorf("%+v", message)
		}
		if _, err := compose(auth.Mail{App: "Arcade", To: "ada@example.com", Kind: kind}); err != nil {
			t.Errorf("%s without anything: %v", kind, err)
		}
	}
	magic, err := compose(auth.Mail{App: "Arcade", Kind: auth.MailMagicLink, Link: link, Code: "123456", ExpiresIn: 90 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want := "Hello,\n\nSign in here:\n\n" + link + "\n\nOr type this code:\n\n123456\n\nIt is good for 2 minutes and works once.\n\n" +
		"If that was not you, ignore this mail: nothing happens without it.\n"
	if magic.Text != want {
		t.Errorf("got\n%s\nwant\n%s", magic.Text, want)
	}
	if _, err := compose(auth.Mail{App: "Arcade", Kind: "unknown"}); err == nil {
		t.Error("an unknown kind is sent")
	}
}

// A mail can be read on a phone, says whose it is and what its button does, shows
// the address that the button leads to, and begins its sentences with capitals.
func TestMailsReadWell(t *testing.T) {
	const link = "https://api.example.com/x?token=a"
	for _, kind := range kinds {
		m, err := compose(auth.Mail{App: "Arcade", Kind: kind, Name: "Ada", Link: link, Code: "123456", ExpiresIn: time.Hour, Detail: "new@example.com"})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(m.HTML, `<meta name="viewport" content="width=device-width, initial-scale=1">`) || !strings.Contains(m.HTML, "<b>Arcade</b>") {
			t.Errorf("%s: no viewport, or no name:\n%s", kind, m.HTML)
		}
		if strings.Contains(m.Text, link) {
			if labels[kind] == "" || !strings.Contains(m.HTML, ">"+labels[kind]+"</a>") || !strings.Contains(m.HTML, ">"+link+"</a>") {
				t.Errorf("%s: the button says %q and shows no address:\n%s", kind, labels[kind], m.HTML)
			}
		}
		for _, text := range append(strings.Split(m.Text, "\n\n"), m.Subject) {
			for _, sentence := range strings.Split(text, ". ") {
				if first := sentence[0]; 'a' <= first && first <= 'z' && strings.TrimSpace(sentence) != link {
					t.Errorf("%s: a sentence begins %q", kind, sentence)
				}
			}
		}
	}
}

// A sign-up with a stranger's address cannot carry an advertisement to them.
func TestNamesInMails(t *testing.T) {
	for name, want := range map[string]string{
		"Ada": "Hello Ada,", "Ada Lovelace": "Hello Ada Lovelace,", "": "Hello,",
		"You won! evil.example/x": "Hello,", "http:evil": "Hello,", "a@b": "Hello,", "a\r\nBcc: x": "Hello,", strings.Repeat("x", 41): "Hello,",
	} {
		m, err := compose(auth.Mail{App: "Arcade", Kind: auth.MailVerifyEmail, Name: name, Code: "1"})
		if err != nil || !strings.HasPrefix(m.Text, want+"\n") {
			t.Errorf("%q: %v\n%s", name, err, m.Text)
		}
	}
}

func TestTimesInMails(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "", time.Second: "1 minute", 5 * time.Minute: "5 minutes", time.Hour: "1 hour", 90 * time.Minute: "90 minutes",
		24 * time.Hour: "1 day", 72 * time.Hour: "3 days",
	} {
		if got := spell(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}

// A mail of sign-in is a job of email like every other.
func TestEmailSends(t *testing.T) {
	ctx := context.Background()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		host := capabilitytest.NewHost(t, db)
		keys, err := seal.Load(capability.Sandbox, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		host.Sealing = func() (capability.Sealer, error) { return keys, nil }
		mails, err := email.New(host, email.Config{}, email.Peers{})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Migrate(ctx, jobs.Migrations(), database.Migrations{Name: email.Name, FS: mails.Capability().Migrations}); err != nil {
			t.Fatal(err)
		}
		if err := host.Jobs.Register(mails.Capability().Jobs...); err != nil {
			t.Fatal(err)
		}
		if err := New(mails).SendMail(ctx, auth.Mail{To: "ada@example.com", Kind: auth.MailMagicLink, App: "Arcade", Link: "https://x.example/", Code: "123456"}); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Jobs.RunDue(ctx); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := mails.LastMail(ctx, "ada@example.com"); !ok || err != nil || got.Subject != "Sign in to Arcade" {
			t.Error(got, ok, err)
		}
	})
}
