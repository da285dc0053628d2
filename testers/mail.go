package testers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kitbackend/kit/email"
)

// MailData is the data of mail templates.
type MailData struct {
	Kind   MailKind
	Name   string
	Cohort string
	// Link is the URL of the next step; OptOut is the URL to opt out, which the text must contain.
	Link, OptOut string
	// Days is the length of the window.
	Days int
	// Subject and Body are the custom text of staff, or empty.
	Subject, Body string
}

// send mails a member and stores the job id in m, whose row the caller writes. It joins the
// transaction of ctx.
func (t *Testers) send(ctx context.Context, c Cohort, m *Member, kind MailKind, own *CustomCopy) error {
	if c.StoreURL == "" {
		return ErrNotConfigured
	}
	hashes, err := t.hashes(ctx, m.key)
	if err != nil {
		return err
	}
	if gone, err := t.store.buried(ctx, hashes); err != nil {
		return err
	} else if gone {
		return ErrWithdrawn
	}
	data, err := t.mailData(ctx, c, *m, kind, own)
	if err != nil {
		return err
	}
	message := email.Message{To: m.Email, Category: email.CategoryList, UserID: m.user, Quota: Name, Unsubscribe: data.OptOut}
	if t.cfg.MailTemplate != nil {
		if message.Template, err = t.cfg.MailTemplate(ctx, kind, *m); err != nil {
			return err
		}
	}
	if message.Template == "" {
		message.Subject, message.Text = builtInMail(data)
	} else {
		message.Data = data
		content, err := t.peers.Email.Preview(message.Template, data)
		if err != nil {
			return err
		}
		if !strings.Contains(content.Text, data.OptOut) {
			return ErrCopyNotAllowed.With(CopyFault{Rule: ruleOptOut, Field: "body"})
		}
	}
	if err := t.retract(ctx, m); err != nil { // at most one mail is queued, so that a withdrawal cancels all
		return err
	}
	m.mailJob, err = t.peers.Email.Send(ctx, message)
	return err
}

func (t *Testers) mailData(ctx context.Context, c Cohort, m Member, kind MailKind, own *CustomCopy) (d MailData, err error) {
	d = MailData{Kind: kind, Name: m.Name, Cohort: c.Name, Link: c.StoreURL, Days: c.WindowDays}
	next := link{memberID: m.ID, generation: m.generation, expires: t.db.Now(ctx).Add(t.cfg.OptInLinkTTL).Truncate(time.Second), hash: m.hash}
	switch kind {
	case MailInvite, MailConfirm:
		next.kind = confirmLink
	case MailStore:
		next.kind = optInLink
	default:
	}
	if next.kind != 0 {
		if d.Link, err = t.url(ctx, next); err != nil {
			return d, err
		}
	}
	if d.OptOut, err = t.url(ctx, link{kind: optOutLink, memberID: m.ID, hash: m.hash}); err != nil {
		return d, err
	}
	if own != nil {
		fill := strings.NewReplacer("{{name}}", d.Name, "{{cohort}}", d.Cohort, "{{link}}", d.Link)
		d.Subject, d.Body = fill.Replace(own.Subject), fill.Replace(own.Body)
		if !strings.Contains(own.Body, "{{link}}") {
			d.Body += "\n\n" + d.Link
		}
	}
	return d, nil
}

// builtInMail writes the built-in mail of a kind.
func builtInMail(d MailData) (subject, text string) {
	var body string
	switch d.Kind {
	case MailInvite:
		subject = "Would you test " + d.Cohort + "?"
		body = fmt.Sprintf("You are invited to the closed test of %s. It takes about %d days. Say yes here:\n\n%s\n\nIf this is not for you, there is nothing to do.", d.Cohort, d.Days, d.Link)
	case MailConfirm:
		subject = "Still interested in testing " + d.Cohort + "?"
		body = fmt.Sprintf("We asked whether you would test %s. If you would, say so here:\n\n%s", d.Cohort, d.Link)
	case MailStore:
		subject = "Next step: join the test of " + d.Cohort
		body = fmt.Sprintf("Thank you for saying yes to testing %s. To get the app, join the test in the store:\n\n%s", d.Cohort, d.Link)
	case MailInactive:
		subject = "How is " + d.Cohort + " going?"
		body = fmt.Sprintf("You joined the test of %s, and we have not seen the app in use for a while. If something does not work, please tell us. The app is here:\n\n%s", d.Cohort, d.Link)
	default:
		subject = "The test of " + d.Cohort + " is nearly over"
		body = fmt.Sprintf("The test of %s has a few days left. It helps if you stay in it until then. The app is here:\n\n%s", d.Cohort, d.Link)
	}
	if d.Body != "" {
		subject, body = d.Subject, d.Body
	}
	greeting := "Hello,"
	if d.Name != "" {
		greeting = "Hello " + d.Name + ","
	}
	if d.Body != "" {
		greeting = ""
	}
	return subject, strings.TrimSpace(greeting+"\n\n"+body) +
		"\n\nYou can leave at any time, and get no more of these mails, here:\n" + d.OptOut + "\n"
}
