package factor

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/capability"
)

// mailedKind is the kind of codes that are mailed as a second factor.
const mailedKind = "second-factor"

// IssueMailed makes a new code for a subject, which is that of a [Challenge] or a session's id, and
// replaces the one before. It joins the transaction in ctx; the caller mails the code.
func (f *Factors) IssueMailed(ctx context.Context, subject string, ttl time.Duration) (digits string, err error) {
	return f.codes.Issue(ctx, mailcode.Key{Kind: mailedKind, Subject: subject}, nil, ttl)
}

// TakeMailed uses up the code of a subject. Refuses with
// TOO_MANY_ATTEMPTS_REQUEST_NEW_CODE, OTP_HAS_EXPIRED and INVALID_CODE.
func (f *Factors) TakeMailed(ctx context.Context, subject, digits string) (*capability.Error, error) {
	refusal, err := f.codes.TakeOnly(ctx, mailcode.Key{Kind: mailedKind, Subject: subject}, digits)
	switch {
	case err != nil || refusal == nil:
		return nil, err
	case refusal.Is(mailcode.ErrTooManyAttempts):
		return ErrTooManyAttempts, nil
	case refusal.Is(mailcode.ErrExpired):
		return ErrCodeExpired, nil
	default:
		return ErrInvalidCode, nil
	}
}
