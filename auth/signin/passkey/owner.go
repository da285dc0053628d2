package passkey

import (
	"regexp"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
)

// owner is a user with their passkeys, for go-webauthn.
type owner struct {
	user     User
	passkeys []Passkey
}

func (o owner) WebAuthnID() []byte { return []byte(o.user.ID) }

func (o owner) WebAuthnName() string { return o.user.Name }

func (o owner) WebAuthnDisplayName() string { return o.user.DisplayName }

func (o owner) WebAuthnCredentials() []webauthn.Credential { return credentials(o.passkeys) }

func credentials(passkeys []Passkey) []webauthn.Credential {
	out := make([]webauthn.Credential, len(passkeys))
	for i, p := range passkeys {
		out[i] = webauthn.Credential{
			ID: p.CredentialID, PublicKey: p.PublicKey, Transport: transportList(p.Transports),
			Flags:         webauthn.CredentialFlags{UserPresent: true, UserVerified: true, BackupEligible: p.Eligible, BackupState: p.BackedUp},
			Authenticator: webauthn.Authenticator{SignCount: uint32(p.Counter)},
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
