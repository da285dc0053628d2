// Package mailcode manages the six-digit codes that are sent in mails. Packages signin and factor
// call it; they decide who gets a mail, and how many.
//
// What it promises:
//   - A code is stored as a salted hash and valid once, until it expires. A new one replaces the one before.
//   - A code allows three guesses in all, however they are spread over clients; the browser that
//     requested it always has one of them.
//   - Of concurrent right guesses one succeeds.
package mailcode

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/random"
)

const (
	digitsOfCode = 6
	mostAttempts = 3
)

// Codes manages the codes in a database. It is safe for concurrent use.
type Codes struct{ store store }

// New returns the codes in a database; the migrations of signin make their table.
func New(db *database.DB) *Codes { return &Codes{store{db}} }

// Issue makes a new code for a key, which replaces the one before. browser is the hash of the
// browser that requested it, or nil. It joins the transaction in ctx.
func (c *Codes) Issue(ctx context.Context, k Key, browser []byte, ttl time.Duration) (digits string, err error) {
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return "", fmt.Errorf("mailcode: drawing a code: %w", err)
	}
	digits = fmt.Sprintf("%0*d", digitsOfCode, n.Int64())
	salt := random.Bytes(16)
	code := Code{Key: k, browser: anywhere, salt: salt, hash: hashOf(salt, digits), expiresAt: c.store.db.Now(ctx).Add(ttl)}
	if err := c.store.put(ctx, code); err != nil || len(browser) == 0 {
		return digits, err
	}
	code.browser = browser
	return digits, c.store.put(ctx, code)
}

// Remove removes the codes of a key. It joins the transaction in ctx.
func (c *Codes) Remove(ctx context.Context, k Key) error { return c.store.remove(ctx, k) }

// Guess counts a guess from a browser, which is a hash or nil, and returns the code that matches
// the digits, or a refusal, which is about the browser's own code if it has one. [Codes.Take] or
// [Codes.Return] follows in the same transaction, which commits also after a refusal, because the
// guess counts. Refuses with INVALID_OTP, OTP_EXPIRED and TOO_MANY_ATTEMPTS.
func (c *Codes) Guess(ctx context.Context, k Key, browser []byte, digits string) (right Code, refusal *capability.Error, err error) {
	codes, err := c.store.at(ctx, k)
	if err != nil {
		return Code{}, nil, err
	}
	for _, from := range [][]byte{browser, anywhere} {
		i := slices.IndexFunc(codes, func(code Code) bool { return from != nil && bytes.Equal(code.browser, from) })
		if i < 0 {
			if len(from) == 0 && from != nil && refusal == nil {
				refusal = ErrInvalid
			}
			continue
		}
		code := codes[i]
		if len(from) == 0 && slices.ContainsFunc(codes, func(own Code) bool {
			return bytes.Equal(own.browser, browser) && bytes.Equal(own.hash, code.hash) && len(browser) > 0
		}) {
			continue // the browser's own, which was looked at
		}
		wrong, err := c.guess(ctx, code, codes, digits)
		if err != nil {
			return Code{}, nil, err
		}
		if wrong == nil {
			return code, nil, nil
		}
		if refusal == nil {
			refusal = wrong
		}
	}
	return Code{}, refusal, nil
}

// guess spends an attempt at a code.
func (c *Codes) guess(ctx context.Context, code Code, codes []Code, digits string) (refusal *capability.Error, err error) {
	most := int64(mostAttempts)
	if len(code.browser) == 0 && slices.ContainsFunc(codes, func(own Code) bool {
		return len(own.browser) > 0 && bytes.Equal(own.hash, code.hash)
	}) {
		most-- // the last guess is reserved for the browser that requested the code
	}
	if code.attempts++; code.attempts > most {
		code.attempts = mostAttempts + 1
	} else if err := c.store.count(ctx, code, 1); err != nil {
		return nil, err
	}
	return c.judge(ctx, code, digits), nil
}

// Take uses up a code that was guessed, together with those of its key that other browsers have; of
// two callers one succeeds.
func (c *Codes) Take(ctx context.Context, right Code) (taken bool, err error) {
	return c.store.take(ctx, right)
}

// Return takes back the guess that matched a code, which was only checked.
func (c *Codes) Return(ctx context.Context, right Code) error { return c.store.count(ctx, right, -1) }

// TakeOnly uses up the only code of a key, one that no browser has requested. It joins the
// transaction in ctx, which commits also after a refusal, because the guess counts. Refuses with
// INVALID_OTP, with OTP_EXPIRED, also if there is no code, and with TOO_MANY_ATTEMPTS.
func (c *Codes) TakeOnly(ctx context.Context, k Key, digits string) (refusal *capability.Error, err error) {
	code, found, err := c.store.try(ctx, k, anywhere)
	if err != nil {
		return nil, err
	}
	if !found {
		return ErrExpired, nil
	}
	if refusal := c.judge(ctx, code, digits); refusal != nil {
		return refusal, nil
	}
	taken, err := c.store.take(ctx, code)
	if err != nil || !taken {
		return ErrInvalid, err
	}
	return nil, nil
}

func (c *Codes) judge(ctx context.Context, code Code, digits string) *capability.Error {
	switch {
	case !c.store.db.Now(ctx).Before(code.expiresAt):
		return ErrExpired
	case code.attempts > mostAttempts:
		return ErrTooManyAttempts
	case subtle.ConstantTimeCompare(hashOf(code.salt, digits), code.hash) != 1:
		return ErrInvalid
	default:
		return nil
	}
}

// Sweep removes at most limit expired codes; more reports that there may be others. It joins the
// transaction in ctx.
func (c *Codes) Sweep(ctx context.Context, limit int64) (more bool, err error) {
	n, err := c.store.sweep(ctx, c.store.db.Now(ctx), limit)
	return n == limit, err
}

func hashOf(salt []byte, digits string) []byte {
	sum := sha256.Sum256(append(salt[:len(salt):len(salt)], digits...))
	return sum[:]
}
