package auth

import (
	"cmp"
	"context"
	"time"
)

// MailKind says why a mail is sent.
type MailKind string

// The kinds of mail. Those of the first group carry a link, a code, or both; those of the second
// report a change.
const (
	MailVerifyEmail   MailKind = "verify_email"
	MailResetPassword MailKind = "reset_password"
	MailMagicLink     MailKind = "magic_link"
	MailSignInCode    MailKind = "sign_in_code"
	MailSecondFactor  MailKind = "second_factor"
	MailChangeEmail   MailKind = "change_email"
	// MailApproveChange asks the old address to approve a change, before the new one gets a mail.
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
	// App is the name of the application: Config.AppName, unless the library sets another.
	App string
	// UserID is recorded with the mail; empty if there is none.
	UserID string
	// Name is the name of the user, or "".
	Name string
	// Link and Code are what the mail conveys; either may be empty.
	Link, Code string
	// ExpiresIn is how long they are valid; zero if the mail does not say.
	ExpiresIn time.Duration
	// Detail depends on the kind: the new address of change_email, approve_change and
	// email_changed, the provider of account_connected, the change of factor_changed.
	Detail string
}

// Mailer sends the mails of sign-in. Inside a transaction it must not send before the commit.
type Mailer interface {
	SendMail(ctx context.Context, m Mail) error
}

// Mail sends a mail by Config.Mailer or else by Peers.Mailer, which uses email. In development
// without either it logs the mail; otherwise it refuses with auth/mail_unavailable.
func (a *LibraryHost) Mail(ctx context.Context, m Mail) error {
	if a.mailer == nil {
		return ErrMailUnavailable
	}
	m.App = cmp.Or(m.App, a.cfg.AppName)
	return a.mailer.SendMail(ctx, m)
}

// CanMail reports whether [LibraryHost.Mail] can send mail.
func (a *LibraryHost) CanMail() bool { return a.mailer != nil }

// mailer returns the mailer to use, or nil.
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

// logMailer logs mails. It is used in development only.
type logMailer struct{ a *Auth }

func (l logMailer) SendMail(ctx context.Context, m Mail) error {
	l.a.host.Log.InfoContext(ctx, "auth: mail, which email would send if it were composed",
		"to", m.To, "kind", string(m.Kind), "link", m.Link, "code", m.Code)
	return nil
}
