package signin

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

// The defaults of every authenticator application: SHA-1, six
// digits, thirty seconds (RFC 6238, section 4).
const (
	totpDigits = 6
	totpPeriod = 30 * time.Second
	// totpWindow is how many steps a clock may be off, either way.
	totpWindow = 1
	// totpSecret is the size of a secret in bytes (RFC 4226, section 4).
	totpSecret = 20
)

// maxIssuer bounds what an authenticator shows a secret under, in bytes.
const maxIssuer = 128

// enableTOTP gives a user a new secret and new backup codes. The secret takes
// the place of the one before when a code of it was right, and not before.
func (l *library) enableTOTP(c *call, user auth.User, issuer string) (any, error) {
	if len(issuer) > maxIssuer {
		return nil, errValidation.Saying("issuer has at most %d bytes.", maxIssuer)
	}
	secret := newTOTPSecret()
	sealed := l.sealer.Seal(totpContext(user.ID), secret)
	var codes []string
	err := l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		if err := l.store.lockUser(ctx, user.ID); err != nil {
			return err
		}
		if err := l.store.ensureTwoFactor(ctx, user.ID); err != nil {
			return err
		}
		if err := l.store.setPendingTOTP(ctx, user.ID, sealed); err != nil {
			return err
		}
		codes, err = l.newBackupCodes(ctx, user.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return enabling{Method: methodTOTP, TOTPURI: l.totpURI(user, issuer, secret), BackupCodes: codes}, nil
}

// getTOTPURI shows the secret again: the one in force, or the one to come.
func (l *library) getTOTPURI(c *call) (any, error) {
	var in enableBody
	user, _, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	factor, _, err := l.store.twoFactor(c.Context(), user.ID)
	if err != nil {
		return nil, err
	}
	sealed := factor.totp
	if len(sealed) == 0 {
		sealed = factor.pending
	}
	if len(sealed) == 0 {
		return nil, errTOTPNotEnabled
	}
	secret, err := l.sealer.Open(totpContext(user.ID), sealed)
	if err != nil {
		return nil, err
	}
	return map[string]string{"totpURI": l.totpURI(user, "", secret)}, nil
}

// verifyTOTP takes a code of the authenticator. A signed-in user's first one
// puts its secret in force.
func (l *library) verifyTOTP(c *call) (any, error) {
	in, p, err := c.proof()
	if err != nil {
		return nil, err
	}
	if err := c.needs("code"); err != nil {
		return nil, err
	}
	err = l.prove(c, p, func(ctx context.Context, factor twoFactor) (*capability.Error, error) {
		if p.waiting == nil && len(factor.pending) > 0 {
			return l.confirmTOTP(ctx, p, factor, in.Code)
		}
		return l.takeTOTP(ctx, p.user.ID, factor, in.Code)
	})
	if err != nil {
		return nil, err
	}
	return l.proved(c, p, methodTOTP, in.TrustDevice)
}

// confirmTOTP puts the pending secret in force with its first code.
func (l *library) confirmTOTP(ctx context.Context, p prover, factor twoFactor, code string) (*capability.Error, error) {
	step, ok, err := l.stepOf(ctx, p.user.ID, factor.pending, code, 0)
	if err != nil || !ok {
		return errInvalidCode, err
	}
	confirmed, err := l.store.confirmTOTP(ctx, p.user.ID, factor.pending, step)
	if err != nil || !confirmed {
		return errInvalidCode, err
	}
	return nil, l.factorChanged(ctx, p.user, p.session.ID, "auth/two_factor_enabled", "an authenticator application was added")
}

// takeTOTP uses up a code of the secret in force.
func (l *library) takeTOTP(ctx context.Context, userID string, factor twoFactor, code string) (*capability.Error, error) {
	if len(factor.totp) == 0 {
		return errTOTPNotEnabled, nil
	}
	step, ok, err := l.stepOf(ctx, userID, factor.totp, code, factor.step)
	if err != nil || !ok {
		return errInvalidCode, err
	}
	taken, err := l.store.takeStep(ctx, userID, step)
	if err != nil || !taken {
		return errInvalidCode, err
	}
	return nil, nil
}

func (l *library) stepOf(ctx context.Context, userID string, sealed []byte, code string, used int64) (step int64, ok bool, err error) {
	secret, err := l.sealer.Open(totpContext(userID), sealed)
	if err != nil {
		return 0, false, err
	}
	step, ok = matchTOTP(secret, code, l.host.DB.Now(ctx), used)
	return step, ok, nil
}

func totpContext(userID string) string { return "signin/totp/" + userID }

func (l *library) totpURI(user auth.User, issuer string, secret []byte) string {
	return totpURI(cmp.Or(issuer, l.auth.AppName()), cmp.Or(user.Email, user.Username, user.ID), secret)
}

func newTOTPSecret() []byte {
	secret := make([]byte, totpSecret)
	_, _ = rand.Read(secret) // never fails: crypto/rand ends the process instead
	return secret
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
	return fmt.Sprintf("%0*d", totpDigits, truncated(secret, uint64(step))%1_000_000)
}

// matchTOTP finds the step around now that a code is of. Steps up to used are
// spent: a code counts once (RFC 6238, section 5.2).
func matchTOTP(secret []byte, code string, now time.Time, used int64) (step int64, ok bool) {
	current := now.Unix() / int64(totpPeriod/time.Second)
	for candidate := current - totpWindow; candidate <= current+totpWindow; candidate++ {
		if equal([]byte(totpCode(secret, candidate)), []byte(code)) && candidate > used {
			step, ok = candidate, true
		}
	}
	return step, ok
}

// totpURI is what a QR code shows to an authenticator application.
func totpURI(issuer, account string, secret []byte) string {
	return fmt.Sprintf("otpauth://totp/%s:%s?secret=%s&issuer=%s&digits=%d&period=%d", escaped(issuer), escaped(account),
		base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret), escaped(issuer), totpDigits, int(totpPeriod/time.Second))
}

// escaped writes spaces as %20: applications show a plus sign as one.
func escaped(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
