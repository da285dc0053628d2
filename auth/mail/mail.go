// Package mail writes the mails of sign-in and sends them through the capability
// email. Only the option that composes email refers to it, so that an application without mail
// links neither the templates nor the mail client.
package mail

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

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/lazy"
)

// New returns a mailer that sends the mails of sign-in through email.
func New(e *email.Email) auth.Mailer { return mailer{e} }

type mailer struct{ email *email.Email }

func (m mailer) SendMail(ctx context.Context, mail auth.Mail) error {
	message, err := compose(mail)
	if err != nil {
		return err
	}
	_, err = m.email.Send(ctx, message)
	return err
}

//go:embed *.txt mail.html
var files embed.FS

var (
	madeTexts lazy.Value[*template.Template]
	madeHTML  lazy.Value[*htmltemplate.Template]
)

func texts() *template.Template {
	return madeTexts.Get(func() *template.Template {
		return template.Must(template.New("").Option("missingkey=error").ParseFS(files, "*.txt"))
	})
}

func html() *htmltemplate.Template {
	return madeHTML.Get(func() *htmltemplate.Template {
		return htmltemplate.Must(htmltemplate.ParseFS(files, "mail.html"))
	})
}

// content is the data of the templates.
type content struct {
	auth.Mail
	For        string
	Subject    string
	Paragraphs []string
	// Label is the label of the button.
	Label string
}

// labels holds the label of the button of each kind of mail.
var labels = map[auth.MailKind]string{
	auth.MailVerifyEmail: "Confirm the address", auth.MailResetPassword: "Choose a new password", auth.MailMagicLink: "Sign in",
	auth.MailSignInCode: "Sign in", auth.MailSecondFactor: "Sign in", auth.MailChangeEmail: "Confirm the new address",
	auth.MailApproveChange: "Approve the change", auth.MailDeleteAccount: "Delete my account", auth.MailAccountExists: "Sign in",
	auth.MailEmailChanged: "Undo the change",
}

// compose makes a message from the template of the kind: the first line is the subject, the rest
// the text, from which the HTML is made too.
func compose(m auth.Mail) (email.Message, error) {
	c := content{Mail: m, For: spell(m.ExpiresIn), Label: cmp.Or(labels[m.Kind], "Open")}
	c.Name = greeting(m.Name)
	if texts().Lookup(string(m.Kind)+".txt") == nil {
		return email.Message{}, fmt.Errorf("auth: no mail of kind %q", m.Kind)
	}
	var text, page bytes.Buffer
	if err := texts().ExecuteTemplate(&text, string(m.Kind)+".txt", c); err != nil {
		return email.Message{}, fmt.Errorf("auth: mail %s: %w", m.Kind, err)
	}
	subject, body, ok := strings.Cut(text.String(), "\n")
	if !ok {
		return email.Message{}, errors.New("auth: a mail without text")
	}
	body = strings.TrimSpace(body) + "\n"
	c.Subject, c.Paragraphs = oneLine(subject), strings.Split(strings.TrimSpace(body), "\n\n")
	if err := html().Execute(&page, c); err != nil {
		return email.Message{}, fmt.Errorf("auth: mail %s: %w", m.Kind, err)
	}
	return email.Message{To: m.To, Subject: c.Subject, Text: body, HTML: page.String(), UserID: m.UserID}, nil
}

// greeting returns the name if it cannot be an advertisement: whoever signs up with another
// person's address chooses the name in the mail.
func greeting(name string) string {
	if utf8.RuneCountInString(name) > 40 || strings.ContainsAny(name, "/:.@<>\n\r") {
		return ""
	}
	return name
}

// oneLine removes line breaks from a name that a user chose, for the subject.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// spell returns a duration in words.
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
