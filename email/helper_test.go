package email_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	gosmtp "github.com/emersion/go-smtp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
)

// setup is an email capability on a clock that only tests advance.
type setup struct {
	*email.Email
	t     testing.TB
	db    *database.DB
	clock *kittest.Clock
	queue *jobs.Queue
	hooks *hooks.Hooks
}

var masterKeys = func() *seal.Keys {
	text := "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	keys, err := seal.Load("test", func(name string) string { return map[string]string{seal.Variable: text}[name] })
	if err != nil {
		panic(err)
	}
	return keys
}()

func sealing() (capability.Sealer, error) { return masterKeys, nil }

func newHost(t testing.TB, db *database.DB, now func() time.Time) capability.Host {
	t.Helper()
	host := capabilitytest.NewHost(t, db)
	db.UseClock(now)
	host.Now, host.Sealing = now, sealing
	host.BaseURL = &url.URL{Scheme: "https", Host: "app.example"}
	host.Jobs = jobs.New(db, host.PubSub, jobs.Options{Log: host.Log, Now: now})
	return host
}

func open(t testing.TB, db *database.DB, cfg email.Config) *setup {
	t.Helper()
	clock := kittest.NewClock()
	return openAt(t, db, clock, cfg)
}

func openAt(t testing.TB, db *database.DB, clock *kittest.Clock, cfg email.Config) *setup {
	t.Helper()
	return openOn(t, newHost(t, db, clock.Now), clock, cfg)
}

func openOn(t testing.TB, host capability.Host, clock *kittest.Clock, cfg email.Config) *setup {
	t.Helper()
	if cfg.From == "" {
		cfg.From = "Acme <hello@acme.example>"
	}
	e, err := email.New(host, cfg, email.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	part := e.Capability()
	if err := host.Jobs.Register(part.Jobs...); err != nil {
		t.Fatal(err)
	}
	if err := host.DB.Migrate(t.Context(), jobs.Migrations(), database.Migrations{Name: part.Name, FS: part.Migrations}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := part.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &setup{e, t, host.DB, clock, host.Jobs, host.Hooks}
}

func (s *setup) send(m email.Message) string {
	s.t.Helper()
	id, err := s.Send(s.t.Context(), m)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *setup) runJobs() {
	s.t.Helper()
	if _, err := s.queue.RunDue(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *setup) job(id string) email.JobDetail {
	s.t.Helper()
	job, err := s.Job(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return job
}

func (s *setup) wantState(id string, want email.State) email.JobDetail {
	s.t.Helper()
	job := s.job(id)
	if job.State != want {
		s.t.Fatalf("the job is %s, not %s: %s", job.State, want, job.LastError)
	}
	return job
}

func (s *setup) lastMail(to string) email.Kept {
	s.t.Helper()
	mail, ok, err := s.LastMail(s.t.Context(), to)
	if err != nil || !ok {
		s.t.Fatalf("no mail to %s: %v", to, err)
	}
	return mail
}

func hello(to string) email.Message {
	return email.Message{To: to, Subject: "Hello", Text: "Hello there."}
}

var testTemplates = fstest.MapFS{
	"welcome.txt":  {Data: []byte("{{define \"subject\"}}Welcome, {{.Name}}{{end}}Hello {{.Name}}.\nYour code is {{.Code}}.\n")},
	"welcome.html": {Data: []byte(`<h1>Hello {{.Name}}</h1><p>Your code is <b>{{.Code}}</b>.</p><a href="https://app.example/start?x=1&y=2">Start</a>`)},
	"page.html":    {Data: []byte(`{{define "subject"}}News{{end}}{{template "head"}}<p>First line<br>second &amp; last</p><a href="https://acme.example/a">Read</a>`)},
	"_parts.html":  {Data: []byte(`{{define "head"}}<style>p{}</style><h1>News</h1>{{end}}`)},
}

// server is an SMTP server in this process that follows a script.
type server struct {
	addr *net.TCPAddr
	mu   sync.Mutex
	// reply is called at each step ("mail", "rcpt", "data") of each message; value has the data
	// only at "data".
	reply    func(step, value string) error
	accepted [][]byte
	dials    int
	closing  func() error
}

func serve(t testing.TB, reply func(step, value string) error, adjust ...func(*gosmtp.Server)) *server {
	t.Helper()
	s := &server{reply: reply}
	srv := gosmtp.NewServer(gosmtp.BackendFunc(func(*gosmtp.Conn) (gosmtp.Session, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dials++
		return &session{server: s}, nil
	}))
	srv.Domain = "localhost"
	srv.ErrorLog = quiet{}
	for _, f := range adjust {
		f(srv)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().(*net.TCPAddr)
	s.closing = func() error { return errors.Join(listener.Close(), srv.Close()) }
	go func() { _ = srv.Serve(listener) }()
	t.Cleanup(func() { _ = srv.Close() })
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

func (s *server) say(step, value string) error {
	if s.reply == nil {
		return nil
	}
	return s.reply(step, value)
}

func (s *server) mails() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

type session struct{ server *server }

func (c *session) Reset()        {}
func (c *session) Logout() error { return nil }
func (c *session) Mail(from string, _ *gosmtp.MailOptions) error {
	return c.server.say("mail", from)
}
func (c *session) Rcpt(to string, _ *gosmtp.RcptOptions) error { return c.server.say("rcpt", to) }
func (c *session) Data(r io.Reader) error {
	mail, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := c.server.say("data", string(mail)); err != nil {
		return err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.accepted = append(c.server.accepted, mail)
	return nil
}

func says(code int, enhanced gosmtp.EnhancedCode, text string) error {
	return &gosmtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

func (s *server) provider(t testing.TB, name string, adjust ...func(*email.SMTP)) email.Provider {
	t.Helper()
	cfg := email.SMTP{Host: "127.0.0.1", Port: s.addr.Port, TLS: "none", Timeout: 5 * time.Second}
	for _, f := range adjust {
		f(&cfg)
	}
	transport, err := email.NewSMTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return email.Provider{Name: name, Transport: transport, PerSecond: -1}
}

// transportFunc is a transport of the application.
type transportFunc func(context.Context, email.Envelope) (string, error)

func (f transportFunc) Deliver(ctx context.Context, m email.Envelope) (string, error) {
	return f(ctx, m)
}

func wantRefusal(t testing.TB, err error, want *capability.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %s", err, want.Code)
	}
}

func map2fs(name, text string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte(text)}}
}
