package email_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/email/emailtest"
)

// script returns scripted replies, one per call, and then accepts.
func script(at string, replies ...error) func(step, value string) error {
	var mu sync.Mutex
	return func(step, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if step != at || len(replies) == 0 {
			return nil
		}
		reply := replies[0]
		replies = replies[1:]
		return reply
	}
}

// TestServerReplies checks the outcome of a message for each reply of a server.
func TestServerReplies(t *testing.T) {
	for name, c := range map[string]struct {
		step       string
		reply      error
		state      email.State
		kind       string
		suppressed bool
	}{
		"greylisted":      {"rcpt", says(451, gosmtp.EnhancedCode{4, 7, 1}, "try later"), email.StateQueued, "temporary", false},
		"busy":            {"mail", says(450, gosmtp.EnhancedCode{4, 2, 0}, "busy"), email.StateQueued, "temporary", false},
		"after data":      {"data", says(452, gosmtp.EnhancedCode{4, 3, 1}, "no room"), email.StateQueued, "temporary", false},
		"unknown user":    {"rcpt", says(550, gosmtp.EnhancedCode{5, 1, 1}, "user unknown"), email.StateBounced, "permanent", true},
		"unknown, prose":  {"rcpt", says(550, gosmtp.NoEnhancedCode, "No such user here"), email.StateBounced, "permanent", true},
		"disabled":        {"rcpt", says(550, gosmtp.EnhancedCode{5, 2, 1}, "mailbox disabled"), email.StateBounced, "permanent", true},
		"bad sender":      {"mail", says(550, gosmtp.EnhancedCode{5, 1, 8}, "sender domain unknown"), email.StateFailed, "permanent", false},
		"policy":          {"data", says(554, gosmtp.EnhancedCode{5, 7, 1}, "looks like spam"), email.StateFailed, "permanent", false},
		"full":            {"rcpt", says(552, gosmtp.EnhancedCode{5, 2, 2}, "mailbox full"), email.StateFailed, "permanent", false},
		"blocked address": {"rcpt", says(550, gosmtp.EnhancedCode{5, 7, 1}, "recipient address rejected: blocked"), email.StateFailed, "permanent", false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t, script(c.step, c.reply))
			s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{srv.provider(t, "relay")}})
			id := s.send(hello("ada@example.com"))
			s.runJobs()
			job := s.wantState(id, c.state)
			if !strings.Contains(string(job.LastError), `"kind":"`+c.kind+`"`) || len(job.Events) != 1 || job.Events[0].Type != "attempt" {
				t.Errorf("%s %+v", job.LastError, job.Events)
			}
			if _, held, err := s.Suppression(t.Context(), "ada@example.com"); err != nil || held != c.suppressed {
				t.Errorf("suppressed %v, %v", held, err)
			}
			if c.state != email.StateQueued {
				return
			}
			if wait := job.NextAttemptAt.Sub(s.clock.Now()); wait < 24*time.Second || wait > 36*time.Second {
				t.Errorf("the first pause is %s", wait)
			}
			s.clock.Advance(40 * time.Second)
			s.runJobs()
			again := s.wantState(id, email.StateSent)
			if again.Attempts != 2 || !bytes.Contains(srv.mails()[0], []byte(again.MessageID)) {
				t.Errorf("%+v", again)
			}
		})
	}
}

func TestBackoffAndGivingUp(t *testing.T) {
	srv := serve(t, func(step, _ string) error {
		if step == "rcpt" {
			return says(451, gosmtp.EnhancedCode{4, 7, 1}, "never")
		}
		return nil
	})
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{srv.provider(t, "relay")}})
	id := s.send(hello("ada@example.com"))
	began := s.clock.Now()
	base := 30 * time.Second
	for attempt := 1; ; attempt++ {
		s.runJobs()
		job := s.job(id)
		if job.Attempts != attempt {
			t.Fatalf("attempt %d: %d", attempt, job.Attempts)
		}
		if job.State == email.StateFailed {
			if attempt != 8 {
				t.Errorf("failed after %d attempts", attempt)
			}
			break
		}
		wait := job.NextAttemptAt.Sub(s.clock.Now())
		if wait < base*4/5 || wait > base*6/5 {
			t.Errorf("pause %d is %s, not about %s", attempt, wait, base)
		}
		s.clock.Advance(wait)
		base = min(base*4, 6*time.Hour)
	}
	if took := s.clock.Now().Sub(began); took > 48*time.Hour {
		t.Errorf("gave up after %s", took)
	}
}

// TestCutOff loses the connection at each step: before the message is handed over another provider
// gets it; after that only the same one may.
func TestCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		at     string
		second bool
	}{"greeting": {"greeting", true}, "mail": {"MAIL", true}, "rcpt": {"RCPT", true}, "data": {"DATA", true}, "reply": {".", false}} {
		t.Run(name, func(t *testing.T) {
			addr := cutting(t, c.at)
			first, err := email.NewSMTP(email.SMTP{Host: "127.0.0.1", Port: addr.Port, TLS: "none", Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			other := serve(t, nil)
			s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{
				{Name: "first", Transport: first, PerSecond: -1}, other.provider(t, "second"),
			}})
			id := s.send(hello("ada@example.com"))
			s.runJobs()
			if c.second {
				if job := s.wantState(id, email.StateSent); *job.Provider != "second" {
					t.Errorf("%+v", job)
				}
				return
			}
			for range 2 { // never the other provider, however often
				job := s.wantState(id, email.StateQueued)
				if len(other.mails()) > 0 || !strings.Contains(string(job.LastError), "unclear") {
					t.Fatalf("%s, and the other provider has %d", job.LastError, len(other.mails()))
				}
				s.clock.Advance(job.NextAttemptAt.Sub(s.clock.Now()))
				s.runJobs()
			}
		})
	}
}

// cutting returns a server that closes the connection at a command.
func cutting(t *testing.T, at string) *net.TCPAddr {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if at == "greeting" {
					return
				}
				fmt.Fprint(conn, "220 localhost ESMTP\r\n")
				var line []byte
				data := false
				for buf := make([]byte, 1); ; {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					if line = append(line, buf[0]); buf[0] != '\n' {
						continue
					}
					text := strings.ToUpper(strings.TrimSpace(string(line)))
					line = nil
					switch {
					case strings.HasPrefix(text, at) && (at != "." || text == "."):
						return
					case data:
						data = text != "."
					case strings.HasPrefix(text, "DATA"):
						data = true
						fmt.Fprint(conn, "354 go on\r\n")
					default:
						fmt.Fprint(conn, "250 ok\r\n")
					}
				}
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr)
}

// TestSlowServer has a server that replies after the timeout.
func TestSlowServer(t *testing.T) {
	release := make(chan struct{})
	srv := serve(t, func(step, _ string) error {
		if step == "rcpt" {
			<-release
		}
		return nil
	})
	defer close(release)
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{
		srv.provider(t, "slow", func(c *email.SMTP) { c.Timeout = time.Second }),
	}})
	id := s.send(hello("ada@example.com"))
	s.runJobs()
	if job := s.wantState(id, email.StateQueued); !strings.Contains(string(job.LastError), "unreachable") {
		t.Errorf("%s", job.LastError)
	}
}

func TestOversize(t *testing.T) {
	long := hello("ada@example.com")
	long.Text = strings.Repeat("long ", 1000)

	announced := serve(t, nil, func(s *gosmtp.Server) { s.MaxMessageBytes = 500 })
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{announced.provider(t, "small")}})
	id := s.send(long)
	s.runJobs()
	if job := s.wantState(id, email.StateFailed); !strings.Contains(string(job.LastError), `"smtpCode":552`) || len(announced.mails()) > 0 {
		t.Errorf("%s", job.LastError)
	}

	srv := serve(t, func(step, value string) error {
		if step == "data" && len(value) > 1000 {
			return says(552, gosmtp.EnhancedCode{5, 3, 4}, "too big")
		}
		return nil
	})
	s = open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{srv.provider(t, "small")}})
	id, small := s.send(long), s.send(hello("bob@example.com"))
	s.runJobs()
	s.wantState(id, email.StateFailed)
	s.wantState(small, email.StateSent)
}

// TestBreaker checks that an unreachable provider is skipped, and tried again later.
func TestBreaker(t *testing.T) {
	calls, alive := 0, false
	first := transportFunc(func(context.Context, email.Envelope) (string, error) {
		calls++
		if !alive {
			return "", &email.Failure{Kind: email.FailureUnreachable, Message: "down"}
		}
		return "", nil
	})
	second := transportFunc(func(context.Context, email.Envelope) (string, error) { return "", nil })
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{
		{Name: "first", Transport: first, PerSecond: -1}, {Name: "second", Transport: second, PerSecond: -1},
	}})
	for i := range 20 {
		s.send(hello(fmt.Sprintf("u%d@example.com", i)))
	}
	s.runJobs()
	if calls != 5 {
		t.Errorf("a dead provider was asked %d times", calls)
	}
	s.clock.Advance(61 * time.Second)
	s.send(hello("a@example.com"))
	s.send(hello("b@example.com"))
	s.runJobs()
	if calls != 6 {
		t.Errorf("asked %d times after the pause, not once", calls-5)
	}
	alive = true
	s.clock.Advance(61 * time.Second)
	one := s.send(hello("c@example.com"))
	s.runJobs()
	if job := s.wantState(one, email.StateSent); *job.Provider != "first" {
		t.Errorf("sent by %s", *job.Provider)
	}
}

// TestAllDown checks that no attempts are used up while no provider may be tried.
func TestAllDown(t *testing.T) {
	down := transportFunc(func(context.Context, email.Envelope) (string, error) {
		return "", &email.Failure{Kind: email.FailureUnreachable, Message: "down"}
	})
	s := open(t, databasetest.Memory(t), email.Config{
		Providers: []email.Provider{{Name: "only", Transport: down, PerSecond: -1}},
		Failover:  email.Failover{UnhealthyAfter: 1, Cooldown: time.Hour},
	})
	s.send(hello("a@example.com"))
	s.runJobs()
	id := s.send(hello("b@example.com"))
	s.runJobs()
	if job := s.wantState(id, email.StateQueued); job.Attempts != 0 {
		t.Errorf("%d attempts", job.Attempts)
	}
}

func TestRate(t *testing.T) {
	sent := 0
	count := transportFunc(func(context.Context, email.Envelope) (string, error) { sent++; return "", nil })
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{{Name: "own", Transport: count}}})
	for i := range 100 {
		s.send(hello(fmt.Sprintf("u%d@example.com", i)))
	}
	s.runJobs()
	if sent != 20 {
		t.Errorf("a burst of %d", sent)
	}
	for range 9 {
		s.clock.Advance(time.Second)
		s.runJobs()
	}
	if sent < 90 || sent > 110 {
		t.Errorf("%d sent after 9 s at 10 a second", sent)
	}

}

func TestWarmUp(t *testing.T) {
	sent := 0
	count := transportFunc(func(context.Context, email.Envelope) (string, error) { sent++; return "", nil })
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{{
		Name: "young", Transport: count, PerSecond: -1,
		WarmUp: &email.WarmUp{Since: time.Date(2026, 11, 19, 8, 0, 0, 0, time.UTC), StartPerDay: 4, Growth: 1.5},
	}}})
	for i := range 30 {
		s.send(hello(fmt.Sprintf("u%d@example.com", i)))
	}
	for i, want := range []int{9, 9 + 13, 30} { // 4 * 1.5^2, 4 * 1.5^3, the rest
		s.runJobs()
		if sent != want {
			t.Errorf("%d sent on day %d, not %d", sent, i+2, want)
		}
		s.clock.Advance(25 * time.Hour)
	}
}

// TestPool checks that connections are reused, that one closed by the server is replaced, and that
// a refusal does not affect the next message.
func TestPool(t *testing.T) {
	srv := serve(t, script("rcpt", nil, says(451, gosmtp.EnhancedCode{4, 7, 1}, "later")))
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{
		srv.provider(t, "relay", func(c *email.SMTP) { c.MaxConnections = 1; c.PerConnection = 5 }),
	}})
	for i := range 4 {
		s.send(hello(fmt.Sprintf("u%d@example.com", i)))
	}
	s.runJobs()
	if srv.dials != 1 || len(srv.mails()) != 3 {
		t.Errorf("%d connections for %d mails", srv.dials, len(srv.mails()))
	}
	for i := range 6 {
		s.send(hello(fmt.Sprintf("v%d@example.com", i)))
	}
	s.runJobs()
	if srv.dials != 2 || len(srv.mails()) != 9 {
		t.Errorf("%d connections for %d mails", srv.dials, len(srv.mails()))
	}
}

func TestSMTPConfig(t *testing.T) {
	for name, cfg := range map[string]email.SMTP{
		"host": {}, "tls": {Host: "localhost", TLS: "some"}, "port": {Host: "localhost", Port: 70000},
		"connections": {Host: "localhost", MaxConnections: 1000}, "timeout": {Host: "localhost", Timeout: time.Millisecond},
	} {
		if _, err := email.NewSMTP(cfg); err == nil {
			t.Errorf("%s: no fault", name)
		}
	}
	// Without TLS the default refuses to send at all.
	srv := serve(t, nil)
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{srv.provider(t, "plain", func(c *email.SMTP) { c.TLS = "" })}})
	id := s.send(hello("ada@example.com"))
	s.runJobs()
	if job := s.wantState(id, email.StateQueued); !strings.Contains(string(job.LastError), "STARTTLS") {
		t.Errorf("%s", job.LastError)
	}
}

const aiosmtpd = `
import sys, threading
from aiosmtpd.controller import Controller
class Keep:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("later"): return "451 4.7.1 come again"
        if address.startswith("nobody"): return "550 5.1.1 user unknown"
        envelope.rcpt_tos.append(address)
        return "250 OK"
    async def handle_DATA(self, server, session, envelope):
        open(sys.argv[1] + "/" + envelope.rcpt_tos[0], "wb").write(envelope.content)
        return "250 2.0.0 OK queued as A1B2"
import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
c = Controller(Keep(), hostname="127.0.0.1", port=port); c.start()
print(port, flush=True)
sys.stdin.read()
`

// TestAiosmtpd delivers to an independent server: aiosmtpd, run by the Python that
// KIT_TEST_AIOSMTPD names.
func TestAiosmtpd(t *testing.T) {
	python := os.Getenv("KIT_TEST_AIOSMTPD")
	if python == "" {
		t.Skip("KIT_TEST_AIOSMTPD is not set")
	}
	dir := t.TempDir()
	cmd := exec.Command(python, "-c", aiosmtpd, dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	var port int
	if _, err := fmt.Fscan(stdout, &port); err != nil {
		t.Fatal(err)
	}
	srv := &server{addr: &net.TCPAddr{Port: port}}
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{srv.provider(t, "aiosmtpd")}})
	sent, later, nobody := s.send(email.Message{
		To: "Ada Lovelace <ada@example.com>", Subject: "Grüße ✓", Text: ".\n.leading dots\n" + strings.Repeat("long line ", 200), HTML: "<p>ü</p>",
		Attachments: []email.Attachment{{Name: "ä.txt", ContentType: "text/plain", Content: []byte("file")}},
	}), s.send(hello("later@example.com")), s.send(hello("nobody@example.com"))
	s.runJobs()
	if job := s.wantState(sent, email.StateSent); *job.ProviderMessageID != "A1B2" {
		t.Errorf("%+v", job)
	}
	s.wantState(later, email.StateQueued)
	s.wantState(nobody, email.StateBounced)
	got, err := os.ReadFile(filepath.Join(dir, "ada@example.com"))
	if err != nil || !bytes.Contains(got, []byte(s.job(sent).MessageID)) || !bytes.Contains(bytes.ToLower(got), []byte("subject: =?utf-8?q?")) {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestTransportSuite runs the suite of transports on SMTP.
func TestTransportSuite(t *testing.T) {
	emailtest.Run(t, func(t *testing.T) emailtest.Provider {
		var mu sync.Mutex
		refuse := email.FailureKind("")
		s := serve(t, func(step, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case step == "data" && refuse == email.FailurePermanent:
				return says(554, gosmtp.EnhancedCode{5, 7, 1}, "no")
			case step == "data" && refuse == email.FailureTemporary:
				return says(451, gosmtp.EnhancedCode{4, 3, 0}, "later")
			}
			return nil
		})
		transport := s.provider(t, "relay").Transport
		t.Cleanup(func() { _ = transport.(interface{ Close() error }).Close() })
		return emailtest.Provider{
			Transport: transport,
			Accepted:  s.mails,
			Refuse: func(kind email.FailureKind) {
				mu.Lock()
				defer mu.Unlock()
				refuse = kind
			},
			Stop: func() { _ = s.closing() },
		}
	})
}

// TestWaitingForAConnectionIsNoAttempt stops a run whose message waits for the only connection.
func TestWaitingForAConnectionIsNoAttempt(t *testing.T) {
	held, release := make(chan struct{}, 2), make(chan struct{})
	srv := serve(t, func(step, _ string) error {
		if step == "data" {
			held <- struct{}{}
			<-release
		}
		return nil
	})
	s := open(t, databasetest.Memory(t), email.Config{Providers: []email.Provider{
		srv.provider(t, "narrow", func(c *email.SMTP) { c.MaxConnections = 1 }),
	}})
	first, second := s.send(hello("ada@example.com")), s.send(hello("bob@example.com"))
	var all sync.WaitGroup
	all.Go(s.runJobs) // delivers the first, which keeps the connection, and then the second
	<-held
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- email.Deliver(ctx, s.Email, second) }()
	for s.job(second).State != email.StateSending {
		runtime.Gosched()
	}
	stop()
	if err := <-stopped; err == nil || errors.As(err, new(*email.Failure)) {
		t.Errorf("a run that is stopped while it waits: %v, want another run later", err)
	}
	if job := s.wantState(second, email.StateQueued); job.Attempts != 0 {
		t.Errorf("%d attempts after a run that got no connection, want none", job.Attempts)
	}
	close(release)
	all.Wait()
	s.wantState(first, email.StateSent)
	if job := s.wantState(second, email.StateSent); job.Attempts != 1 {
		t.Errorf("%d attempts of the second, want 1", job.Attempts)
	}
}
