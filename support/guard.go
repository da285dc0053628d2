package support

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"
)

// bucket returns the key of a counter: its kind, a hash of the sender, so that no address is
// stored, and the hour.
func bucket(kind, who string, hour int64) string {
	sum := sha256.Sum256([]byte(who))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:16]) + ":" + strconv.FormatInt(hour, 10)
}

// The kinds of counters. Mail and app have separate totals, so that a flood of one does not block
// the other; so have mails without a sender, which are bounces.
const (
	kindSender = "s"
	kindTotal  = "t"
)

// admit counts a message of a sender and channel, or refuses it with support/rejected and counts
// nothing. An empty sender is limited by the total only.
func (s *Support) admit(ctx context.Context, channel, sender string) error {
	return s.db.InTx(ctx, func(ctx context.Context) error {
		now := s.db.Now(ctx)
		hour := now.Unix() / 3600
		if sender != "" {
			ok, err := s.store.countGuard(ctx, bucket(kindSender, channel+" "+sender, hour), hour, s.cfg.Guard.MaxPerSenderPerHour)
			if err != nil {
				return err
			}
			if !ok {
				return rejected(RejectionSender, now)
			}
		} else {
			channel += " null"
		}
		ok, err := s.store.countGuard(ctx, bucket(kindTotal, channel, hour), hour, s.cfg.Guard.MaxPerHour)
		if err != nil {
			return err
		}
		if !ok {
			return rejected(RejectionTotal, now)
		}
		return nil
	})
}

// admissible refuses as admit does but counts nothing: the listener calls it before a mail is
// transferred.
func (s *Support) admissible(ctx context.Context, channel, sender string) error {
	now := s.host.Now()
	hour := now.Unix() / 3600
	if sender == "" {
		return nil
	}
	spent, err := s.store.spent(ctx, bucket(kindSender, channel+" "+sender, hour), s.cfg.Guard.MaxPerSenderPerHour)
	if err != nil {
		return err
	}
	if spent {
		return rejected(RejectionSender, now)
	}
	if spent, err = s.store.spent(ctx, bucket(kindTotal, channel, hour), s.cfg.Guard.MaxPerHour); err != nil {
		return err
	}
	if spent {
		return rejected(RejectionTotal, now)
	}
	return nil
}

func rejected(reason RejectionReason, now time.Time) error {
	return ErrRejected.With(Rejection{Reason: reason, RetryAfter: 3600 - now.Unix()%3600})
}
