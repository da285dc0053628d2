package support_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/support"
)

// serve starts the listener of support and returns the address.
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
	serveOn(t, k, listener)
	return listener.Addr().String()
}

func serveOn(t testing.TB, k *kittest.Kit, listener net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Support().Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
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

// talk returns a function that sends a line, if it is not empty, and expects a reply that begins
// with a code.
func talk(t testing.TB, conn net.Conn) func(line, want string) {
	in := bufio.NewReader(conn)
	return func(line, want string) {
		t.Helper()
		if line != "" {
			if _, err := fmt.Fprint(conn, line+"\r\n"); err != nil {
				t.Fatal(err)
			}
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
}

// wire is the server's end of a connection, which counts deadlines and reads, and fails when it
// reads "cut".
type wire struct {
	net.Conn
	deadlines, reads atomic.Int64
	cut              error
}

func (w *wire) SetReadDeadline(t time.Time) error {
	w.deadlines.Add(1)
	return w.Conn.SetReadDeadline(t)
}

func (w *wire) Read(p []byte) (int, error) {
	w.reads.Add(1)
	n, err := w.Conn.Read(p)
	if string(p[:n]) == "cut" {
		return 0, w.cut
	}
	return n, err
}

// wired is a listener of one connection.
type wired struct {
	net.Listener
	conns chan net.Conn
}

func (w *wired) Accept() (net.Conn, error) {
	if conn, ok := <-w.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (w *wired) Close() error {
	close(w.conns)
	return nil
}

// begin connects to support by a pipe and sends the envelope of a mail.
func begin(t testing.TB, k *kittest.Kit, cut error) (server *wire, client net.Conn, say func(line, want string)) {
	t.Helper()
	end, client := net.Pipe()
	server = &wire{Conn: end, cut: cut}
	l := &wired{conns: make(chan net.Conn, 1)}
	l.conns <- server
	serveOn(t, k, l)
	t.Cleanup(func() { _ = client.Close() })
	say = talk(t, client)
	say("", "220")
	say("EHLO mx.example", "250")
	say("MAIL FROM:<grace@customer.example>", "250")
	say("RCPT TO:<"+inbox+">", "250")
	return server, client, say
}

func TestEachReadOfAMailHasATimeout(t *testing.T) {
	server, client, say := begin(t, desk(t, support.Config{}), nil)
	say("DATA", "354")
	for range 100 {
		if _, err := fmt.Fprint(client, "Subject: slow\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	say("\r\nHello\r\n.", "250")
	if deadlines, reads := server.deadlines.Load(), server.reads.Load(); reads < 100 || deadlines < reads {
		t.Errorf("%d deadlines for %d reads", deadlines, reads)
	}
}

// TestAMailThatDribblesEnds sends each byte shortly before the timeout.
func TestAMailThatDribblesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		conn := support.Timed(server, time.Minute)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range time.Tick(59 * time.Second) {
				if _, err := client.Write([]byte("x")); err != nil {
					return
				}
			}
		}()
		began := time.Now()
		if err := conn.SetReadDeadline(began.Add(time.Minute)); err != nil { // as go-smtp does before each line
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if took := time.Since(began); err == nil || len(got) != 10 || took != 10*time.Minute {
			t.Errorf("%d bytes within %s, %v; want 10 within ten minutes and an error", len(got), took, err)
		}
		if err := errors.Join(conn.Close(), client.Close()); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// TestABrokenMailIsSentAgain ends the connection within a mail: the sender learns no detail of the
// network error, and no part of the mail is stored or executed as a command.
func TestABrokenMailIsSentAgain(t *testing.T) {
	k := desk(t, support.Config{})
	for name, cut := range map[string]error{
		"timeout": &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 25}, Err: os.ErrDeadlineExceeded},
		"end":     io.EOF,
	} {
		for command, want := range map[string]string{"DATA": "354", "BDAT 1000 LAST": ""} {
			t.Run(name+" "+command, func(t *testing.T) {
				_, client, say := begin(t, k, cut)
				if want != "" {
					say(command, want)
					command = ""
				}
				for _, text := range []string{strings.TrimPrefix(command+"\r\n", "\r\n"), "Subject: x\r\n\r\nHello\r\n", "cut"} {
					if _, err := fmt.Fprint(client, text); err != nil {
						t.Fatal(err)
					}
				}
				say("", "451 4.4.2 The message did not come in time, try again later\r\n")
				say("", "421")
			})
		}
	}
	if n := count(t, k); n != 0 {
		t.Errorf("%d threads, want none", n)
	}
}

func TestMailOverLMTP(t *testing.T) {
	k := desk(t, support.Config{Listen: support.Listen{LMTP: true}})
	conn, err := net.Dial("unix", serve(t, k, "unix"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	say := talk(t, conn)
	say("", "220")
	say("LHLO mx.example", "250")
	say("MAIL FROM:<grace@customer.example>", "250")
	say("RCPT TO:<"+inbox+">", "250")
	say("RCPT TO:<nobody@acme.example>", "550 5.1.1")
	say("RCPT TO:<help+2@acme.example>", "250")
	say("DATA", "354")
	say(mail("grace@customer.example", "To: others@example.org", "Hello")+".", "250")
	say("", "250") // one reply for each recipient
	say("QUIT", "221")
	if n := count(t, k); n != 1 {
		t.Errorf("%d threads, want 1", n)
	}
}

// TestPythonDelivers delivers with the mail client of another language.
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
