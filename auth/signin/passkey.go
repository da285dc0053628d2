package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/text"
)

const (
	ceremonyCookie = "kit_passkey"
	ceremonyTTL    = 5 * time.Minute
	maxPasskeys    = 20
	// maxPasskeyName bounds what a user calls a passkey, in bytes.
	maxPasskeyName = 64
)

// The kinds of ceremonies.
const (
	registration   = "registration"
	authentication = "authentication"
)

func (l *library) passkeyRoutes() []route {
	return []route{
		get("/passkey/generate-register-options", rateWrite, l.registerOptions),
		post("/passkey/verify-registration", rateWrite, l.verifyRegistration),
		get("/passkey/generate-authenticate-options", rateWrite, l.authenticateOptions),
		post("/passkey/verify-authentication", rateWrite, l.verifyAuthentication),
		get("/passkey/list-user-passkeys", rateRead, l.listPasskeys),
		post("/passkey/update-passkey", rateWrite, l.updatePasskey),
		post("/passkey/delete-passkey", rateWrite, l.deletePasskey),
	}
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

func (p passkey) wire() wirePasskey {
	device := "singleDevice"
	if p.eligible {
		device = "multiDevice"
	}
	return wirePasskey{
		ID: p.id, Name: orNull(p.name), PublicKey: base64.StdEncoding.EncodeToString(p.publicKey), UserID: p.userID,
		CredentialID: base64.RawURLEncoding.EncodeToString(p.credentialID), Counter: p.counter, DeviceType: device,
		BackedUp: p.backedUp, Transports: p.transports, CreatedAt: capability.Time{Time: p.createdAt}, AAGUID: p.aaguid,
	}
}

// registerOptions asks the authenticator of a user who signed in lately for a
// new passkey that can sign in without his name.
func (l *library) registerOptions(c *call) (any, error) {
	owner, err := l.passkeyOwner(c)
	if err != nil {
		return nil, err
	}
	attachment := protocol.AuthenticatorAttachment(c.query("authenticatorAttachment"))
	if attachment != "" && attachment != protocol.Platform && attachment != protocol.CrossPlatform {
		return nil, errValidation.Saying("authenticatorAttachment is platform or cross-platform.")
	}
	party, err := l.relyingParty(l.ownOrigin())
	if err != nil {
		return nil, err
	}
	known := webauthn.Credentials(owner.WebAuthnCredentials()).CredentialDescriptors()
	creation, _, err := party.BeginRegistration(owner,
		webauthn.WithExclusions(known),
		webauthn.WithCredentialParameters(passkeyAlgorithms),
		webauthn.WithAuthenticatorSelection(protocol.AuthenticatorSelection{
			AuthenticatorAttachment: attachment,
			ResidentKey:             protocol.ResidentKeyRequirementRequired,
			RequireResidentKey:      protocol.ResidentKeyRequired(),
			UserVerification:        protocol.VerificationRequired,
		}))
	if err != nil {
		return nil, err
	}
	return creation.Response, l.beginCeremony(c, registration, owner.user.ID, creation.Response.Challenge)
}

type passkeyBody struct {
	Response json.RawMessage `json:"response"`
	Name     string          `json:"name"`
}

// verifyRegistration keeps the passkey that the authenticator made. Refuses with
// CHALLENGE_NOT_FOUND, FAILED_TO_VERIFY_REGISTRATION, PREVIOUSLY_REGISTERED and
// TOO_MANY_PASSKEYS.
func (l *library) verifyRegistration(c *call) (any, error) {
	owner, err := l.passkeyOwner(c)
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
	response, err := protocol.ParseCredentialCreationResponseBytes(in.Response)
	if err != nil {
		return nil, errFailedToVerifyPasskey.Because(err)
	}
	client := response.Response.CollectedClientData
	asked, err := l.endCeremony(c, registration, client.Challenge)
	if err != nil {
		return nil, err
	}
	if asked != owner.user.ID {
		return nil, errNotAllowedToRegister
	}
	party, err := l.relyingParty(client.Origin)
	if err != nil {
		return nil, errFailedToVerifyPasskey.Because(err)
	}
	made, err := party.CreateCredential(owner, webauthn.SessionData{
		Challenge: client.Challenge, UserID: owner.WebAuthnID(), UserVerification: protocol.VerificationRequired,
		RelyingPartyID: party.Config.RPID, CredParams: passkeyAlgorithms,
	}, response)
	if err != nil {
		return nil, errFailedToVerifyPasskey.Because(err)
	}
	p, err := l.addPasskey(c.Context(), owner.user, in.Name, made)
	if err != nil {
		return nil, err
	}
	return p.wire(), nil
}

func (l *library) addPasskey(ctx context.Context, user auth.User, name string, made *webauthn.Credential) (p passkey, err error) {
	aaguid, _ := uuid.FromBytes(made.Authenticator.AAGUID) // none is all zeros
	var refusal error
	err = l.host.DB.InTx(ctx, func(ctx context.Context) error {
		refusal = nil
		now := l.host.DB.Now(ctx)
		p = passkey{
			id: id.New(now), userID: user.ID, credentialID: made.ID, publicKey: made.PublicKey, name: name,
			counter: int64(made.Authenticator.SignCount), aaguid: aaguid.String(), transports: transportText(made.Transport),
			eligible: made.Flags.BackupEligible, backedUp: made.Flags.BackupState, createdAt: now,
		}
		if err := l.store.lockUser(ctx, user.ID); err != nil {
			return err
		}
		n, err := l.store.countPasskeys(ctx, user.ID)
		if err != nil {
			return err
		}
		if n >= maxPasskeys {
			refusal = errTooManyPasskeys
			return nil
		}
		added, err := l.store.insertPasskey(ctx, p)
		if err != nil {
			return err
		}
		if !added {
			refusal = errPreviouslyRegistered
			return nil
		}
		if err := l.auth.Record(ctx, "auth/passkey_added", user.ID, map[string]string{"passkey": p.id}); err != nil {
			return err
		}
		return l.tell(ctx, user, "a passkey was added")
	})
	if err == nil {
		err = refusal
	}
	return p, err
}

// authenticateOptions asks for any passkey of this site, or for one of the
// signed-in user.
func (l *library) authenticateOptions(c *call) (any, error) {
	party, err := l.relyingParty(l.ownOrigin())
	if err != nil {
		return nil, err
	}
	session, signedIn, err := c.maybeSession()
	if err != nil {
		return nil, err
	}
	var allowed []protocol.CredentialDescriptor
	if signedIn {
		passkeys, err := l.store.passkeys(c.Context(), session.UserID)
		if err != nil {
			return nil, err
		}
		allowed = webauthn.Credentials(credentials(passkeys)).CredentialDescriptors()
	}
	assertion, _, err := party.BeginDiscoverableLogin(
		webauthn.WithUserVerification(protocol.VerificationRequired), webauthn.WithAllowedCredentials(allowed))
	if err != nil {
		return nil, err
	}
	whose := ""
	if len(allowed) > 0 {
		whose = session.UserID
	}
	return assertion.Response, l.beginCeremony(c, authentication, whose, assertion.Response.Challenge)
}

// verifyAuthentication signs in the owner of a passkey. Refuses with
// CHALLENGE_NOT_FOUND, PASSKEY_NOT_FOUND and AUTHENTICATION_FAILED.
func (l *library) verifyAuthentication(c *call) (any, error) {
	var in passkeyBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	response, err := protocol.ParseCredentialRequestResponseBytes(in.Response)
	if err != nil {
		return nil, errAuthenticationFailed.Because(err)
	}
	client := response.Response.CollectedClientData
	asked, err := l.endCeremony(c, authentication, client.Challenge)
	if err != nil {
		return nil, err
	}
	p, found, err := l.store.passkeyOf(c.Context(), response.RawID)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, withStatus(errPasskeyNotFound, errAuthenticationFailed.Status)
	}
	if asked != "" && asked != p.userID || asked == "" && len(response.Response.UserHandle) == 0 {
		return nil, errAuthenticationFailed
	}
	user, err := l.auth.User(c.Context(), p.userID)
	if err != nil {
		return nil, err
	}
	if err := l.usePasskey(c, user, p, response); err != nil {
		return nil, err
	}
	e, err := l.enter(c, user, "passkey", true)
	if err != nil {
		return nil, err
	}
	return l.passkeyResponse(c, e)
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

// usePasskey checks what the authenticator signed. A counter that went back may
// mean that the key was copied: it is recorded, and not refused, since some
// authenticators count so.
func (l *library) usePasskey(c *call, user auth.User, p passkey, response *protocol.ParsedCredentialAssertionData) error {
	client := response.Response.CollectedClientData
	party, err := l.relyingParty(client.Origin)
	if err != nil {
		return errAuthenticationFailed.Because(err)
	}
	owner := passkeyOwner{user, []passkey{p}}
	used, err := party.ValidateLogin(owner, webauthn.SessionData{
		Challenge: client.Challenge, UserID: owner.WebAuthnID(), UserVerification: protocol.VerificationRequired,
		RelyingPartyID: party.Config.RPID,
	}, response)
	if err != nil {
		return errAuthenticationFailed.Because(err)
	}
	return l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		counter := int64(used.Authenticator.SignCount)
		if err := l.store.usePasskey(ctx, p.id, counter, used.Flags.BackupState, l.host.DB.Now(ctx)); err != nil {
			return err
		}
		if !used.Authenticator.CloneWarning {
			return nil
		}
		return l.auth.Record(ctx, "auth/passkey_counter_fell", user.ID, map[string]any{
			"passkey": p.id, "counter": p.counter, "signed": response.Response.AuthenticatorData.Counter,
		})
	})
}

func (l *library) listPasskeys(c *call) (any, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	passkeys, err := l.store.passkeys(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	out := make([]wirePasskey, len(passkeys))
	for i, p := range passkeys {
		out[i] = p.wire()
	}
	return out, nil
}

type passkeyPatch struct {
	ID   string `json:"id"`
	Name string `json:"name"`
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
		return nil, errValidation.Saying("name is text of 1 to %d bytes.", maxPasskeyName)
	}
	var p passkey
	var found bool
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		p, found, err = l.store.renamePasskey(ctx, session.UserID, in.ID, in.Name)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errPasskeyNotFound
	}
	return map[string]any{"passkey": p.wire()}, nil
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
	var deleted bool
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		if deleted, err = l.store.deletePasskey(ctx, user.ID, in.ID); err != nil || !deleted {
			return err
		}
		if err := l.auth.Record(ctx, "auth/passkey_removed", user.ID, map[string]string{"passkey": in.ID}); err != nil {
			return err
		}
		return l.tell(ctx, user, "a passkey was removed")
	})
	switch {
	case err != nil:
		return nil, err
	case !deleted:
		return nil, errPasskeyNotFound
	}
	return ok, nil
}

// passkeyName trims what a user calls a passkey. Refuses with VALIDATION_ERROR.
func passkeyName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if len(name) > maxPasskeyName || !utf8.ValidString(name) || strings.ContainsFunc(name, text.Misleads) {
		return "", errValidation.Saying("name is text of at most %d bytes.", maxPasskeyName)
	}
	return name, nil
}

var passkeyAlgorithms = []protocol.CredentialParameter{
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgEdDSA},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgES256},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgRS256},
}
