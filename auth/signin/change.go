package signin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/mailcode"
)

// The steps of a change of address that are no proof of the new one: the old
// address, when it was proved, approves the change before, and can undo it after.
const (
	stepApprove = "approve"
	stepUndo    = "undo"
)

// changeSubjectOf returns the subject of a step's links. It differs from that of links which others
// can request for the same address, so that those cannot displace them.
func changeSubjectOf(step, address string) string {
	if step == "" {
		return address
	}
	return step + " " + address
}

// askForChange begins a change of address: the old one, if it was proved, has to approve, otherwise
// the new one gets its mail at once. byCode sends the new address a code instead of a link.
func (l *library) askForChange(c *call, user auth.User, to string, byCode bool, callback string) error {
	m := letter{
		Kind: kindChange, Address: user.Email, UserID: user.ID, NewAddress: to,
		ByCode: byCode, targets: targets{Callback: callback},
	}
	if user.EmailVerified {
		m.Step = stepApprove
	} else if byCode {
		m.Kind = letterCode + codeChange
	}
	return c.mail(c.Context(), mailsOther, to, false, m)
}

// changeMail makes the mail of a step.
func (l *library) changeMail(ctx context.Context, mail auth.Mail, m letter, user auth.User, found bool) (auth.Mail, bool, error) {
	if m.Step == stepApprove {
		return l.stepMail(ctx, mail, m, user, found, auth.MailApproveChange, l.cfg.VerifyTTL)
	}
	free, err := l.isFree(ctx, m.NewAddress)
	if err != nil {
		return auth.Mail{}, false, err
	}
	mail.To = m.NewAddress
	return l.stepMail(ctx, mail, m, user, found && free, auth.MailChangeEmail, l.cfg.VerifyTTL)
}

func (l *library) stepMail(ctx context.Context, mail auth.Mail, m letter, user auth.User, wanted bool, kind auth.MailKind, ttl time.Duration) (auth.Mail, bool, error) {
	if !wanted {
		return mail, false, nil
	}
	token, err := l.issue(ctx, kindChange, changeSubjectOf(m.Step, mail.To), user.ID, m, ttl)
	if err != nil {
		return mail, false, err
	}
	mail.Kind, mail.Link, mail.ExpiresIn = kind, l.link("/verify-email", token, m.targets), ttl
	return mail, true, nil
}

// changedMail makes the mail that informs the old address, which can undo the change if it was
// proved.
func (l *library) changedMail(ctx context.Context, mail auth.Mail, m letter, user auth.User) (auth.Mail, bool, error) {
	if m.Step != stepUndo {
		mail.Kind = auth.MailEmailChanged
		return mail, true, nil
	}
	return l.stepMail(ctx, mail, m, user, true, auth.MailEmailChanged, undoTTL)
}

// undoTTL is how long the old address can undo a change.
const undoTTL = 7 * 24 * time.Hour

// changeStep runs the step of a change that a link is for. It runs in a transaction.
func (l *library) changeStep(ctx context.Context, user auth.User, k link, asked letter) (auth.User, error) {
	switch asked.Step {
	case stepApprove:
		return user, l.approveChange(ctx, user, asked)
	case stepUndo:
		return l.undoChange(ctx, user, asked)
	default:
		return l.changeAddress(ctx, user, k, asked)
	}
}

// approveChange sends the mail to the new address once the old one has approved.
func (l *library) approveChange(ctx context.Context, user auth.User, asked letter) error {
	if asked.Address != user.Email {
		return errInvalidToken
	}
	asked.Step, asked.Approved = "", true
	if asked.ByCode {
		asked.Kind = letterCode + codeChange
	}
	return l.send(ctx, asked)
}

// changeAddress sets the address that a user has just proved, and informs the old one. It runs in a
// transaction.
func (l *library) changeAddress(ctx context.Context, user auth.User, k link, asked letter) (auth.User, error) {
	if asked.Address != user.Email || user.EmailVerified && !asked.Approved {
		return user, errInvalidToken // the address was changed or proved another way meanwhile
	}
	yes := true
	changed, err := l.auth.UpdateUser(ctx, user.ID, auth.UserPatch{Email: &k.subject, EmailVerified: &yes})
	if errors.Is(err, auth.ErrEmailTaken) {
		return user, errUserExists
	}
	if err != nil {
		return changed, err
	}
	return changed, l.emailChanged(ctx, user, changed.Email)
}

// emailChanged records a change and informs the old address, which can undo it if it was proved. It
// runs in a transaction.
func (l *library) emailChanged(ctx context.Context, before auth.User, to string) error {
	if err := l.auth.Record(ctx, "auth/email_changed", before.ID, nil); err != nil || before.Email == "" {
		return err
	}
	if err := l.store.deleteLinksTo(ctx, kindReset, before.Email); err != nil {
		return err
	}
	if err := l.codes.Remove(ctx, mailcode.Key{Kind: codeForget, Subject: before.Email}); err != nil {
		return err
	}
	m := letter{Kind: letterChanged, Address: before.Email, UserID: before.ID, NewAddress: to}
	if before.EmailVerified {
		m.Step = stepUndo
	}
	return l.send(ctx, m)
}

// undoChange restores the old address of a user. An attacker who changed it may have added other
// ways to sign in and changed it again, so those are removed, together with the links that undo
// later changes and all sessions. It runs in a transaction.
func (l *library) undoChange(ctx context.Context, user auth.User, asked letter) (auth.User, error) {
	if err := l.store.lockUser(ctx, user.ID); err != nil {
		return user, err
	}
	old, yes, newer := asked.Address, true, user.Email
	restored, err := l.auth.UpdateUser(ctx, user.ID, auth.UserPatch{Email: &old, EmailVerified: &yes})
	if errors.Is(err, auth.ErrEmailTaken) {
		return user, errUserExists
	}
	if err != nil {
		return user, err
	}
	if err := l.forgetSince(ctx, user.ID, time.UnixMilli(asked.AskedAt)); err != nil {
		return user, err
	}
	if err := l.distrust(ctx, user.ID); err != nil {
		return user, err
	}
	if _, err := l.auth.RevokeUser(ctx, user.ID); err != nil {
		return user, err
	}
	if err := l.auth.Record(ctx, "auth/email_change_undone", user.ID, nil); err != nil {
		return user, err
	}
	return restored, l.send(ctx, letter{Kind: letterChanged, Address: newer, UserID: user.ID, NewAddress: old})
}

// stepPage returns the page that a link of a change shows before it is used.
func (l *library) stepPage(k link, asked letter, callback string) page {
	p := page{Title: "Confirm your address", Button: "Confirm", targets: []string{callback}}
	switch asked.Step {
	case stepApprove:
		p.Title, p.Button = "Approve a new address", "Approve"
		p.Text = "The account of " + mask(asked.Address) + " is to get the address " + mask(asked.NewAddress) + ". Approve it only if you asked for this."
	case stepUndo:
		p.Title, p.Button = "Undo the change of your address", "Undo the change"
		p.Text = "Your account gets the address " + mask(asked.Address) + " back and is signed out everywhere. Passwords and passkeys set since the change are removed."
	default: // of an account that may be another's
		p.Text = "The account of " + mask(asked.Address) + " gets the address " + mask(k.subject) + ". Confirm only if that account is yours."
	}
	return p
}

// stepDone returns the page that is shown after a step.
func stepDone(asked letter) page {
	switch asked.Step {
	case stepApprove:
		return page{Title: "The new address is asked", Text: "A mail was sent to " + cmp.Or(mask(asked.NewAddress), "it") + ". The address changes when it is confirmed there."}
	case stepUndo:
		return page{Title: "Your address is back", Text: "You are signed out everywhere. Set a new password, or sign in by mail."}
	default:
		return page{Title: "Your address is confirmed", Text: "You can close this page."}
	}
}

// checkChanger refuses a link of a change in a browser in which another user is signed in, except
// an undo, for which the link alone is the proof.
func checkChanger(session auth.Session, signedIn bool, user auth.User, asked letter) error {
	if signedIn && session.UserID != user.ID && asked.Step != stepUndo {
		return errInvalidUser
	}
	return nil
}

// donePage shows how a link ended.
func (c *call) donePage(p page) (any, error) { return c.page(http.StatusOK, p) }
