package signin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/kitbackend/kit/auth/signin/internal/opaque"
)

// The kinds of links.
const (
	kindVerify   = "verify_email"
	kindChange   = "change_email"
	kindReset    = "reset_password"
	kindMagic    = "magic_link"
	kindDelete   = "delete_account"
	kindOneTime  = "one_time_token"
	codeLength   = 6
	codeAttempts = 3
)

// issue makes a link of a kind and returns its token. It runs in a transaction;
// data is what the link is to do.
func (l *library) issue(ctx context.Context, kind, subject, userID string, data any, ttl time.Duration) (token string, err error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("signin: encoding a link: %w", err)
	}
	token = opaque.New()
	now := l.host.DB.Now(ctx)
	return token, l.store.insertLink(ctx, link{
		hash: opaque.Hash(token), kind: kind, subject: subject, userID: userID, data: string(raw),
		createdAt: now, expiresAt: now.Add(ttl),
	})
}

// peek returns a link that would be taken now. Refuses with INVALID_TOKEN and
// TOKEN_EXPIRED.
func (l *library) peek(ctx context.Context, token string, kinds ...string) (link, error) {
	if len(token) != opaque.Length {
		return link{}, errInvalidToken
	}
	k, found, err := l.store.peekLink(ctx, opaque.Hash(token))
	if err != nil {
		return link{}, err
	}
	return k, l.good(ctx, k, found, kinds)
}

// take uses a link up. It runs in a transaction. Refuses with INVALID_TOKEN and
// TOKEN_EXPIRED.
func (l *library) take(ctx context.Context, token string, kinds ...string) (link, error) {
	if len(token) != opaque.Length {
		return link{}, errInvalidToken
	}
	k, found, err := l.store.takeLink(ctx, opaque.Hash(token))
	if err != nil {
		return link{}, err
	}
	return k, l.good(ctx, k, found, kinds)
}

// good judges a link that was read.
func (l *library) good(ctx context.Context, k link, found bool, kinds []string) error {
	if !found {
		return errInvalidToken
	}
	for _, kind := range kinds {
		if k.kind != kind {
			continue
		}
		if !l.host.DB.Now(ctx).Before(k.expiresAt) {
			return errTokenExpired
		}
		return nil
	}
	return errInvalidToken
}

// issueCode makes the code of a subject, in place of the one before, and of the
// browser that asked for it, if any. It runs in a transaction.
func (l *library) issueCode(ctx context.Context, kind, subject string, browser []byte) (string, error) {
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return "", fmt.Errorf("signin: drawing a code: %w", err)
	}
	digits := fmt.Sprintf("%0*d", codeLength, n.Int64())
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails: crypto/rand ends the process instead
	c := code{
		kind: kind, subject: subject, browser: anywhere, salt: salt, hash: hashCode(salt, digits),
		expiresAt: l.host.DB.Now(ctx).Add(l.cfg.CodeTTL),
	}
	if err := l.store.putCode(ctx, c); err != nil || len(browser) == 0 {
		return digits, err
	}
	c.browser = browser
	return digits, l.store.putCode(ctx, c)
}

func hashCode(salt []byte, digits string) []byte {
	sum := sha256.Sum256(append(salt[:len(salt):len(salt)], digits...))
	return sum[:]
}

// tryCode checks a code and, unless it is only looked at, uses it up and runs
// then in the same transaction. It may be the code that this browser has asked
// for, or the last one that any client has. A code takes three guesses in all,
// however they are spread; the browser that asked for it always has one of them.
// Refuses with INVALID_OTP, OTP_EXPIRED and TOO_MANY_ATTEMPTS.
func (l *library) tryCode(c *call, kind, subject, digits string, then func(context.Context) error) error {
	var refusal error
	err := l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		var right code
		var err error
		if right, refusal, err = l.rightCode(ctx, c.asker(), kind, subject, digits); err != nil || refusal != nil {
			return err // an attempt is spent, so it commits
		}
		if then == nil {
			return l.store.countGuess(ctx, right, -1)
		}
		taken, err := l.store.takeCode(ctx, right)
		if err == nil && !taken {
			refusal = errInvalidOTP
			return nil
		}
		if err != nil {
			return err
		}
		return then(ctx)
	})
	if err != nil {
		return err
	}
	return refusal
}

// rightCode finds the code that the digits are, or how they are wrong: about the
// browser's own code, if it has one.
func (l *library) rightCode(ctx context.Context, browser []byte, kind, subject, digits string) (right code, refusal, err error) {
	codes, err := l.store.codesAt(ctx, kind, subject)
	if err != nil {
		return code{}, nil, err
	}
	for _, from := range [][]byte{browser, anywhere} {
		i := slices.IndexFunc(codes, func(c code) bool { return from != nil && bytes.Equal(c.browser, from) })
		if i < 0 {
			if len(from) == 0 && from != nil && refusal == nil {
				refusal = errInvalidOTP
			}
			continue
		}
		c := codes[i]
		if len(from) == 0 && slices.ContainsFunc(codes, func(own code) bool {
			return bytes.Equal(own.browser, browser) && bytes.Equal(own.hash, c.hash) && len(browser) > 0
		}) {
			continue // the browser's own, which was looked at
		}
		wrong, err := l.guess(ctx, c, codes, digits)
		if err != nil {
			return code{}, nil, err
		}
		if wrong == nil {
			return c, nil, nil
		}
		if refusal == nil {
			refusal = wrong
		}
	}
	return code{}, refusal, nil
}

// guess spends an attempt at a code.
func (l *library) guess(ctx context.Context, c code, codes []code, digits string) (refusal, err error) {
	most := int64(codeAttempts)
	if len(c.browser) == 0 && slices.ContainsFunc(codes, func(own code) bool {
		return len(own.browser) > 0 && bytes.Equal(own.hash, c.hash)
	}) {
		most-- // the last one is the browser's that asked
	}
	if c.attempts++; c.attempts > most {
		c.attempts = codeAttempts + 1
	} else if err := l.store.countGuess(ctx, c, 1); err != nil {
		return nil, err
	}
	return l.judgeCode(ctx, c, true, digits), nil
}

func (l *library) judgeCode(ctx context.Context, c code, found bool, digits string) error {
	switch {
	case !found:
		return errInvalidOTP
	case !l.host.DB.Now(ctx).Before(c.expiresAt):
		return errOTPExpired
	case c.attempts > codeAttempts:
		return errTooManyAttempts
	case subtle.ConstantTimeCompare(hashCode(c.salt, digits), c.hash) != 1:
		return errInvalidOTP
	default:
		return nil
	}
}
