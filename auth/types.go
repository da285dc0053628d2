package auth

import (
	"context"
	"time"
)

// User is an end user. Times are UTC with milliseconds.
type User struct {
	ID string
	// Email is in its canonical form; empty: none.
	Email         string
	EmailVerified bool
	// Name is what the user wants to be called.
	Name string
	// Image is the address of a picture.
	Image string
	// Username is unique and lower case; empty: none.
	Username string
	// DisplayUsername is the username as the user writes it.
	DisplayUsername string
	// Profile holds the fields of Config.Profile that are set.
	Profile map[string]any
	// Anonymous means that the user has not said who they are.
	Anonymous            bool
	CreatedAt, UpdatedAt time.Time
	// DisabledAt is when the user was locked out; zero: they are not.
	DisabledAt time.Time
}

// NewUser is what a user begins with. An empty ID is drawn.
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

// UserPatch changes what is not nil. An empty Email or Username removes it; a
// changed Email is unverified unless EmailVerified says otherwise.
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
	// IP and UserAgent are those of the last use that was written down.
	IP, UserAgent string
	// CreatedAt is when the user signed in.
	CreatedAt time.Time
	// ConfirmedAt is when the user last proved who they are in this session, and
	// FactorAt when by a second factor or a passkey; zero: never.
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

// Device is a browser or an installed application in which a user is signed in.
// It comes with a sign-in and goes with its last session.
type Device struct {
	ID     string
	UserID string
	// Name is what the application called it, or "".
	Name string
	// IP and UserAgent are those it was last seen with.
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
	// DeviceName is what the application calls the device, at most 256 bytes.
	DeviceName string
	// Still, optional, runs in the transaction that makes the session, while nobody
	// else changes the user, and refuses by its error: what proved the user may have
	// gone since it was looked at.
	Still func(ctx context.Context) error
}

// Entered is what the client of a fresh session gets.
type Entered struct {
	Session     Session
	AccessToken string
	// RefreshToken is in a cookie already, unless the client asked for it in the
	// body; see [BodyTransport].
	RefreshToken string
	// CSRFToken is in a readable cookie too.
	CSRFToken string
}

// Rotated is what a refresh token was changed for.
type Rotated struct {
	Session      Session
	AccessToken  string
	RefreshToken string
}

// PublicProfile is what a user shows to everybody: both are under the user's
// control.
type PublicProfile struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Proof says what of a request proved a session.
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
