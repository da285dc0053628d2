package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kitbackend/kit/auth/signin/internal/opaque"
	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/capability"
)

// The kinds of links.
const (
	kindVerify  = "verify_email"
	kindChange  = "change_email"
	kindReset   = "reset_password"
	kindMagic   = "magic_link"
	kindDelete  = "delete_account"
	kindOneTime = "one_time_token"
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

// tryCode checks a code and, unless it is only looked at, uses it up and runs
// then in the same transaction. It may be the code that this browser has asked
// for, or the last one that any client has. Refuses as [mailcode.Codes.Guess] does.
func (l *library) tryCode(c *call, kind, subject, digits string, then func(context.Context) error) error {
	var refusal *capability.Error
	err := l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		var right mailcode.Code
		var err error
		if right, refusal, err = l.codes.Guess(ctx, mailcode.Key{Kind: kind, Subject: subject}, c.asker(), digits); err != nil || refusal != nil {
			return err // an attempt is spent, so it commits
		}
		if then == nil {
			return l.codes.Return(ctx, right)
		}
		taken, err := l.codes.Take(ctx, right)
		if err == nil && !taken {
			refusal = mailcode.ErrInvalid
			return nil
		}
		if err != nil {
			return err
		}
		return then(ctx)
	})
	if err != nil || refusal == nil {
		return err
	}
	return refusal
}
