package auth

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/jobs"
)

var kinds = []MailKind{
	MailVerifyEmail, MailResetPassword, MailMagicLink, MailSignInCode, MailSecondFactor, MailChangeEmail, MailApproveChange, MailDeleteAccount,
	MailAccountExists, MailPasswordChanged, MailEmailChanged, MailFactorChanged, MailAccountConnected,
}

func TestMails(t *testing.T) {
	const link = "https://api.example.com/auth/verify-email?token=a%2Bb&x=<y>"
	for _, kind := range kinds {
		message, err := compose(Mail{
			To: "ada@example.com", Kind: kind, Name: "Ada", Link: link, Code: "123456", ExpiresIn: 5 * time.Minute, Detail: "new@example.com",
		}, "Arcade")
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
		if _, err := compose(Mail{To: "ada@example.com", Kind: kind}, "Arcade"); err != nil {
			t.Errorf("%s without anything: %v", kind, err)
		}
	}
	magic, err := compose(Mail{Kind: MailMagicLink, Link: link, Code: "123456", ExpiresIn: 90 * time.Second}, "Arcade")
	if err != nil {
		t.Fatal(err)
	}
	want := "Hello,\n\nSign in here:\n\n" + link + "\n\nOr type this code:\n\n123456\n\nIt is good for 2 minutes and works once.\n\n" +
		"If that was not you, ignore this mail: nothing happens without it.\n"
	if magic.Text != want {
		t.Errorf("got\n%s\nwant\n%s", magic.Text, want)
	}
	if _, err := compose(Mail{Kind: "unknown"}, "Arcade"); err == nil {
		t.Error("an unknown kind is sent")
	}
}

// A mail can be read on a phone, says whose it is and what its button does, shows
// the address that the button leads to, and begins its sentences with capitals.
func TestMailsReadWell(t *testing.T) {
	const link = "https://api.example.com/x?token=a"
	for _, kind := range kinds {
		m, err := compose(Mail{Kind: kind, Name: "Ada", Link: link, Code: "123456", ExpiresIn: time.Hour, Detail: "new@example.com"}, "Arcade")
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
		m, err := compose(Mail{Kind: MailVerifyEmail, Name: name, Code: "1"}, "Arcade")
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

type kept struct{ mails []Mail }

func (k *kept) SendMail(_ context.Context, m Mail) error { k.mails = append(k.mails, m); return nil }

// The sender of mails: the application's own mailer, then email, then in development the
// log, and nobody else.
func TestWhoSendsMail(t *testing.T) {
	ctx := context.Background()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		host := capabilitytest.NewHost(t, db)
		keys := sealKeys(t, masterKey("k1", 1))
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
		mail := Mail{To: "ada@example.com", Kind: MailMagicLink, Link: "https://x.example/", Code: "123456"}
		send := func(change func(*capability.Host, *Config, *Peers)) error {
			t.Helper()
			host, cfg, peers := host, Config{AppName: "Arcade"}, Peers{}
			change(&host, &cfg, &peers)
			a, err := New(host, cfg, peers)
			if err != nil {
				t.Fatal(err)
			}
			return (&LibraryHost{a}).Mail(ctx, mail)
		}

		own := new(kept)
		if err := send(func(_ *capability.Host, c *Config, p *Peers) { c.Mailer, p.Email = own, mails }); err != nil || len(own.mails) != 1 || own.mails[0] != mail {
			t.Error(own.mails, err)
		}
		if err := send(func(_ *capability.Host, _ *Config, p *Peers) { p.Email = mails }); err != nil {
			t.Error(err)
		}
		if _, err := host.Jobs.RunDue(ctx); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := mails.LastMail(ctx, "ada@example.com"); !ok || err != nil || got.Subject != "Sign in to Arcade" {
			t.Error(got, ok, err)
		}
		var log bytes.Buffer
		if err := send(func(h *capability.Host, _ *Config, _ *Peers) {
			h.Environment, h.Log = capability.Development, slog.New(slog.NewTextHandler(&log, nil))
		}); err != nil || !strings.Contains(log.String(), "link=https://x.example/ code=123456") {
			t.Error(log.String(), err)
		}
		log.Reset()
		for _, environment := range []string{capability.Production, capability.Sandbox} {
			if err := send(func(h *capability.Host, c *Config, _ *Peers) {
				h.Environment, h.Log = environment, slog.New(slog.NewTextHandler(&log, nil))
				c.Library = func(capability.Host, *LibraryHost) (Library, error) { return Library{}, nil }
			}); !errors.Is(err, ErrMailUnavailable) {
				t.Errorf("%s: %v", environment, err)
			}
		}
		if got := log.String(); strings.Count(got, "auth can send no mail") != 2 || strings.Contains(got, "123456") {
			t.Error(got)
		}
	})
}
