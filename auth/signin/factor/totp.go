package factor

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/random"
)

// The defaults of every authenticator application: SHA-1, six
// digits, thirty seconds (RFC 6238, section 4).
const (
	totpPeriod = 30 * time.Second
	// totpWindow is how many steps a clock may be off, either way.
	totpWindow = 1
	// totpSecret is the size of a secret in bytes (RFC 4226, section 4).
	totpSecret = 20
)

// BeginTOTP gives a user a new secret and new backup codes. The secret replaces the one before with
// the first right code, see [Factors.ConfirmTOTP].
func (f *Factors) BeginTOTP(ctx context.Context, userID string) (secret []byte, codes []string, err error) {
	secret = newTOTPSecret()
	if err := f.store.ensure(ctx, userID); err != nil {
		return nil, nil, err
	}
	if err := f.store.setPendingTOTP(ctx, userID, f.sealer.Seal(totpContext(userID), secret)); err != nil {
		return nil, nil, err
	}
	codes, err = f.newBackupCodes(ctx, userID)
	return secret, codes, err
}

// Secret returns the secret of a user's authenticator: the active one, or else the pending one.
// Refuses with TOTP_NOT_ENABLED.
func (f *Factors) Secret(ctx context.Context, userID string) ([]byte, error) {
	s, _, err := f.store.state(ctx, userID)
	if err != nil {
		return nil, err
	}
	sealed := s.totp
	if len(sealed) == 0 {
		sealed = s.pending
	}
	if len(sealed) == 0 {
		return nil, ErrTOTPNotEnabled
	}
	return f.sealer.Open(totpContext(userID), sealed)
}

// ConfirmTOTP makes the pending secret the active one with its first code. Refuses with
// INVALID_CODE.
func (f *Factors) ConfirmTOTP(ctx context.Context, s State, code string) (*capability.Error, error) {
	step, ok, err := f.stepOf(ctx, s.userID, s.pending, code, 0)
	if err != nil || !ok {
		return ErrInvalidCode, err
	}
	confirmed, err := f.store.confirmTOTP(ctx, s.userID, s.pending, step)
	if err != nil || !confirmed {
		return ErrInvalidCode, err
	}
	return nil, nil
}

// TakeTOTP uses up a code of the active secret. Refuses with TOTP_NOT_ENABLED and INVALID_CODE.
func (f *Factors) TakeTOTP(ctx context.Context, s State, code string) (*capability.Error, error) {
	if !s.HasTOTP() {
		return ErrTOTPNotEnabled, nil
	}
	step, ok, err := f.stepOf(ctx, s.userID, s.totp, code, s.step)
	if err != nil || !ok {
		return ErrInvalidCode, err
	}
	taken, err := f.store.takeStep(ctx, s.userID, step)
	if err != nil || !taken {
		return ErrInvalidCode, err
	}
	return nil, nil
}

func (f *Factors) stepOf(ctx context.Context, userID string, sealed []byte, code string, used int64) (step int64, ok bool, err error) {
	secret, err := f.sealer.Open(totpContext(userID), sealed)
	if err != nil {
		return 0, false, err
	}
	step, ok = matchTOTP(secret, code, f.store.db.Now(ctx), used)
	return step, ok, nil
}

func totpContext(userID string) string { return "signin/totp/" + userID }

func newTOTPSecret() []byte {
	return random.Bytes(totpSecret)
}

// truncated is HOTP before its last step, a number of 31 bits (RFC 4226,
// section 5.3).
func truncated(secret []byte, counter uint64) uint32 {
	mac := hmac.New(sha1.New, secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, counter))
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	return binary.BigEndian.Uint32(sum[offset:]) & 0x7fffffff
}

// totpCode is the code of a step, the number of periods since 1970.
func totpCode(secret []byte, step int64) string {
	return fmt.Sprintf("%0*d", Digits, truncated(secret, uint64(step))%1_000_000)
}

// matchTOTP returns the step around now to which a code belongs. Steps up to used do not match: a
// code counts once (RFC 6238, section 5.2).
func matchTOTP(secret []byte, code string, now time.Time, used int64) (step int64, ok bool) {
	current := now.Unix() / int64(totpPeriod/time.Second)
	for candidate := current - totpWindow; candidate <= current+totpWindow; candidate++ {
		if subtle.ConstantTimeCompare([]byte(totpCode(secret, candidate)), []byte(code)) == 1 && candidate > used {
			step, ok = candidate, true
		}
	}
	return step, ok
}

// URI returns the text of the QR code for an authenticator application.
func URI(issuer, account string, secret []byte) string {
	return fmt.Sprintf("otpauth://totp/%s:%s?secret=%s&issuer=%s&digits=%d&period=%d", escaped(issuer), escaped(account),
		base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret), escaped(issuer), Digits, int(totpPeriod/time.Second))
}

// escaped writes spaces as %20, because applications would show a plus sign as such.
func escaped(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
