package signin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

// accountsPerUser bounds the accounts of a user at all providers together.
const accountsPerUser = 20

// identity is a user as a provider vouches for them, in one request.
type identity struct {
	client  *oauth.Client
	profile oauth.Profile
	tokens  oauth.Tokens
	// signUp says that the request asked for a new user.
	signUp bool
	// callback is where a mail that proves the address leads to.
	callback string
}

// linkRefusal is the reason why a provider's account was refused, by the code in better-auth's
// redirects.
type linkRefusal string

// The reasons of linkRefusal.
const (
	refusedNotLinked      linkRefusal = "account_not_linked"
	refusedSignUp         linkRefusal = "signup_disabled"
	refusedNoEmail        linkRefusal = "email_not_found"
	refusedUnverified     linkRefusal = "email_not_verified"
	refusedLink           linkRefusal = "unable_to_link_account"
	refusedOtherEmail     linkRefusal = "email_does_not_match"
	refusedLinkedToOther  linkRefusal = "account_already_linked_to_different_user"
	errLinkingInterrupted linkRefusal = "internal_server_error"
)

func (r linkRefusal) Error() string { return "signin: " + string(r) }

// reply is the refusal of a request that is no redirect.
func (r linkRefusal) reply(linking bool) *capability.Error {
	switch r {
	case refusedNoEmail:
		return errUserEmailNotFound
	case refusedUnverified:
		return errEmailNotVerified
	case refusedLink:
		return errLinkingNotAllowed
	case refusedOtherEmail:
		return errDifferentEmails
	case refusedLinkedToOther:
		if linking {
			return errSocialAlreadyLinked
		}
	default:
	}
	return errOAuthLink.Saying("%s", strings.ReplaceAll(string(r), "_", " "))
}

// resolve returns the user whom a provider's account signs in: the one it is linked to; else the
// one with its address, if both sides have verified that; else a new one. Its error may be a
// linkRefusal.
func (l *library) resolve(c *call, who identity) (user auth.User, created bool, err error) {
	var refusal error
	for range 2 { // again if another request was first with the account or the address
		err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
			user, created, err = l.resolveIn(c.in(ctx), who)
			if refusal = nil; err == nil && l.cfg.RequireVerification && !user.EmailVerified {
				refusal = refusedUnverified // the user stays: a mail lets them prove the address
			}
			return err
		})
		if !errors.Is(err, auth.ErrEmailTaken) && !errors.Is(err, errLinkingInterrupted) {
			break
		}
	}
	if err == nil {
		err = refusal
	}
	return user, created, err
}

func (l *library) resolveIn(c *call, who identity) (user auth.User, created bool, err error) {
	ctx := c.Context()
	linked, found, err := l.store.accountOf(ctx, who.client.ID, who.issuer(), who.profile.Subject)
	if err != nil {
		return user, false, err
	}
	if found {
		user, err = l.linkedUser(ctx, linked, who)
		return user, false, err
	}
	if who.profile.Email == "" {
		return user, false, refusedNoEmail
	}
	user, found, err = l.auth.UserByEmail(ctx, who.profile.Email)
	if err != nil {
		return user, false, err
	}
	if found {
		if user, err = l.lockedUser(ctx, user.ID); err != nil {
			return user, false, err
		}
		if !who.profile.EmailVerified || !user.EmailVerified || user.Email != who.profile.Email {
			return user, false, refusedNotLinked
		}
		return user, false, l.connect(ctx, user, who)
	}
	if user, err = l.signUpWith(c, who); err != nil {
		return user, false, err
	}
	return user, true, l.linkAccount(ctx, user, who)
}

// linkedUser returns the user of a linked account. If the provider has verified the user's address
// and the user has not proved it, it counts as proved now, and every other way to sign in that was
// set before is removed.
func (l *library) linkedUser(ctx context.Context, a account, who identity) (auth.User, error) {
	user, err := l.lockedUser(ctx, a.userID)
	if err != nil {
		return user, err
	}
	if who.profile.EmailVerified && !user.EmailVerified && user.Email == who.profile.Email {
		if user, err = l.reclaim(ctx, user); err != nil {
			return user, err
		}
		if err := l.insertLinked(ctx, a); err != nil {
			return user, err
		}
	}
	return user, l.keepTokens(ctx, a.id, who.tokens)
}

// withUser runs do in a transaction that has locked the user.
func (l *library) withUser(ctx context.Context, userID string, do func(context.Context) error) error {
	return l.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := l.store.lockUser(ctx, userID); err != nil {
			return err
		}
		return do(ctx)
	})
}

// withSession is withUser for a session that changes how its user signs in. It refuses a session
// that has ended, so that a request which waits while the owner of the account sets a new password
// cannot add a way back in. Refuses with UNAUTHORIZED.
func (l *library) withSession(ctx context.Context, session auth.Session, do func(context.Context) error) error {
	return l.withUser(ctx, session.UserID, func(ctx context.Context) error {
		if err := l.stillIn(session)(ctx); err != nil {
			return err
		}
		return do(ctx)
	})
}

// stillIn returns the still of a session.
func (l *library) stillIn(session auth.Session) still {
	return func(ctx context.Context) error {
		_, err := l.auth.Session(ctx, session.ID)
		if errors.Is(err, auth.ErrSessionNotFound) {
			err = errUnauthorized
		}
		return err
	}
}

// lockedUser locks and reads a user.
func (l *library) lockedUser(ctx context.Context, userID string) (auth.User, error) {
	if err := l.store.lockUser(ctx, userID); err != nil {
		return auth.User{}, err
	}
	return l.auth.User(ctx, userID)
}

// signUpWith creates the user of a provider's account, if that is allowed.
func (l *library) signUpWith(c *call, who identity) (auth.User, error) {
	p := who.client.Provider
	if l.cfg.DisableSignUp || p.NoSignUp || p.ExplicitSignUp && !who.signUp {
		return auth.User{}, refusedSignUp
	}
	user, err := l.newUser(c, auth.NewUser{
		Email: who.profile.Email, EmailVerified: who.profile.EmailVerified, Name: who.profile.Name, Image: who.profile.Image,
	})
	if err != nil || user.EmailVerified || !l.cfg.RequireVerification {
		return user, err
	}
	return user, l.send(c.Context(), letter{Kind: kindVerify, Address: user.Email, targets: targets{Callback: who.callback}})
}

// linkAccount adds the provider's account to a user. It runs in a transaction in which
// the rules of linking were kept.
func (l *library) linkAccount(ctx context.Context, user auth.User, who identity) error {
	known, err := l.store.accounts(ctx, user.ID)
	if err != nil {
		return err
	}
	if len(known) >= accountsPerUser {
		return refusedLink
	}
	now := l.host.DB.Now(ctx)
	a := account{
		id: id.New(now), userID: user.ID, provider: who.client.ID, issuer: who.issuer(), accountID: who.profile.Subject,
		scopes: strings.Join(who.granted(), " "), createdAt: capability.Time{Time: now},
	}
	if err := l.insertLinked(ctx, a); err != nil {
		return err
	}
	if err := l.keepTokens(ctx, a.id, who.tokens); err != nil {
		return err
	}
	return l.auth.Record(ctx, "auth/account_linked", user.ID, map[string]any{"provider": a.provider, "account": a.id})
}

// insertLinked fails with errLinkingInterrupted when another request has linked
// the account meanwhile.
func (l *library) insertLinked(ctx context.Context, a account) error {
	inserted, err := l.store.insertAccount(ctx, a)
	if err == nil && !inserted {
		err = errLinkingInterrupted
	}
	return err
}

// linkTo adds the provider's account to the signed-in user who requested that, if it has the user's
// address, verified. An anonymous user becomes the user of the account, in the requesting session
// alone. Its error may be a linkRefusal.
func (l *library) linkTo(c *call, session auth.Session, who identity) (err error) {
	for range 2 {
		err = l.withSession(c.Context(), session, func(ctx context.Context) error { return l.linkToIn(ctx, session, who) })
		if !errors.Is(err, errLinkingInterrupted) {
			break
		}
	}
	if errors.Is(err, auth.ErrEmailTaken) {
		return refusedOtherEmail
	}
	return err
}

func (l *library) linkToIn(ctx context.Context, session auth.Session, who identity) error {
	user, err := l.auth.User(ctx, session.UserID)
	if err != nil {
		return err
	}
	linked, found, err := l.store.accountOf(ctx, who.client.ID, who.issuer(), who.profile.Subject)
	switch {
	case err != nil:
		return err
	case found && linked.userID != user.ID:
		return refusedLinkedToOther
	case found:
		if err := l.store.setScopes(ctx, linked.id, mergedScopes(linked.scopes, who.granted()), l.host.DB.Now(ctx)); err != nil {
			return err
		}
		return l.keepTokens(ctx, linked.id, who.tokens)
	case !who.profile.EmailVerified:
		return refusedLink
	}
	if user.Anonymous {
		yes, no := true, false
		patch := auth.UserPatch{Email: &who.profile.Email, EmailVerified: &yes, Anonymous: &no}
		if user.Name == anonymousName && who.profile.Name != "" {
			patch.Name = &who.profile.Name
		}
		if user, err = l.auth.UpdateUser(ctx, user.ID, patch); err != nil {
			return err
		}
		if err = l.disown(ctx, user.ID, session.ID); err != nil {
			return err
		}
	}
	if user.Email != who.profile.Email {
		return refusedOtherEmail
	}
	return l.connect(ctx, user, who)
}

// connect is linkAccount for an existing user, who is informed by mail.
func (l *library) connect(ctx context.Context, user auth.User, who identity) error {
	if err := l.linkAccount(ctx, user, who); err != nil || !user.EmailVerified {
		return err
	}
	return l.send(ctx, letter{Kind: letterConnected, Address: user.Email, UserID: user.ID, Detail: who.client.ID})
}

// issuer returns the issuer that vouches for the subject.
func (who identity) issuer() string { return who.client.IssuerOf(who.profile) }

// granted returns the scopes of the tokens; a provider that omits them granted those requested (RFC
// 6749, 5.1).
func (who identity) granted() []string {
	if len(who.tokens.Scopes) > 0 || who.tokens.Access == "" {
		return who.tokens.Scopes
	}
	return who.client.Scopes
}

func mergedScopes(known string, granted []string) string {
	scopes := strings.Fields(known)
	for _, scope := range granted {
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return strings.Join(scopes, " ")
}
