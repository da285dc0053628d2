package support

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/kitbackend/kit/capability"
)

// The bounds of a connection.
const (
	maxRecipients = 20
	maxSMTPLine   = 4000
	// maxTimeouts times Listen.Timeout is the time limit of one mail: by default ten minutes,
	// enough for the largest mail on a slow line, after which a sender that sends byte by byte
	// loses the connection.
	maxTimeouts = 10
)

// Run listens for mail on the address of [Config.Listen] until ctx ends. The kit calls it; it
// returns at once if there is no address to listen on or no inbound address.
func (s *Support) Run(ctx context.Context) error {
	if s.cfg.Listen.Address == "" || len(s.inboxes) == 0 {
		return nil
	}
	listener, err := net.Listen(s.cfg.Listen.Network, s.cfg.Listen.Address)
	if err != nil {
		return err
	}
	return s.Serve(ctx, listener)
}

// Serve accepts mail over SMTP, or LMTP if configured, until ctx ends; it closes the listener.
// Transfers in progress are then aborted, so that their senders retry.
func (s *Support) Serve(ctx context.Context, listener net.Listener) error {
	cfg := s.cfg.Listen
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		return &session{support: s, ctx: ctx}, nil
	}))
	server.Domain, server.LMTP, server.TLSConfig = cfg.Domain, cfg.LMTP, cfg.TLS
	server.MaxRecipients, server.MaxMessageBytes, server.MaxLineLength = maxRecipients, s.cfg.Guard.MaxRawBytes, maxSMTPLine
	server.ReadTimeout, server.WriteTimeout = cfg.Timeout, cfg.Timeout
	server.EnableSMTPUTF8 = true
	server.ErrorLog = smtpLog{s}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = server.Close()
		close(stopped)
	})
	err := server.Serve(&limited{Listener: listener, free: make(chan struct{}, cfg.MaxConnections), timeout: cfg.Timeout})
	if stop() {
		return errors.Join(err, server.Close())
	}
	<-stopped
	return nil
}

// limited limits the concurrent connections; further ones are refused.
type limited struct {
	net.Listener
	free    chan struct{}
	timeout time.Duration
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: conn, done: sync.OnceFunc(func() { <-l.free }), timeout: l.timeout}, nil
		default:
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // of a socket, not of the kit's clock
			_, _ = conn.Write([]byte("421 4.3.2 Too many connections, try again later\r\n"))
			_ = conn.Close()
		}
	}
}

// counted is one of the concurrent connections. Each of its reads may take the timeout, because
// go-smtp does not renew the deadline it sets for DATA while the mail follows.
type counted struct {
	net.Conn
	done    func()
	timeout time.Duration
	end     time.Time // the deadline of a line, or of the mail after it
	broken  bool
}

// SetReadDeadline is called before each line and sets its deadlines.
func (c *counted) SetReadDeadline(t time.Time) error {
	c.end = t.Add((maxTimeouts - 1) * c.timeout)
	return c.Conn.SetReadDeadline(t)
}

// Read returns errBroken, whose text is sent to the sender, after the first failure and from then
// on: the rest of a mail must not be read as commands, nor its beginning as the whole mail. Read
// does not detect a sender that closes TLS properly within a BDAT chunk.
func (c *counted) Read(p []byte) (n int, err error) {
	if c.broken {
		return 0, errBroken
	}
	deadline := time.Now().Add(c.timeout) // of a socket, not of the kit's clock
	if deadline.After(c.end) {
		deadline = c.end
	}
	if err = c.Conn.SetReadDeadline(deadline); err == nil {
		n, err = c.Conn.Read(p)
	}
	if err != nil {
		c.broken, err = true, errBroken
	}
	return n, err
}

func (c *counted) Close() error {
	defer c.done()
	return c.Conn.Close()
}

// smtpLog logs that the server reported an error, without the text, which is untrusted.
type smtpLog struct{ s *Support }

func (l smtpLog) Printf(string, ...any) { l.s.host.Log.Debug("support: a mail connection failed") }
func (l smtpLog) Println(...any)        { l.s.host.Log.Debug("support: a mail connection failed") }

// session is an SMTP session.
type session struct {
	support  *Support
	ctx      context.Context
	envelope Envelope
}

func (m *session) Reset()        { m.envelope = Envelope{} }
func (m *session) Logout() error { return nil }

func (m *session) Mail(from string, _ *smtp.MailOptions) error {
	if err := m.support.admissible(m.ctx, string(ChannelEmail), senderKey(from)); err != nil {
		return reply(err)
	}
	m.envelope.From = from
	return nil
}

func (m *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if _, ok := m.support.inboxOfRecipient(to); !ok {
		return errNotOurs
	}
	m.envelope.To = append(m.envelope.To, to)
	return nil
}

func (m *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err // too large, too long a line, or errBroken
	}
	_, err = m.support.Receive(m.ctx, m.envelope, raw)
	return reply(err)
}

var (
	errNotOurs = &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "No such mailbox"}
	errBroken  = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 4, 2}, Message: "The message did not come in time, try again later"}
)

// reply converts a refusal to an SMTP reply, which tells the sender whether to retry.
func reply(err error) error {
	var refusal *capability.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, capability.ErrBodyTooLarge):
		return &smtp.SMTPError{Code: 552, EnhancedCode: smtp.EnhancedCode{5, 3, 4}, Message: "The message is too large"}
	case errors.Is(err, ErrRejected):
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "Too many messages, try again later"}
	case errors.Is(err, ErrUnparseable):
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "The message has no header"}
	case errors.As(err, &refusal) && refusal.Status < 500:
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "The message was refused"}
	}
	return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "Something went wrong here, try again later"}
}
