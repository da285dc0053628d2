package auth

import (
	"cmp"
	"context"
	"time"
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
	// App is what the application is called, Config.AppName, unless the library says
	// otherwise.
	App string
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

// Mail sends a mail by Config.Mailer, or by that of the peers, which is email when it
// is composed, or, in development, shows it in the log. Refuses with auth/mail_unavailable where
// there is none of them.
func (a *LibraryHost) Mail(ctx context.Context, m Mail) error {
	if a.mailer == nil {
		return ErrMailUnavailable
	}
	m.App = cmp.Or(m.App, a.cfg.AppName)
	return a.mailer.SendMail(ctx, m)
}

// CanMail reports whether anything sends mail.
func (a *LibraryHost) CanMail() bool { return a.mailer != nil }

// mailer chooses who sends mail; nil: nobody.
func mailer(a *Auth) Mailer {
	switch {
	case a.cfg.Mailer != nil:
		return a.cfg.Mailer
	case a.peers.Mailer != nil:
		return a.peers.Mailer
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
