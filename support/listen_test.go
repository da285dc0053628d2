package support_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/support"
)

// serve listens for a desk and returns the address.
func serve(t testing.TB, k *kittest.Kit, network string) string {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(t.TempDir(), "inbox")
	}
	listener, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Support().Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func TestMailOverSMTP(t *testing.T) {
	k := desk(t, support.Config{Guard: support.Guard{MaxPerSenderPerHour: 3, MaxRawBytes: 4096}})
	at := serve(t, k, "tcp")
	send := func(from, to, raw string) error {
		c, err := smtp.Dial(at)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return c.SendMail(from, []string{to}, strings.NewReader(raw))
	}
	status := func(err error) string {
		var refusal *smtp.SMTPError
		if errors.As(err, &refusal) {
			return fmt.Sprintf("%d %d.%d.%d", refusal.Code, refusal.EnhancedCode[0], refusal.EnhancedCode[1], refusal.EnhancedCode[2])
		}
		return fmt.Sprint(err)
	}
	from := "grace@customer.example"
	for i, c := range []struct{ from, to, raw, want string }{
		{from, inbox, mail(from, "One", "Hello"), "<nil>"},
		{from, "help+tag@acme.example", mail(from, "Other", "Hello"), "<nil>"},
		{from, "nobody@acme.example", mail(from, "x", "Hello"), "550 5.1.1"},
		{"b@b.example", inbox, mail("b@b.example", "x", strings.Repeat("x", 5000)), "552 5.3.4"},
		{"b@b.example", inbox, "no header here\r\n", "554 5.6.0"},
		{from, inbox, mail(from, "Three and more", "Hello"), "<nil>"},
		{from, inbox, mail(from, "Four and more of it", "Hello"), "451 4.7.1"},
	} {
		if got := status(send(c.from, c.to, c.raw)); got != c.want {
			t.Errorf("mail %d: %s, want %s", i, got, c.want)
		}
	}
	if n := count(t, k); n != 3 {
		t.Errorf("%d threads, want 3", n)
	}
}

func TestMailOverLMTP(t *testing.T) {
	k := desk(t, support.Config{Listen: support.Listen{LMTP: true}})
	conn, err := net.Dial("unix", serve(t, k, "unix"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	say := func(line, want string) {
		t.Helper()
		if line != "" {
			fmt.Fprint(conn, line+"\r\n")
		}
		for {
			got, err := in.ReadString('\n')
			if err != nil || !strings.HasPrefix(got, want) {
				t.Fatalf("%s: %q, %v; want %s", line, got, err, want)
			}
			if got[3] != '-' {
				return
			}
		}
	}
	say("", "220")
	say("LHLO mx.example", "250")
	say("MAIL FROM:<grace@customer.example>", "250")
	say("RCPT TO:<"+inbox+">", "250")
	say("RCPT TO:<nobody@acme.example>", "550 5.1.1")
	say("RCPT TO:<help+2@acme.example>", "250")
	say("DATA", "354")
	say(mail("grace@customer.example", "To: others@example.org", "Hello")+".", "250")
	say("", "250") // one reply a recipient
	say("QUIT", "221")
	if n := count(t, k); n != 1 {
		t.Errorf("%d threads, want 1", n)
	}
}

// TestPythonDelivers has the mail client of another language talk to the inbox.
func TestPythonDelivers(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	k := desk(t, support.Config{})
	host, port, _ := net.SplitHostPort(serve(t, k, "tcp"))
	script := `
import smtplib, sys
from email.message import EmailMessage
m = EmailMessage()
m["From"], m["To"], m["Subject"] = "Grace <grace@customer.example>", "help@acme.example", "Grüße"
m.set_content("Schöne Grüße")
m.add_attachment(b"x" * 1000, maintype="image", subtype="png", filename="bild ü.png")
s = smtplib.SMTP(sys.argv[1], int(sys.argv[2]))
s.send_message(m)
s.quit()
`
	if out, err := exec.Command(python, "-c", script, host, port).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	id := newest(t, k)
	detail := thread(t, k, id)
	if detail.Subject != "Grüße" || detail.Messages[0].Text != "Schöne Grüße" || detail.Messages[0].Attachments[0].Name != "bild ü.png" {
		t.Errorf("%+v", detail.Messages[0])
	}
}
