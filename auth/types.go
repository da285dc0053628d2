package auth

import (
	"context"
	"time"
)

// User is an end user. Times are UTC with milliseconds.
type User struct {
	ID string
	// Email is in its canonical form; empty if there is none.
	Email         string
	EmailVerified bool
	// Name is the display name.
	Name string
	// Image is the address of a picture.
	Image string
	// Username is unique and in lower case; empty if there is none.
	Username string
	// DisplayUsername is the username as the user writes it.
	DisplayUsername string
	// Profile holds the fields of Config.Profile that are set.
	Profile map[string]any
	// Anonymous marks a user who signed in without a proof of identity.
	Anonymous            bool
	CreatedAt, UpdatedAt time.Time
	// DisabledAt is when the user was disabled; zero if they are not.
	DisabledAt time.Time
}

// NewUser holds the fields of a new user. An empty ID is generated.
type NewUser struct {
	ID, Email     string
	EmailVerified bool
	Name, Image   string
	// Username is compared in lower case; DisplayUsername is how it is shown, by
	// default as Username is written.
	Username, DisplayUsername string
	Anonymous                 bool
	// Profile sets fields of Config.Profile.
	Profile map[string]any
}

// UserPatch changes the fields that are not nil. An empty Email or Username removes it; a changed
// Email is unverified unless EmailVerified says otherwise.
type UserPatch struct {
	Email         *string
	EmailVerified *bool
	Name, Image   *string
	Username      *string
	// DisplayUsername is how the username is shown; a new Username alone sets it, too.
	DisplayUsername *string
	Anonymous       *bool
	// Profile sets fields of Config.Profile; nil removes one.
	Profile map[string]any
}

// Session is a sign-in of a user on a device.
type Session struct {
	ID       string
	UserID   string
	DeviceID string
	// Methods say how the user was proved, as amr values of RFC 8176 and of
	// the library.
	Methods []string
	// Remembered sessions survive the end of the browser.
	Remembered bool
	// IP and UserAgent are those of the last use that was written.
	IP, UserAgent string
	// CreatedAt is when the user signed in.
	CreatedAt time.Time
	// ConfirmedAt is when the user last proved who they are in this session, and FactorAt when they
	// did so by a second factor or a passkey; zero means never.
	ConfirmedAt, FactorAt time.Time
	// Proof is what proved the session to [Auth.Current].
	Proof Proof
	// Renewed reports whether this request moved the idle end.
	Renewed bool
	// UpdatedAt is the last use, exact to an hour or a tenth of Config.SessionIdle.
	UpdatedAt time.Time
	// ExpiresAt is when the session ends unless it is used; EndsAt is when it
	// ends whatever happens.
	ExpiresAt, EndsAt time.Time

	refresh refreshState
	usedDay int64
	// secret returns the cookie's content, known only to the maker of the session.
	// It is a function because fmt and slog print whatever a struct holds.
	secret func() []byte
}

// Device is a browser or an installed application in which a user is signed in. It is created by a
// sign-in and deleted with its last session.
type Device struct {
	ID     string
	UserID string
	// Name is the name that the application gave it, or "".
	Name string
	// IP and UserAgent are those of its last use.
	IP, UserAgent string
	CreatedAt     time.Time
	// LastSeenAt is as exact as Session.UpdatedAt.
	LastSeenAt time.Time
}

// Entry is a proven sign-in.
type Entry struct {
	UserID string
	// Method says how the user was proved, as amr values separated by
	// spaces: pwd, otp, magic, oauth:<provider>, passkey, anon; "pwd totp" with a
	// second factor.
	Method string
	// Remember keeps the session when the browser ends.
	Remember bool
	// Factor says that a second factor or a passkey was among the proofs.
	Factor bool
	// DeviceName is a name for the device, at most 256 bytes.
	DeviceName string
	// Still, which is optional, runs in the transaction that makes the session, with the user
	// locked. By its error it refuses a sign-in whose proof, such as a password, was removed after
	// it was checked.
	Still func(ctx context.Context) error
}

// Entered holds the tokens that the client of a new session gets.
type Entered struct {
	Session     Session
	AccessToken string
	// RefreshToken is in a cookie already, unless the client asked for it in the
	// body; see [BodyTransport].
	RefreshToken string
	// CSRFToken is in a readable cookie too.
	CSRFToken string
}

// Rotated holds the tokens for which a refresh token was exchanged.
type Rotated struct {
	Session      Session
	AccessToken  string
	RefreshToken string
}

// PublicProfile is the part of a user that everyone may see; the user controls both fields.
type PublicProfile struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Proof says which part of a request proved a session.
type Proof int

// The proofs of a session. The zero value is a session that was read by its id.
const (
	ProofNone Proof = iota
	ProofCookie
	// ProofSessionToken is the token of [LibraryHost.SessionToken].
	ProofSessionToken
	// ProofAccessToken is a short-lived access token.
	ProofAccessToken
)
