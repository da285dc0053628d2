package auth

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/kitbackend/kit/email"
)

// MailKind says why a mail is sent.
type MailKind string

// The kinds of mail. Those of the first group carry a link, a code, or both;
// those of the second tell what has happened.
const (
	MailVerifyEmail   MailKind = "verify_email"
	MailResetPassword MailKind = "reset_password"
	MailMagicLink     MailKind = "magic_link"
	MailSignInCode    MailKind = "sign_in_code"
	MailSecondFactor  MailKind = "second_factor"
	MailChangeEmail   MailKind = "change_email"
	// MailApproveChange asks the old address before the new one is.
	MailApproveChange MailKind = "approve_change"
	MailDeleteAccount MailKind = "delete_account"

	MailAccountExists    MailKind = "account_exists"
	MailPasswordChanged  MailKind = "password_changed"
	MailEmailChanged     MailKind = "email_changed"
	MailFactorChanged    MailKind = "factor_changed"
	MailAccountConnected MailKind = "account_connected"
)

// Mail is one message of sign-in.
type Mail struct {
	To   string
	Kind MailKind
	// UserID is recorded with the mail; empty: none.
	UserID string
	// Name is what the user is called, or "".
	Name string
	// Link and Code are what the mail is about; either may be empty.
	Link, Code string
	// ExpiresIn is how long they are good for; zero: not said.
	ExpiresIn time.Duration
	// Detail is one more word: the new address of change_email, approve_change and
	// email_changed, the provider of account_connected, what has changed of
	// factor_changed.
	Detail string
}

// Mailer sends the mails of sign-in. Inside a transaction nothing may leave
// before it commits.
type Mailer interface {
	SendMail(ctx context.Context, m Mail) error
}

// Mail sends a mail by Config.Mailer, or email when it is composed, or, in
// development, shows it in the log. Refuses with auth/mail_unavailable where
// there is none of them.
func (a *LibraryHost) Mail(ctx context.Context, m Mail) error {
	if a.mailer == nil {
		return ErrMailUnavailable
	}
	return a.mailer.SendMail(ctx, m)
}

// CanMail reports whether anything sends mail.
func (a *LibraryHost) CanMail() bool { return a.mailer != nil }

// mailer chooses who sends mail; nil: nobody.
func mailer(a *Auth) Mailer {
	switch {
	case a.cfg.Mailer != nil:
		return a.cfg.Mailer
	case a.peers.Email != nil:
		return emailMailer{a.peers.Email, a.cfg.AppName}
	case a.host.Development():
		return logMailer{a}
	default:
		return nil
	}
}

// logMailer is for development: it is never composed elsewhere.
type logMailer struct{ a *Auth }

func (l logMailer) SendMail(ctx context.Context, m Mail) error {
	l.a.host.Log.InfoContext(ctx, "auth: mail, which email would send if it were composed",
		"to", m.To, "kind", string(m.Kind), "link", m.Link, "code", m.Code)
	return nil
}

// emailMailer sends through the capability email.
type emailMailer struct {
	email   *email.Email
	appName string
}

func (e emailMailer) SendMail(ctx context.Context, m Mail) error {
	message, err := compose(m, e.appName)
	if err != nil {
		return err
	}
	_, err = e.email.Send(ctx, message)
	return err
}

//go:embed mail/*.txt mail/mail.html
var mailFiles embed.FS

var (
	mailTexts = template.Must(template.New("").Option("missingkey=error").ParseFS(mailFiles, "mail/*.txt"))
	mailHTML  = htmltemplate.Must(htmltemplate.ParseFS(mailFiles, "mail/mail.html"))
)

// content is what the templates are given.
type content struct {
	Mail
	App, For   string
	Subject    string
	Paragraphs []string
	// Label is what the button says.
	Label string
}

// labels say what the button of a mail does.
var labels = map[MailKind]string{
	MailVerifyEmail: "Confirm the address", MailResetPassword: "Choose a new password", MailMagicLink: "Sign in", MailSignInCode: "Sign in",
	MailSecondFactor: "Sign in", MailChangeEmail: "Confirm the new address", MailApproveChange: "Approve the change",
	MailDeleteAccount: "Delete my account", MailAccountExists: "Sign in", MailEmailChanged: "Undo the change",
}

// compose makes a message out of the template of the kind: its first line is the
// subject, and what follows the text, of which the HTML is made too.
func compose(m Mail, appName string) (email.Message, error) {
	c := content{Mail: m, App: appName, For: spell(m.ExpiresIn), Label: cmp.Or(labels[m.Kind], "Open")}
	c.Name = greeting(m.Name)
	if mailTexts.Lookup(string(m.Kind)+".txt") == nil {
		return email.Message{}, fmt.Errorf("auth: no mail of kind %q", m.Kind)
	}
	var text, html bytes.Buffer
	if err := mailTexts.ExecuteTemplate(&text, string(m.Kind)+".txt", c); err != nil {
		return email.Message{}, fmt.Errorf("auth: mail %s: %w", m.Kind, err)
	}
	subject, body, ok := strings.Cut(text.String(), "\n")
	if !ok {
		return email.Message{}, errors.New("auth: a mail without text")
	}
	body = strings.TrimSpace(body) + "\n"
	c.Subject, c.Paragraphs = oneLine(subject), strings.Split(strings.TrimSpace(body), "\n\n")
	if err := mailHTML.Execute(&html, c); err != nil {
		return email.Message{}, fmt.Errorf("auth: mail %s: %w", m.Kind, err)
	}
	return email.Message{To: m.To, Subject: c.Subject, Text: body, HTML: html.String(), UserID: m.UserID}, nil
}

// greeting keeps a name only when it can be no advertisement: a stranger who signs up
// with a stranger's address chooses what the stranger is called.
func greeting(name string) string {
	if utf8.RuneCountInString(name) > 40 || strings.ContainsAny(name, "/:.@<>\n\r") {
		return ""
	}
	return name
}

// oneLine keeps the name a user gave himself from breaking the subject.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// spell says a time in the words of a mail.
func spell(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d%(24*time.Hour) == 0:
		return plural(int(d/(24*time.Hour)), "day")
	case d%time.Hour == 0:
		return plural(int(d/time.Hour), "hour")
	default:
		return plural(int((d+time.Minute-1)/time.Minute), "minute")
	}
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
