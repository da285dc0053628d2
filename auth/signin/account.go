package signin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
	"github.com/kitbackend/kit/capability"
)

func (l *library) accountRoutes() []route {
	return []route{
		post("/update-user", rateWrite, l.updateUser),
		post("/change-email", rateSend, l.changeEmail).sends(sendsLink),
		post("/delete-user", rateSend, l.deleteUser).sends(sendsLink),
		get("/delete-user/callback", rateLink, l.getDeleteCallback).opened().reads(tokenParam, callbackParam),
		post("/delete-user/callback", rateLink, l.postDeleteCallback).opened().reads(tokenParam, callbackParam),
		get("/list-accounts", rateRead, l.listAccounts),
		post("/unlink-account", rateWrite, l.unlinkAccount),
	}
}

type updateUserBody struct {
	Email    *string  `json:"email,omitempty"`
	Name     *string  `json:"name,omitempty"`
	Image    nullable `json:"image,omitzero"`
	Username *string  `json:"username,omitempty"`
	// DisplayUsername is the user name as it is displayed.
	DisplayUsername *string `json:"displayUsername,omitempty"`
}

// nullable is a text member for which null removes the value.
type nullable struct {
	given bool
	text  string
}

// UnmarshalJSON reads a text or null.
func (n *nullable) UnmarshalJSON(data []byte) error {
	n.given = true
	if string(data) == "null" {
		return nil
	}
	return json.Unmarshal(data, &n.text)
}

func (l *library) updateUser(c *call) (any, error) {
	var in updateUserBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	user, _, err := c.user()
	if err != nil {
		return nil, err
	}
	if in.Email != nil {
		return nil, errEmailUnchangeable
	}
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	patch := auth.UserPatch{Name: in.Name, Profile: fields}
	if in.Image.given {
		patch.Image = &in.Image.text
	}
	if in.Username != nil {
		if !l.cfg.Usernames {
			return nil, errFieldNotAllowed
		}
		name, err := l.readUsername(*in.Username)
		if err != nil {
			return nil, err
		}
		patch.Username = &name
	}
	if in.DisplayUsername != nil && l.cfg.Usernames {
		display, err := displayUsername(*in.DisplayUsername)
		if err != nil {
			return nil, err
		}
		patch.DisplayUsername = &display
	}
	if patch.Name == nil && patch.Image == nil && patch.Username == nil && patch.DisplayUsername == nil && len(patch.Profile) == 0 {
		return nil, errNoFields
	}
	if err := checkProfile(orEmpty(patch.Name), orEmpty(patch.Image)); err != nil {
		return nil, err
	}
	if _, err := l.auth.UpdateUser(c.Context(), user.ID, patch); err != nil {
		if errors.Is(err, auth.ErrUsernameTaken) {
			err = errUsernameTaken
		}
		return nil, err
	}
	return ok, nil
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

type changeEmailBody struct {
	NewEmail    string `json:"newEmail"`
	CallbackURL string `json:"callbackURL,omitempty"`
	Password    string `json:"password,omitempty"`
}

// changeEmail mails a link to the new address, once the old one, if it was
// proved, has approved; opened there, it changes the address. A taken address
// gets the same response and no mail.
func (l *library) changeEmail(c *call) (any, error) {
	var in changeEmailBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	user, err := c.freshUser(in.Password)
	if err != nil {
		return nil, err
	}
	to, err := addressAt("newEmail", in.NewEmail)
	if err != nil {
		return nil, err
	}
	callback, err := l.target(in.CallbackURL, errInvalidCallbackURL)
	switch {
	case err != nil:
		return nil, err
	case user.Anonymous:
		return nil, errChangeEmailDisabled
	case to == user.Email:
		return nil, errEmailSame
	}
	return ok, l.askForChange(c, user, to, false, callback)
}

// freshUser returns the caller if their session is fresh or the password is right. Refuses as
// freshOr does.
func (c *call) freshUser(password string) (auth.User, error) {
	user, session, err := c.user()
	if err != nil {
		return auth.User{}, err
	}
	return user, c.freshOr(user, session, password)
}

// deleted is better-auth's response to /delete-user.
type deleted struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}

var userDeleted = deleted{true, "User deleted"}

type deleteUserBody struct {
	CallbackURL string `json:"callbackURL,omitempty"`
	Password    string `json:"password,omitempty"`
	Token       string `json:"token,omitempty"`
}

// deleteUser deletes the caller, who must prove once more who they are: by the password, by a link
// in a mail, or, without an address to send it to, by a recent sign-in.
func (l *library) deleteUser(c *call) (any, error) {
	var in deleteUserBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if l.cfg.DisableDeletion {
		return nil, errNotFound
	}
	user, session, err := c.user()
	if err != nil {
		return nil, err
	}
	callback, err := l.target(in.CallbackURL, errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Token != "":
		return userDeleted, l.deleteByToken(c, session, in.Token)
	case in.Password != "":
		if err := c.freshOr(user, session, in.Password); err != nil {
			return nil, err
		}
	case user.Email != "" && !user.Anonymous:
		return deleted{true, "Verification email sent"}, c.mail(c.Context(), mailsOther, user.Email, true, letter{
			Kind: kindDelete, Address: user.Email, UserID: user.ID, targets: targets{Callback: callback},
		})
	case !c.isFresh(session):
		return nil, errSessionExpired
	}
	return userDeleted, l.removeUser(c, session, func(context.Context) error { return nil })
}

// removeUser deletes the user of a session with the rows of the account and clears the cookies;
// first runs in the same transaction.
func (l *library) removeUser(c *call, session auth.Session, first func(context.Context) error) error {
	err := l.withSession(c.Context(), session, func(ctx context.Context) error {
		if err := first(ctx); err != nil {
			return err
		}
		return l.auth.DeleteAccount(ctx, session.UserID)
	})
	if err != nil {
		return err
	}
	return l.auth.Leave(c.w, c.r)
}

func (l *library) deleteByToken(c *call, session auth.Session, token string) error {
	return l.removeUser(c, session, func(ctx context.Context) error {
		k, err := l.take(ctx, token, kindDelete)
		if err == nil && k.userID != session.UserID {
			err = errInvalidToken
		}
		if err != nil {
			return err
		}
		return l.settle(ctx, used{hash: opaque.Hash(token), kind: kindDelete, browser: opaque.Hash(session.UserID)})
	})
}

// getDeleteCallback shows the button that deletes the account, to its owner.
func (l *library) getDeleteCallback(c *call) (any, error) {
	callback, err := l.target(c.query("callbackURL"), errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	if c.fromScript() {
		return l.postDeleteCallback(c)
	}
	k, err := l.peek(c.Context(), c.query("token"), kindDelete)
	if err != nil {
		return c.fail(asInvalid(err), "")
	}
	return c.page(200, page{
		Title:   "Delete your account",
		Text:    "The account of " + mask(k.subject) + " and what belongs to it is deleted. This cannot be undone.",
		Button:  "Delete my account",
		targets: []string{callback},
	})
}

func (l *library) postDeleteCallback(c *call) (any, error) {
	if l.cfg.DisableDeletion {
		return nil, errNotFound
	}
	callback, err := l.target(c.query("callbackURL"), errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	user, session, err := c.user()
	if err == nil {
		err = l.deleteByToken(c, session, c.query("token"))
	}
	if isOwn(err) { // the second of two calls is signed out by the first
		done, deleted, failed := l.justUsed(c.Context(), c.query("token"), kindDelete)
		if failed != nil {
			return nil, failed
		}
		if deleted && (user.ID == "" || bytes.Equal(done.browser, opaque.Hash(user.ID))) {
			err = nil
		}
	}
	switch {
	case isOwn(err) && !c.fromScript():
		return l.notDeleted(c, user, err)
	case err != nil:
		return c.fail(err, "")
	case callback != "":
		return c.redirect(callback)
	case c.fromScript():
		return userDeleted, nil
	default:
		return c.page(200, page{Title: "Your account is deleted", Text: "You can close this page."})
	}
}

// notDeleted shows why a link did not delete an account: its user may be signed in elsewhere only.
func (l *library) notDeleted(c *call, signedIn auth.User, refusal error) (any, error) {
	k, err := l.peek(c.Context(), c.query("token"), kindDelete)
	if err != nil || k.userID == signedIn.ID {
		return c.fail(refusal, "")
	}
	shown := auth.LibraryRefusal(refusal)
	return c.page(shown.Status, page{
		Title: "Sign in first", Text: "Sign in as " + mask(k.subject) + " in this browser, then open the link again.",
		Code: shown.Code, Failed: true,
	})
}

// wireAccount is one way to sign in, as better-auth's clients know it.
type wireAccount struct {
	ID         string          `json:"id"`
	ProviderID string          `json:"providerId"`
	Issuer     string          `json:"issuer"`
	AccountID  string          `json:"accountId"`
	UserID     string          `json:"userId"`
	Scopes     []string        `json:"scopes"`
	CreatedAt  capability.Time `json:"createdAt"`
	UpdatedAt  capability.Time `json:"updatedAt"`
}

func (l *library) listAccounts(c *call) (any, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	rows, err := l.store.accounts(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	out := make([]wireAccount, len(rows))
	for i, a := range rows {
		out[i] = wireAccount{a.id, a.provider, a.issuer, a.accountID, a.userID, strings.Fields(a.scopes), a.createdAt, a.updatedAt}
	}
	return out, nil
}

// names reports whether a request to unlink names an account: by the id of its row, as
// better-auth's client does, or by its provider, of which a user may have several accounts.
func names(a account, provider, accountID string) bool {
	if provider == "" || a.id == accountID {
		return a.id == accountID
	}
	return a.provider == provider && (accountID == "" || a.accountID == accountID)
}

type unlinkBody struct {
	ProviderID string `json:"providerId,omitempty"`
	AccountID  string `json:"accountId,omitempty"`
	Password   string `json:"password,omitempty"`
}

// unlinkAccount removes one way to sign in, never the last one.
func (l *library) unlinkAccount(c *call) (any, error) {
	var in unlinkBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	user, session, err := c.user()
	if err != nil {
		return nil, err
	}
	if err := c.freshOr(user, session, in.Password); err != nil {
		return nil, err
	}
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		rows, err := l.store.lockAccounts(ctx, session.UserID)
		if err != nil {
			return err
		}
		for _, a := range rows {
			if !names(a, in.ProviderID, in.AccountID) {
				continue
			}
			if len(rows) == 1 {
				return errLastAccount
			}
			if err := l.store.deleteAccount(ctx, session.UserID, a.id); err != nil {
				return err
			}
			return l.auth.Record(ctx, "auth/account_unlinked", session.UserID, map[string]string{"provider": a.provider})
		}
		return errAccountNotFound
	})
	if err != nil {
		return nil, err
	}
	return ok, nil
}
