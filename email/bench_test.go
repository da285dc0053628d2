package email_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"
	gomail "github.com/wneessen/go-mail"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/jobs"
)

// counter is an SMTP server that counts what it accepts.
type counter struct {
	port  int
	done  chan struct{}
	mu    sync.Mutex
	left  int
	bytes int64
}

func (c *counter) Reset()                                 {}
func (c *counter) Logout() error                          { return nil }
func (c *counter) Mail(string, *gosmtp.MailOptions) error { return nil }
func (c *counter) Rcpt(string, *gosmtp.RcptOptions) error { return nil }
func (c *counter) Data(r io.Reader) error {
	n, err := io.Copy(io.Discard, r)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += n
	if c.left--; c.left == 0 {
		close(c.done)
	}
	return nil
}

func countMails(b *testing.B, n int) *counter {
	b.Helper()
	c := &counter{left: n, done: make(chan struct{})}
	srv := gosmtp.NewServer(gosmtp.BackendFunc(func(*gosmtp.Conn) (gosmtp.Session, error) { return c, nil }))
	srv.Domain, srv.ErrorLog = "localhost", quiet{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	c.port = listener.Addr().(*net.TCPAddr).Port
	go func() { _ = srv.Serve(listener) }()
	b.Cleanup(func() { _ = srv.Close() })
	return c
}

func benchMessage(i int) email.Message {
	return email.Message{To: fmt.Sprintf("u%d@example.com", i), Subject: "Your code", Text: "Your code is 123456.\n\nIt is good for ten minutes.\n"}
}

// BenchmarkSend measures the time from Send to the acceptance by a server on loopback, including
// jobs and database, with one connection pool.
func BenchmarkSend(b *testing.B) {
	keys := testKeys(b)
	for _, c := range []struct {
		name string
		dkim []email.DKIM
	}{{"plain", nil}, {"ed25519", keys[1:]}, {"rsa2048", keys[:1]}} {
		for name, open := range map[string]func() (*database.DB, error){
			"memory": func() (*database.DB, error) { return database.OpenMemory() },
			"file":   func() (*database.DB, error) { return database.OpenFile(b.TempDir() + "/kit.db") },
		} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				db, err := open()
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = db.Close() })
				benchSend(b, db, c.dkim)
			})
		}
	}
}

func benchSend(b *testing.B, db *database.DB, signatures []email.DKIM) {
	const callers = 16
	srv := countMails(b, b.N)
	log := slog.New(slog.DiscardHandler)
	queue := jobs.New(db, nil, jobs.Options{Log: log, Now: time.Now})
	transport, err := email.NewSMTP(email.SMTP{Host: "127.0.0.1", Port: srv.port, TLS: "none", PerConnection: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	e, err := email.New(capability.Host{DB: db, Jobs: queue, Log: log, Now: time.Now, Sealing: sealing, BaseURL: &url.URL{Scheme: "https", Host: "app.example"}},
		email.Config{From: "hello@acme.example", DKIM: signatures, Providers: []email.Provider{{Name: "relay", Transport: transport, PerSecond: -1}}},
		email.Peers{})
	if err != nil {
		b.Fatal(err)
	}
	part := e.Capability()
	if err := queue.Register(part.Jobs...); err != nil {
		b.Fatal(err)
	}
	if err := db.Migrate(b.Context(), jobs.Migrations(), database.Migrations{Name: part.Name, FS: part.Migrations}); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- queue.Run(ctx) }()
	next := make(chan int, callers)
	b.ResetTimer()
	for range callers {
		go func() {
			for i := range next {
				if _, err := e.Send(ctx, benchMessage(i)); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	for i := range b.N {
		next <- i
	}
	close(next)
	<-srv.done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	_ = part.Close(context.Background())
}

// BenchmarkGoMail measures go-mail alone, composing and sending on one connection.
func BenchmarkGoMail(b *testing.B) {
	srv := countMails(b, b.N)
	client, err := gomail.NewClient("127.0.0.1", gomail.WithPort(srv.port), gomail.WithTLSPolicy(gomail.NoTLS))
	if err != nil {
		b.Fatal(err)
	}
	if err := client.DialWithContext(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := range b.N {
		m := benchMessage(i)
		msg := gomail.NewMsg()
		_ = msg.From("hello@acme.example")
		_ = msg.To(m.To)
		msg.Subject(m.Subject)
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
		if err := client.Send(msg); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
	_ = client.Close()
}

// BenchmarkParseReport parses a bounce.
func BenchmarkParseReport(b *testing.B) {
	mail := []byte(bounces["postfix, unknown"].mail)
	for b.Loop() {
		if len(email.ParseReport(bytes.Clone(mail))) != 1 {
			b.Fatal("not read")
		}
	}
}
