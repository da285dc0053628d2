package factor

import "time"

// Method is how a second factor is proved, as an amr value.
type Method string

// The methods.
const (
	MethodTOTP   Method = "totp"
	MethodMailed Method = "otp"
	MethodBackup Method = "backup"
)

// Digits is the number of digits of an authenticator's code.
const Digits = 6

// State is the second factor of a user.
type State struct {
	// Enabled means that sign-ins ask for it.
	Enabled bool
	// Mails means that mailed codes are accepted.
	Mails bool

	userID string
	// Sealed values, empty when absent.
	totp, pending, backupKey []byte
	step                     int64
	failures, lockedUntil    int64
	// The same of proofs in sessions.
	sessionFailures, sessionLocked int64
}

// HasTOTP reports whether the user has an authenticator.
func (s State) HasTOTP() bool { return len(s.totp) > 0 }

// HasPending reports whether the user has an authenticator whose first code is still
// to come.
func (s State) HasPending() bool { return len(s.pending) > 0 }

// HasBackupCodes reports whether the user was given backup codes.
func (s State) HasBackupCodes() bool { return len(s.backupKey) > 0 }

// Failures returns the number of wrong proofs since the last right one.
func (s State) Failures() int { return int(s.failures + s.sessionFailures) }

// LockedUntil returns when proofs are accepted again; it is in the past when they are accepted now.
func (s State) LockedUntil() time.Time { return time.UnixMilli(max(s.lockedUntil, s.sessionLocked)) }

// Methods returns the methods that count after a first factor, which is an amr value or ""; backup
// codes always count and are not listed. A mailed code does not count after a mailed link or code.
func (s State) Methods(first string) []Method {
	methods := []Method{}
	if s.HasTOTP() {
		methods = append(methods, MethodTOTP)
	}
	if s.Mails && first != string(MethodMailed) && first != "magic" {
		methods = append(methods, MethodMailed)
	}
	return methods
}

// Challenge is a sign-in that waits for its second factor.
type Challenge struct {
	UserID string
	// Method is how the first factor was proved, Remembered whether the session is to
	// outlive the browser.
	Method     string
	Remembered bool
	CreatedAt  time.Time

	hash []byte
}

// Prover is the user who tries a proof: that of a waiting sign-in or, without one, a signed-in
// user.
type Prover struct {
	UserID  string
	Waiting *Challenge
}
