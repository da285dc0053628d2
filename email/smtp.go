package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// SMTP configures the connection to a mail server (RFC 5321, RFC 6409).
type SMTP struct {
	Host string
	// Port is 587 by default, 465 with TLS "implicit".
	Port               int
	Username, Password string
	// TLS is "starttls" (required), the default; "implicit"; "opportunistic", which a man in the
	// middle can disable; or "none". Without TLS no password is sent, except to the same machine.
	TLS string
	// TLSConfig is for private certificate authorities; nil uses those of the system.
	TLSConfig *tls.Config
	// Hello is the client's name in EHLO, by default the host name of the machine.
	Hello string
	// MaxConnections bounds the open connections, by default 4, at most 100.
	MaxConnections int
	// PerConnection is how many messages are sent on one connection, by default 500.
	PerConnection int
	// Timeout bounds the reply to one command, by default 30 s; the reply to a complete message may
	// take ten times as long.
	Timeout time.Duration
}

// idleFor is how long a connection may be idle: servers close idle ones, in practice after a minute
// at the earliest.
const idleFor = 20 * time.Second

// smtpTransport is a connection pool for one server.
type smtpTransport struct {
	cfg    SMTP
	client *gomail.Client
	// slots holds one value for each connection that may be open, nil if it is not.
	slots chan *connection
	now   func() time.Time
}

// connection is an open connection, ready for a message.
type connection struct {
	client *smtp.Client
	net    net.Conn
	used   int
	since  time.Time
}

// NewSMTP returns a transport to a mail server. It does not connect yet. The error lists all faults
// of the configuration.
func NewSMTP(cfg SMTP) (Transport, error) {
	or(&cfg.TLS, "starttls")
	or(&cfg.MaxConnections, 4)
	or(&cfg.PerConnection, 500)
	or(&cfg.Timeout, 30*time.Second)
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("email: SMTP: "+format, args...)) }
	port := 587
	options := []gomail.Option{gomail.WithTimeout(cfg.Timeout), gomail.WithoutSMTPUTF8(), gomail.WithDialContextFunc(dialer(cfg))}
	switch cfg.TLS {
	case "starttls":
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case "implicit":
		port = 465
		options = append(options, gomail.WithSSL())
	case "opportunistic":
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	case "none":
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		fault("TLS %q is not starttls, implicit, opportunistic or none", cfg.TLS)
	}
	or(&cfg.Port, port)
	options = append(options, gomail.WithPort(cfg.Port))
	if cfg.TLSConfig != nil {
		options = append(options, gomail.WithTLSConfig(cfg.TLSConfig))
	}
	if cfg.Hello != "" {
		options = append(options, gomail.WithHELO(cfg.Hello))
	}
	if cfg.Username != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(cfg.Username), gomail.WithPassword(cfg.Password))
	}
	if cfg.MaxConnections < 1 || cfg.MaxConnections > 100 || cfg.PerConnection < 1 || cfg.Timeout < time.Second {
		fault("MaxConnections, PerConnection or Timeout is out of bounds")
	}
	client, err := gomail.NewClient(cfg.Host, options...)
	if err != nil {
		fault("%w", err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	t := &smtpTransport{cfg: cfg, client: client, slots: make(chan *connection, cfg.MaxConnections), now: time.Now} //nolint:forbidigo // idle connections age on the wall clock
	for range cfg.MaxConnections {
		t.slots <- nil
	}
	return t, nil
}

// connKey is the context key under which a dial stores the connection.
type connKey struct{}

func dialer(cfg SMTP) gomail.DialContextFunc {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		dial := &net.Dialer{Timeout: cfg.Timeout}
		if cfg.TLS == "implicit" {
			config := &tls.Config{ServerName: cfg.Host, MinVersion: tls.VersionTLS12}
			if cfg.TLSConfig != nil {
				config = cfg.TLSConfig
			}
			conn, err = (&tls.Dialer{NetDialer: dial, Config: config}).DialContext(ctx, network, address)
		} else {
			conn, err = dial.DialContext(ctx, network, address)
		}
		if into, ok := ctx.Value(connKey{}).(*net.Conn); ok && err == nil {
			*into = conn
		}
		return conn, err
	}
}

// Deliver waits for a connection, then hands over the message. A connection that was closed in the
// meantime is replaced once. It returns errNoConnection if ctx ends before a connection is free.
func (t *smtpTransport) Deliver(ctx context.Context, m Envelope) (string, error) {
	var c *connection
	select {
	case c = <-t.slots:
	case <-ctx.Done():
		return "", errNoConnection
	}
	defer func() { t.slots <- c }()
	ctx, cancel := context.WithTimeout(ctx, attemptTime) // waiting for others is not time of this attempt
	defer cancel()
	if c != nil && (c.used >= t.cfg.PerConnection || t.now().Sub(c.since) > idleFor) {
		c.quit()
		c = nil
	}
	reused := c != nil
	for {
		if c == nil {
			var err error
			if c, err = t.connect(ctx); err != nil {
				return "", unreachable(err)
			}
		}
		reply, begun, err := t.hand(ctx, c, m)
		if err == nil {
			c.used++
			c.since = t.now()
			return providerID(reply), nil
		}
		failure := classify(err, begun)
		if !t.reset(c, err) {
			c.close()
			c = nil
		}
		if reused && failure.Kind == FailureUnreachable && c == nil {
			reused = false
			continue
		}
		return "", failure
	}
}

func (t *smtpTransport) connect(ctx context.Context) (*connection, error) {
	c := &connection{since: t.now()}
	client, err := t.client.DialToSMTPClientWithContext(context.WithValue(ctx, connKey{}, &c.net))
	if err != nil {
		if c.net != nil {
			_ = c.net.Close()
		}
		return nil, err
	}
	c.client = client
	return c, nil
}

// hand runs the SMTP transaction of one message; begun reports whether the server may have the
// complete message.
func (t *smtpTransport) hand(ctx context.Context, c *connection, m Envelope) (reply string, begun bool, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.client.UpdateDeadline(t.cfg.Timeout); err != nil {
		return "", false, err
	}
	if ok, text := c.client.Extension("SIZE"); ok {
		var limit int
		if _, err := fmt.Sscan(text, &limit); err == nil && limit > 0 && len(m.Message) > limit {
			return "", false, &textproto.Error{Code: 552, Msg: fmt.Sprintf("5.3.4 the server takes messages of at most %d bytes", limit)}
		}
	}
	if err := c.client.Mail("<" + m.From + ">"); err != nil {
		return "", false, err
	}
	if err := c.client.Rcpt("<" + m.To + ">"); err != nil {
		return "", false, err
	}
	w, err := c.client.Data()
	if err != nil {
		return "", false, err
	}
	if err := c.client.UpdateDeadline(10 * t.cfg.Timeout); err != nil {
		return "", false, err
	}
	if ctx.Err() != nil {
		return "", false, ctx.Err()
	}
	if _, err := w.Write(m.Message); err != nil {
		return "", false, err // without the final dot there is no message
	}
	err = w.Close()
	if closer, ok := w.(interface{ ServerResponse() string }); ok {
		reply = closer.ServerResponse()
	}
	return reply, true, err
}

// reset prepares a connection for the next message after a refusal.
func (t *smtpTransport) reset(c *connection, err error) bool {
	var refusal *textproto.Error
	if !errors.As(err, &refusal) || refusal.Code == 421 {
		return false
	}
	return c.client.UpdateDeadline(t.cfg.Timeout) == nil && c.client.Reset() == nil
}

// close closes a connection; quit sends QUIT first.
func (c *connection) close() { _ = c.client.Close() }

func (c *connection) quit() {
	_ = c.client.UpdateDeadline(time.Second)
	_ = c.client.Quit()
	_ = c.client.Close()
}

// Close closes the connections that are not in use.
func (t *smtpTransport) Close() error {
	for range cap(t.slots) {
		select {
		case c := <-t.slots:
			if c != nil {
				c.quit()
			}
			t.slots <- nil
		default:
			return nil
		}
	}
	return nil
}

// classify returns the failure for a reply of the server, or for a missing reply.
func classify(err error, begun bool) *Failure {
	var refusal *textproto.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == 421 && !begun:
		return &Failure{Kind: FailureUnreachable, Code: 421, Enhanced: enhancedForm.FindString(refusal.Msg), Message: refusal.Msg}
	case errors.As(err, &refusal):
		kind := FailurePermanent
		if refusal.Code < 500 {
			kind = FailureTemporary
		}
		return &Failure{Kind: kind, Code: refusal.Code, Enhanced: enhancedForm.FindString(refusal.Msg), Message: refusal.Msg}
	case begun:
		return &Failure{Kind: FailureUnclear, Message: "no reply to the message: " + err.Error()}
	default:
		return unreachable(err)
	}
}

// unreachable returns the failure for all errors before a message is handed over, including refused
// credentials.
func unreachable(err error) *Failure {
	f := &Failure{Kind: FailureUnreachable, Message: err.Error()}
	var refusal *textproto.Error
	if errors.As(err, &refusal) {
		f.Code, f.Enhanced = refusal.Code, enhancedForm.FindString(refusal.Msg)
	}
	return f
}

// providerID returns the server's ID of a message from its reply, such as "2.0.0 Ok: queued as
// 4Xyz".
func providerID(reply string) string {
	_, after, ok := strings.Cut(strings.ToLower(reply), "queued as ")
	if !ok {
		return ""
	}
	after = reply[len(reply)-len(after):]
	word, _, _ := strings.Cut(after, " ")
	return strings.Trim(word, " .;<>\r\n")
}

var _ io.Closer = (*smtpTransport)(nil)
