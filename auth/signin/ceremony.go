package signin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

// errNoPasskeys refuses passkeys where the base URL names an IP address: browsers
// bind them to host names.
var errNoPasskeys = capability.NewError(http.StatusBadRequest, "PASSKEYS_NOT_AVAILABLE", "Passkeys need a site with a host name.")

// relyingParty is this site for a ceremony in a page of an origin. Refuses an
// origin that auth does not trust, and with PASSKEYS_NOT_AVAILABLE.
func (l *library) relyingParty(origin string) (*webauthn.WebAuthn, error) {
	if !l.auth.TrustedOrigin(origin) {
		return nil, fmt.Errorf("signin: a passkey for the origin %q", origin)
	}
	party, err := webauthn.New(&webauthn.Config{
		RPID:                  l.host.BaseURL.Hostname(),
		RPDisplayName:         l.auth.AppName(),
		RPOrigins:             []string{origin},
		AttestationPreference: protocol.PreferNoAttestation,
	})
	if err != nil {
		return nil, errNoPasskeys.Because(err)
	}
	return party, nil
}

func (l *library) ownOrigin() string {
	return l.host.BaseURL.Scheme + "://" + strings.ToLower(l.host.BaseURL.Host)
}

// beginCeremony keeps a challenge for the browser that asked for it.
func (l *library) beginCeremony(c *call, kind, userID string, challenge protocol.URLEncodedBase64) error {
	text := challenge.String()
	err := l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		now := l.host.DB.Now(ctx)
		return l.store.insertCeremony(ctx, hashToken(text), kind, userID, now, now.Add(ceremonyTTL))
	})
	if err == nil && l.ceremonies.Add(1)%statesTrimmed == 0 {
		err = l.store.trimCeremonies(c.Context(), statesAtMost)
	}
	if err == nil && !auth.BodyTransport(c.r) {
		c.setCookie(ceremonyCookie, text, ceremonyTTL)
	}
	return err
}

// endCeremony uses a challenge up, whatever becomes of what was signed, and
// returns whose passkey it is for, "" for anybody's. Refuses with
// CHALLENGE_NOT_FOUND.
func (l *library) endCeremony(c *call, kind, challenge string) (userID string, err error) {
	if !auth.BodyTransport(c.r) && c.cookie(ceremonyCookie) != challenge {
		return "", errChallengeNotFound
	}
	var found bool
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		userID, found, err = l.store.takeCeremony(ctx, hashToken(challenge), kind, l.host.DB.Now(ctx))
		return err
	})
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", errChallengeNotFound
	}
	c.setCookie(ceremonyCookie, "", 0)
	return userID, nil
}

// passkeyOwner is a user with his passkeys, for go-webauthn. His id is the user
// handle that authenticators keep.
type passkeyOwner struct {
	user     auth.User
	passkeys []passkey
}

// passkeyOwner returns a user who signed in lately. Refuses with UNAUTHORIZED
// and SESSION_NOT_FRESH.
func (l *library) passkeyOwner(c *call) (passkeyOwner, error) {
	session, err := c.fresh()
	if err != nil {
		return passkeyOwner{}, err
	}
	user, err := l.auth.User(c.Context(), session.UserID)
	if err != nil {
		return passkeyOwner{}, err
	}
	passkeys, err := l.store.passkeys(c.Context(), user.ID)
	return passkeyOwner{user, passkeys}, err
}

func (o passkeyOwner) WebAuthnID() []byte { return []byte(o.user.ID) }

func (o passkeyOwner) WebAuthnName() string { return cmp.Or(o.user.Email, o.user.Username, o.user.ID) }

func (o passkeyOwner) WebAuthnDisplayName() string { return cmp.Or(o.user.Name, o.WebAuthnName()) }

func (o passkeyOwner) WebAuthnCredentials() []webauthn.Credential { return credentials(o.passkeys) }

func credentials(passkeys []passkey) []webauthn.Credential {
	out := make([]webauthn.Credential, len(passkeys))
	for i, p := range passkeys {
		out[i] = webauthn.Credential{
			ID: p.credentialID, PublicKey: p.publicKey, Transport: transportList(p.transports),
			Flags:         webauthn.CredentialFlags{UserPresent: true, UserVerified: true, BackupEligible: p.eligible, BackupState: p.backedUp},
			Authenticator: webauthn.Authenticator{SignCount: uint32(p.counter)},
		}
	}
	return out
}

// maxTransports bounds what an authenticator says of how it is reached.
const maxTransports = 8

var transportForm = regexp.MustCompile(`^[a-z-]{1,32}$`)

func transportText(transports []protocol.AuthenticatorTransport) string {
	var known []string
	for _, t := range transports[:min(len(transports), maxTransports)] {
		if transportForm.MatchString(string(t)) {
			known = append(known, string(t))
		}
	}
	return strings.Join(known, ",")
}

func transportList(text string) []protocol.AuthenticatorTransport {
	var transports []protocol.AuthenticatorTransport
	for t := range strings.SplitSeq(text, ",") {
		if t != "" {
			transports = append(transports, protocol.AuthenticatorTransport(t))
		}
	}
	return transports
}
