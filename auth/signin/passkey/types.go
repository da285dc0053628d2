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

// Site is the site to which passkeys are bound.
type Site struct {
	// Host is the host name that browsers bind passkeys to, and Origin the site's own,
	// as scheme://host[:port].
	Host, Origin string
	// Name is shown by authenticators.
	Name string
	// Trusts reports whether pages of an origin may use passkeys of the site.
	Trusts func(origin string) bool
}

// User is an owner of passkeys. Authenticators store the ID as the user handle and show the names.
type User struct{ ID, Name, DisplayName string }

// Passkey is a key of a user.
type Passkey struct {
	ID           string
	UserID       string
	CredentialID []byte
	// PublicKey is COSE, as the authenticator made it.
	PublicKey []byte
	Name      string
	// Counter is the highest counter that the authenticator has signed; 0 if it does not count.
	Counter int64
	AAGUID  string
	// Transports are separated by commas.
	Transports string
	// Eligible means that the key may be synchronized, BackedUp that it is.
	Eligible, BackedUp bool
	CreatedAt          time.Time
}

// Ceremony is a request of a page to an authenticator.
type Ceremony struct {
	// Options is the value that the page passes to the browser, as JSON.
	Options any
	// Challenge is the value that the authenticator signs. The caller must ensure that only the
	// browser which began the ceremony ends it.
	Challenge string
}

// Registration is a new passkey as a browser sent it, not checked yet.
type Registration struct {
	Challenge string
	parsed    *protocol.ParsedCredentialCreationData
}

// Credential is a new passkey that was checked.
type Credential struct{ made *webauthn.Credential }

// Assertion is a sign-in as a browser sent it, not checked yet.
type Assertion struct {
	Challenge string
	parsed    *protocol.ParsedCredentialAssertionData
}

// Use is a sign-in that was checked.
type Use struct {
	Passkey Passkey
	// CounterFell says that the authenticator signed a counter, Signed, that is not above the last
	// one: the key may have been copied, although some authenticators always count so.
	CounterFell bool
	Signed      uint32

	counter  int64
	backedUp bool
}
