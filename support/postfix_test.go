package support_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/support"
)

// postfix starts a Postfix of the test's own, with an empty queue and only the loopback interface,
// which delivers the mail of acme.example to an LMTP server; it returns the address of its SMTP
// server.
func postfix(t *testing.T, lmtp string) (host string, port int) {
	t.Helper()
	program := os.Getenv("KIT_TEST_MTA")
	if program == "" || os.Getuid() != 0 {
		t.Skip("KIT_TEST_MTA does not name postfix, or this is not root")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	host, text, _ := net.SplitHostPort(at)
	if port, err = strconv.Atoi(text); err != nil || free.Close() != nil {
		t.Fatal("no free port")
	}
	home, err := os.MkdirTemp("", "kit-postfix") // Postfix's user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	own := func(name, content string) string {
		path := filepath.Join(home, name)
		if content == "" {
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	config, queue, data := own("etc", ""), own("queue", ""), own("data", "")
	if out, err := exec.Command("chown", "postfix", data).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	own("etc/main.cf", strings.Join([]string{
		"compatibility_level = 3.6", "queue_directory = " + queue, "data_directory = " + data, "mail_owner = postfix",
		"setgid_group = postdrop", "command_directory = /usr/sbin", "daemon_directory = /usr/lib/postfix/sbin",
		"meta_directory = /etc/postfix", "shlib_directory = /usr/lib/postfix", "inet_interfaces = 127.0.0.1", "inet_protocols = ipv4",
		"myhostname = mx.test", "mynetworks = 127.0.0.0/8", "mydestination =", "local_recipient_maps =", "alias_maps =",
		"virtual_mailbox_domains = acme.example", "virtual_mailbox_maps =", "virtual_transport = lmtp:inet:" + lmtp,
		"disable_dns_lookups = yes", "smtpd_recipient_restrictions = permit_mynetworks, reject", "message_size_limit = 20971520",
		"maillog_file = " + filepath.Join(home, "log"), "maillog_file_prefixes = " + home, "smtputf8_enable = no",
		"smtpd_tls_security_level = none", "",
	}, "\n"))
	own("etc/master.cf", at+` inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
lmtp unix - - n - - lmtp
error unix - - n - - error
retry unix - - n - - error
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
`)
	t.Cleanup(func() {
		if out, err := exec.Command(program, "-c", config, "stop").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(home, "log"))
			t.Logf("Postfix says:\n%s", log)
		}
	})
	if out, err := exec.Command(program, "-c", config, "start").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return host, port
}

// TestPostfixDelivers delivers over LMTP by a mail server: a customer's mail, sent by swaks if it
// is installed, becomes a thread; a mail sent to a nonexistent mailbox is returned as a bounce,
// which suppresses the address and opens no thread.
func TestPostfixDelivers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lmtp := listener.Addr().String()
	_ = listener.Close()
	host, port := postfix(t, lmtp)
	transport, err := email.NewSMTP(email.SMTP{Host: host, Port: port, TLS: "none"})
	if err != nil {
		t.Fatal(err)
	}
	k := kittest.New(t, kit.WithAudit(audit.Config{}),
		kit.WithEmail(email.Config{From: "Acme <hello@acme.example>", ReturnPath: inbox,
			Providers: []email.Provider{{Name: "postfix", Transport: transport}}}),
		kit.WithSupport(support.Config{InboundAddresses: []string{inbox}, Listen: support.Listen{Address: lmtp, LMTP: true}}))
	received, suppressed := make(chan string, 10), make(chan string, 10)
	k.Hooks().SupportReceived.After(func(_ context.Context, e hooks.SupportReceived) { received <- e.ThreadID })
	k.Hooks().MailSuppressed.After(func(_ context.Context, e hooks.MailSuppressed) { suppressed <- e.Address })
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Support().Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	await := func(what string, from chan string) string {
		t.Helper()
		select {
		case value := <-from:
			return value
		case <-time.After(30 * time.Second):
			t.Fatalf("no %s came", what)
			return ""
		}
	}

	text := "I was charged twice.\n\nOn Saturday, Acme wrote:\n> Your invoice\n"
	if swaks, err := exec.LookPath("swaks"); err == nil {
		out, err := exec.Command(swaks, "--server", host, "--port", strconv.Itoa(port), "--from", "grace@customer.example", "--to", "help+42@acme.example",
			"--header", "Subject: Refund", "--header", "Message-Id: <1@customer.example>", "--body", text, "--attach-type", "text/csv",
			"--attach-name", "bill.csv", "--attach", "a;b", "--hide-all").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	} else {
		raw := mail("grace@customer.example", "Refund", text, "Message-ID: <1@customer.example>")
		if err := smtp.SendMail(fmt.Sprintf("%s:%d", host, port), nil, "grace@customer.example", []string{"help+42@acme.example"}, strings.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
	}
	detail := thread(t, k, await("mail", received))
	if detail.Subject != "Refund" || !strings.HasPrefix(detail.Messages[0].StrippedText, "I was charged twice.") ||
		strings.Contains(detail.Messages[0].StrippedText, "Your invoice") || len(detail.Messages[0].Warnings) > 0 {
		t.Errorf("stored: %+v", detail.Messages[0])
	}

	job, err := k.Email().Send(t.Context(), email.Message{To: "nobody@acme.example", Subject: "Hello", Text: "Hello."})
	if err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if address := await("bounce", suppressed); address != "nobody@acme.example" {
		t.Errorf("%s is suppressed", address)
	}
	states, err := k.Email().States(t.Context(), []string{job})
	if err != nil || states[job] != email.StateBounced {
		t.Errorf("the mail is %s, %v; want bounced", states[job], err)
	}
	if n := count(t, k); n != 1 {
		t.Errorf("%d threads, want 1: a bounce opens none", n)
	}
}
