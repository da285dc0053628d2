package signin

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/passkey"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/text"
)

const ceremonyCookie = "kit_passkey"

func (l *library) passkeyRoutes() []route {
	return []route{
		get("/passkey/generate-register-options", rateWrite, l.registerOptions).reads(capability.Param{
			Name: "authenticatorAttachment", Summary: "The kind of authenticator; any by default.", Choices: []string{"platform", "cross-platform"}}),
		post("/passkey/verify-registration", rateWrite, l.verifyRegistration),
		get("/passkey/generate-authenticate-options", rateWrite, l.authenticateOptions),
		post("/passkey/verify-authentication", rateWrite, l.verifyAuthentication),
		get("/passkey/list-user-passkeys", rateRead, l.listPasskeys),
		post("/passkey/update-passkey", rateWrite, l.updatePasskey),
		post("/passkey/delete-passkey", rateWrite, l.deletePasskey),
	}
}

// site returns the site to which browsers bind passkeys.
func (l *library) site() passkey.Site {
	return passkey.Site{
		Host: l.host.BaseURL.Hostname(), Origin: l.ownOrigin(), Name: l.auth.AppName(), Trusts: l.auth.TrustedOrigin,
	}
}

func (l *library) ownOrigin() string {
	return l.host.BaseURL.Scheme + "://" + strings.ToLower(l.host.BaseURL.Host)
}

// wirePasskey is a passkey as better-auth's clients know it.
type wirePasskey struct {
	ID           string          `json:"id"`
	Name         *string         `json:"name"`
	PublicKey    string          `json:"publicKey"`
	UserID       string          `json:"userId"`
	CredentialID string          `json:"credentialID"`
	Counter      int64           `json:"counter"`
	DeviceType   string          `json:"deviceType"`
	BackedUp     bool            `json:"backedUp"`
	Transports   string          `json:"transports"`
	CreatedAt    capability.Time `json:"createdAt"`
	AAGUID       string          `json:"aaguid"`
}

func showPasskey(p passkey.Passkey) wirePasskey {
	device := "singleDevice"
	if p.Eligible {
		device = "multiDevice"
	}
	return wirePasskey{
		ID: p.ID, Name: orNull(p.Name), PublicKey: base64.StdEncoding.EncodeToString(p.PublicKey), UserID: p.UserID,
		CredentialID: base64.RawURLEncoding.EncodeToString(p.CredentialID), Counter: p.Counter, DeviceType: device,
		BackedUp: p.BackedUp, Transports: p.Transports, CreatedAt: capability.Time{Time: p.CreatedAt}, AAGUID: p.AAGUID,
	}
}

// passkeyOwner returns a user who signed in recently, their session, and the user as authenticators
// show them. Refuses with UNAUTHORIZED and SESSION_NOT_FRESH.
func (l *library) passkeyOwner(c *call) (auth.User, auth.Session, passkey.User, error) {
	session, err := c.fresh()
	if err != nil {
		return auth.User{}, session, passkey.User{}, err
	}
	user, err := l.auth.User(c.Context(), session.UserID)
	name := cmp.Or(user.Email, user.Username, user.ID)
	return user, session, passkey.User{ID: user.ID, Name: name, DisplayName: cmp.Or(user.Name, name)}, err
}

// begun returns the options of a ceremony, which only this browser may end.
func (c *call) begun(ceremony passkey.Ceremony) (any, error) {
	if !auth.BodyTransport(c.r) {
		c.setCookie(ceremonyCookie, ceremony.Challenge, passkey.CeremonyTTL)
	}
	return ceremony.Options, nil
}

// began refuses a browser that did not begin the ceremony of a challenge, with
// CHALLENGE_NOT_FOUND.
func (c *call) began(challenge string) error {
	if !auth.BodyTransport(c.r) && c.cookie(ceremonyCookie) != challenge {
		return passkey.ErrChallengeNotFound
	}
	return nil
}

// ended removes the cookie of a ceremony that has ended, whatever its result.
func (c *call) ended(err error) {
	if !errors.Is(err, passkey.ErrChallengeNotFound) {
		c.setCookie(ceremonyCookie, "", 0)
	}
}

// registerOptions returns the options by which the authenticator of a recently signed-in user makes
// a passkey.
func (l *library) registerOptions(c *call) (any, error) {
	_, _, owner, err := l.passkeyOwner(c)
	if err != nil {
		return nil, err
	}
	attachment := c.query("authenticatorAttachment")
	if attachment != "" && attachment != "platform" && attachment != "cross-platform" {
		return nil, errValidation.Saying("authenticatorAttachment is platform or cross-platform.")
	}
	ceremony, err := l.passkeys.BeginRegistration(c.Context(), owner, attachment)
	if err != nil {
		return nil, err
	}
	return c.begun(ceremony)
}

type passkeyBody struct {
	Response json.RawMessage `json:"response"`
	Name     string          `json:"name,omitempty"`
}

// verifyRegistration stores the passkey that the authenticator made. Refuses as
// [passkey.Passkeys.Register] and [passkey.Passkeys.Add] do.
func (l *library) verifyRegistration(c *call) (any, error) {
	user, session, owner, err := l.passkeyOwner(c)
	if err != nil {
		return nil, err
	}
	var in passkeyBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Name, err = passkeyName(in.Name); err != nil {
		return nil, err
	}
	sent, err := passkey.ReadRegistration(in.Response)
	if err != nil {
		return nil, err
	}
	if err := c.began(sent.Challenge); err != nil {
		return nil, err
	}
	made, err := l.passkeys.Register(c.Context(), owner, sent)
	c.ended(err)
	if err != nil {
		return nil, err
	}
	var added passkey.Passkey
	err = l.withSession(c.Context(), session, func(ctx context.Context) (err error) {
		if added, err = l.passkeys.Add(ctx, user.ID, in.Name, made); err != nil {
			return err
		}
		if err := l.auth.Record(ctx, "auth/passkey_added", user.ID, map[string]string{"passkey": added.ID}); err != nil {
			return err
		}
		return l.tell(ctx, user, "a passkey was added")
	})
	if err != nil {
		return nil, err
	}
	return showPasskey(added), nil
}

// authenticateOptions returns the options of a sign-in by any passkey of this site, or by one of
// the signed-in user.
func (l *library) authenticateOptions(c *call) (any, error) {
	session, _, err := c.maybeSession()
	if err != nil {
		return nil, err
	}
	ceremony, err := l.passkeys.BeginAuthentication(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	return c.begun(ceremony)
}

// verifyAuthentication signs in the owner of a passkey. Refuses as
// [passkey.Passkeys.Authenticate] does.
func (l *library) verifyAuthentication(c *call) (any, error) {
	var in passkeyBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	sent, err := passkey.ReadAssertion(in.Response)
	if err != nil {
		return nil, err
	}
	if err := c.began(sent.Challenge); err != nil {
		return nil, err
	}
	used, err := l.passkeys.Authenticate(c.Context(), sent)
	c.ended(err)
	if err != nil {
		return nil, err
	}
	user, err := l.auth.User(c.Context(), used.Passkey.UserID)
	if err != nil {
		return nil, err
	}
	if err := l.keepUse(c.Context(), used); err != nil {
		return nil, err
	}
	e, err := l.enter(c, user, "passkey", true, func(ctx context.Context) error {
		has, err := l.passkeys.List(ctx, user.ID)
		if err == nil && !slices.ContainsFunc(has, func(p passkey.Passkey) bool { return p.ID == used.Passkey.ID }) {
			err = passkey.ErrUnknown
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.passkeyResponse(c, e)
}

// keepUse stores a use of a passkey. A counter that went back is recorded in the audit trail.
func (l *library) keepUse(ctx context.Context, used passkey.Use) error {
	return l.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := l.passkeys.Keep(ctx, used); err != nil || !used.CounterFell {
			return err
		}
		return l.auth.Record(ctx, "auth/passkey_counter_fell", used.Passkey.UserID, map[string]any{
			"passkey": used.Passkey.ID, "counter": used.Passkey.Counter, "signed": used.Signed,
		})
	})
}

// passkeySignedIn is better-auth's response to a sign-in by passkey, with the token.
type passkeySignedIn struct {
	Session      wireSession `json:"session"`
	User         wireUser    `json:"user"`
	Token        string      `json:"token"`
	RefreshToken string      `json:"refreshToken,omitempty"`
}

func (l *library) passkeyResponse(c *call, e entry) (any, error) {
	user, err := l.wire(c.Context(), e.user)
	out := passkeySignedIn{Session: showSession(e.in.Session), User: user, Token: e.in.AccessToken}
	if e.native {
		out.RefreshToken = e.in.RefreshToken
	}
	return out, err
}

func (l *library) listPasskeys(c *call) (any, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	passkeys, err := l.passkeys.List(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	out := make([]wirePasskey, len(passkeys))
	for i, p := range passkeys {
		out[i] = showPasskey(p)
	}
	return out, nil
}

type passkeyPatch struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

type onlyPasskey struct {
	Passkey wirePasskey `json:"passkey"`
}

func (l *library) updatePasskey(c *call) (any, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	var in passkeyPatch
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Name, err = passkeyName(in.Name); err != nil || in.Name == "" {
		return nil, errValidation.Saying("name is text of 1 to %d bytes.", passkey.MaxName)
	}
	var renamed passkey.Passkey
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		renamed, err = l.passkeys.Rename(ctx, session.UserID, in.ID, in.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return onlyPasskey{showPasskey(renamed)}, nil
}

func (l *library) deletePasskey(c *call) (any, error) {
	user, err := c.freshUser("")
	if err != nil {
		return nil, err
	}
	var in passkeyPatch
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		if err := l.passkeys.Remove(ctx, user.ID, in.ID); err != nil {
			return err
		}
		if err := l.auth.Record(ctx, "auth/passkey_removed", user.ID, map[string]string{"passkey": in.ID}); err != nil {
			return err
		}
		return l.tell(ctx, user, "a passkey was removed")
	})
	if err != nil {
		return nil, err
	}
	return ok, nil
}

// passkeyName trims the name that a user gave a passkey. Refuses with VALIDATION_ERROR.
func passkeyName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if len(name) > passkey.MaxName || !utf8.ValidString(name) || strings.ContainsFunc(name, text.Misleads) {
		return "", errValidation.Saying("name is text of at most %d bytes, without control characters.", passkey.MaxName)
	}
	return name, nil
}
