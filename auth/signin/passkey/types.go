package passkey

import (
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
)

// Bounds of the passkeys of a user: how many, and the bytes of a name.
const (
	MaxPerUser = 20
	MaxName    = 64
)

// CeremonyTTL is how long a challenge is good for.
const CeremonyTTL = 5 * time.Minute

// Site is whose passkeys these are.
type Site struct {
	// Host is the host name that browsers bind passkeys to, and Origin the site's own,
	// as scheme://host[:port].
	Host, Origin string
	// Name is shown by authenticators.
	Name string
	// Trusts reports whether pages of an origin may use passkeys of the site.
	Trusts func(origin string) bool
}

// User is who owns passkeys. The id is the user handle that authenticators keep, the
// names are what they show.
type User struct{ ID, Name, DisplayName string }

// Passkey is a key of a user.
type Passkey struct {
	ID           string
	UserID       string
	CredentialID []byte
	// PublicKey is COSE, as the authenticator made it.
	PublicKey []byte
	Name      string
	// Counter is the highest that the authenticator has signed; 0 where it does not
	// count.
	Counter int64
	AAGUID  string
	// Transports are separated by commas.
	Transports string
	// Eligible means that the key may be synchronised, BackedUp that it is.
	Eligible, BackedUp bool
	CreatedAt          time.Time
}

// Ceremony is what a page asks an authenticator for.
type Ceremony struct {
	// Options is what the page hands to the browser, as JSON.
	Options any
	// Challenge is what the authenticator signs. A browser that is not the one which
	// began must not end the ceremony: its caller sees to that.
	Challenge string
}

// Registration is a new passkey as it came from a browser, not checked yet.
type Registration struct {
	Challenge string
	parsed    *protocol.ParsedCredentialCreationData
}

// Credential is a new passkey that was checked.
type Credential struct{ made *webauthn.Credential }

// Assertion is a sign-in as it came from a browser, not checked yet.
type Assertion struct {
	Challenge string
	parsed    *protocol.ParsedCredentialAssertionData
}

// Use is a sign-in that was checked.
type Use struct {
	Passkey Passkey
	// CounterFell says that the authenticator signed a counter, Signed, that is not
	// above the last one: the key may have been copied. Some authenticators count so.
	CounterFell bool
	Signed      uint32

	counter  int64
	backedUp bool
}
