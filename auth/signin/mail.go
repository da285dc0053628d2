package signin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/jobs"
)

// The bindings of the library's jobs.
const (
	mailBinding  = "SIGNIN_MAIL"
	sweepBinding = "SIGNIN_SWEEP"
)

func (l *library) jobs() []jobs.Binding {
	return []jobs.Binding{
		{Name: mailBinding, MaxAttempts: 5, Timeout: time.Minute, Run: l.runMail},
		{Name: sweepBinding, Schedule: "17 * * * *", Run: l.runSweep},
	}
}

// letter is the request for a mail to an address. Only the job reads whether the address has an
// account, and so which mail it gets, if any: for the caller the cost and the response are the
// same.
type letter struct {
	// Kind is that of a link, of a code, or "sign_up" for an address that
	// somebody tried to sign up with.
	Kind    string `json:"kind"`
	Address string `json:"address"`
	// UserID is set if the caller has proved who they are.
	UserID string `json:"userId,omitempty"`
	// NewAddress is the address to which UserID changes theirs.
	NewAddress string `json:"newAddress,omitempty"`
	// Step is the step of a change of address, Approved says that the old address has approved it,
	// and ByCode that the new one gets a code instead of a link.
	Step     string `json:"step,omitempty"`
	Approved bool   `json:"approved,omitempty"`
	ByCode   bool   `json:"byCode,omitempty"`
	// Detail is what has changed about how UserID signs in, or the provider.
	Detail string `json:"detail,omitempty"`
	// Waiting is the subject of a second factor's code.
	Waiting string `json:"waiting,omitempty"`
	Name    string `json:"name,omitempty"`
	// Browser is the hash of a cookie of the browser that asked.
	Browser []byte `json:"browser,omitempty"`
	targets
	AskedAt int64 `json:"askedAt"`
}

// targets are where the browser goes after a link was used.
type targets struct {
	Callback string `json:"callback,omitempty"`
	NewUser  string `json:"newUser,omitempty"`
	Error    string `json:"error,omitempty"`
}

// The kinds of letters that carry no link of their own.
const (
	letterSignUp  = "sign_up"
	letterCode    = "code:"
	letterChanged = "email_changed"
	// letterPassword reports that a password was changed.
	letterPassword = "password_changed"
	// letterFactor reports that a second factor or a passkey was changed.
	letterFactor = "factor_changed"
	// letterConnected reports that a provider's account can now sign in.
	letterConnected = "account_connected"
)

// letterTTL bounds how late a mail may still be sent.
const letterTTL = 10 * time.Minute

// mailJob names the row of a letter, so that a job contains no address.
type mailJob struct {
	Letter string `json:"letter"`
}

// send enqueues a letter. It joins the transaction in ctx.
func (l *library) send(ctx context.Context, m letter) error {
	now := l.host.Now()
	_, err := l.sendAt(ctx, id.New(now), m, now)
	return err
}

// sendAt enqueues a letter for an instant, unless there is one with this id.
func (l *library) sendAt(ctx context.Context, letterID string, m letter, at time.Time) (added bool, err error) {
	m.AskedAt = at.UnixMilli()
	payload, err := json.Marshal(m)
	if err != nil {
		return false, fmt.Errorf("signin: encoding a letter: %w", err)
	}
	err = l.host.DB.InTx(ctx, func(ctx context.Context) error {
		added, err = l.store.insertLetter(ctx, letterID, m, string(payload), at)
		if err != nil || !added {
			return err
		}
		_, err = l.host.Jobs.Enqueue(ctx, mailBinding, mailJob{letterID}, jobs.At(at))
		return err
	})
	return added, err
}

// runMail sends a letter and deletes it.
func (l *library) runMail(ctx context.Context, job jobs.Job) error {
	var named mailJob
	if err := json.Unmarshal(job.Payload, &named); err != nil {
		return jobs.Permanent(err)
	}
	if named.Letter == "" { // of a release that put the letter into the job
		_, err := l.sendLetter(ctx, job.Payload)
		return err
	}
	payload, found, err := l.store.letter(ctx, named.Letter)
	if err != nil || !found {
		return err
	}
	done, failed := l.sendLetter(ctx, []byte(payload))
	if !done {
		return failed
	}
	return errors.Join(failed, l.store.deleteLetter(ctx, named.Letter))
}

// sendLetter makes and sends a mail; done says that a retry is of no use.
func (l *library) sendLetter(ctx context.Context, payload []byte) (done bool, err error) {
	var m letter
	if err := json.Unmarshal(payload, &m); err != nil {
		return true, jobs.Permanent(err)
	}
	if l.host.Now().Sub(time.UnixMilli(m.AskedAt)) > letterTTL {
		return true, jobs.Cancel(errors.New("signin: the mail is too late to be of use"))
	}
	var mail auth.Mail
	var wanted bool
	err = l.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		mail, wanted, err = l.compose(ctx, m)
		return err
	})
	if err != nil || !wanted {
		return err == nil, err
	}
	err = l.auth.Mail(ctx, mail)
	if errors.Is(err, auth.ErrMailUnavailable) {
		return true, jobs.Permanent(err)
	}
	return err == nil, err
}

// compose makes the link or code of a letter; wanted is false when the address
// is to get nothing. It runs in a transaction.
func (l *library) compose(ctx context.Context, m letter) (mail auth.Mail, wanted bool, err error) {
	user, found, err := l.addressee(ctx, m)
	if err != nil {
		return auth.Mail{}, false, err
	}
	if found && !user.DisabledAt.IsZero() {
		return auth.Mail{}, false, nil
	}
	mail = auth.Mail{To: m.Address, UserID: user.ID, Name: user.Name, Detail: cmp.Or(m.NewAddress, m.Detail)}
	switch m.Kind {
	case kindVerify:
		return l.linkMail(ctx, mail, m, user, found && !user.EmailVerified, auth.MailVerifyEmail, "/verify-email", l.cfg.VerifyTTL)
	case kindReset:
		return l.linkMail(ctx, mail, m, user, found, auth.MailResetPassword, "/reset-password/", l.cfg.ResetTTL)
	case kindMagic:
		return l.linkMail(ctx, mail, m, user, found || !l.cfg.DisableSignUp, auth.MailMagicLink, "/magic-link/verify", l.cfg.LinkTTL)
	case kindDelete:
		return l.linkMail(ctx, mail, m, user, found, auth.MailDeleteAccount, "/delete-user/callback", l.cfg.ResetTTL)
	case kindChange:
		return l.changeMail(ctx, mail, m, user, found)
	case letterSignUp:
		mail.Kind = auth.MailAccountExists
		return mail, found, nil
	case letterChanged:
		return l.changedMail(ctx, mail, m, user)
	case letterPassword:
		mail.Kind = auth.MailPasswordChanged
		return mail, true, nil
	case letterConnected:
		mail.Kind = auth.MailAccountConnected
		return mail, true, nil
	case letterFactor:
		mail.Kind = auth.MailFactorChanged
		return mail, true, nil
	case letterSecondFactor:
		return l.secondCodeMail(ctx, mail, m, found)
	default:
		return l.codeMail(ctx, mail, m, user, found)
	}
}

// addressee returns the user whom a letter is about.
func (l *library) addressee(ctx context.Context, m letter) (auth.User, bool, error) {
	if m.UserID == "" {
		return l.auth.UserByEmail(ctx, m.Address)
	}
	user, err := l.auth.User(ctx, m.UserID)
	if errors.Is(err, auth.ErrUserNotFound) {
		return auth.User{}, false, nil
	}
	return user, err == nil, err
}

func (l *library) isFree(ctx context.Context, address string) (bool, error) {
	_, taken, err := l.auth.UserByEmail(ctx, address)
	return !taken, err
}

// linkMail adds a new link to a mail.
func (l *library) linkMail(ctx context.Context, mail auth.Mail, m letter, user auth.User, wanted bool, kind auth.MailKind, path string, ttl time.Duration) (auth.Mail, bool, error) {
	if !wanted {
		return mail, false, nil
	}
	token, err := l.issue(ctx, m.Kind, mail.To, user.ID, m, ttl)
	if err != nil {
		return mail, false, err
	}
	mail.Kind, mail.Link, mail.ExpiresIn = kind, l.link(path, token, m.targets), ttl
	return mail, true, nil
}

// link returns the address of a link with its token.
func (l *library) link(path, token string, to targets) string {
	q := url.Values{}
	if path == "/reset-password/" {
		path += token
	} else {
		q.Set("token", token)
	}
	for key, target := range map[string]string{"callbackURL": to.Callback, "newUserCallbackURL": to.NewUser, "errorCallbackURL": to.Error} {
		if target != "" {
			q.Set(key, target)
		}
	}
	link := l.host.BaseURL.String() + l.auth.BasePath() + path
	if len(q) > 0 {
		link += "?" + q.Encode()
	}
	return link
}

// runSweep removes expired rows.
func (l *library) runSweep(ctx context.Context, _ jobs.Job) error {
	for more := true; more; {
		err := l.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
			now := l.host.DB.Now(ctx)
			if more, err = l.store.sweep(ctx, now, now.Add(-clientTTL)); err != nil {
				return err
			}
			ceremonies, err := l.passkeys.Sweep(ctx, sweepBatch)
			if err != nil {
				return err
			}
			challenges, err := l.factors.Sweep(ctx, sweepBatch)
			if err != nil {
				return err
			}
			codes, err := l.codes.Sweep(ctx, sweepBatch)
			more = more || ceremonies || challenges || codes
			return err
		})
		if err != nil {
			return err
		}
	}
	return l.sweepNewcomers(ctx)
}

// newcomerKept is how long a user may take to prove an address that must be proved before sign-in;
// it is longer than any link that proves it is valid.
const newcomerKept = 30 * 24 * time.Hour

// sweepNewcomers deletes users who never proved their address and so never signed in. It skips a
// user who proved it another way, and one whose account knows a client, because verification was
// not required at that time.
func (l *library) sweepNewcomers(ctx context.Context) error {
	for {
		stale, err := l.store.staleNewcomers(ctx, l.host.Now().Add(-newcomerKept), newcomersAtOnce)
		if err != nil {
			return err
		}
		for _, userID := range stale {
			if err := l.sweepNewcomer(ctx, userID); err != nil {
				return err
			}
		}
		if len(stale) < newcomersAtOnce {
			return nil
		}
	}
}

const newcomersAtOnce = 100

func (l *library) sweepNewcomer(ctx context.Context, userID string) error {
	return l.host.DB.InTx(ctx, func(ctx context.Context) error {
		user, err := l.lockedUser(ctx, userID)
		if err != nil {
			return err
		}
		sessions, err := l.auth.Sessions(ctx, userID)
		if err != nil {
			return err
		}
		clients, err := l.store.knownClients(ctx, userID)
		if err != nil {
			return err
		}
		if user.EmailVerified || len(sessions) > 0 || len(clients) > 0 {
			return l.store.deleteNewcomer(ctx, userID)
		}
		return l.auth.DeleteUser(ctx, userID)
	})
}
