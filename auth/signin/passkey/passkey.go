// Package passkey registers passkeys and signs users in by them (WebAuthn). Package signin calls
// it, handles sessions and cookies, and decides who may change the passkeys of a user.
//
// What it promises:
//   - A challenge is valid for one ceremony, within [CeremonyTTL], whatever its result. Only its
//     hash is stored.
//   - A passkey is accepted from pages of origins that the site trusts, and if the authenticator
//     has verified the user: by itself it is two factors.
//   - A credential belongs to one user: a passkey signs in the user of its row, whatever name is
//     sent with it.
//   - A stored counter never falls. A lower one from the authenticator is reported, see [Use],
//     and not refused.
package passkey

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
)

// Passkeys manages the passkeys of a site. It is safe for concurrent use.
type Passkeys struct {
	store store
	site  Site
	// begun counts the ceremonies.
	begun atomic.Uint64
}

// New returns the passkeys of a site; the migrations of signin make their tables.
func New(db *database.DB, site Site) *Passkeys { return &Passkeys{store: store{db}, site: site} }

var algorithms = []protocol.CredentialParameter{
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgEdDSA},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgES256},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgRS256},
}

// BeginRegistration begins to make a passkey of a user, one that can sign in without a user name;
// attachment is "platform", "cross-platform" or "" for either. Refuses with PASSKEYS_NOT_AVAILABLE.
func (p *Passkeys) BeginRegistration(ctx context.Context, user User, attachment string) (Ceremony, error) {
	known, err := p.store.passkeys(ctx, user.ID)
	if err != nil {
		return Ceremony{}, err
	}
	party, err := p.relyingParty(p.site.Origin)
	if err != nil {
		return Ceremony{}, err
	}
	creation, _, err := party.BeginRegistration(owner{user, known},
		webauthn.WithExclusions(webauthn.Credentials(credentials(known)).CredentialDescriptors()),
		webauthn.WithCredentialParameters(algorithms),
		webauthn.WithAuthenticatorSelection(protocol.AuthenticatorSelection{
			AuthenticatorAttachment: protocol.AuthenticatorAttachment(attachment),
			ResidentKey:             protocol.ResidentKeyRequirementRequired,
			RequireResidentKey:      protocol.ResidentKeyRequired(),
			UserVerification:        protocol.VerificationRequired,
		}))
	if err != nil {
		return Ceremony{}, err
	}
	return p.begin(ctx, registration, user.ID, creation.Response, creation.Response.Challenge)
}

// ReadRegistration reads what a browser sent. Refuses with
// FAILED_TO_VERIFY_REGISTRATION.
func ReadRegistration(response []byte) (Registration, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return Registration{}, ErrRegistrationFailed.Because(err)
	}
	return Registration{Challenge: parsed.Response.CollectedClientData.Challenge, parsed: parsed}, nil
}

// Register ends a ceremony and checks the passkey that the authenticator made; [Passkeys.Add]
// stores it. Refuses with CHALLENGE_NOT_FOUND, with YOU_ARE_NOT_ALLOWED_TO_REGISTER_THIS_PASSKEY
// where another user began, and with FAILED_TO_VERIFY_REGISTRATION.
func (p *Passkeys) Register(ctx context.Context, user User, r Registration) (Credential, error) {
	asked, err := p.end(ctx, registration, r.Challenge)
	if err != nil {
		return Credential{}, err
	}
	if asked != user.ID {
		return Credential{}, ErrNotAllowed
	}
	party, err := p.relyingParty(r.parsed.Response.CollectedClientData.Origin)
	if err != nil {
		return Credential{}, ErrRegistrationFailed.Because(err)
	}
	made, err := party.CreateCredential(owner{user: user}, webauthn.SessionData{
		Challenge: r.Challenge, UserID: []byte(user.ID), UserVerification: protocol.VerificationRequired,
		RelyingPartyID: party.Config.RPID, CredParams: algorithms,
	}, r.parsed)
	if err != nil {
		return Credential{}, ErrRegistrationFailed.Because(err)
	}
	return Credential{made}, nil
}

// Add stores a passkey under a name of at most [MaxName] bytes. It joins the transaction in ctx,
// which holds the user's row. Refuses with TOO_MANY_PASSKEYS and PREVIOUSLY_REGISTERED, having
// written nothing.
func (p *Passkeys) Add(ctx context.Context, userID, name string, c Credential) (Passkey, error) {
	now := p.store.db.Now(ctx)
	aaguid, _ := uuid.FromBytes(c.made.Authenticator.AAGUID) // none is all zeros
	added := Passkey{
		ID: id.New(now), UserID: userID, CredentialID: c.made.ID, PublicKey: c.made.PublicKey, Name: name,
		Counter: int64(c.made.Authenticator.SignCount), AAGUID: aaguid.String(), Transports: transportText(c.made.Transport),
		Eligible: c.made.Flags.BackupEligible, BackedUp: c.made.Flags.BackupState, CreatedAt: now,
	}
	n, err := p.store.count(ctx, userID)
	if err != nil {
		return Passkey{}, err
	}
	if n >= MaxPerUser {
		return Passkey{}, ErrTooMany
	}
	inserted, err := p.store.insert(ctx, added)
	if err == nil && !inserted {
		err = ErrRegistered
	}
	return added, err
}

// BeginAuthentication begins a sign-in by any passkey of the site, or by one of a user who has
// some. Refuses with PASSKEYS_NOT_AVAILABLE.
func (p *Passkeys) BeginAuthentication(ctx context.Context, userID string) (Ceremony, error) {
	party, err := p.relyingParty(p.site.Origin)
	if err != nil {
		return Ceremony{}, err
	}
	var allowed []protocol.CredentialDescriptor
	if userID != "" {
		known, err := p.store.passkeys(ctx, userID)
		if err != nil {
			return Ceremony{}, err
		}
		allowed = webauthn.Credentials(credentials(known)).CredentialDescriptors()
	}
	if len(allowed) == 0 {
		userID = ""
	}
	assertion, _, err := party.BeginDiscoverableLogin(
		webauthn.WithUserVerification(protocol.VerificationRequired), webauthn.WithAllowedCredentials(allowed))
	if err != nil {
		return Ceremony{}, err
	}
	return p.begin(ctx, authentication, userID, assertion.Response, assertion.Response.Challenge)
}

// ReadAssertion reads what a browser sent. Refuses with AUTHENTICATION_FAILED.
func ReadAssertion(response []byte) (Assertion, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return Assertion{}, ErrAuthenticationFailed.Because(err)
	}
	return Assertion{Challenge: parsed.Response.CollectedClientData.Challenge, parsed: parsed}, nil
}

// Authenticate ends a ceremony and returns the passkey that has signed; [Passkeys.Keep] stores its
// use. Refuses with CHALLENGE_NOT_FOUND, PASSKEY_NOT_FOUND and AUTHENTICATION_FAILED.
func (p *Passkeys) Authenticate(ctx context.Context, a Assertion) (Use, error) {
	asked, err := p.end(ctx, authentication, a.Challenge)
	if err != nil {
		return Use{}, err
	}
	key, found, err := p.store.ofCredential(ctx, a.parsed.RawID)
	if err != nil {
		return Use{}, err
	}
	if !found {
		return Use{}, ErrUnknown
	}
	if asked != "" && asked != key.UserID || asked == "" && len(a.parsed.Response.UserHandle) == 0 {
		return Use{}, ErrAuthenticationFailed
	}
	party, err := p.relyingParty(a.parsed.Response.CollectedClientData.Origin)
	if err != nil {
		return Use{}, ErrAuthenticationFailed.Because(err)
	}
	used, err := party.ValidateLogin(owner{User{ID: key.UserID}, []Passkey{key}}, webauthn.SessionData{
		Challenge: a.Challenge, UserID: []byte(key.UserID), UserVerification: protocol.VerificationRequired,
		RelyingPartyID: party.Config.RPID,
	}, a.parsed)
	if err != nil {
		return Use{}, ErrAuthenticationFailed.Because(err)
	}
	return Use{
		Passkey: key, CounterFell: used.Authenticator.CloneWarning, Signed: a.parsed.Response.AuthenticatorData.Counter,
		counter: int64(used.Authenticator.SignCount), backedUp: used.Flags.BackupState,
	}, nil
}

// Keep stores the counter and the time of a use. It joins the transaction in ctx.
func (p *Passkeys) Keep(ctx context.Context, u Use) error {
	return p.store.use(ctx, u.Passkey.ID, u.counter, u.backedUp, p.store.db.Now(ctx))
}

// List returns the passkeys of a user, the oldest first.
func (p *Passkeys) List(ctx context.Context, userID string) ([]Passkey, error) {
	return p.store.passkeys(ctx, userID)
}

// Rename gives a user's passkey a name of at most [MaxName] bytes. It joins the
// transaction in ctx. Refuses with PASSKEY_NOT_FOUND.
func (p *Passkeys) Rename(ctx context.Context, userID, id, name string) (Passkey, error) {
	renamed, found, err := p.store.rename(ctx, userID, id, name)
	if err == nil && !found {
		err = ErrNotFound
	}
	return renamed, err
}

// Remove removes a user's passkey. It joins the transaction in ctx. Refuses with
// PASSKEY_NOT_FOUND.
func (p *Passkeys) Remove(ctx context.Context, userID, id string) error {
	removed, err := p.store.remove(ctx, userID, id)
	if err == nil && !removed {
		err = ErrNotFound
	}
	return err
}

// RemoveAll removes the passkeys of a user. It joins the transaction in ctx.
func (p *Passkeys) RemoveAll(ctx context.Context, userID string) error {
	return p.store.removeAll(ctx, userID)
}

// RemoveSince removes the passkeys that a user added at an instant or later. It joins the
// transaction in ctx.
func (p *Passkeys) RemoveSince(ctx context.Context, userID string, since time.Time) error {
	return p.store.removeSince(ctx, userID, since)
}

// Erase removes the rows that name a user without referring to the user's row, and returns how
// many. It joins the transaction in ctx.
func (p *Passkeys) Erase(ctx context.Context, userID string) (removed int64, err error) {
	return p.store.eraseCeremonies(ctx, userID)
}

// relyingParty is the site for a ceremony in a page of an origin. Refuses an
// origin that the site does not trust, and with PASSKEYS_NOT_AVAILABLE.
func (p *Passkeys) relyingParty(origin string) (*webauthn.WebAuthn, error) {
	if !p.site.Trusts(origin) {
		return nil, fmt.Errorf("passkey: a ceremony of the origin %q", origin)
	}
	party, err := webauthn.New(&webauthn.Config{
		RPID:                  p.site.Host,
		RPDisplayName:         p.site.Name,
		RPOrigins:             []string{origin},
		AttestationPreference: protocol.PreferNoAttestation,
	})
	if err != nil {
		return nil, ErrNotAvailable.Because(err)
	}
	return party, nil
}
